#!/bin/bash
# train_faults_test.sh TRAIN EVAL_ORACLE - the program train with bad data, bad files and signals: what still works,
# what is refused with which exit code, and which files are left.
train=$1 oracle=$2 fixtures=$(cd "${0%/*}/../fixtures" && pwd) corpus=$(cd "${0%/*}/../../data" && pwd)/corpus.jsonl
. "${0%/*}/../cli.sh"

close() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= t * (b < 0 ? -b : b)) }'; }
value() { awk -v k="$1" '$1 == k { print $2 }' log; }
column() { awk -F, -v n="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == n) c = i; next } { print $c }' "$1"; }

# ---- logits of a last batch that ends after the epoch, when the next epoch packs into another number of rows ---------
head -n 30 "$corpus" >c30.jsonl
for batch in 1 4; do
    expect 0 perplexity "$train" eval --model tiny --layers 1 --data c30.jsonl --seq 1500 --batch $batch --seed 3 --dump-logits d.st
    close "$(value loss)" "$("$oracle" d.st | awk '$1 == "loss" { print $2 }')" 2e-7 || fail "logits of batch $batch: $("$oracle" d.st)"
    [[ $(value tokens) == "$("$oracle" d.st | awk '$1 == "tokens" { print $2 }')" ]] || fail "logits of batch $batch: tokens"
    # perplexity is exp(loss)
    close "$(value perplexity)" "$(awk -v x="$(value loss)" 'BEGIN { printf "%.12g", exp(x) }')" 1e-6 || fail "perplexity: $(cat log)"
    rm d.st
done
expect 0 evaluation "$train" --steps 1 --seq 64 --eval-split 0.1
close "$(sed -n 's/.*perplexity \([0-9.]*\).*/\1/p' log)" "$(sed -n 's/.*: loss \([0-9.]*\),.*/\1/p' log | awk '{ printf "%.12g", exp($1) }')" 1e-4 ||
    fail "perplexity while training: $(cat log)"

# ---- steps without a finite gradient end a run only when there are several in a row ----------------------------------
# A model whose embedding of the byte 'Z' is NaN: exactly the steps that read a Z are skipped.
"$train" --model tiny-llama --tuning full --steps 1 --seq 32 -q --export m || fail 'export'
n=$(od -An -t u8 -N 8 m/model.safetensors | tr -d ' ')
begin=$(head -c $((8 + n)) m/model.safetensors | grep -ao '"model.embed_tokens.weight":{[^}]*' | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
printf '\0\0\300\177' | dd of=m/model.safetensors bs=1 seek=$((8 + n + begin + 90 * 96 * 4)) conv=notrunc status=none
for i in $(seq 16); do printf '{"instruction":"%s","response":"%d"}\n' "$([[ $((i % 2)) -eq 1 ]] && echo Z || echo z)" "$i"; done >z.jsonl
expect 0 'steps were skipped, because their loss or gradient was not finite' "$train" --model m --tokenizer bytes --tuning full --data z.jsonl --pack off --batch 1 --seq 64 --steps 16 \
    --max-skipped 8 --log z.csv
skipped=$(column z.csv status | grep -c skipped) longest=$(column z.csv status | awk '{ n = $1 == "skipped" ? n + 1 : 0; if (n > most) most = n } END { print most }')
grep -q '^8 of 16 steps were skipped' log || fail 'the skipped steps are not counted'
[[ $skipped -eq 8 && $longest -lt 8 ]] || fail "skipped: $(column z.csv status | tr '\n' ' ')"
expect 1 "$longest steps in a row had no finite loss and gradient (limit: --max-skipped)" "$train" --model m --tokenizer bytes --tuning full --data z.jsonl --pack off \
    --batch 1 --seq 64 --steps 16 --max-skipped "$longest"
rm -r m z.csv
# Weights that a step has destroyed: no checkpoint from before is removed, and the run ends with 1 although it is short.
small=(--batch 1 --seq 32 --save ck --save-interval 2 -q)
expect 0 '' "$train" "${small[@]}" --steps 8
expect 1 '10 steps in a row had no finite loss' "$train" "${small[@]}" --steps 40 --resume latest --lr 1e30
[[ -d ck/iter_0000008 ]] || fail "the last good checkpoint is gone: $(ls ck)"
expect 0 'resumed after step 8' "$train" --batch 1 --seq 32 --save ck --save-interval 2 --steps 12 --resume 8
rm -r ck
expect 1 'the last 4 of 5 steps were skipped, so the weights are still those after step 1' "$train" --steps 5 --batch 1 --seq 32 \
    --tuning full --lr 1e30

# ---- a log that can no longer be written: the run stops with a checkpoint, and the log ends with a whole row -----------
small=(--batch 1 --seq 16 --save ck -q --log full.csv)
expect 0 '' "$train" "${small[@]}" --steps 2
{ head -n 1 full.csv && for _ in $(seq 2600); do printf '0%0100d\n' 0; done | head -c 261500 && echo && tail -n +2 full.csv; } >padded.csv && mv padded.csv full.csv
expect 125 'train: full.csv: File too large: the run ended after step' bash -c 'ulimit -f 256; exec "$@"' limited \
    "$train" "${small[@]}" --steps 60 --resume latest
step=$(sed -n 's/.*the run ended after step \([0-9]*\)$/\1/p' log)
[[ $step -gt 2 && $step -lt 60 && $(cat ck/latest*) -eq $step ]] || fail "after step $step: $(cat ck/latest*)"
[[ -z $(tail -c 1 full.csv) && $(tail -n 1 full.csv | cut -d, -f1) -eq $((step - 1)) ]] || fail "the log ends with $(tail -n 1 full.csv)"
expect 0 '' "$train" "${small[@]}" --steps $((step + 2)) --resume latest
expect 125 "full.csv: File too large: the run ended after step $((step + 3))" bash -c 'ulimit -f 256; exec "$@"' limited \
    "$train" "${small[@]}" --steps $((step + 3)) --resume latest # it was the last step
rm -r ck full.csv

# ---- a run that is refused leaves no folder ------------------------------------------------------------------------------
profile=(--steps 2 --batch 1 --seq 32 --profile-ranks all --profile-steps 0:0:0:1:1)
expect 2 'missing closing parenthesis' "$train" "${profile[@]}" --capture-tensors '(' --export exported
expect 2 'nowhere/x.csv: No such file' "$train" "${profile[@]}" --log nowhere/x.csv --export exported
[[ ! -e profile && ! -e exported ]] || fail "a refused run left $(find profile exported)"
expect 0 '' "$train" "${profile[@]}" --log profile/log.csv
[[ -s profile/log.csv ]] || fail 'no log in the folder of the profile'
rm -r profile

# ---- sizes in a file are checked against its shards and the free memory before anything is allocated -----------------
# A program with AddressSanitizer maps terabytes of addresses, so its address space cannot be limited.
limit=1000000
bash -c "ulimit -v $limit; exec \"\$1\" help" limit "$train" >log 2>&1 || limit=unlimited
# limited CODE TEXT ARG...: runs train with an address space of 1 GB, which the sizes below would exceed
limited() {
    local code=$1 text=$2
    shift 2
    expect "$code" "$text" env OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 bash -c "ulimit -v $limit; exec \"\$@\"" limited "$train" --steps 1 --seq 16 --batch 1 --data "$corpus" "$@"
    [[ $(grep '^train: ' log | grep -vc '^train: note: ') -eq $((code > 0)) && $(wc -l <log) -le $((code > 0 ? 1 : 99)) ]] || fail "not one line: $(cat log)"
}
"$train" --model tiny-llama --tuning full --steps 1 --seq 32 -q --export m || fail 'export'
cp m/config.json config.json
limited 0 'step      1/1' --model m --tokenizer bytes
for tuning in full lora qlora; do
    for size in 'intermediate_size 4194304' 'hidden_size 1048576' 'vocab_size 4194304' 'num_hidden_layers 1000' 'num_attention_heads 4095' 'num_key_value_heads 1' \
        'head_dim 512'; do
        sed "s/\"${size% *}\": *[0-9]*/\"${size% *}\": ${size#* }/" config.json >m/config.json
        limited 2 'm' --model m --tokenizer bytes --tuning $tuning
        grep -q 'the model needs\|has no tensor' log || fail "$size: $(cat log)"
    done
done
# the largest position does not size any memory
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 1000000000/' config.json >m/config.json
limited 0 'step      1/1' --model m --tokenizer bytes
cp config.json m
"$train" --model m --tokenizer bytes --steps 1 --seq 32 --rank 4 -q --export adapter || fail 'export of adapters'
limited 0 'step      1/1' --model m --tokenizer bytes --adapter adapter
sed -i 's/"r": *[0-9]*/"r": 96/' adapter/adapter_config.json
limited 2 'the model needs [96,96]' --model m --tokenizer bytes --adapter adapter
sed -i 's/"r": *[0-9]*/"r": 4194304/' adapter/adapter_config.json
limited 2 'rank 4194304: need 1 to 96' --model m --tokenizer bytes --adapter adapter
# sizes that are consistent, but too large for this machine
[[ $limit == unlimited ]] || limited 125 'MB with --tuning qlora' --model qwen2.5-1.5b --tuning full
limited 125 'MB are available' --accumulate 1000000 --seq 2048 --batch 1000
rm -r m adapter

# ---- files that are not regular are refused at once ------------------------------------------------------------------
# refused CODE TEXT ARG...: train must be refused in one line, without waiting for anything
refused() {
    local code=$1 text=$2
    shift 2
    expect "$code" "$text" timeout 30 "$train" -q --steps 1 --seq 16 --batch 1 "$@"
    [[ $(wc -l <log) -eq 1 ]] || fail "not one line: $(cat log)"
}
mkfifo fifo
"$train" --model tiny-llama --tuning full --steps 1 --seq 32 -q --export m && "$train" --steps 1 --seq 32 -q --export adapter || fail 'export'
for file in fifo /dev/zero; do
    refused 2 'but must be a regular file' --data $file
    refused 2 'but must be a regular file' --eval-data $file
    refused 2 'but must be a regular file' --tokenizer $file --model m --template llama3
    refused 2 'but must be a regular file' --log $file --save ck --resume latest
    refused 2 'exists already: give a new name' --log $file
    for name in m/config.json m/model.safetensors m/tokenizer.json adapter/adapter_config.json adapter/adapter_model.safetensors; do
        [[ -f $name ]] && mv $name kept
        ln -s "$(realpath $file)" $name
        if [[ $name == m/tokenizer.json ]]; then refused 2 'but must be a regular file' --model m
        elif [[ $name == m/* ]]; then refused 2 'but must be a regular file' --model m --tokenizer bytes
        else refused 2 'but must be a regular file' --adapter adapter; fi
        rm $name
        [[ -f kept ]] && mv kept $name
    done
    expect 2 'but must be a regular file' timeout 30 "$train" eval --seq 16 --eval-split 0.05 --dump-logits $file
done
rm -r m adapter ck fifo

# ---- lines that are not conversations: a note names the lines that are skipped ---------------------------------------
printf '\xef\xbb\xbf%s\n' '{"instruction":"q","response":"a"}' >d.jsonl
expect 0 '1 conversations' "$train" --steps 1 --seq 64 --batch 1 --data d.jsonl # a byte order mark is skipped
echo '{"instruction":"q","response":"a"}' >own.jsonl
expect 2 'this is the file of --data' "$train" eval --seq 16 --data own.jsonl --dump-logits ./own.jsonl
[[ $(cat own.jsonl) == '{"instruction":"q","response":"a"}' ]] || fail '--dump-logits overwrote the data'
printf '\xef\xbb\xbfno\n%s\n' '{"instruction":"q","response":"a"}' >bad.jsonl
expect 2 'bad.jsonl:1: column 2:' "$train" --steps 1 --data bad.jsonl
grep -q 'skipped' log && fail "a line is reported as skipped, but the run ended: $(cat log)"
expect 0 'skipped bad line bad.jsonl:1' "$train" --steps 1 --seq 64 --batch 1 --data bad.jsonl --bad-lines skip

# ---- a full disk ends with exit code 125, whatever was being written -------------------------------------------------
# full TEXT ARG...: runs train with files limited to 2 KB
full() {
    local text=$1
    shift
    expect 125 "$text" bash -c 'ulimit -f 2; exec "$@"' full "$train" "$@"
}
full 'File too large' --steps 2 --seq 32 --batch 1 -q --export e
full 'File too large' --steps 2 --seq 32 --batch 1 -q --tuning full --export e
full 'File too large' --steps 2 --seq 32 --batch 1 -q --save ck
full 'l.csv: File too large' --steps 100 --seq 16 --batch 1 --lr 1e-3 -q --log l.csv
full 'd.st: File too large' eval --seq 32 --eval-split 0.05 --dump-logits d.st
[[ ! -e d.st && ! -e e/config.json && ! -e e/adapter_config.json && -z $(find . -name '*.partial') ]] || fail "left behind: $(find . -newer d.jsonl)"
rm -r e ck l.csv

# ---- the log of a resumed run is truncated only when nothing else is refused -----------------------------------------
base=(--seq 32 --batch 1 -q --save ck --save-interval 2 --log l.csv)
"$train" "${base[@]}" --steps 4 || fail 'a log'
rm -r ck/iter_0000004 && echo 2 >ck/latest_checkpointed_iteration.txt
cp l.csv before.csv
for wrong in '--seq 64' '--export /dev/null' '--export /proc/nowhere/x' '--data /proc/nowhere' '--model tiny-llama' '--rank 8' '--resume 3'; do
    # shellcheck disable=SC2086 # several words
    expect 2 '' "$train" "${base[@]}" --steps 4 --resume latest $wrong
    cmp -s l.csv before.csv || fail "cut although $wrong was refused"
done
cp before.csv other.csv && sed -i 1s/step/stop/ other.csv && cp other.csv same.csv
expect 2 'other.csv is not a log of train --log' "$train" "${base[@]}" --steps 4 --resume latest --log other.csv
cmp -s other.csv same.csv || fail 'a file that is no log was cut'
# A mistyped --save has no checkpoint: the log keeps its rows.
cp before.csv mine.csv
expect 0 'the existing log mine.csv was renamed to mine.csv.1' "$train" --model tiny --steps 1 --seq 32 --batch 1 --save mistyped --resume latest --log mine.csv
cmp -s before.csv mine.csv.1 || fail "rows of another run are lost: $(cat mine.csv.1)"
[[ $(wc -l <mine.csv) -eq 2 ]] || fail "mine.csv: $(cat mine.csv)"
long=$(printf 'l%.0s' $(seq 254)) # a longer name is none
cp before.csv "$long"
expect 2 'File name too long' "$train" --model tiny --steps 1 --seq 32 --batch 1 --save mistyped2 --resume latest --log "$long"
cmp -s before.csv "$long" || fail 'rows that cannot be kept under another name are lost'
rm -r mistyped* mine.csv mine.csv.1 "$long"
"$train" "${base[@]}" --steps 4 --resume latest || fail 'the run does not go on'
cmp <(cut -d, -f1-5 l.csv) <(cut -d, -f1-5 before.csv) || fail 'the log that went on differs'
rm -r ck ./*.csv

# ---- two exports into one folder: the second is refused before its first step ----------------------------------------
"$train" --steps 1000000 --export e >first 2>&1 & pid=$!
for _ in $(seq 200); do grep -q '^step' first && break; sleep 0.05; done
expect 2 'e: another process is exporting into this folder' "$train" --steps 1 --seq 16 --export e
grep -q '^step' log && fail 'the second export was refused after a step'
kill -TERM $pid
wait $pid
expect 0 'exported to e' "$train" --steps 1 --seq 16 --export e
# an adapter's configuration must never remain next to the weights of another export
cp -r e old
full 'File too large' --steps 1 --seq 16 --rank 64 --lr 1e-5 --export e
[[ ! -e e/adapter_config.json ]] || fail 'the configuration of an older export stays'
rm -r e old
mkdir -p e/tokenizer_config.json
expect 125 'e/tokenizer_config.json is a folder' "$train" --tuning full --steps 1 --seq 16 -q --tokenizer "$fixtures/chat/chatml" --export e
rm -r e

# ---- signals: a closed terminal saves a checkpoint, as SIGTERM does; under nohup training continues ------------------
for signal in HUP TERM; do # resets the signals first: under nohup(1) all children ignore SIGHUP
    env --default-signal=HUP,TERM "$train" --steps 1000000 --seq 32 --batch 1 --save ck >run 2>&1 & pid=$!
    for _ in $(seq 200); do grep -q '^step' run && break; sleep 0.05; done
    kill -$signal $pid
    wait $pid
    code=$?
    [[ $code -eq 125 ]] || fail "SIG$signal: exit $code"
    step=$(sed -n 's/.*interrupted after step \([0-9]*\)$/\1/p' run)
    [[ -n $step && $(cat ck/latest*) -eq $step ]] || fail "SIG$signal: $(tail -n 2 run), saved: $(cat ck/latest*)"
    expect 0 "resumed after step $step" "$train" --steps $((step + 1)) --seq 32 --batch 1 --save ck --resume latest
    rm -r ck run # the next iteration waits for a step of its own run
done
(trap '' HUP && exec "$train" --steps 1000000 --seq 32 --batch 1 --save ck) >run 2>&1 & pid=$!
for _ in $(seq 200); do grep -q '^step' run && break; sleep 0.05; done
kill -HUP $pid
n=$(grep -c '^step' run)
for _ in $(seq 200); do [[ $(grep -c '^step' run) -gt $((n + 2)) ]] && break; sleep 0.05; done
[[ $(grep -c '^step' run) -gt $((n + 2)) ]] || fail "an ignored SIGHUP stopped it: $(tail -n 2 run)"
kill -TERM $pid
wait $pid
[[ -s ck/latest_checkpointed_iteration.txt ]] || fail 'nothing saved after an ignored SIGHUP and a SIGTERM'
rm -r ck

# ---- more threads than processors ------------------------------------------------------------------------------------------
one=$(taskset -pc $$ | sed 's/.*: *\([0-9]*\).*/\1/')
expect 0 'train: OMP_NUM_THREADS asks for 1000 threads, but this process may use 1 processor only: it runs 1 thread' \
    env OMP_NUM_THREADS=1000 timeout 60 taskset -c "$one" "$train" --steps 2 --seq 64
[[ $(grep -c 'OMP_NUM_THREADS asks for' log) -eq 1 ]] || fail "threads: $(cat log)"
OMP_NUM_THREADS=1 "$train" --steps 1 --seq 16 2>&1 | grep -q 'asked for' && fail 'one thread is too many'
# threads sleep or spin as the environment says; without it, train sets a default
waiting() { env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$@" OMP_DISPLAY_ENV=verbose "$train" --steps 1 --seq 16 2>&1 | sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'.*/\1/p" | tail -n 1; }
[[ $(waiting GOMP_SPINCOUNT=77) == 77 && $(waiting A=b) == 20000 && $(waiting OMP_WAIT_POLICY=passive) != 20000 ]] ||
    fail "waiting: $(waiting A=b), $(waiting GOMP_SPINCOUNT=77), $(waiting OMP_WAIT_POLICY=passive)"

[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
