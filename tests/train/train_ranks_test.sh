#!/bin/bash
# train_ranks_test.sh TRAIN MPIRUN - the program train as several ranks: the log, the adapters and the checkpoints are those
# of one rank that accumulates the same micro-batches; a run resumes on another number of ranks; bad input ends all ranks
# with one line and one exit code.
# PB_TEST_BACKEND (environment): cpu or cuda [cpu]; PB_TEST_RANKS: the most ranks, 2 or 4 [4].
train=$1 mpirun=$2
device=${PB_TEST_BACKEND:-cpu} most=${PB_TEST_RANKS:-4}
. "${0%/*}/../cli.sh"
. "$tests/train/ranks.sh"

# several N ARG...: train as N ranks. one ARG...: alone. Both print nothing but failures.
base=(--batch 1 --seq 48 --deterministic --quiet --targets q,v,down --data conversations.jsonl --eval-split 0.4
    --device "$device")
same=("${base[@]}" --eval-interval 4)
several() {
    local n=$1
    shift
    expect 0 "" "$mpirun" -np "$n" "$train" "${same[@]}" "$@"
}
one() { expect 0 "" "$train" "${same[@]}" "$@"; }
results() { cut -d, -f1-5,11,12 "$1"; } # the columns that do not depend on the machine

# what all ranks shard, what the ranks that resume shard, and the format of the moments
for case in "lora eager f32 parameters gradients f32" "full graph bf16 gradients parameters f32" \
    "full eager f32 parameters optimizer 8bit" "full graph bf16 optimizer none bf16" "full eager bf16 none parameters 8bit" \
    "qlora graph bf16 none parameters f32"; do
    read -r tuning mode dtype shard_all shard_rest moments <<<"$case"
    args=(--tuning "$tuning" --mode "$mode" --dtype "$dtype" --moments "$moments")
    rm -rf ./* && conversations
    one --accumulate "$most" --steps 5 --export one --log one.csv "${args[@]}"
    several "$most" --steps 5 --export all --log all.csv --save ck --save-interval 2 --shard "$shard_all" "${args[@]}"
    cmp <(results one.csv) <(results all.csv) || fail "$case: $most ranks give another log"
    diff -r one all >/dev/null || fail "$case: $most ranks give other weights"
    [[ $tuning = full ]] || diff -r all ck/iter_0000005/adapter >/dev/null || fail "$case: the checkpoint has another adapter"
    files=(ck/iter_0000005/state-*-of-"$most".safetensors)
    [[ ${#files[@]} = "$most" ]] || fail "$case: not every rank wrote its part of the checkpoint"
    [[ $(cat ck/latest_checkpointed_iteration.txt) = 5 ]] || fail "$case: the tracker is not moved"

    # from the checkpoint of all ranks after step 4, half of them and one rank make the last step
    for ((ranks = most / 2; ranks > 0; ranks /= 2)); do
        rm -rf rest ckr && cp -r ck ckr && head -n 5 all.csv >rest.csv
        several "$ranks" --accumulate $((most / ranks)) --steps 5 --export rest --log rest.csv --save ckr --resume 4 \
            --shard "$shard_rest" "${args[@]}"
        diff -r one rest >/dev/null || fail "$case: resumed on $ranks ranks, the weights differ"
        cmp <(results one.csv) <(results rest.csv) || fail "$case: resumed on $ranks ranks, the log differs"
    done
done

# a checkpoint without the file of one rank is not used
rm ck/iter_0000005/state-1-of-"$most".safetensors
expect 0 "checkpoint not used: ck/iter_0000005/state-1-of-$most.safetensors" "$mpirun" -np 2 "$train" "${same[@]}" \
    "${args[@]}" --accumulate $((most / 2)) --steps 5 --save ck --resume latest
[[ $(grep -c "checkpoint not used" log) = 1 ]] || fail "a note is printed by more than one rank"

# sharded base weights: loaded from files (with adapters), and merged with the adapters in the export
rm -rf ./* && conversations
expect 0 "" "$train" "${same[@]}" --tuning full --steps 1 --export base
from=(--model base --tokenizer bytes --lr 1e-3)
one "${from[@]}" --tuning lora --steps 1 --export adapter
for tuning in lora qlora; do
    args=("${from[@]}" --adapter adapter --tuning "$tuning" --dtype bf16 --steps 3 --merge)
    ranks=$((most == 2 ? 2 : 3))
    rm -rf several
    one --accumulate "$ranks" --export one "${args[@]}"
    several "$ranks" --shard parameters --export several "${args[@]}"
    diff -r one several >/dev/null || fail "$tuning: $ranks ranks with sharded base weights merge other weights"
done

# NF4 with scales in 8 bits, sharded: drawn, and loaded in two parts (gate_up has 1.8 million elements)
expect 0 "" "$train" "${same[@]}" --model smollm2-135m --layers 1 --tuning full --steps 1 --dtype bf16 --export large
for from in "--model tiny-llama" "--model large --tokenizer bytes"; do
    rm -f one.csv all.csv
    read -ra args <<<"$from --tuning qlora --nf4-scales 8bit --dtype bf16 --steps 3"
    one --accumulate 2 --log one.csv "${args[@]}"
    several 2 --shard parameters --log all.csv "${args[@]}"
    cmp <(results one.csv) <(results all.csv) || fail "$from: 2 ranks with sharded scales in 8 bits give another log"
done

# ---- ranks that share rows: the losses, norms and evaluations of one rank, up to rounding ---------------------------
rm -rf ./* && conversations
near() { # near A B: columns 3, 4 and 11 of two logs
    paste -d, <(cut -d, -f3,4,11 "$1") <(cut -d, -f3,4,11 "$2") | awk -F, 'NR > 1 { for (i = 1; i <= 3; i++) {
        d = $i - $(i + 3); m = ($i > 0 ? $i : 1) * 1e-5; bad += !(d <= m && d >= -m) } } END { exit bad || NR != 6 }'
}
one --steps 5 --log one.csv
several 2 --steps 5 --topology cp=2 --log zigzag.csv
several 2 --steps 5 --topology cp=2 --slices contiguous --log contiguous.csv --save ck --save-interval 3 --shard gradients
for log in zigzag contiguous; do near one.csv $log.csv || fail "ranks that share rows ($log): $(tail -n 1 $log.csv)"; done
head -n 4 contiguous.csv >rest.csv # steps 4 and 5 again, on one rank
expect 0 "" "$train" "${same[@]}" --steps 5 --resume 3 --save ck --log rest.csv
near one.csv rest.csv || fail "resumed by a rank that has whole rows: $(tail -n 1 rest.csv)"
v4=(--model v4-tiny --tuning full --attention sparse --index-loss 0.5 --seq 256 --steps 5)
rm one.csv
one "${v4[@]}" --log one.csv
several 2 "${v4[@]}" --topology cp=2 --shard optimizer --mode graph --log v4.csv
near one.csv v4.csv || fail "ranks that share rows of a V4 model: $(tail -n 1 v4.csv)"
doge=(--model doge-tiny --tuning full --attention sparse --steps 5)
rm one.csv
one "${doge[@]}" --log one.csv
several 2 "${doge[@]}" --topology cp=2 --log doge.csv
near one.csv doge.csv || fail "ranks that share rows of a Doge model: $(tail -n 1 doge.csv)"
if [[ $most -ge 4 ]]; then
    rm one.csv
    one --steps 5 --accumulate 2 --log one.csv
    several 4 --steps 5 --topology dp=2,cp=2 --mode graph --log groups.csv
    near one.csv groups.csv || fail "two groups of ranks that share rows: $(tail -n 1 groups.csv)"
fi
expect 0 "on each of 2 groups of 2 ranks that share rows" "$train" plan --seq 48 --ranks 4 --topology cp=2 --data conversations.jsonl

# ---- bad input: one line of rank 0, one exit code ---------------------------------------------------------------
bad() { # CODE TEXT MPIRUN-ARG...
    expect "$@"
    [[ $(grep -c '^train: ' log) = 1 ]] || fail "not one message: ${*:3}"
}
bad 2 "steps 0" "$mpirun" -np 2 "$train" --steps 0
bad 2 'train.batch differs: rank 0 has 2 of 48 tokens, packed, rank 1 on' \
    "$mpirun" -np 1 "$train" --batch 2 --seq 48 --steps 1 : -np 1 "$train" --batch 1 --seq 48 --steps 1
bad 2 "accumulate differs: rank 0 has 1, rank 1 on" \
    "$mpirun" -np 1 "$train" --seq 48 --steps 1 : -np 1 "$train" --seq 48 --steps 1 --accumulate 2
bad 2 "/proc/nowhere" "$mpirun" -np 2 "$train" --steps 1 --save /proc/nowhere/x
bad 2 "/proc/nowhere" "$mpirun" -np 1 "$train" --steps 1 : -np 1 "$train" --steps 1 --data /proc/nowhere
bad 2 "ranks do not divide by 3" "$mpirun" -np 2 "$train" --topology cp=3
bad 2 "--seq 50: 2 ranks share a row (--topology cp=2, --slices auto): need a multiple of 4" "$mpirun" -np 2 "$train" --seq 50 --topology cp=2
bad 2 "topology differs: rank 0 has dp=2, rank 1 on" "$mpirun" -np 1 "$train" --seq 48 --steps 1 : -np 1 "$train" --seq 48 --steps 1 --topology cp=2
bad 2 "--slices auto): need a multiple of 256" "$mpirun" -np 2 "$train" --model v4-tiny --tuning full --seq 128 --topology cp=2
bad 2 "need contiguous slices: --slices contiguous" "$mpirun" -np 2 "$train" --model v4-tiny --tuning full --seq 512 --topology cp=2 --slices zigzag
bad 2 "--dump-logits" "$mpirun" -np 2 "$train" eval --dump-logits x

((failures == 0)) || exit 1
