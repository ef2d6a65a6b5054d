#!/bin/bash
# train_normuon_ranks_test.sh TRAIN_STRUCK MPIRUN - the program train with --optimizer normuon on several ranks: log and
# weights are those of one rank; a checkpoint is resumed on other numbers of ranks with another --shard; a NaN that one rank
# computes is skipped by all, with one warning. TRAIN_STRUCK: see strike_train.c.
train=$1 mpirun=$2
. "${0%/*}/../cli.sh"

base=(--batch 1 --seq 32 --deterministic --quiet --tuning full --optimizer normuon --clip multi)
several() { # several N ARG...: train as N ranks
    expect 0 "" "$mpirun" -np "$1" "$train" "${base[@]}" "${@:2}"
}
one() { expect 0 "" "$train" "${base[@]}" "$@"; }
results() { cut -d, -f1-5,11,12 "$1"; } # the columns that do not depend on the machine

# ---- the bits of one rank, and resuming: 2 ranks, then 4 and 1 ---------------------------------------------------------
for case in "parameters optimizer f32 eager" "none gradients bf16 graph" "optimizer none bf16 graph"; do
    read -r shard rest dtype mode <<<"$case"
    args=(--dtype "$dtype" --mode "$mode" --nan-guard)
    rm -rf ./*
    one --accumulate 4 --steps 3 --export one --log one.csv "${args[@]}"
    several 2 --accumulate 2 --steps 3 --export two --log two.csv --save ck --save-interval 2 --shard "$shard" "${args[@]}"
    cmp <(results one.csv) <(results two.csv) || fail "$case: 2 ranks give another log"
    diff -r one two >/dev/null || fail "$case: 2 ranks give other weights"
    for ranks in 4 1; do
        rm -rf rest ckr && cp -r ck ckr && head -n 3 two.csv >rest.csv
        several "$ranks" --accumulate $((4 / ranks)) --steps 3 --export rest --log rest.csv --save ckr --resume 2 \
            --shard "$([[ $ranks = 1 ]] && echo none || echo "$rest")" "${args[@]}"
        diff -r one rest >/dev/null || fail "$case: resumed on $ranks ranks, the weights differ"
        cmp <(results one.csv) <(results rest.csv) || fail "$case: resumed on $ranks ranks, the log differs"
    done
done

# ---- the NaN guard: rank 1 computes a NaN in step 3 --------------------------------------------------------------------
rm -rf ./*
for shard in none optimizer parameters; do
    run=("$mpirun" -np 2 "$train" "${base[@]}" --steps 5 --shard "$shard")
    PB_STRIKE="1 2 optimizer nan" expect 0 "1 of them were skipped by the NaN guard alone" "${run[@]}" --nan-guard --log on.csv
    [[ $(grep -c 'skipped: an orthogonalised update is not finite (NaN guard)' log) = 1 ]] || fail "$shard: not one warning"
    grep -q '^train: step 3 skipped' log || fail "$shard: another step is skipped"
    grep -q '^1 of 5 steps were skipped' log || fail "$shard: a skipped step is not counted once"
    [[ $(sed 's/.*,\(status\|ok\|skipped\),[^,]*$/\1/' on.csv) = $'status\nok\nok\nskipped\nok\nok' ]] || fail "$shard: the log has other steps: $(cat on.csv)"
    [[ $shard = none ]] || cmp <(results on.csv) <(results first.csv) || fail "$shard: another log than without sharding"
    [[ $shard = none ]] && cp on.csv first.csv
    PB_STRIKE="1 2 optimizer nan" expect 1 "2 of 5 steps were skipped" "${run[@]}" --log off.csv
    grep -q '^train: step 4 skipped: the loss is not finite' log || fail "$shard: without the guard no NaN reaches the weights"
    rm -f on.csv off.csv
done

((failures == 0)) || exit 1
