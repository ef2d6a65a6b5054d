#!/bin/bash
# gpu_session_test.sh BENCH SOURCE - scripts/gpu-session and scripts/gpu-bench with a bench that is a script: which cases
# they measure, how often and how long, on which machine, and what they leave. Also what gpu_session.txt promises,
# and the usage of scripts/gpu-check.
real=$1 source=$2
. "${0%/*}/../cli.sh"
unset PB_CONTROLS PB_MACHINE LIMITS CASES KERNELS BACKWARD THROUGHPUT ATTENTION PROFILE PROCESSES DEVICE SUITES

# ---- a bench that measures what its filters name, a GPU, and a timeout that only notes its seconds ------------------------
mkdir -p build/bin path
cat >build/bin/bench <<'SH'
#!/bin/bash
[[ $1 == report ]] && echo "tables of $2" && exit
echo "$PB_MACHINE: $*" >>"$LOG"
[[ $1 == run ]] || exit 0
while [[ $# -gt 0 ]]; do
    case $1 in
    --suite) suite=$2 ;;
    --out) out=$2 ;;
    --filter) globs+=("$2") ;;
    --dry-run) dry=1 ;;
    esac
    shift
done
if [[ $dry ]]; then
    sed -n "s/^$suite //p" "$CASES_OF" | while read -r glob; do
        [[ $glob == "$MISSING" ]] || echo "   0.5 s  $(sed 's/\*/x/g; s/\[[a-z]*\]/f/g' <<<"$suite${glob#\*}")"
    done
    exit
fi
[[ $PB_CONTROLS != no ]] || echo "without controls: $suite" >>"$LOG"
mkdir -p "$out"
echo "a,b,c,d,key,metric" >"$out/results.csv"
echo "2,r,m,0,$suite/${#globs[@]},t" >>"$out/results.csv"
[[ $suite != "$FAILING" ]]
SH
printf '#!/bin/sh\necho "timeout $*" >>"$LOG"\nshift 3\nexec "$@"\n' >path/timeout
printf '#!/bin/sh\necho "NVIDIA H200, 580.159.04, 700.00"\n' >path/nvidia-smi
chmod +x build/bin/bench path/*
export PATH=$dir/path:$PATH LOG=$dir/calls CASES_OF=$source/scripts/gpu_session.txt
session() { : >"$LOG" && "$source/scripts/gpu-session" build out "$@"; }

expect 2 'usage: scripts/gpu-check BUILD OUT' "$source/scripts/gpu-check"
expect 2 'usage: scripts/gpu-check BUILD OUT' "$source/scripts/gpu-check" build
[[ -e out || $(wc -l <log) -ne 3 ]] && fail "gpu-check: more than the usage is printed, or a folder is left"

# bench accepts all lines of a suite as filters of one call.
mapfile -t filters < <(sed -n 's/^kernels /--filter\n/p' "$source/scripts/gpu_session.txt")
expect 0 'kernels/rmsnorm_fwd' "$real" run --suite kernels --device cpu --dry-run "${filters[@]}" --filter '*/rmsnorm_fwd*'

# gpu-check runs every test that takes its backend from PB_TEST_BACKEND. In a folder without programs each of its runs
# fails, and the summary names it.
mkdir -p empty/bin
PATH=${PATH#*:} "$source/scripts/gpu-check" "$dir/empty" "$dir/checked" backend model ranks >log 2>&1 && fail "gpu-check passes without programs"
pattern='test_open_device\b|PB_TEST_BACKEND"|"rank_runs.h"|ranks_test.h"'
for file in $(cd "$source" && grep -rlE "$pattern" tests --include='*_test.c'); do
    name=$(basename "$file" .c)
    grep -qE " (backend|model|ranks) $name: " checked/summary || fail "gpu-check does not run $file on the GPU"
done

expect 0 'tables of' session
machine=NVIDIA_H200-580.159.04-700W
grep -q '^without controls' calls && fail "a suite has no control cases: $(grep '^without controls' calls)"
for suite in kernels backward throughput attention; do
    lines=$(grep -c "^$suite " "$source/scripts/gpu_session.txt")
    call=$(grep "^$machine: run --suite $suite --device cuda" calls) || fail "$suite: not measured on the pool"
    [[ $call == *" -n 3 "* ]] || fail "$suite: not three processes: $call"
    [[ $(grep -o -e '--filter' <<<"$call" | wc -l) -eq $lines ]] || fail "$suite: not its $lines lines: $call"
    [[ -s out/$suite.csv ]] || fail "$suite: no out/$suite.csv"
done
grep -q ' --filter \*/\[fb\]wd?dtype=bf16&heads=128&\* ' calls || grep -q ' --filter \*/\[fb\]wd?dtype=bf16&heads=128&\*' calls ||
    fail "a glob did not arrive unchanged"
[[ $(find out -type f | wc -l) -le 8 && $(find out -mindepth 2 | wc -l) -eq 0 ]] || fail "more than eight files, or folders"
tar -tzf out/runs.tgz | grep -q kernels/results.csv || fail "runs.tgz lacks the runs"
total=$(sed -n 's/^timeout .*--kill-after=15 \([0-9]*\) .*/\1/p' calls | paste -sd+)
[[ $(grep -c '^timeout ' calls) -eq 5 && $((total)) -le 590 ]] || fail "the suites may take $total s of 590"
for pair in 'kernels throughput' 'backward attention'; do
    # shellcheck disable=SC2086 # words
    expect 0 '' session 590 $pair
    total=$(sed -n 's/^timeout .*--kill-after=15 \([0-9]*\) .*/\1/p' calls | paste -sd+)
    [[ $(sed -n 's/^timeout .*--suite \([a-z]*\) .*/\1/p' calls | paste -sd' ') == "ceiling $pair" && $((total)) -le 590 ]] ||
        fail "session of $pair: $total s of 590: $(grep '^timeout' calls)"
done
expect 2 'has no line of suite comm' session 590 comm
expect 0 '' session
LIMITS="kernels=33" expect 0 '' session
grep -q '^timeout .*--kill-after=15 33 .*--suite kernels' calls || fail "LIMITS of the caller are not used"
PB_MACHINE=mine expect 0 '' session
grep -q '^mine: run --suite kernels' calls || fail "PB_MACHINE of the caller is not used"

: >"$LOG"
SUITES=profile PROCESSES=5 PROFILE='--min-time 0.5' expect 0 'tables of' "$source/scripts/gpu-bench" build profile 195
[[ $(grep -c ': run ' calls) -eq 1 ]] && grep -q ': run --suite profile --device cuda .* -n 5 --min-time 0.5$' calls || fail "SUITES=profile: $(cat calls)"
# The limit is what is left of 195 s when the suite starts; on a busy machine the script may need seconds until then.
grep -Eq '^timeout .*--kill-after=15 1(8[0-9]|9[0-5]) ' calls || fail "SUITES=profile: not its time: $(cat calls)"
[[ -s profile/profile.csv ]] && tar -tzf profile/runs.tgz | grep -q profile/results.csv || fail 'SUITES=profile: no results'
SUITES='kernels comm' expect 2 "it has no time for suite 'comm'" "$source/scripts/gpu-bench" build x

expect 124 'no time left for attention' session 3
FAILING=backward expect 1 'tables of' session
MISSING='*/cast_[fb]wd?dtype=*&impl=columns&shape=B1.S4096.D64.g512' \
    expect 4 "no case matches '*/cast_[fb]wd?dtype=*&impl=columns&shape=B1.S4096.D64.g512' of suite kernels" session
expect 2 'usage: scripts/gpu-session BUILD OUT' "$source/scripts/gpu-session" build
expect 2 'nowhere/bin/bench does not exist' "$source/scripts/gpu-session" nowhere out
LIMITS="kernel=9" expect 2 "LIMITS: 'kernel=9' is not SUITE=SECONDS" session
grep -v ^throughput "$source/scripts/gpu_session.txt" >cases.txt
CASES=cases.txt expect 2 'cases.txt has no line of suite throughput' session
printf '#!/bin/sh\nexit 9\n' >path/nvidia-smi
expect 2 'nvidia-smi names no GPU: name the machine with PB_MACHINE' session

# ---- gpu_session.txt: every op, and of the other suites every value of every axis but sizes ------------------------------
lines() { sed -n "s/^$1 //p" "$source/scripts/gpu_session.txt"; }
"$real" list kernels | awk '{ print $1 }' >ops
[[ $(wc -l <ops) -ge 52 ]] || fail "bench list kernels has no list of ops"
cat "$source"/kernels/*/*.cu >cuda
while read -r op; do
    found=
    grep -qF "pb_impl pb_${op}_cuda[] = {{0}};" cuda && continue # an op for the CPU only has no case on a GPU
    while read -r glob; do
        # shellcheck disable=SC2053 # a glob
        [[ kernels/$op == ${glob%%\?dtype*} || $glob == "*/$op?*" ]] && found=1 && break
    done < <(lines kernels)
    [[ $found ]] || fail "op $op has no line in gpu_session.txt"
done <ops
# kinds FILE: the cases without their sizes. Control cases are copies of two of them.
kinds() { grep -v 'control=' "$1" | grep -o '[a-z]*/[a-z]*?.*' | sed -E 's/&?(batch|seq|topk|heads|qk)=[0-9]+//g' | sort -u; }
for suite in backward throughput attention; do
    filters=()
    while read -r glob; do filters+=(--filter "$glob"); done < <(lines $suite)
    "$real" run --suite $suite --device cuda --dry-run >all 2>/dev/null
    "$real" run --suite $suite --device cuda --dry-run "${filters[@]}" >some 2>/dev/null
    [[ $(kinds all | wc -l) -ge 8 ]] || fail "$suite: no list of cases"
    kinds all >all.kinds
    kinds some >some.kinds
    [[ $(grep -c 'control=' some) -eq 4 ]] || fail "$suite: the plan has no control cases"
    cmp -s all.kinds some.kinds || fail "$suite: a session lacks $(comm -23 all.kinds some.kinds | head -3)"
done
# required SUITE: the cases of requirements, which requirements.def splits over several strings.
required() { tr -d '\n' <"$source/bench/derived/requirements.def" | sed 's/" *"//g' | grep -o "CASE(\"$1/[^\"]*" | sed 's/CASE("//'; }
for suite in throughput attention; do
    filters=()
    while read -r glob; do filters+=(--filter "$glob"); done < <(lines $suite)
    "$real" run --suite $suite --device cuda --dry-run "${filters[@]}" >some 2>/dev/null
    required $suite | grep -v "&ranks=" >cases # scripts/ranks-session measures several ranks
    [[ $(wc -l <cases) -ge 2 ]] || fail "$suite: no required cases"
    while read -r key; do # an axis that the requirement does not name, such as clip, may have any value
        grep -q "$(sed 's/?/?.*/; s/&/\&.*/g; s/\./\\./g; s/\\\.\*/.*/g; s/q+v/q+v/' <<<"$key")" some ||
            fail "$suite: a session lacks the requirement's $key"
    done <cases
done
required kernels >cases
while read -r key; do
    found=
    while read -r glob; do
        # shellcheck disable=SC2053 # a glob
        [[ $key == $glob ]] && found=1 && break
    done < <(lines kernels | sed 's/&impl=[a-z_]*&/\&/')
    [[ $found ]] || fail "kernels: a session lacks the requirement's $key"
done <cases
exit $((failures > 0))
