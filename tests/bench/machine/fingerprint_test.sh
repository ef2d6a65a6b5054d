#!/usr/bin/env bash
# fingerprint_test.sh BENCH_FIXTURE: run.json describes the machine as the shell reads it from the kernel.
. "${0%/*}/../../cli.sh"
bench=$1
unset PB_MACHINE # this test is about hosts without a name

field() { # field NAME: the first value of this name in run.json
    grep -oE "\"$1\": *(\"[^\"]*\"|[^,}]*)" run/run.json | head -n 1 | sed -E 's/^"[^"]*": *"?//; s/"?$//'
}
same() { # same NAME WANT
    [[ $(field "$1") == "$2" ]] || fail "run.json has $1 '$(field "$1")', the machine has '$2'"
}

cpu=$(grep -oE 'Cpus_allowed_list:\s*[0-9]+' /proc/self/status | grep -oE '[0-9]+$') # the first that may be used
taskset -c "$cpu" "$bench" --suite toy --filter mode=fine --processes 1 --samples 1 --no-compare -q --out run >log 2>&1 ||
    fail "the run ended with $?"
same affinity "$cpu"
same usable_cpus 1
same aslr "$(cat /proc/sys/kernel/randomize_va_space)"
same hostname "$(uname -n)"
same kernel "$(uname -r)"
same libc "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)"
same cpu "$(grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: *//')"
ids=$(awk -F': *' '/^physical id/ { s = $2 } /^core id/ { print s, $2 }' /proc/cpuinfo | sort -u) # "socket core" lines
if [[ -n $ids ]]; then # not every architecture names them
    same cores "$(wc -l <<<"$ids")"
    same sockets "$(cut -d' ' -f1 <<<"$ids" | sort -u | wc -l)"
fi
same governor "$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null || echo unknown)"
# The fingerprint holds the machine's name too: the same one as the run and its rows.
[[ $(grep -c "\"machine_id\": *\"$(field machine_id)\"" run/run.json) -eq 2 ]] || fail 'machine_id is not in run.json twice'
grep -q ",$(field machine_id)," run/results.csv || fail 'results.csv has another machine_id'

# Every row names the host. The text is unverified on a virtual machine, and a name makes it verified.
host=$(field host) # "?" or "/", and the hash
[[ $host =~ ^[?/]([0-9a-f]{8})?$ ]] || fail "run.json has host '$host'"
! grep -q '^flags.* hypervisor' /proc/cpuinfo || [[ $host == \?* ]] || fail "a virtual machine is verified: $host"
[[ $(tail -n +2 run/results.csv | sed 's/.*,//' | sort -u) == "$host" ]] || fail "results.csv has other hosts than $host"
once=("$bench" --suite toy --filter mode=fine --processes 1 --samples 1 --no-compare -q)
expect 0 '' env PB_MACHINE=rack "${once[@]}" --out by-variable
expect 0 '' env PB_MACHINE=rack "${once[@]}" --machine pool.a_1-b --out by-option
expect 2 "PB_MACHINE a/b: the name of a machine" env PB_MACHINE=a/b "${once[@]}" --out wrong
expect 2 "--machine ..: the name of a machine" "${once[@]}" --machine .. --out wrong
[[ ! -e wrong ]] || fail 'a run with a wrong name left a folder'
grep -q "\"host\": \"rack/${host:1}\"" by-variable/run.json || fail 'PB_MACHINE does not name the machine in run.json'
[[ $(tail -n 1 by-variable/results.csv) == *,"rack/${host:1}" ]] || fail 'PB_MACHINE does not name the machine of the rows'
[[ $(tail -n 1 by-option/results.csv) == *,"pool.a_1-b/${host:1}" ]] || fail '--machine does not override PB_MACHINE'
exit "$failures"
