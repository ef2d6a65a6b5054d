#!/bin/bash
# train_smoke_test.sh TRAIN - `train smoke` as a user sees it: its two lines, a rung that fails, bad input, and that nothing
# remains. smoke_test tests the checks.
train=$1
. "${0%/*}/../cli.sh"
export OMP_NUM_THREADS=1 TMPDIR=$dir/tmp
mkdir tmp scratch

passes() { # passes OPTION...: two lines on standard output, none on standard error
    "$train" smoke "$@" >out 2>log || fail "exit $?: smoke $*"
    [[ ! -s log && $(wc -l <out) -eq 2 ]] || fail "not two lines: smoke $*"
    grep -q '^ 2 steps: passed: loss .*; none skipped; the checkpoint of step 1 resumed with equal bits, and ended with equal bits; ' out ||
        fail "first line: smoke $*"
    grep -q '^20 steps: passed: loss .*; none skipped; the checkpoint of step 10 resumed with equal bits, and ended with equal bits; ' out ||
        fail "second line: smoke $*"
}

passes --seq 64
passes --tuning full --mode graph --batch 2 --seq 64 --accumulate 2 --scratch scratch
passes --tuning qlora --dtype bf16 --optimizer normuon --batch 1 --seq 64

# ---- a rung that fails is the last -----------------------------------------------------------------------------------
small=(--batch 1 --seq 64)
expect 1 'train: smoke: 2 steps: step 1 was skipped: the gradient' "$train" smoke "${small[@]}" --loss-scale 1e38
expect 1 ' 2 steps: FAILED: step 1 was skipped' "$train" smoke "${small[@]}" --loss-scale 1e38
grep -q '^20 steps' log && fail 'a rung after one that failed'
expect 1 'train: smoke: 20 steps: the loss rose from' "$train" smoke "${small[@]}" --tuning full --lr 3 --clip none --warmup 40
grep -q '^ 2 steps: passed' log || fail 'the first rung did not pass'

# ---- the table: arguments | exit code | text -------------------------------------------------------------------------
table "$train" <<TABLE
smoke --steps 19                              |   2 | --steps 19: the smoke ladder runs the first 20 steps
smoke --scratch /proc/nowhere                 |   2 | /proc/nowhere/train-smoke-
smoke --model tinny                           |   2 | tiny-qwen3
smoke --save x                                |   2 | smoke has no option '--save'
smoke --eval-interval 2                       |   2 | smoke has no option '--eval-interval'
smoke --data /proc/nowhere                    |   2 | /proc/nowhere
smoke word                                    |   2 | 'word' is not an option
smoke --device cuda                           | 125 | train: cuda
smoke --help                                  |   0 | --scratch
TABLE
[[ -z $(ls -A tmp scratch | grep -v :) ]] || fail "not removed: $(ls -A tmp scratch)"
exit $((failures > 0))
