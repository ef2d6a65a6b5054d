#!/bin/bash
# train_async_test.sh TRAIN [MPIRUN] - train --save-async: the checkpoints, the log and the result are those of a run that
# waits for its checkpoints; a failed write, a signal, SIGKILL; memory. With MPIRUN: the same on two ranks; TRAIN is then
# train with strike_train.c.
train=$1 mpirun=$2
. "${0%/*}/../cli.sh"
column() { awk -F, -v n="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == n) c = i; next } { print $c }' "$1"; }

# compare NAME COMMAND...: runs the command with and without --save-async
compare() {
    local name=$1
    shift
    rm -rf ./*
    expect 0 '' "$@" --save waits --log waits.csv
    expect 0 '' "$@" --save async --log async.csv --save-async
    cp log async.log
    diff -r waits async >/dev/null || fail "$name: other checkpoints: $(diff -rq waits async)"
    cmp <(cut -d, -f1-5 waits.csv) <(cut -d, -f1-5 async.csv) || fail "$name: another log"
    [[ $(find async -mindepth 1 -maxdepth 1 -name 'iter_*' | wc -l) -eq 4 ]] || fail "$name: checkpoints: $(ls async)"
}

base=(--seq 64 --batch 1 --steps 7 --save-interval 2 --save-retain-interval 1)
if [[ -n $mpirun ]]; then
    for case in '--tuning lora --dtype bf16 --shard parameters' '--tuning full --shard optimizer' '--tuning qlora --shard none'; do
        # shellcheck disable=SC2086 # several words
        compare "2 ranks, $case" "$mpirun" -np 2 "$train" "${base[@]}" $case
        [[ -f async/iter_0000007/state-1-of-2.safetensors ]] || fail "$case: rank 1 wrote nothing"
        [[ $(grep -c 'checkpoint written in' async.log) -eq 5 ]] || fail "$case: $(cat async.log)"
        # the ranks resume, and one rank does
        rm -rf async/iter_0000007 && echo 6 >async/latest_checkpointed_iteration.txt && cp -r async one
        # shellcheck disable=SC2086
        expect 0 'resumed after step 6' "$mpirun" -np 2 "$train" "${base[@]}" $case --save async --save-async --resume latest
        diff -r waits async >/dev/null || fail "$case: resumed to other checkpoints"
        expect 0 'resumed after step 6' "$train" "${base[@]}" ${case%--shard*} --accumulate 2 --save one --save-async --resume latest
        [[ $case != *lora* ]] || cmp waits/iter_0000007/adapter/adapter_model.safetensors one/iter_0000007/adapter/adapter_model.safetensors ||
            fail "$case: one rank resumed to other weights"
    done
    expect 125 'File too large' bash -c 'ulimit -f 2; exec "$@"' full "$mpirun" -np 2 "$train" "${base[@]}" --save full --save-async
    [[ $(grep -c '^train: ' log) -eq 1 && $(ls full) == '' ]] || fail "full disk, 2 ranks: $(ls -a full) $(cat log)"
    # rank 1 is killed while it copies its state, after earlier checkpoints
    rm -rf ./*
    args=(--ranks 2 --seq 64 --batch 1 --steps 9 --save-interval 1 -q --tuning full --shard optimizer --save-async)
    expect 125 'rank 1 on' env PB_STRIKE='1 5 checkpoint kill' "$train" "${args[@]}" --save killed
    [[ $(cat killed/latest*) =~ ^[45]$ ]] || fail "killed: $(ls -A killed)"
    expect 0 '' "$train" "${args[@]}" --save killed --resume latest
    expect 0 '' "$train" "${args[@]}" --save whole
    diff -r killed/iter_0000009 whole/iter_0000009 >/dev/null || fail 'killed: the ranks resumed to another state'
    [[ $failures -eq 0 ]] || exit 1
    exit
fi

for case in '--tuning lora' '--tuning full --dtype bf16' '--tuning lora --mode graph --optimizer normuon'; do
    # shellcheck disable=SC2086 # several words
    compare "$case" "$train" "${base[@]}" $case
done
# what training waited is printed, and in the log: after every checkpoint in the row of the next step
for step in 1 2 4 6 7; do
    grep -q "^step *$step  .*checkpoint: training waited .* s for the copy$" async.log || fail "step $step: no time of the copy"
    grep -q "^step *$step  .*checkpoint written in .* s$" async.log || fail "step $step: no time of writing"
done
grep -q '^step *7  checkpoint: training waited .* s until it was written$' async.log || fail 'the last one: no time of waiting'
column async.csv save_time | awk 'NR == 1 ? $1 != 0 : (NR == 2 || NR == 3 || NR == 5 || NR == 7) && !($1 > 2e-5) { exit 1 }' ||
    fail "save_time: $(column async.csv save_time | tr '\n' ' ')"

# ---- a write that fails: one line, exit code 125, and the checkpoint before it ---------------------------------------
rm -rf ./*
expect 125 'state.safetensors: File too large' bash -c 'ulimit -f 2; exec "$@"' full "$train" --steps 1000 --seq 32 --batch 1 -q --save ck --save-async
[[ $(wc -l <log) -eq 1 && $(ls ck) == '' ]] || fail "full disk: $(ls -a ck)"
# the disk is full at the last save, after the last step
expect 0 '' "$train" "${base[@]}" -q --save ck
expect 125 'File too large' bash -c 'ulimit -f 2; exec "$@"' full "$train" "${base[@]}" -q --steps 8 --save ck --save-async --resume latest
[[ $(cat ck/latest*) -eq 7 && -z $(find ck -name '.iter*') ]] || fail "full disk at the end: $(ls -a ck)"

# ---- signals: SIGTERM saves and completes, SIGKILL leaves what the next run resumes from ----------------------------
rm -rf ./*
expect 0 '' "$train" --seq 64 --batch 1 --steps 400 --save whole -q
for signal in TERM KILL KILL; do
    "$train" --seq 64 --batch 1 --steps 400 --save ck --save-interval 1 --save-async --resume latest >run 2>&1 & pid=$!
    for _ in $(seq 400); do [[ $(grep -c 'checkpoint written' run) -gt 20 ]] && break; sleep 0.01; done
    kill -$signal $pid
    wait $pid 2>/dev/null
    [[ $signal == KILL ]] && continue
    step=$(sed -n 's/.*interrupted after step \([0-9]*\)$/\1/p' run)
    [[ -n $step && $(cat ck/latest*) -eq $step ]] || fail "SIGTERM: $(tail -n 2 run), saved: $(cat ck/latest*)"
done
expect 0 'resumed after step' "$train" --seq 64 --batch 1 --steps 400 --save ck --save-async --resume latest
cmp whole/iter_0000400/state.safetensors ck/iter_0000400/state.safetensors || fail 'resumed to other weights'

# ---- bad input, and memory -------------------------------------------------------------------------------------------
expect 2 '--save-async needs --save DIR' "$train" --steps 1 --save-async
large=(--model smollm2-135m --layers 2 --tuning full --seq 16 --batch 1)
expect 0 '--save-async copies the state to 424.7 MB of host memory' "$train" plan "${large[@]}" --save-async
with=$(sed -n 's/^peak  *\([0-9]*\).*/\1/p' log)
expect 0 'peak' "$train" plan "${large[@]}"
without=$(sed -n 's/^peak  *\([0-9]*\).*/\1/p' log)
((with - without > 400 && with - without < 450)) || fail "peaks: $with and $without MB"
# A program with AddressSanitizer maps terabytes of addresses, so its address space cannot be limited.
if bash -c 'ulimit -v 1000000; exec "$1" help' limit "$train" >log 2>&1; then
    expect 125 'MB without --save-async' env OPENBLAS_NUM_THREADS=1 bash -c 'ulimit -v 1000000; exec "$@"' limit "$train" "${large[@]}" \
        --steps 1 --save memory --save-async
    [[ ! -e memory && $(wc -l <log) -eq 1 ]] || fail "memory: $(cat log)"
fi
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
