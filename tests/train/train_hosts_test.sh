#!/bin/bash
# train_hosts_test.sh TRAIN_STRUCK BENCH - four ranks on two hosts, which are network and UTS namespaces of this machine, joined by
# a virtual cable: mpirun by itself and the launcher give the log and the weights of one rank; a rank on the other host that
# is killed or stopped is named with its host, and nothing is left running. Exit code 77, which is a skip, without the
# privilege to make namespaces.
train=$1 bench=$2
. "${0%/*}/../cli.sh"
. "${0%/*}/hosts.sh"
export TMPDIR=$dir
trap 'no_hosts; rm -rf "$dir"' EXIT
two_hosts plumb 10.213.77

# In place of ssh: mpirun calls it with options, the host and a command line. The other host gets none of the environment.
cat >agent <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
shift
exec ip netns exec $b env -i PATH="$PATH" HOME="$HOME" TMPDIR="$dir" unshare --uts sh -c "hostname host-b; cd $dir; \$*"
END
cat >starter <<END
#!/bin/bash
exec mpirun --host $near:2,$far:2 --mca plm_rsh_agent "$dir/agent" --mca btl tcp,self \
    --mca btl_tcp_if_include $near/24 --mca oob_tcp_if_include $near/24 -x PB_STRIKE -x OMP_NUM_THREADS \
    ${LSAN_OPTIONS:+-x LSAN_OPTIONS} ${ASAN_OPTIONS:+-x ASAN_OPTIONS} "\$@"
END
chmod +x agent starter
export PB_MPIRUN=$dir/starter PB_LAUNCH_HOST=$near PB_STRIKE=${PB_STRIKE:-}

args=(--model tiny --batch 1 --seq 48 --deterministic --quiet --steps 5 --mode graph)
results() { cut -d, -f1-5,11,12 "$1"; } # the columns that do not depend on the machine
none_left() {
    local i
    for ((i = 0; i < 100; i++)); do
        [[ -n $(inside) ]] || return
        sleep 0.1
    done
    fail "$1: left running: $(inside | xargs -r ps -o args= -p)"
}

expect 0 '' "$train" "${args[@]}" --accumulate 4 --log one.csv --export one
expect 0 '' on "$a" host-a ./starter -np 4 -x PB_LAUNCH_HOST "$train" "${args[@]}" --log alone.csv --export alone
expect 0 '' on "$a" host-a "$train" "${args[@]}" --ranks 4 --log launched.csv --export launched
for how in alone launched; do
    cmp <(results one.csv) <(results $how.csv) || fail "$how: two hosts give another log"
    diff -r one $how >/dev/null || fail "$how: two hosts give other weights"
done
none_left 'ended well'

# Traces of both hosts: each rank but 0 asked rank 0 for the time when the window began and when it ended.
expect 0 '' on "$a" host-a "$train" "${args[@]}" --ranks 4 --profile-ranks all --profile-steps 1:0:1:2 --profile-out profile
expect 0 'the ends, which clocks that agree show together' "$bench" analyze profile
grep -qE '^3 +host-b +3-4' log || fail "the traces do not name the other host: $(cat log)"
for rank in 1 2 3; do
    for at in begin end; do
        tr -d ' \n' <profile/manifest.json | grep -qE "\"rank\":$rank,\"first_step\":3,\"at\":\"$at\",\"offset_ns\":-?[0-9]+,\"uncertainty_ns\":[1-9]" ||
            fail "rank $rank does not know its clock's offset at the $at of the window: $(cat profile/manifest.json)"
    done
done
none_left 'profiled'

for how in ${HOW:-kill stop}; do
    rm -rf ck
    PB_STRIKE="3 3 replay $how" expect 125 '' on "$a" host-a "$train" "${args[@]}" --ranks 4 --rank-timeout 2 \
        --save ck --save-interval 1
    [[ $(grep -c '^train: rank 3 on host-b (cpu), step 3, phase replay' log) -eq 1 ]] || fail "$how: rank 3 of host-b is not named"
    [[ $(cat ck/latest_checkpointed_iteration.txt) -ge 2 ]] || fail "$how: the last checkpoint is gone"
    none_left "$how"
done

exit $((failures > 0))
