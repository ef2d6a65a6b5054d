#!/bin/bash
# train_moments_test.sh TRAIN - train --moments bf16|8bit: the losses are near those of f32 moments, an eager run and
# a replayed one have equal bits, a resumed run has the bits of an undisturbed one, also with --save-async, and what
# cannot be is refused.
train=$1
. "${0%/*}/../cli.sh"
base=(--model tiny --tuning full --batch 2 --seq 32 --lr 1e-3 --deterministic --quiet)
column() { awk -F, -v n="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == n) c = i; next } { print $c }' "$1"; }

expect 0 '' "$train" "${base[@]}" --steps 40 --log f32.csv
for moments in bf16 8bit; do
    run=("${base[@]}" --moments "$moments")
    expect 0 '' "$train" "${run[@]}" --steps 40 --log "$moments.csv"
    awk -v a="$(column f32.csv loss | tail -n 1)" -v b="$(column $moments.csv loss | tail -n 1)" \
        'BEGIN { d = (a - b) / a; exit !(a > 0 && b > 0 && d < 5e-3 && d > -5e-3 && d != 0) }' ||
        fail "$moments: the last loss is $(column $moments.csv loss | tail -n 1), and $(column f32.csv loss | tail -n 1) with f32"
    for more in '--dtype bf16' '--save-async' '--mode graph'; do
        rm -rf ck whole-ck whole rest whole.csv rest.csv
        # shellcheck disable=SC2086 # several words
        expect 0 '' "$train" "${run[@]}" $more --steps 6 --log whole.csv --save whole-ck --export whole
        # shellcheck disable=SC2086
        expect 0 '' "$train" "${run[@]}" $more --steps 6 --log rest.csv --save ck --save-interval 3
        rm -r ck/iter_0000006 && echo 3 >ck/latest_checkpointed_iteration.txt && head -n 4 rest.csv >half && mv half rest.csv
        # shellcheck disable=SC2086
        expect 0 '' "$train" "${run[@]}" $more --steps 6 --log rest.csv --save ck --resume latest --export rest
        cmp <(cut -d, -f1-5 whole.csv) <(cut -d, -f1-5 rest.csv) || fail "$moments $more: resumed, the losses differ"
        diff -r whole rest >/dev/null || fail "$moments $more: resumed, the weights differ"
        if [[ $more == '--mode graph' ]]; then
            expect 0 '' "$train" "${run[@]}" --steps 6 --log eager.csv
            cmp <(cut -d, -f1-5 whole.csv) <(cut -d, -f1-5 eager.csv) || fail "$moments: a replayed run has other losses"
            rm eager.csv
        fi
    done
    for other in f32 bf16 8bit; do
        [[ $other == "$moments" ]] || expect 2 "belongs to a run with other settings: model.moments was \"$moments\", but is \"$other\"" \
            "$train" "${base[@]}" --moments $other --mode graph --steps 9 --save ck --resume latest
    done
    [[ $(grep -ao "\"m.layers.0.gate_up\":{[^}]*" ck/iter_*/state*.safetensors | head -n 1) == *"\"$([[ $moments = bf16 ]] && echo BF16 || echo U8)\""* ]] ||
        fail "$moments: the checkpoint does not hold its moments in this format"
    expect 2 "--moments $moments needs --optimizer adamw" "$train" --moments "$moments" --optimizer normuon --tuning full --steps 1
done

# Ranks that divide the moments divide the memory of each format.
planned() { "$train" plan --model qwen2.5-0.5b --tuning full --moments "$@" | sed -n 's/^memory.*moments \([0-9.]*\),.*/\1/p'; }
for moments in f32 bf16 8bit; do
    awk -v all="$(planned $moments)" -v half="$(planned $moments --ranks 2 --shard optimizer)" \
        'BEGIN { exit !(all > 900 && half / all > 0.49 && half / all < 0.51) }' ||
        fail "$moments: each of two ranks has not half of the moments: $(planned $moments --ranks 2 --shard optimizer) MB"
done
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
