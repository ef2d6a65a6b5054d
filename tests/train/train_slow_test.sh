#!/bin/bash
# train_slow_test.sh TRAIN_STRUCK - from its second step on, the device of rank 1 works 60 ms longer in each forward phase
# (strike_train.c), in eager steps and in replayed graphs. One line names the rank and the phase, and the job continues.
# PB_TEST_BACKEND (environment): cpu or cuda [cpu]; PB_TEST_RANKS: the number of ranks, 2 or more [3].
train=$1
device=${PB_TEST_BACKEND:-cpu} ranks=${PB_TEST_RANKS:-3}
. "${0%/*}/../cli.sh"
args=(--model tiny --batch 1 --seq 48 --bucket 48 --quiet --steps 60 --device "$device" --ranks "$ranks" --rank-timeout 8)

for mode in eager graph; do
    phase='forward on the device'
    [[ $device-$mode != cpu-eager ]] || phase=forward # a CPU has done the work when the call returns
    PB_STRIKE="1 1 forward drag" expect 0 '' "$train" "${args[@]}" --mode $mode --log $mode.csv
    line="^train: rank 1 on [^ ]+ \\([^)]+\\) is slow: phase $phase took at least 0\\.06[0-9]* s in each of the three steps"
    grep -qE -- "$line before step [0-9]+, the median of the ranks is [0-9.e-]+ s\$" log || fail "$mode: the rank is not named"
    [[ $(grep -c "phase $phase took" log) -eq 1 ]] || fail "$mode: it is named more than once"
    [[ $(grep -c ',ok,' $mode.csv) -eq 60 ]] || fail "$mode: not all steps were made"
done

((failures == 0)) || exit 1
