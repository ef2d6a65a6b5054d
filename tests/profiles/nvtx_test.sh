#!/bin/bash
# nvtx_test.sh TRAIN TOOL BENCH - the NVTX ranges of a training step as a profiler receives them: nested, ended,
# registered once.
train=$1 tool=$2 bench=$3
. "${0%/*}/../cli.sh"
export PB_RANGES_LOG=$dir/ranges
expect 0 'step      2/2' env NVTX_INJECTION64_PATH="$tool" "$train" --steps 2
[[ $(grep -c '^domain plumb$' ranges) -eq 1 ]] || fail 'not one domain'
[[ $(grep -c '^push' ranges) -eq $(grep -c '^pop' ranges) ]] || fail 'a range does not end'
[[ $(sort ranges | grep '^string' | uniq -d | wc -l) -eq 0 ]] || fail 'a name is registered twice'
awk '$1 == "push" { path[n++] = $2 } $1 == "pop" { n-- } $1 $2 == "pushattention_bwd" { print path[0] "/" path[1] "/" path[2] "/" path[3] }' ranges >paths
[[ $(sort -u paths) == train_step/step/backward/attention_bwd && $(wc -l <paths) -eq 4 ]] || fail "paths: $(sort paths | uniq -c)"
rm ranges
expect 0 'step      1/1' "$train" --steps 1
[[ ! -e ranges ]] || fail 'a tool was loaded that nobody named'
expect 0 'step      1/1' env NVTX_INJECTION64_PATH=/proc/nowhere "$train" --steps 1

# A benchmark: the suite, the case by its key, the sample, the phase and the op.
expect 0 results env NVTX_INJECTION64_PATH="$tool" "$bench" --suite throughput --model tiny --layers 1 --seq 8 --tuning lora --samples 2 -n 1 \
    --ceilings no --no-compare --out benchmark
awk '$1 == "push" { path[n++] = $2 } $1 == "pop" { n-- } $1 $2 == "pushattention_bwd" && path[2] == "sample" { print path[0] " " path[1] " " path[2] " " path[3] }' ranges >paths
[[ $(wc -l <paths) -eq 2 && $(sort -u paths) == 'throughput throughput/step?'*'model=tiny'*' sample backward' ]] || fail "paths: $(sort paths | uniq -c)"
[[ $(grep -c '^push' ranges) -eq $(grep -c '^pop' ranges) ]] || fail 'a range of a benchmark does not end'
rm ranges

# The cost of a range without a tool is measured only when no tool is loaded.
ceiling() { expect 0 results "$@" "$bench" --suite ceiling -n 1 --samples 1 --no-compare --out "$out" range; }
row() { grep -c "^2,.*,$1,.*,$2," "$out/results.csv"; }
out=plain && ceiling env
[[ $(row ceiling/range,range_time ok) -eq 1 ]] || fail 'range_time is not measured'
awk -F, '$5 == "ceiling/range" { v = $9 } $5 == "requirement/NVTX-RANGE" { c = $9; s = $11 }
    END { exit !(v > 0 && v == c && s == (v <= 2e-9 ? "pass" : "fail")) }' plain/results.csv || fail 'the requirement and the figure differ'
out=attached && ceiling env NVTX_INJECTION64_PATH="$tool"
[[ $(row ceiling/range,outcome unsupported) -eq 1 && $(row ceiling/range,range_time ok) -eq 0 ]] || fail 'measured with a tool'
[[ $(row requirement/NVTX-RANGE,requirement unsupported) -eq 1 ]] || fail 'judged with a tool'
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
