#!/bin/bash
# gpu_memory_test.sh TRAIN BENCH BENCH_FIXTURE FILL_DEVICE - too little memory on a GPU (which must exist): a model
# larger than any device, and a device that another process has filled. Exit code 125 and one line that states the bytes
# asked and free.
train=$1 bench=$2 fixture=$3 fill=$4
. "${0%/*}/../cli.sh"
said='out of memory: [0-9]+ bytes requested \([0-9.]+ GB\), [0-9.]+ of [0-9.]+ GB free$'

# one_line PROGRAM: the log must have one line that states the bytes requested and free, and otherwise only warnings
one_line() {
    [[ $(grep "^$1:" log | grep -vc warning) -eq 1 ]] || fail "$1: not one line"
    grep -qE "^$1: .*$said" log || fail "$1: the line"
}

expect 125 'bytes requested' "$train" --device cuda --model qwen2.5-1.5b --tuning full --batch 256 --seq 2048 --steps 1 \
    --save ck --save-interval 1 --log l.csv
one_line train
[[ ! -e l.csv && ! -e ck ]] || fail 'train: something was written'
expect 125 'bytes requested' "$bench" --suite throughput --device cuda --model tiny,qwen2.5-1.5b --tuning full --batch 256 \
    --seq 2048 --mode eager --clip multi -n 1 --samples 1 --no-compare --out b
one_line bench
grep -qE "model=qwen2.5-1.5b.*,outcome,.*,failed,.*$said" <(tr -d '"' <b/results.csv) || fail 'bench: no row of the case'
grep -q 'model=tiny.*,step_time,.*,ok,' b/results.csv || fail 'bench: the case that fits was not measured'
grep -q '"truncated": false' b/run.json || fail 'bench: run.json says truncated'
expect 125 'bytes requested' "$fixture" --suite toy --device cuda --mode memory,fine --batch 1 -n 1 --out q step
[[ $(grep -c ,kernel_time, q/results.csv) -eq 1 ]] || fail 'bench_fixture: rows'

# Another process holds all of the memory.
mkfifo hold
"$fill" <hold >full 2>&1 & pid=$!
exec 9>hold
for _ in $(seq 600); do grep -q . full && break; sleep 0.1; done
grep -q '^full: ' full || fail "the device cannot be filled: $(cat full)"
for what in 'train --device cuda --model smollm2-135m --tuning full --steps 1' 'bench --suite ceiling --device cuda --out f'; do
    read -r program arguments <<<"$what"
    # shellcheck disable=SC2086 # several words
    expect 125 'out of memory' "${!program}" $arguments
    [[ $(grep "^$program:" log | grep -vc warning) -eq 1 ]] || fail "$program on a full device: not one line"
done
exec 9>&-
wait $pid || fail "fill_device: exit $?"
expect 0 'step      1/1' "$train" --device cuda --steps 1

[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
