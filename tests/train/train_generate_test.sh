#!/bin/bash
# train_generate_test.sh TRAIN - `train generate` as a user sees it: what was learnt is what it writes, its output and exit
# codes, bad input. The tokens themselves are compared in generate_test.
train=$1 fixtures=$(cd "${0%/*}/../fixtures" && pwd)
. "${0%/*}/../cli.sh"
export OMP_NUM_THREADS=1

answer() { # answer TEXT OPTION...: the whole standard output must be TEXT and a newline
    local want=$1 got
    shift
    got=$("$train" generate "$@" 2>log && printf .) || fail "exit $?: $*"
    [[ $got == "$want"$'\n.' ]] || fail "wrote '$got', want '$want': $*"
}

# ---- a model writes what it was trained on, and stops at the end of the message ------------------------------------
printf '%s\n' '{"messages":[{"role":"user","content":"ping"},{"role":"assistant","content":"póng 日本"}]}' \
    '{"messages":[{"role":"system","content":"S"},{"role":"user","content":"ping"},{"role":"assistant","content":"no"}]}' >data.jsonl
"$train" --model tiny --tuning full --data data.jsonl --steps 120 --batch 2 --seq 64 --lr 5e-3 --quiet --export learnt >log 2>&1 ||
    fail 'no training'
learnt=(--model learnt --tokenizer bytes)
answer 'póng 日本' "${learnt[@]}" --prompt ping
grep -q 'train: 13 tokens after a prompt of 23, stopped at an end-of-sequence token; prompt .* s, then .* tokens/s' log ||
    fail 'no summary'
answer no "${learnt[@]}" --prompt ping --system S -q
[[ ! -s log ]] || fail 'not quiet'
answer 'pó' "${learnt[@]}" --prompt ping --max-tokens 3
answer $'p\xef\xbf\xbd' "${learnt[@]}" --prompt ping --max-tokens 2
answer '112 195 179' "${learnt[@]}" --prompt ping --max-tokens 3 --ids
answer 'póng 日本' "${learnt[@]}" --prompt ping --temperature 0.2 --top-p 0.5
answer 'póng 日本' "${learnt[@]}" --prompt ping --dtype bf16
answer 'póng 日本' "${learnt[@]}" --prompt ping --tuning qlora
answer 'póng 日本' "${learnt[@]}" --raw --prompt $'<im_start>user\nping<im_end>\n<im_start>assistant\n' --max-tokens 12

# ---- the folder's end-of-sequence tokens, also without a template ------------------------------------------------------
printf '{"eos_token_id": [5, 195]}\n' >learnt/generation_config.json
answer p "${learnt[@]}" --prompt ping
answer 112 "${learnt[@]}" --prompt ping --ids
printf '{"eos_token_id": 500}\n' >learnt/generation_config.json
expect 2 '"eos_token_id" needs ids of the vocabulary, 0 to 271' "$train" generate "${learnt[@]}" --prompt ping
rm learnt/generation_config.json

# ---- an adapter over the model that it was trained on --------------------------------------------------------------
printf '%s\n' '{"messages":[{"role":"user","content":"ping"},{"role":"assistant","content":"yes"}]}' >other.jsonl
"$train" "${learnt[@]}" --targets q,k,v,o,gate,up,down --data other.jsonl --steps 60 --batch 1 --seq 64 --lr 1e-2 --quiet \
    --export adapter >log 2>&1 || fail 'no training of an adapter'
answer yes "${learnt[@]}" --adapter adapter --prompt ping
answer 'póng 日本' "${learnt[@]}" --prompt ping

# ---- the table: arguments | exit code | text -------------------------------------------------------------------------
table "$train" <<TABLE
generate                                          |   2 | generate needs --prompt TEXT
generate --prompt                                 |   2 | --prompt
generate --prompt a --max-tokens 0                |   2 | --max-tokens 0: need a whole number from 1
generate --prompt a --max-tokens 9999999999       |   2 | --max-tokens 9999999999 is too large
generate --prompt a --temperature -1              |   2 | temperature -1: need a finite number of at least 0
generate --prompt a --temperature 1 --top-p 0     |   2 | top-p 0: need a number above 0 and at most 1
generate --prompt a --adapter /proc/nowhere       |   2 | /proc/nowhere
generate --prompt a --adapter adapter --tuning full |  2 | --adapter needs --tuning lora or qlora
generate --prompt a --model tinny                 |   2 | tiny-qwen3
generate --prompt a --model v4-tiny               |   2 | v4-tiny has no KV cache
generate --prompt a word                          |   2 | 'word' is not an option
generate --prompt a --steps 3                     |   2 | --steps
generate --prompt <im_end>                        |   2 | the text contains the special token "<im_end>"
generate --prompt a --raw --system b              |   2 | --system needs a chat template
generate --prompt a --model $fixtures/hf/qwen2    |   2 | has no tokenizer.json
generate --prompt a --device cuda                 | 125 | train: cuda
generate --help                                   |   0 | --top-p
eval --prompt a                                   |   2 | --prompt
TABLE
expect 2 'prompt' "$train" generate --prompt ''
expect 2 '--prompt is not UTF-8 from byte 2 on' "$train" generate --prompt $'a\xff'
expect 2 "--prompt has 200 tokens, but $fixtures/hf/qwen2 has only 128 positions" "$train" generate --raw \
    --model "$fixtures/hf/qwen2" --tokenizer bytes --prompt "$(printf 'x%.0s' {1..200})"
expect 2 'tokens with its chat template' "$train" generate --model "$fixtures/hf/qwen2" --tokenizer bytes \
    --prompt "$(printf 'x%.0s' {1..120})"

# At the last position there is one more token, and then the text ends.
prompt=$(printf 'x%.0s' {1..126})
"$train" generate --raw --model "$fixtures/hf/qwen2" --tokenizer bytes --prompt "$prompt" --ids >out 2>log || fail "exit $?"
[[ $(wc -w <out) -eq 3 ]] || fail "$(wc -w <out) tokens after 126 of 128 positions"
grep -q '3 tokens after a prompt of 126, stopped at the last position of the model' log || fail 'not said why it ended'

expect 125 'standard output could not be written completely' bash -c '"$0" generate --prompt a >/dev/full' "$train"
exit $((failures > 0))
