#!/bin/bash
# gguf_cli_test.sh TRAIN - models in GGUF files as a user sees them: the same results as from the folder they were made from,
# training, resuming and export; and bad files, each refused in one line before anything is written.
train=$1 fixtures=$(cd "${0%/*}/../fixtures" && pwd)
. "${0%/*}/../cli.sh"

# one: the last command must have printed one line.
one() { [[ $(wc -l <log) -eq 1 ]] || fail "not one line: $1"; }
result() { "$train" eval --seq 32 --batch 2 --data few.jsonl --quiet "$@" 2>/dev/null; }
head -n 3 "$fixtures/../../data/corpus.jsonl" >few.jsonl
for model in qwen2 qwen3; do
    [[ $(result --model "$fixtures/gguf/$model.gguf" --tokenizer bytes) == "$(result --model "$fixtures/hf/$model" --tokenizer bytes)" ]] ||
        fail "$model: the GGUF file has another loss than the folder"
done

# ---- export: the folder gives the results of the file, with the file's tokenizer and chat template ----------------
expect 0 'exported to out' "$train" export --model "$fixtures/gguf/llama.gguf" --out out
[[ $(cd out && echo *) == 'config.json model.safetensors tokenizer.json tokenizer_config.json' ]] || fail "files: $(ls out)"
whole=$(result --model "$fixtures/gguf/llama.gguf") folder=$(result --model out)
[[ -n $whole && $whole == "$folder" ]] || fail "export: $whole, but $folder"
grep -q 'chat template: chatml, from tokenizer_config.json' <("$train" plan --model out --data few.jsonl --seq 32) ||
    fail 'the exported folder has no chat template'
said() { "$train" generate --max-tokens 5 --prompt hello --ids --quiet "$@" 2>/dev/null; }
words=$(said --model "$fixtures/gguf/llama.gguf")
[[ -n $words && $words == "$(said --model out)" ]] || fail "generate: $words, but from the folder $(said --model out)"
grep -q note log && fail 'a tensor of the file is said to be unused'
expect 2 'is the model'"'"'s own folder' "$train" export --model out --out ./out/.
expect 2 'export needs --out DIR' "$train" export --model "$fixtures/gguf/llama.gguf"
expect 0 '' "$train" export --model "$fixtures/gguf/qwen3.gguf" --out narrow --dtype bf16 --quiet
[[ $(stat -c %s narrow/model.safetensors) -lt $(($(stat -c %s out/model.safetensors) * 2 / 3)) ]] || fail 'bf16 is not smaller'
expect 0 '' "$train" export --model "$fixtures/gguf/qwen3.gguf" --tokenizer bytes --out bare --quiet
[[ ! -e bare/tokenizer.json ]] || fail 'the byte tokenizer has a file'

# ---- training: interrupted by the end of its steps, resumed, exported -----------------------------------------------
run=("$train" --model "$fixtures/gguf/llama.gguf" --data few.jsonl --seq 32 --batch 2 --rank 2 --save ck)
expect 0 'loaded' "${run[@]}" --steps 2 --tuning qlora
expect 0 'resumed after step 2' "${run[@]}" --steps 3 --tuning qlora --resume latest --export adapter
expect 0 '' "$train" eval --model out --adapter adapter --tuning lora --data few.jsonl --seq 32

# ---- bad files -----------------------------------------------------------------------------------------------------
head -c 3000 "$fixtures/gguf/small.gguf" >cut.gguf
sed 's/llama/gemma/g' "$fixtures/gguf/small.gguf" >gemma.gguf
sed 's/smollm/smallm/' "$fixtures/gguf/qwen2.gguf" >tokenizer.gguf
sed 's/ffn_up/ffn_xx/' "$fixtures/gguf/qwen3.gguf" >names.gguf
: >empty.gguf
mkdir folder.gguf
for command in "export --out new" "eval --seq 16" "plan --seq 16" "run --seq 16 --save new"; do
    table "$train" <<TABLE
$command --model cut.gguf                           | 2 | cut.gguf: tensor
$command --model empty.gguf                         | 2 | empty.gguf is not a GGUF file
$command --model gemma.gguf                         | 2 | general.architecture "gemma" is not one of llama, qwen2, qwen3
$command --model tokenizer.gguf                     | 2 | tokenizer.ggml.pre "smallm" is not one of gpt-2, smollm, qwen2, llama-bpe
$command --model folder.gguf                        | 2 | folder.gguf/config.json
$command --model none.gguf                          | 2 | no folder or GGUF file of this name exists
TABLE
    one "$command"
    [[ ! -e new ]] || { fail "$command wrote something" && rm -r new; }
done
for command in "export --out new" "eval --seq 16" "run --seq 16 --save new"; do
    read -r -a words <<<"$command"
    expect 2 'names.gguf has no tensor blk.0.ffn_up.weight' "$train" "${words[@]}" --model names.gguf --tokenizer bytes
    one "$command"
    [[ ! -e new ]] || { fail "$command wrote something" && rm -r new; }
done
expect 2 'is not a GGUF file' "$train" tokenize --tokenizer empty.gguf

[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
