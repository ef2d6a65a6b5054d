#!/bin/bash
# train_test.sh TRAIN EVAL_ORACLE - the program train as a user sees it: subcommands, options, exit codes, data,
# accumulation, evaluation, the planned memory, the log.
train=$1 oracle=$2 fixtures=$(cd "${0%/*}/../fixtures" && pwd)
. "${0%/*}/../cli.sh"

check_help "$train"

# a folder that opens, but whose checkpoints would have paths that are too long for the system
long=./ck
while [[ ${#long} -lt 4058 ]]; do long=./$long; done

# ---- the table: arguments | exit code | text ---------------------------------------------------------
table "$train" <<TABLE
--help                                        |   0 | exit codes
--version                                     |   0 | , commit
version 2                                     |   2 | version takes no arguments
help                                          |   0 | trains a model, and saves it
help run                                      |   0 | --loss-mask-type
help evla                                     |   2 | did you mean 'eval'?
eval --help                                   |   0 | --dump-logits
completion bash                               |   0 | complete -F _train train
completion bash                               |   0 | cpu cuda"
completion fish                               |   2 | train completion bash
rnu                                           |   2 | did you mean 'run'?
--steps 0                                     |   2 | --steps 0: need a whole number from 1
--stpes 3                                     |   2 | did you mean '--steps'?
--steps 1 --device cuda:x                     |   2 | --device cuda:x: need one of cpu
--steps 1 --device cuda:                      |   2 | --device cuda:: need one of cpu
--steps 1 --device cuda:1x                     |   2 | --device cuda:1x: need one of
--steps 1 --device cpu:1                      |   2 | --device cpu:1: need one of cpu
--steps 1 --device cdua                       |   2 | did you mean 'cuda'?
--steps 1 --device cuda:99                    | 125 | train: cuda
plan --ranks 2 --device cuda:1                |   2 | --device cuda:1: each rank of a host uses the GPU with its own number
--tuning lroa                                 |   2 | did you mean 'lora'?
--steps 1 word                                |   2 | 'word' is not an option
--model tinny                                 |   2 | tiny-qwen3
--model /proc/nowhere                         |   2 | /proc/nowhere
--lr -1                                       |   2 | learning rate -1
--lr 1e-9                                     |   2 | minimum learning rate 1e-06: need at least 0 and at most the peak learning rate, which is 1e-09
--warmup 60                                   |   2 | --warmup 60: need 0 to 50
--rank 4096                                   |   2 | rank 4096: need 1 to 64
--targets q,z                                 |   2 | --targets: 'z' is not one of
--alpha 1e308                                 |   2 | alpha inf: need a number above 0 that is finite in f32
--targets q,,v                                |   2 | --targets: 'q,,v' has an empty word
--seq 4096                                    |   2 | seq 4096: need 1 to 2048 for tiny
--seq 4096 --data /proc/nowhere               |   2 | seq 4096: need 1 to 2048 for tiny
--layers 3 --data /proc/nowhere               |   2 | layers 3: need 1 to 2, or 0 for all layers of tiny
--eval-split 1                                |   2 | --eval-split 1
--eval-split 0.1 --eval-data x                |   2 | --eval-data and --eval-split cannot be given together
--data /proc/nowhere                          |   2 | /proc/nowhere
--tokenizer /proc/nowhere                     |   2 | /proc/nowhere
--template qwen3                              |   2 | --template qwen3 cannot be used with the byte tokenizer
--layers 3                                    |   2 | layers 3: need 1 to 2, or 0 for all layers of tiny
--log /proc/nowhere/x --steps 1               |   2 | train: /proc/nowhere/x: No such file
plan --steps 7                                |   0 | 7 of 1 x 4 rows of 256 tokens
plan --ranks 4 --steps 7 --accumulate 2       |   0 | 7 of 2 x 4 rows of 256 tokens on each of 4 ranks
plan --ranks 4 --tuning full --shard optimizer |  0 | memory      weights 0.6 MB, gradients 0.6, moments 0.3, activations
plan --ranks 4 --tuning full --shard gradients |  0 | memory      weights 0.6 MB, gradients 0.8, moments 0.3, activations
plan --ranks 4 --model smollm2-135m --tuning full --shard parameters | 0 | memory      weights 276.0 MB, gradients 285.4, moments 268.9, activations
plan --tuning full                            |   0 | memory      weights 0.6 MB, gradients 0.6, moments 1.2, activations
plan --tuning full --recompute attention      |   0 | activations 11.2, scratch
plan --tuning full --recompute mlp            |   0 | activations 10.5, scratch
plan --tuning full --recompute layer          |   0 | activations 9.4, scratch
plan --tuning full --recompute layer --mlp-chunk 64 | 0 | activations 7.4, scratch
plan --tuning full --loss-chunk 16            |   0 | activations 12.5, scratch
--recompute products --model v4-tiny --tuning full |  2 | v4-tiny: what attention computes is not kept apart: recompute layer or attention
plan --tuning full --recompute products       |   0 | activations
--loss-chunk few                              |   2 | --loss-chunk few: need a whole number
--recompute attn                              |   2 | --recompute attn: need one of none|norms|attention|mlp|products|layer
plan --model tiny-qwen3                       |   0 | tiny-qwen3: 2 layers, width 64, 8/1 heads of 16, MLP 160, vocabulary 272
--dry-run --tuning full                       |   0 | 151488 of 151488 parameters are trained
--steps 1 --rank 64 --lr 1                    |   0 | tokens/s
plan --model smollm2-135m --rank 256 --lr 2e-4 |  0 | rank 256
--steps 2 --tuning qlora --mode graph         |   0 | step      2/2
--steps 2 --dtype bf16 --clip none            |   0 | step      2/2
--mode graph --clip sync                      |   2 | --clip sync has host syncs in every step, which --mode graph cannot record
--loss-scale 0                                |   2 | loss scale 0: need a number above 0 that is finite in f32
--loss-scale 1e-39 --steps 1                  |   2 | loss scale 1e-39: need a number above 0 that is finite in f32, as is its inverse
--bucket -1                                   |   2 | --bucket -1
--pack strem                                  |   2 | did you mean 'stream'?
--pack stream --mode graph --steps 3 --batch 1 |   0 | graphs: 1 recorded
--pack stream --long-ones drop                |   2 | --long-ones drop: with --pack stream no conversation is too long
--min-loss-tokens 0.25                        |   2 | --min-loss-tokens 0.25 needs --pack stream
--nesterov                                    |   2 | --nesterov needs --optimizer normuon
--momentum 0.9                                |   2 | --momentum 0.9 needs --optimizer normuon
--ns-steps 3                                  |   2 | --ns-steps 3 needs --optimizer normuon
--newton-schulz gram                          |   2 | --newton-schulz gram needs --optimizer normuon
--optimizer normuon --nan-guard-momentum keep |   2 | --nan-guard-momentum keep needs --nan-guard
--mlp-chunk 8                                 |   2 | --mlp-chunk 8 needs --recompute mlp or products or layer
--max-norm 2 --clip none                      |   2 | --max-norm 2 needs --clip sync or fused or multi
--min-lr 1e-5 --schedule constant             |   2 | --min-lr 1e-05 needs --schedule cosine
--merge --export x --tuning full              |   2 | --merge needs --tuning lora or qlora
--eval-interval 5                             |   2 | --eval-interval 5 needs --eval-data FILE or --eval-split X
--save-interval 5                             |   2 | --save-interval 5 needs --save DIR
--profile-steps 1:0:0:1                       |   2 | --profile-steps needs --profile-ranks, such as --profile-ranks auto
--profile-out x                               |   2 | --profile-out needs --profile-ranks
--profile-limit 5                             |   2 | --profile-limit needs --profile-ranks
--profile-counters STEP                       |   2 | --profile-counters needs --profile-ranks
--steps 1 --rank 8 --targets q --tuning full  |   0 | tokens/s
--pack stream --min-loss-tokens 1.5           |   2 | --min-loss-tokens 1.5: need 0 to 1
--pack stream --min-loss-tokens -0.5          |   2 | --min-loss-tokens -0.5: need 0 to 1
--pack stream --steps 2 --batch 1 --model v4-tiny --tuning full --seq 192 | 0 | step      2/2
--steps 2 --bucket 100000 --loss-scale 3      |   0 | step      2/2
--steps 2 --model $fixtures/hf/llama --tuning qlora --seq 16 --tokenizer bytes | 0 | loaded 29 tensors
--steps 2 --model $fixtures/hf/llama --tuning qlora --seq 16 --tokenizer bytes | 0 | note: step 1 has the loss
--steps 2 --model $fixtures/hf/llama --tuning qlora --seq 16 | 2 | has no tokenizer.json: give one with --tokenizer DIR|FILE, or use --tokenizer bytes
--steps 1                                     |   0 | tokenizer: bytes; chat template: bytes, from the byte tokenizer
--steps 1 --tokenizer $fixtures/chat/chatml   |   0 | template: chatml, from tokenizer_config.json, with a default system message of 68 bytes
--steps 1 --tokenizer $fixtures/chat/chatml --template qwen2.5 | 0 | template: qwen2.5, from --template
--steps 1 --tokenizer $fixtures/chat/chatml/tokenizer.json | 0 | template: chatml, from tokenizer_config.json
--steps 1 --tokenizer $fixtures/chat/chatml --template llama3 | 2 | is 16 tokens of this tokenizer, but must be one
--export /proc/nowhere/x --steps 2            |   2 | /proc/nowhere/x: No such file or directory
--export /dev/null --steps 2                       |   2 | /dev/null is not a folder
--save $long --steps 2                        |   2 | contains a path that is too long
--attention sparse                            |   2 | tiny has no sparse attention
--kv-qat f32                                  |   2 | tiny has no FP8 keys and values
--model v4-tiny                               |   2 | v4-tiny has no adapters: need tuning full
--model v4-tiny --tuning full --export x      |   2 | v4-tiny cannot be written as a Hugging Face folder
--model v4-tiny --tuning full --attention dense --index-loss 1 | 2 | no indexer to train
--model v4-tiny --tuning full --mode graph --steps 2 --seq 384 --index-loss 0.1 | 0 | step      2/2
tokenize /proc/nowhere                        |   2 | /proc/nowhere
TABLE
expect 0 'warning: training is known to diverge with learning rate 0.0002 at rank 256' "$train" --model smollm2-135m --layers 1 \
    --rank 256 --lr 2e-4 --steps 1 --batch 1 --seq 8
"$train" --steps 1 --rank 32 --lr 2e-4 2>&1 | grep -q warning && fail 'a warning at rank 32'

# close A B TOLERANCE: relative difference
close() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= t * (b < 0 ? -b : b)) }'; }
# column FILE NAME: prints the values of a column
column() { awk -F, -v n="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == n) c = i; next } { print $c }' "$1"; }

# ---- evaluation: the loss equals that of the logits it writes, for any batch size ------------------------
for how in 'full --pack on' 'qlora --pack on' 'full --pack stream'; do
    t=${how%% *}
    # shellcheck disable=SC2086 # several words
    expect 0 perplexity "$train" eval --tuning $how --seq 128 --batch 3 --eval-split 0.1 --dump-logits l.safetensors
    loss=$(awk '$1 == "loss" { print $2 }' log)
    [[ $loss =~ ^[0-9]\.[0-9]{8}$ ]] || fail "eval $t: '$loss' has not 9 digits"
    close "$loss" "$("$oracle" l.safetensors | awk '$1 == "loss" { print $2 }')" 2e-7 || fail "eval $t: loss $loss, $("$oracle" l.safetensors)"
    [[ $("$oracle" l.safetensors | head -n 1) == "$(grep '^tokens' log)" ]] || fail "eval $t: tokens"
    rm l.safetensors
done
expect 0 perplexity "$train" eval --tuning full --seq 128 --batch 1 --eval-split 0.1
close "$(awk '$1 == "loss" { print $2 }' log)" "$("$train" eval -q --tuning full --seq 128 --batch 7 --eval-split 0.1 | awk '$1 == "loss" { print $2 }')" 1e-7 || fail "eval: the batch changes the loss"

# ---- tokenize ------------------------------------------------------------------------------------------
printf 'héllo  <im_end>\n\n\xff\x01tail' >text
expect 0 '104 195 169 108 108 111 32 32 257' "$train" tokenize text
"$train" tokenize text | "$train" tokenize --decode >back
printf '\n' | cat text - | cmp - back || fail 'tokenize: the text does not come back'
expect 0 '60 105 109' "$train" tokenize --plain text
printf 'A line, and 12345 more: über 日本語\n' >text
for family in gpt2 llama2 llama3 o200k qwen2 smollm; do
    "$train" tokenize --tokenizer "$fixtures/tokenizers/$family.json" text >ids || fail "tokenize: $family"
    [[ $(wc -w <ids) -lt $(wc -c <text) ]] || fail "tokenize: $family merges nothing"
    "$train" tokenize --tokenizer "$fixtures/tokenizers/$family.json" --decode <ids | cmp - text || fail "tokenize: $family does not come back"
done
echo '1 2 x' | expect 2 "standard input:1: 'x' is not a token id" "$train" tokenize --decode
echo '99999' | expect 2 'standard input:1:' "$train" tokenize --decode

# ---- data: bad lines, masks, splits --------------------------------------------------------------------
printf '%s\n' '{"instruction":"q","response":"answer"}' 'nonsense' '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"yes"}]}' >d.jsonl
expect 2 'd.jsonl:2' "$train" --data d.jsonl --steps 1
expect 2 '--prefer nosuch: no op has an implementation of this name on cpu' "$train" --steps 1 --prefer nosuch
expect 2 '--prefer nosuch: no op' "$train" --steps 1 --impl nosuch # the old name
expect 2 '--merge needs --export DIR' "$train" --steps 1 --merge
expect 0 'skipped bad line d.jsonl:2' "$train" --data d.jsonl --steps 1 --bad-lines skip
grep -q '1 bad lines were skipped' log || fail 'bad lines are not counted'
count() { "$train" eval --data d.jsonl --bad-lines skip --loss-mask-type "$1" --tuning full | awk '$1 == "tokens" { print $2 }'; }
# "answer" and "yes", each with the token that ends the message
[[ $(count assistant) -eq 11 && $(count response) -eq 9 ]] || fail "masks: $(count assistant) $(count response)"
[[ $(count all) -gt 40 ]] || fail 'mask all'

# ---- a stream: full rows, of which those with few loss tokens are passed over --------------------------------
stream() { # stream SHARE: evaluates rows of 64; sets the figures that are printed
    "$train" eval --pack stream --seq 64 --tuning full --eval-split 0.05 --min-loss-tokens "$1" >log || fail "stream $1"
    read -r rows all counted over < <(sed -n 's/.* in \(.*\) rows, \(.*\) tokens, \(.*\) of them loss tokens; \(.*\) rows were skipped/\1 \2 \3 \4/p' log)
    tokens=$(awk '$1 == "tokens" { print $2 }' log)
    [[ $((rows + over)) -eq $(((all - 1) / 64)) ]] || fail "stream $1: $(cat log)"
}
stream 0 # only what is left at the end is not used
[[ $tokens -gt $((counted - 64)) && $tokens -le $counted ]] || fail "stream: $(cat log)"
stream 0.5
[[ $tokens -lt $((counted - 64)) && $tokens -gt $((counted * 3 / 4)) ]] || fail "stream: $(cat log)"
stream 1
[[ $tokens -eq $((64 * rows)) ]] || fail "stream: $(cat log)"
expect 0 step "$train" --pack stream --seq 100 --bucket 64 --batch 1 --steps 2 --log l.csv
[[ $(column l.csv seq | sort -u) == 100 ]] || fail "stream: rows of $(column l.csv seq | tr '\n' ' ')"
rm l.csv

# ---- a loss that no pretrained model has: named for a folder, once, and not for random weights or what was learnt ------
small=(--seq 96 --batch 4 --tokenizer bytes -q)
expect 0 'above ln V' "$train" --model "$fixtures/hf/qwen2" --tuning full --lr 3e-3 --steps 40 --export learnt "${small[@]}"
[[ $(grep -c 'above ln V' "$dir/log") -eq 1 ]] || fail "notes of a loss: $(grep -c 'above ln V' "$dir/log")"
for model in learnt tiny; do
    expect 0 '' "$train" --model $model --steps 2 "${small[@]}"
    grep 'above ln V' "$dir/log" && fail "a note of the loss of $model"
done
expect 0 'the evaluation has the loss' "$train" eval --model "$fixtures/hf/qwen2" "${small[@]}"
rm -r learnt

# ---- accumulation: equal to one large batch ----------------------------------------------------------------
run() { expect 0 step "$train" --steps 6 --seq 96 --lr 1e-3 --warmup 0 "$@"; }
for t in full lora qlora; do
    run --tuning $t --batch 4 --log one.csv
    run --tuning $t --batch 1 --accumulate 4 --log four.csv
    run --tuning $t --batch 1 --accumulate 4 --mode graph --log graph.csv
    cmp <(cut -d, -f1-5 four.csv) <(cut -d, -f1-5 graph.csv) || fail "accumulation $t: graph differs from eager"
    run --tuning $t --batch 1 --accumulate 4 --mode graph --recompute layer --log again.csv
    cmp <(cut -d, -f1-5 four.csv) <(cut -d, -f1-5 again.csv) || fail "accumulation $t: recomputed activations differ"
    run --tuning $t --batch 1 --accumulate 4 --mode graph --loss-chunk 40 --log chunks.csv
    paste -d' ' <(column one.csv loss) <(column chunks.csv loss) | while read -r a b; do close "$a" "$b" 2e-6 || echo "$a $b"; done >bad
    [[ ! -s bad ]] || fail "loss chunks $t: $(cat bad)"
    paste -d' ' <(column one.csv loss) <(column four.csv loss) | while read -r a b; do close "$a" "$b" 2e-6 || echo "$a $b"; done >bad
    [[ ! -s bad ]] || fail "accumulation $t: $(cat bad)"
    [[ $(column one.csv loss | wc -l) -eq 6 ]] || fail "accumulation $t: rows"
    rm ./*.csv
done

# ---- row lengths: padding changes only the time; one graph per length; the learning rate continues -------------------
for i in $(seq 40); do printf '{"instruction":"q%d","response":"%0*d"}\n' "$i" $((i * 37 % 230 + 5)) "$i"; done >uneven.jsonl
for t in full lora qlora; do
    base=(--data uneven.jsonl --tuning $t --pack off --batch 2 --seq 300 --lr 1e-3 --warmup 2 --steps 24 --deterministic)
    expect 0 step "$train" "${base[@]}" --bucket 0 --log whole.csv
    expect 0 step "$train" "${base[@]}" --bucket 64 --log short.csv
    expect 0 'graphs: ' "$train" "${base[@]}" --bucket 64 --mode graph --log graph.csv
    [[ $(column whole.csv seq | sort -u) == 300 ]] || fail "lengths $t: $(column whole.csv seq | tr '\n' ' ')"
    column short.csv seq | grep -qv '^\(64\|128\|192\|256\|300\)$' && fail "lengths $t: no multiple of 64"
    cmp <(cut -d, -f1-5,12 short.csv) <(cut -d, -f1-5,12 graph.csv) || fail "lengths $t: graph differs from eager"
    # as many recordings as lengths that occurred more than once
    again=$(column graph.csv seq | sort | uniq -d | wc -l)
    [[ $again -ge 2 ]] || fail "lengths $t: only $again came twice"
    grep -q "^graphs: $again recorded" log || fail "lengths $t: $again came twice, $(grep '^graphs' log)"
    [[ $(column graph.csv record_time | grep -vc '^0$') -eq $again ]] || fail "lengths $t: $(column graph.csv record_time | tr '\n' ' ')"
    paste -d' ' <(column whole.csv loss) <(column short.csv loss) | while read -r a b; do close "$a" "$b" 1e-5 || echo "$a $b"; done >bad
    [[ ! -s bad ]] || fail "lengths $t: $(cat bad)"
    rm ./*.csv
done

# ---- the loss scale does not change the log, unless the gradients overflow ------------------------------------------
for c in none sync fused multi; do
    run --tuning full --clip $c --log one.csv
    run --tuning full --clip $c --loss-scale 4096 --log scaled.csv
    cmp <(cut -d, -f1-5 one.csv) <(cut -d, -f1-5 scaled.csv) || fail "loss scale, clip $c"
    rm ./*.csv
done
expect 1 '2 steps in a row had no finite loss and gradient' "$train" --steps 5 --tuning full --loss-scale 1e38 --max-skipped 2 --mode graph --log over.csv
[[ $(column over.csv status | sort -u) == skipped && $(column over.csv loss | grep -c .) -eq 2 ]] || fail 'loss scale: overflow'
rm over.csv

# ---- the log and the schedule --------------------------------------------------------------------------
run --log l.csv --schedule constant --lr 1e-3 --eval-split 0.2 --eval-interval 3
expect 2 '--log l.csv exists already: give a new name, or --resume to continue it' "$train" --steps 1 --log l.csv
[[ $(head -n 1 l.csv) == step,epoch,loss,grad_norm,lr,step_time,tokens_per_second,peak_memory,kernel_launches,host_syncs,eval_loss,seq,record_time,index_loss,save_time,status,note ]] || fail 'log: header'
[[ $(column l.csv lr | sort -u) == 0.001 ]] || fail 'log: lr'
[[ $(column l.csv eval_loss | grep -c .) -eq 2 && $(column l.csv status | sort -u) == ok ]] || fail 'log: evaluation'
rm l.csv
run --log l.csv
[[ $(column l.csv lr | sort -gr | head -n 1) == 0.001 && $(column l.csv lr | sort -g | head -n 1) != 0.001 ]] || fail 'log: cosine'
rm l.csv

"$train" --model v4-tiny --tuning full --steps 2 --seq 384 --index-loss 0.1 --log l.csv >/dev/null || fail 'index loss'
[[ $(column l.csv index_loss | grep -c '^0\.') -eq 2 ]] || fail "log: index loss $(column l.csv index_loss | tr '\n' ' ')"
rm l.csv

# ---- a step without a finite gradient is skipped, and many in a row end the run -----------------------------
expect 1 '3 steps in a row had no finite loss and gradient (limit: --max-skipped)' "$train" --steps 20 --tuning full --clip none \
    --warmup 0 --lr 1e30 --max-skipped 3 --log nan.csv
[[ $(column nan.csv status | tail -n 3 | sort -u) == skipped ]] || fail "skipped: $(column nan.csv status | tr '\n' ' ')"
column nan.csv note | grep -q 'not finite' || fail 'skipped: no reason'
grep -qi 'nan,\|inf,' nan.csv && fail 'skipped: the log holds what is not finite'

# ---- the plan's memory is within 10 % of the measured peak ---------------------------------------------------
for what in '--model smollm2-135m --layers 4 --batch 1 --seq 64 --tuning full' '--model smollm2-135m --layers 6 --batch 2 --seq 64 --tuning qlora' \
    '--model smollm2-135m --layers 4 --batch 1 --seq 64 --tuning lora --dtype bf16 --accumulate 2'; do
    # shellcheck disable=SC2086 # several words
    plan=$("$train" plan $what --steps 2 | awk '$1 == "peak" { print $2 * 1e6 }')
    # shellcheck disable=SC2086
    "$train" $what --steps 2 -q --log m.csv >log || fail "$what: exit $?"
    close "$plan" "$(column m.csv peak_memory | tail -n 1)" 0.1 || fail "memory of $what: plan $plan, peak $(column m.csv peak_memory | tail -n 1)"
    rm m.csv
done

# ---- checkpoints: a resumed run equals one that never stopped ------------------------------------------------
base=(--seq 96 --lr 1e-3 --accumulate 2 --batch 2 --eval-split 0.1 -q)
for t in full lora qlora; do
    for mode in eager graph; do
        one() { "$train" "${base[@]}" --tuning $t --mode $mode --steps 6 "$@" >log 2>&1 || fail "$t $mode $*: exit $?"; }
        one --export all --log all.csv
        one --save ck --save-interval 2 --save-retain-interval 4 --log part.csv
        [[ $(cd ck && echo iter*) == 'iter_0000004 iter_0000006' && $(cat ck/latest*) == 6 ]] || fail "$t: $(ls ck)"
        rm -r ck part.csv
        one --save ck --save-interval 3 --log part.csv --max-skipped 7
        rm -r ck/iter_0000006 && echo 3 >ck/latest_checkpointed_iteration.txt
        one --save ck --resume latest --export rest --log part.csv
        diff -r all rest >/dev/null || fail "$t $mode: the resumed run gives other weights"
        cmp <(cut -d, -f1-5,11 all.csv) <(cut -d, -f1-5,11 part.csv) || fail "$t $mode: the resumed run gives another log"
        rm -r all rest ck ./*.csv
    done
done
# also when the steps have rows of different lengths
base=(--data uneven.jsonl --pack off --seq 300 --lr 1e-3 --batch 2 -q --loss-scale 64)
for mode in eager graph; do
    one --export all --log all.csv --tuning lora
    one --save ck --save-interval 3 --tuning lora
    rm -r ck/iter_0000006 && echo 3 >ck/latest_checkpointed_iteration.txt
    one --save ck --resume latest --export rest --log part.csv --tuning lora
    diff -r all rest >/dev/null || fail "lengths $mode: the resumed run gives other weights"
    cmp <(sed 1,4d all.csv | cut -d, -f1-5,12) <(sed 1d part.csv | cut -d, -f1-5,12) || fail "lengths $mode: another log"
    rm -r all rest ck ./*.csv
done
# and when conversations cross the ends of rows
base=(--data uneven.jsonl --pack stream --min-loss-tokens 0.4 --seq 96 --lr 1e-3 --accumulate 2 --batch 2 -q)
for mode in eager graph; do
    one --export all --log all.csv --tuning lora
    one --save ck --save-interval 3 --tuning lora
    rm -r ck/iter_0000006 && echo 3 >ck/latest_checkpointed_iteration.txt
    expect 2 'belongs to a run with other settings: --min-loss-tokens was "0.4", but is "0.3"' "$train" "${base[@]}" --mode $mode --steps 6 --save ck \
        --resume latest --min-loss-tokens 0.3
    one --save ck --resume latest --export rest --log part.csv --tuning lora
    diff -r all rest >/dev/null || fail "stream $mode: the resumed run gives other weights"
    cmp <(sed 1,4d all.csv | cut -d, -f1-5,12) <(sed 1d part.csv | cut -d, -f1-5,12) || fail "stream $mode: another log"
    rm -r all rest ck ./*.csv
done
base=(--seq 96 --lr 1e-3 --accumulate 2 --batch 2 --eval-split 0.1 -q)
one --save ck
expect 2 'ck already has checkpoints (the newest is of step 6)' "$train" "${base[@]}" --save ck --steps 9
# settings that determine the position in the data must not change; settings of later steps may
again=("$train" "${base[@]}" --tuning $t --save ck --steps 9 --resume latest)
expect 2 'belongs to a run with other settings: --seq was "96", but is "64"' "${again[@]}" --seq 64
expect 2 'belongs to a run with other settings: --bad-lines was "fail", but is "skip"' "${again[@]}" --bad-lines skip
expect 2 'belongs to a run with other settings: --loss-mask-type was' "${again[@]}" --loss-mask-type all
expect 2 'belongs to a run with other settings: --pack was' "${again[@]}" --pack off
expect 2 'belongs to a run with other settings: --pack was "on", but is "stream"' "${again[@]}" --pack stream
expect 2 'belongs to a run with other settings: --eval-split was' "${again[@]}" --eval-split 0.2
expect 2 'belongs to a run with other settings: --seed was "42", but is "43"' "${again[@]}" --seed 43
expect 2 'only the template deepseek-v4 has a thinking mode' "${again[@]}" --thinking
expect 2 'ck/iter_0000005' "$train" "${base[@]}" --tuning $t --save ck --steps 9 --resume 5
expect 2 '--resume needs --save' "$train" --resume latest
expect 0 'was "6", but is "9" now' "$train" "${base[@]}" --tuning $t --save ck --steps 9 --resume latest
rm -r ck

# the setting counts even when it changes no row
again=("$train" --data d.jsonl --bad-lines skip --seq 96 --save ck --resume latest)
expect 0 'step      1/1' "${again[@]}" --steps 1
expect 2 'belongs to a run with other settings: --long-ones was "split", but is "drop"' "${again[@]}" --steps 2 --long-ones drop
rm -r ck
# a tokenizer is identified by its contents, not by its path
cp "$fixtures/tokenizers/qwen2.json" moved.json
again=("$train" --model smollm2-135m --layers 1 --batch 1 --seq 96 --save ck --resume latest)
expect 0 "step      1/1" "${again[@]}" --steps 1 --tokenizer "$fixtures/tokenizers/qwen2.json" --template qwen2.5
expect 0 '--steps was "1"' "${again[@]}" --steps 2 --tokenizer moved.json --template qwen2.5
expect 2 'belongs to a run with other settings: --template was "qwen2.5", but is "chatml"' "${again[@]}" --steps 3 --tokenizer moved.json --template chatml
expect 2 'belongs to a run with other settings: --tokenizer was' "${again[@]}" --steps 3 --tokenizer "$fixtures/chat/chatml" --template qwen2.5
rm -r ck

# killed at any instant and resumed, it ends with the same result
"$train" "${base[@]}" --steps 40 --export all >log 2>&1 || fail 'the whole run'
for i in $(seq 12); do
    "$train" "${base[@]}" --steps 40 --save ck --save-interval 1 --resume latest >>killed 2>&1 & pid=$!
    sleep "0.0$((i * 7 % 9 + 1))"
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
done
expect 0 exported "$train" "${base[@]:0:10}" --steps 40 --save ck --save-interval 1 --resume latest --export rest
diff -r all rest >/dev/null || fail 'killed and resumed: other weights'
rm -r all rest ck

# ---- export: other programs can read it, and so can train ---------------------------------------------------
for t in full lora qlora; do
    "$train" --tuning $t --steps 4 --lr 1e-3 --eval-split 0.1 --export adapter >log || fail "export $t: exit $?"
    loss=$(sed -n 's/.*evaluation: loss \([0-9.]*\),.*/\1/p' log)
    if [[ $t == full ]]; then from=(--model adapter --tuning full --tokenizer bytes); else from=(--adapter adapter --tuning $t); fi
    got=$("$train" eval "${from[@]}" --eval-split 0.1 | awk '$1 == "loss" { print $2 }')
    close "$loss" "$got" 1e-6 || fail "export $t: loss $loss, then $got"
    rm -r adapter
    [[ $t == full ]] && continue
    "$train" --tuning $t --steps 4 --lr 1e-3 --eval-split 0.1 --merge --export merged >/dev/null || fail "merge $t"
    got=$("$train" eval --model merged --tuning full --tokenizer bytes --eval-split 0.1 | awk '$1 == "loss" { print $2 }')
    close "$loss" "$got" 1e-5 || fail "merge $t: loss $loss, then $got"
    rm -r merged
done
expect 2 'no tokenizer.json' "$train" eval --model "$fixtures/hf/qwen2"
expect 2 '/proc/nowhere' "$train" --steps 1 --adapter /proc/nowhere

# ---- export: adapters and a whole model are not mixed in one folder ----------------------------------------------
rm -rf adapter merged
expect 0 exported "$train" --steps 1 --export adapter
expect 2 'adapter holds adapters (adapter_config.json), and an export of a whole model would be mixed with it' \
    "$train" --steps 1 --tuning full --export adapter
expect 0 exported "$train" --steps 1 --merge --export merged
expect 2 'merged holds a whole model (config.json), and an export of adapters' "$train" --steps 1 --export merged
expect 2 'adapter holds adapters' "$train" export --out adapter
expect 0 exported "$train" --steps 1 --export adapter
rm -r adapter merged

# ---- profiling: a run that is too short for the schedule says so --------------------------------------------------
expect 0 'warning: no step is profiled: --profile-steps 5:0:1:3:1 records after 6 steps, and this run has 6' \
    "$train" --steps 6 --quiet --profile-ranks all --profile-out short
expect 0 '' "$train" --steps 7 --quiet --profile-ranks all --profile-out long
! grep -q warning log || fail 'a warning although a step is profiled'

# ---- export: with the files of the tokenizer, so that the folder can be evaluated alone ------------------------
mkdir exported && echo old | tee exported/vocab.json exported/generation_config.json >exported/chat_template.jinja
expect 0 'exported to exported' "$train" --tuning full --steps 2 --lr 1e-3 --eval-split 0.1 --tokenizer "$fixtures/chat/chatml" --export exported
loss=$(sed -n 's/.*evaluation: loss \([0-9.]*\),.*/\1/p' log)
for f in tokenizer.json tokenizer_config.json special_tokens_map.json; do cmp "$fixtures/chat/chatml/$f" exported/$f || fail "export: $f"; done
[[ $(ls exported) == $'config.json\nmodel.safetensors\nspecial_tokens_map.json\ntokenizer.json\ntokenizer_config.json' ]] || fail "export: $(ls exported)"
# the folder needs no other option, and its files are copied to later exports, merged or not
echo '{"temperature": 0.5}' >exported/generation_config.json
printf '{{ raise_exception("none") }}' >exported/chat_template.jinja
expect 2 'exported/chat_template.jinja: the chat template is not supported: it raises "none"; choose one with --template' "$train" eval --model exported
expect 0 'template: chatml, from --template' "$train" eval --model exported --template chatml
rm exported/chat_template.jinja
expect 0 'template: chatml, from tokenizer_config.json' "$train" eval --model exported --tuning full --eval-split 0.1
close "$loss" "$(awk '$1 == "loss" { print $2 }' log)" 1e-6 || fail "export: loss $loss, then $(grep ^loss log)"
expect 0 'exported to merged' "$train" --model exported --steps 1 --eval-split 0.1 --merge --export merged
loss=$(sed -n 's/.*evaluation: loss \([0-9.]*\),.*/\1/p' log)
for f in tokenizer.json tokenizer_config.json generation_config.json; do cmp exported/$f merged/$f || fail "merge: $f"; done
close "$loss" "$("$train" eval --model merged --tuning full --eval-split 0.1 | awk '$1 == "loss" { print $2 }')" 1e-5 || fail "merge: loss $loss"
# a tokenizer file with another name replaces the folder's files; exporting into the model's own folder keeps them
cp exported/tokenizer.json other.json
expect 0 'exported to exported' "$train" --model exported --tuning full --tokenizer other.json --template chatml --steps 1 --export exported
[[ -f exported/tokenizer_config.json && -f exported/generation_config.json ]] || fail "export into itself: $(ls exported)"
expect 0 'exported to merged' "$train" --model exported --tuning full --tokenizer other.json --template chatml --steps 1 --export merged
[[ $(ls merged) == $'config.json\ngeneration_config.json\nmodel.safetensors\ntokenizer.json' ]] || fail "export of a file: $(ls merged)"
expect 0 'exported to merged' "$train" --model exported --tuning full --tokenizer bytes --steps 1 --export merged
[[ ! -e merged/tokenizer.json ]] || fail 'export: a tokenizer where the text is bytes'
rm -r exported merged other.json

# ---- text that the vocabulary does not cover is never dropped --------------------------------------------------
printf 'ab\xff\xfe\n' >text
"$train" tokenize --tokenizer "$fixtures/chat/chatml" text | "$train" tokenize --tokenizer "$fixtures/chat/chatml" --decode | cmp - text || fail 'tokenize: bytes do not come back'
sed 's/"ÿ": [0-9]*, //' "$fixtures/tokenizers/smollm.json" | sed 's/"ÿ":[0-9]*,//' >lacks.json
expect 2 'text:1: tokenizer: byte 2 is not UTF-8, and 0xFF is not in the vocabulary' "$train" tokenize --tokenizer lacks.json text
expect 2 'needs --tuning lora or qlora' "$train" --steps 1 --adapter x --tuning full

# without the gains of norms: fewer parameters, no modules_to_save, and resuming with other settings is refused
expect 0 '12288 parameters trained' "$train" --steps 2 --train-norms no --save ck --export adapter
grep -q 'gains' log && fail 'gains are said to be trained'
grep -q '"modules_to_save": *null' adapter/adapter_config.json || fail "modules_to_save: $(cat adapter/adapter_config.json)"
grep -aq layernorm adapter/adapter_model.safetensors && fail 'gains are exported'
expect 2 'belongs to a run with other settings: --train-norms was "no", but is "yes"' "$train" --steps 3 --save ck --resume latest
expect 0 perplexity "$train" eval --adapter adapter --eval-split 0.1
expect 2 '--train-norms no needs --tuning lora or qlora' "$train" --steps 1 --train-norms no --tuning full
rm -r ck
# gains that were loaded with adapters are exported with them, trained or not
expect 0 '12544 parameters trained' "$train" --steps 2 --lr 1e-2 --export with
grep -q "the gains of the layers' norms are also trained" log || fail 'gains are not said to be trained'
expect 0 exported "$train" --steps 1 --lr 1e-6 --adapter with --train-norms no --export adapter
grep -q input_layernorm adapter/adapter_config.json || fail 'gains that came with adapters are lost'
grep -aq layernorm adapter/adapter_model.safetensors || fail 'gains that came with adapters are not in the file'
rm -r with adapter

# ---- scales of NF4 in 8 bits ---------------------------------------------------------------------------------------
expect 2 '--nf4-scales 8bit needs --tuning qlora' "$train" --steps 1 --nf4-scales 8bit
for scales in f32 8bit; do expect 0 '' "$train" --tuning qlora --nf4-scales $scales --steps 3 -q --log $scales.csv --save ck$scales; done
awk -F, 'FNR == 4 { loss[++n] = $3 } END { d = loss[1] / loss[2] - 1; exit !(n == 2 && d != 0 && d < 1e-3 && d > -1e-3) }' f32.csv 8bit.csv ||
    fail "losses with scales in f32 and 8 bits: $(tail -qn 1 f32.csv 8bit.csv)"
expect 2 'belongs to a run with other settings: model.tuning was "qlora, scales in 8 bits", but is "qlora"' \
    "$train" --tuning qlora --steps 4 --save ck8bit --resume latest
expect 0 's/step' "$train" --tuning qlora --nf4-scales 8bit --steps 4 --save ck8bit --resume latest
rm -r f32.csv 8bit.csv ckf32 ck8bit

# ---- the progress line: no time left is shown before the first steps are over -------------------------------------
expect 0 's/step' "$train" --steps 5 --seq 16 --batch 1
[[ $(grep '^step' log | sed 's/.*left \([^ ]*\) .*/\1/' | tr '\n' ' ') =~ ^\?\ \?\ 0:[0-9:]+\ 0:[0-9:]+\ 0:00:00\ $ ]] || fail "time left: $(grep '^step' log)"
expect 2 'tiny-qwen3' "$train" --model tinny
grep -q 'no folder or GGUF file of this name exists' log || fail 'a folder that is missing is not said to be'
expect 2 'train: text.txt is neither a folder nor a GGUF file' bash -c 'echo text >text.txt; exec "$0" --model text.txt' "$train"

# ---- interrupted -----------------------------------------------------------------------------------------
"$train" --steps 1000000 --log i.csv >log 2>&1 & pid=$!
for _ in $(seq 100); do [[ -f i.csv && $(wc -l <i.csv) -gt 3 ]] && break; sleep 0.05; done
kill -INT $pid
wait $pid
[[ $? -eq 125 ]] || fail 'exit code after SIGINT'
grep -q 'interrupted after step' log || fail 'no line says that it was interrupted'
[[ $(tail -n 1 i.csv) == *,ok, ]] || fail 'the log ends in half a row'

[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
