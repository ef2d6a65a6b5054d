#!/bin/bash
# train_watchdog_test.sh TRAIN_STRUCK - train --step-timeout: a run that hangs ends with exit code 125 and one line
# that says where, its checkpoint is resumed with the losses of an undisturbed run, and a run that only takes long is
# not ended. TRAIN_STRUCK: see strike_train.c.
train=$1
. "${0%/*}/../cli.sh"
base=(--model tiny --mode graph --batch 1 --seq 32 --deterministic --quiet)

expect 0 '' "$train" "${base[@]}" --steps 6 --log whole.csv
started=$SECONDS
OMPI_COMM_WORLD_RANK=0 PB_STRIKE="0 3 replay hang" expect 125 'train: step 4 made no progress for 1 s (--step-timeout), in phase replay' \
    timeout 60 "$train" "${base[@]}" --steps 6 --save ck --save-interval 2 --log log.csv --step-timeout 1
[[ $(grep -c '' log) -eq 1 ]] || fail "more than one line: $(cat log)"
((SECONDS - started < 40)) || fail "the run ended only after $((SECONDS - started)) s"
[[ $(cat ck/latest_checkpointed_iteration.txt) == 2 ]] || fail "the newest checkpoint: $(ls ck)"
expect 0 '' "$train" "${base[@]}" --steps 6 --save ck --resume latest --log log.csv --step-timeout 30
cmp <(cut -d, -f1-5 whole.csv) <(cut -d, -f1-5 log.csv) || fail 'the resumed run has other losses'

# steps and evaluations that end in time are progress, however long the run takes
started=$(date +%s%N)
expect 0 '' "$train" "${base[@]}" --steps 4000 --eval-split 0.1 --eval-interval 2000 --step-timeout 1
(($(date +%s%N) - started > 1500000000)) || fail 'the run took too little time to show anything'

expect 2 'train: --step-timeout 0: need a whole number from 1' "$train" --step-timeout 0
# a process that is stopped and continued does not hang
"$train" "${base[@]}" --steps 1000000 --log stopped.csv --step-timeout 1 >log 2>&1 & pid=$!
for _ in $(seq 200); do [[ -f stopped.csv && $(wc -l <stopped.csv) -gt 3 ]] && break; sleep 0.05; done
kill -STOP $pid && sleep 3 && kill -CONT $pid && sleep 1.5
kill -INT $pid
wait $pid
[[ $? -eq 125 ]] || fail "stopped, continued and interrupted: exit code $?"
grep -q 'interrupted after step' log || fail "a run that was stopped for 3 s: $(cat log)"

# an export may take longer
started=$SECONDS
OMPI_COMM_WORLD_RANK=0 PB_STRIKE="0 5 export slow" expect 0 '' \
    "$train" "${base[@]}" --steps 6 --export slow --step-timeout 1
((SECONDS - started >= 3)) || fail 'the export took too little time to show anything'

# two ranks, which both stand still: the first watchdog ends the job, long before --rank-timeout does
PB_STRIKE="1 3 replay hang" expect 125 '(--step-timeout)' \
    timeout 60 "$train" "${base[@]}" --ranks 2 --tuning full --steps 6 --step-timeout 2 --rank-timeout 50
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
