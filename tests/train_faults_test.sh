#!/bin/bash
# train_faults_test.sh TRAIN EVAL_ORACLE - train with data, files and signals that go wrong: what is still right, what is
# refused, with which exit code, and what is left on the disk.
train=$1 oracle=$2 fixtures=$(cd "${0%/*}/fixtures" && pwd) corpus=$(cd "${0%/*}/../data" && pwd)/corpus.jsonl
. "${0%/*}/cli.sh"

close() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= t * (b < 0 ? -b : b)) }'; }
value() { awk -v k="$1" '$1 == k { print $2 }' log; }
column() { awk -F, -v n="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == n) c = i; next } { print $c }' "$1"; }

# ---- logits of a last batch that reaches beyond the epoch, where the next one packs into another number of rows --------
head -n 30 "$corpus" >c30.jsonl
for batch in 1 4; do
    expect 0 perplexity "$train" eval --model tiny --layers 1 --data c30.jsonl --seq 1500 --batch $batch --seed 3 --dump-logits d.st
    close "$(value loss)" "$("$oracle" d.st | awk '$1 == "loss" { print $2 }')" 2e-7 || fail "logits of batch $batch: $("$oracle" d.st)"
    [[ $(value tokens) == "$("$oracle" d.st | awk '$1 == "tokens" { print $2 }')" ]] || fail "logits of batch $batch: tokens"
    # perplexity is e to the loss
    close "$(value perplexity)" "$(awk -v x="$(value loss)" 'BEGIN { printf "%.12g", exp(x) }')" 1e-6 || fail "perplexity: $(cat log)"
    rm d.st
done
expect 0 evaluation "$train" --steps 1 --seq 64 --eval-split 0.1
close "$(sed -n 's/.*perplexity \([0-9.]*\).*/\1/p' log)" "$(sed -n 's/.*: loss \([0-9.]*\),.*/\1/p' log | awk '{ printf "%.12g", exp($1) }')" 1e-4 ||
    fail "perplexity while training: $(cat log)"

# ---- steps without a finite gradient: only those in a row end a run --------------------------------------------------
# A model whose embedding of the byte 'Z' is NaN: a step that reads a Z is skipped, and no other.
"$train" --model tiny-llama --tuning full --steps 1 --seq 32 -q --export m || fail 'export'
n=$(od -An -t u8 -N 8 m/model.safetensors | tr -d ' ')
begin=$(head -c $((8 + n)) m/model.safetensors | grep -ao '"model.embed_tokens.weight":{[^}]*' | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
printf '\0\0\300\177' | dd of=m/model.safetensors bs=1 seek=$((8 + n + begin + 90 * 96 * 4)) conv=notrunc status=none
for i in $(seq 16); do printf '{"instruction":"%s","response":"%d"}\n' "$([[ $((i % 2)) -eq 1 ]] && echo Z || echo z)" "$i"; done >z.jsonl
expect 0 'steps had no finite loss and gradient' "$train" --model m --tuning full --data z.jsonl --pack off --batch 1 --seq 64 --steps 16 \
    --max-skipped 8 --log z.csv
skipped=$(column z.csv status | grep -c skipped) longest=$(column z.csv status | awk '{ n = $1 == "skipped" ? n + 1 : 0; if (n > most) most = n } END { print most }')
[[ $skipped -eq 8 && $longest -lt 8 ]] || fail "skipped: $(column z.csv status | tr '\n' ' ')"
expect 1 "$longest steps in a row without a finite loss and gradient (--max-skipped)" "$train" --model m --tuning full --data z.jsonl --pack off \
    --batch 1 --seq 64 --steps 16 --max-skipped "$longest"
rm -r m z.csv

# ---- sizes that a file names are held against its shards and the memory there is before anything is allocated ----------
# limited CODE TEXT ARG...: with 1 GB of addresses, which the sizes named below would exceed at once
limited() {
    local code=$1 text=$2
    shift 2
    expect "$code" "$text" env OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 bash -c "ulimit -v 1000000; exec \"\$@\"" limited "$train" --steps 1 --seq 16 --batch 1 --data "$corpus" "$@"
    [[ $(grep -c '^train: ' log) -eq $((code > 0)) && $(wc -l <log) -le $((code > 0 ? 1 : 99)) ]] || fail "not one line: $(cat log)"
}
"$train" --model tiny-llama --tuning full --steps 1 --seq 32 -q --export m || fail 'export'
cp m/config.json config.json
limited 0 'step      1/1' --model m
for tuning in full lora qlora; do
    for size in 'intermediate_size 4194304' 'hidden_size 1048576' 'vocab_size 4194304' 'num_hidden_layers 1000' 'num_attention_heads 4095' 'num_key_value_heads 1' \
        'head_dim 512'; do
        sed "s/\"${size% *}\": *[0-9]*/\"${size% *}\": ${size#* }/" config.json >m/config.json
        limited 2 'm' --model m --tuning $tuning
        grep -q 'the model needs\|there is no tensor' log || fail "$size: $(cat log)"
    done
done
# the position limit sizes nothing
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 1000000000/' config.json >m/config.json
limited 0 'step      1/1' --model m
cp config.json m
"$train" --model m --steps 1 --seq 32 --rank 4 -q --export adapter || fail 'export of adapters'
limited 0 'step      1/1' --model m --adapter adapter
sed -i 's/"r": *[0-9]*/"r": 96/' adapter/adapter_config.json
limited 2 'the model needs [96,96]' --model m --adapter adapter
sed -i 's/"r": *[0-9]*/"r": 4194304/' adapter/adapter_config.json
limited 2 'rank 4194304: need 1 to 96' --model m --adapter adapter
# what is really asked for, and too much for this machine
limited 125 'MB are available' --model qwen2.5-1.5b --tuning full
limited 125 'MB are available' --accumulate 1000000 --seq 2048 --batch 1000
rm -r m adapter

[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
