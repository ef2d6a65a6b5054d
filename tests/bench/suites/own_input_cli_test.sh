#!/bin/bash
# own_input_cli_test.sh BENCH SOURCE - `bench --model DIR --data FILE`: keys, a case that is measured, and bad input, which
# is refused in one line before anything is measured.
bench=$1 folders=$2/tests/fixtures/hf files=$2/tests/fixtures/gguf
. "${0%/*}/../../cli.sh"

mkdir gpt
head -c 3000 "$files/small.gguf" >cut.gguf
sed 's/"model_type": "qwen2"/"model_type": "gpt2"/' "$folders/qwen2/config.json" >gpt/config.json
echo '{"x":1}' >bad.jsonl
head -n 20 "$2/data/corpus.jsonl" >few.jsonl

table "$bench" run --ceilings no <<TABLE
--suite backward --dry-run -n 1 --model ./nowhere                    | 2 | ./nowhere/config.json: No such file
--suite backward --dry-run -n 1 --model nowhere                      | 2 | model 'nowhere' is not one of tiny,
--suite backward --dry-run -n 1 --model ./gpt                        | 2 | "model_type" gpt2 is not one of qwen2, qwen3, llama
--suite backward --dry-run -n 1 --model $folders/qwen2               | 2 | has no tokenizer.json: give one with --tokenizer
--suite backward --dry-run -n 1 --model $folders/qwen2 --tokenizer bytes --data ./none | 2 | ./none: No such file
--suite backward --dry-run -n 1 --model $folders/qwen2 --tokenizer bytes --data gpt    | 2 | gpt is a folder, but must be a regular file
--suite backward --dry-run -n 1 --model $folders/qwen2 --tokenizer bytes --seq 300     | 2 | axis seq: 300 is outside 1..128
--suite backward --dry-run -n 1 --model tiny --tokenizer ./none                        | 2 | ./none: No such file
--suite backward --dry-run -n 1 --model tiny --pack some                               | 2 | 'some' is not one of on, off, stream
--suite backward --dry-run -n 1 --data few.jsonl                                       | 2 | need one --model NAME|DIR
--suite backward --dry-run -n 1 --data few.jsonl --model tiny,tiny-llama               | 2 | need one --model NAME|DIR
--suite kernels --dry-run -n 1 --data few.jsonl                                        | 2 | suite kernels reads no model or data of the user
--suite throughput --dry-run -n 1 --data few.jsonl --model tiny                        | 0 | &model=tiny&pack=on&
--suite throughput --dry-run -n 1 --data few.jsonl --model tiny --pack off             | 0 | &model=tiny&pack=off&
--suite backward --dry-run -n 1 --model $folders/qwen2 --tokenizer bytes --seq 64      | 0 | &model=hf-a843923769be&pack=on&
--suite backward --dry-run -n 1 --model $files/qwen2.gguf --seq 64                      | 0 | &model=hf-a843923769be&pack=on&
--suite backward --dry-run -n 1 --model ./cut.gguf                                     | 2 | ./cut.gguf: tensor
TABLE
expect 0 '' "$bench" --suite backward --dry-run -n 1 --ceilings no --model tiny --pack stream --seq 64
grep -q 'pack=' log && fail 'the key of full rows names the axis pack'

# measure ARG...: measures one case; its rows are in out/results.csv
measure() {
    rm -rf out
    "$bench" --seq 64 --batch 1 -n 1 --samples 1 --ceilings no --no-compare --out out "$@" >log 2>&1
}
own=(--model "$folders/qwen2" --tokenizer bytes --tuning lora --mode eager)
measure --suite throughput --model "$files/qwen2.gguf" --tuning lora --mode eager --data few.jsonl ||
    fail "a case of a GGUF file: $(tail -n 1 log)"
grep -q 'data=.*&model=hf-a843923769be&.*,step_time,.*,ok,' out/results.csv || fail 'no step time of a GGUF file'
measure --suite throughput "${own[@]}" --data few.jsonl || fail "a case of the user's model: $(tail -n 1 log)"
grep -q 'data=.*&model=hf-a843923769be&.*,step_time,.*,ok,' out/results.csv || fail 'no step time'
bench_of() { awk -F, -v metric="$1" -v key="$2" '$6 == metric && index($5, key) { print $9 }' out/results.csv; }

# the forward pass of the user's model next to the reference
rm -rf out
"$bench" --suite backward --grid full --filter '*/parity?*' --model "$folders/qwen2" --tokenizer bytes --data few.jsonl -n 1 \
    --ceilings no --no-compare --out out >log 2>&1 ||
    fail "parity of the user's model: $(tail -n 1 log)"
for id in LOSS FUSED LOGITS NORM-ROWS; do
    [[ $(grep -cE "requirement/PARITY-$id\?.*&data=.*&model=hf-a843923769be&.*,pass," out/results.csv) -ge 1 ]] ||
        fail "PARITY-$id of the user's model: $(grep "PARITY-$id" out/results.csv)"
done

# three micro-batches are three backward passes and one clip
measure --suite backward "${own[@]}" --data few.jsonl --clip fused --accumulate 1,3 || fail "micro-batches: $(tail -n 1 log)"
one=$(awk -F, '$6 == "formula_flops" && !index($5, "accumulate=") { print $9 }' out/results.csv)
three=$(bench_of formula_flops accumulate=3)
[[ $three -eq $((3 * one)) ]] || fail "three micro-batches have $three FLOP, one has $one"
one=$(awk -F, '$6 == "kernel_launches" && !index($5, "accumulate=") { print $9 }' out/results.csv)
three=$(bench_of kernel_launches accumulate=3)
[[ $three -gt $one && $three -lt $((3 * one)) ]] || fail "three micro-batches launch $three kernels, one $one"

# with a loss chunk, the loss phase is part of the work that suite backward times: more kernels, and the head's product
measure --suite backward "${own[@]}" --data few.jsonl --clip fused --loss-chunk 0,16 || fail "chunks: $(tail -n 1 log)"
for metric in formula_flops kernel_launches; do
    all=$(awk -F, -v metric=$metric '$6 == metric && !index($5, "loss-chunk=") { print $9 }' out/results.csv)
    [[ $(bench_of $metric loss-chunk=16) -gt $all ]] || fail "$metric in chunks: $(bench_of $metric loss-chunk=16), $all"
done
losses=$(awk -F, '$6 == "loss" { printf "%.4f\n", $9 }' out/results.csv | sort -u | wc -l)
[[ $losses -eq 1 ]] || fail 'chunks have another loss'

# data and sizes that are found wrong when they are read fail their case, with the reason in its row
measure --suite throughput --model "$files/qwen2.gguf" --tuning lora --mode eager --data few.jsonl ||
    fail "a case of a GGUF file: $(tail -n 1 log)"
grep -q 'data=.*&model=hf-a843923769be&.*,step_time,.*,ok,' out/results.csv || fail 'no step time of a GGUF file'
measure --suite throughput "${own[@]}" --data bad.jsonl && fail 'a file without conversations was measured'
grep -qF 'failed,"bad.jsonl:1: the line has neither' out/results.csv || fail "$(tail -n 1 out/results.csv)"
(ulimit -v 900000 && measure --suite throughput --mode eager --model qwen2.5-0.5b --tuning full)
[[ $? -eq 125 ]] || fail 'a model that is larger than the memory was opened'
grep -q 'MB are available; it needs .* MB with --recompute layer, .* MB with --tuning lora' out/results.csv ||
    fail "$(tail -n 1 out/results.csv)"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
