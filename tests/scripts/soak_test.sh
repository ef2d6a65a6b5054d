#!/bin/bash
# soak_test.sh BUILD SOURCE - scripts/soak on a small model: the report of a run that is killed, meets a full disk and ends;
# and that each of its checks can fail.
build=$(realpath "$1") source=$2
. "${0%/*}/../cli.sh"
if [[ $(id -u) != 0 ]] && ! unshare -rm true 2>/dev/null; then
    echo 'skipped: a small file system needs root or user namespaces'
    exit 77
fi
export STEPS=24 SAVE=3 GROWTH=1 DRIFT=50 OMP_NUM_THREADS=1
options=(--model tiny --tuning full --batch 2 --seq 256)

"$source/scripts/soak" "$build" good "${options[@]}" >log 2>&1 || fail "soak: $(cat log good/*.txt)"
grep -qE '^steps: 24; killed after 1[2-9], continued from (9|1[25]); disk full after 1[1-9]$' good/report.txt || fail "$(cat good/report.txt)"
grep -qE '^goodput: [1-9][0-9.]* % \([0-9.]* s of steps that count, of [0-9.]* s\)$' good/report.txt || fail 'no goodput'
grep -qE '^memory: [1-9][0-9.]* MB in the second eighth, [1-9][0-9.]* MB in the last: [+-][0-9.]* %$' good/report.txt || fail 'no memory'
grep -qE '^median step: [0-9.e-]* s in the second eighth, [0-9.e-]* s in the last: [+-][0-9.]* %$' good/report.txt || fail 'no step time'
[[ $(wc -l <good/log.csv) == 25 && ! -e good/ck && ! -e good/small ]] || fail "steps or checkpoints are left: $(ls good)"
grep -q 'No space left' good/process2.txt || fail 'process 2 met no full disk'

# A bound below 0: every run exceeds it.
GROWTH=-0.9 DRIFT=-0.9999 "$source/scripts/soak" "$build" bad "${options[@]}" >log 2>&1 && fail 'a run beyond its bounds passes'
grep -qx 'FAILED: memory grows' bad/report.txt || fail 'growing memory is not found'
grep -qx 'FAILED: steps become slower' bad/report.txt || fail 'slower steps are not found'

expect 2 'usage: scripts/soak BUILD OUT' "$source/scripts/soak" "$build"
expect 2 'nowhere/bin/train does not exist' "$source/scripts/soak" nowhere out
[[ ! -e out ]] || fail 'a folder is left'
exit $((failures > 0))
