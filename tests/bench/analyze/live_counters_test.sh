#!/bin/bash
# live_counters_test.sh TRAIN BENCH - bench analyze counters: means per step, shares that are weighted by their parts, the
# roofline; and what train --profile-counters and the command refuse.
train=$(realpath "$1") bench=$(realpath "$2")
ceilings=$(realpath "${0%/*}"/../../../baselines/cuda-nvidia-h200-*/backward.csv)
. "${0%/*}/../../cli.sh"

head=step,rank,group,mode,kind,phase,name,layer,model_flops,model_bytes
head+=,read,write,time,tensor,cycles,elapsed,warps,issued,scheduler
head+=',counted_time(s),dram_read_bytes(B),dram_write_bytes(B),dram_bytes(B),dram_rate(B/s),sm_busy(1),tensor_busy(1)'
head+=',occupancy(1),issue_share(1)'
# counted FILE ROW...: a table with these rows, each of which names STEP RANK MODE KIND PHASE NAME FLOPS BYTES EVENTS...;
# the metrics are empty, because the command computes them anew.
counted() {
    local file=$1 row
    mkdir -p "${file%/*}"
    echo "$head" >"$file"
    for row in "${@:2}"; do
        read -r -a f <<<"$row"
        (IFS=, && echo "${f[*]:0:2},STEP,${f[*]:2:4},,${f[*]:6},,,,,,,,,") >>"$file"
    done
}
# Two steps; events: read write time tensor cycles elapsed warps issued scheduler. The second step has other shares.
counted run/counters/step5-rank0.csv \
    '5 0 eager phase forward forward 6000000 1000 400 100 1000 10 80 100 640 40 80' \
    '5 0 eager phase backward backward 0 0 1 1 2000 0 50 100 160 10 50'
counted run/counters/step6-rank0.csv \
    '6 0 eager phase forward forward 2000000 3000 800 700 3000 90 120 300 1280 20 120' \
    '6 0 eager phase backward backward 0 0 1 1 2000 0 50 100 160 10 50'
expect 0 'mode eager, means per step of 2 files' "$bench" analyze counters run
[[ $(grep -n ^forward log | head -n 1 | cut -d: -f1) -lt $(grep -n ^backward log | head -n 1 | cut -d: -f1) ]] ||
    fail 'phases are not in the order in which they run'
expect 0 '' "$bench" analyze counters run --format csv
for row in forward,counted_time,2e-06,s forward,dram_bytes,1000,B forward,dram_rate,500000000,B/s forward,sm_busy,0.5,1 \
    forward,tensor_busy,0.125,1 forward,occupancy,0.15,1 forward,issue_share,0.3,1 forward,model_flops,4000000,FLOP \
    forward,model_bytes,2000,B backward,sm_busy,0.5,1; do
    grep -qxF "counters,,,$row" log || fail "no row $row"
done

# A second rank: means per step of a rank.
counted run/counters/step5-rank3.csv '5 3 eager phase forward forward 0 0 0 0 0 0 0 0 0 0 0'
expect 0 'of 3 files' "$bench" analyze counters run --format text
expect 0 'counters,,,forward,counted_time,1.33333333e-06,s' "$bench" analyze counters run --format csv

# Ops are sorted by their time.
counted ops/counters/step1-rank0.csv \
    '1 0 eager op forward short 1 1 0 0 10 0 1 1 1 1 1' \
    '1 0 eager op forward long 1 1 0 0 900 0 1 1 1 1 1' \
    '1 0 eager op backward short 1 1 0 0 20 0 1 1 1 1 1'
expect 0 '' "$bench" analyze counters ops
[[ $(awk '/^(short|long)/ { print $1, $2 }' log | head -n 2 | tr '\n' ' ') == 'long 1 short 2 ' ]] ||
    fail "ops: $(grep -E '^(short|long)' log)"

# Shares of ceilings, of a stored baseline of a GPU: at twice the time the share is half.
shares() { # shares NAME: the two shares of this op
    awk -F, -v op="$1" '$4 == op && $5 ~ /^ceiling_share/ { print $6 }' log
}
counted ceil/counters/step1-rank0.csv \
    '1 0 eager op forward fast 1000000000 8 3000000 0 1000000 0 1 1 1 1 1' \
    '1 0 eager op forward slow 1000000000 8 3000000 0 2000000 0 1 1 1 1 1'
expect 0 '' "$bench" analyze counters ceil --format csv --ceilings-run "$ceilings"
[[ $(shares fast | wc -l) -eq 2 ]] || fail "shares: $(shares fast)"
paste <(shares fast) <(shares slow) | awk '{ if ($1 / $2 < 1.999 || $1 / $2 > 2.001 || $1 > 1) exit 1 }' ||
    fail "shares: $(paste <(shares fast) <(shares slow))"

# Files that are no such tables.
expect 2 'no counters; run again with train --profile-ranks auto --profile-counters STEP' "$bench" analyze counters .
mkdir -p bad/counters
bad() { # bad TEXT: bad/counters/step1-rank0.csv is refused with this text
    expect 2 "$1" "$bench" analyze counters bad
}
sed 's/scheduler/other/' run/counters/step5-rank0.csv >bad/counters/step1-rank0.csv
bad 'its events are not those of group STEP of this program'
sed 's/STEP/NONE/' run/counters/step5-rank0.csv >bad/counters/step1-rank0.csv
bad 'NONE'
for text in x nan -1 ''; do
    sed "2s/,640,/,$text,/" run/counters/step5-rank0.csv >bad/counters/step1-rank0.csv
    bad 'not a table of train --profile-counters'
done
head -n 1 run/counters/step5-rank0.csv >bad/counters/step1-rank0.csv
bad 'it has no rows'
head -c 330 run/counters/step5-rank0.csv >bad/counters/step1-rank0.csv
bad 'not a table of train --profile-counters'
mkdir -p mixed/counters
cp run/counters/step5-rank0.csv mixed/counters/step1-rank0.csv
sed 's/,eager,/,graph,/' run/counters/step5-rank0.csv >mixed/counters/step2-rank0.csv
expect 2 'its steps ran in mode graph, and those before it in mode eager' "$bench" analyze counters mixed
expect 2 'its options are --ceilings-run and --format' "$bench" analyze counters run --timeline page.html

# The option of train, on a CPU.
options=(run --device cpu --model tiny --steps 1 --quiet --profile-counters)
table "$train" <<END
${options[*]} STEP | 2 | --profile-counters needs --profile-ranks
${options[*]} STEP --profile-ranks 0 | 2 | --profile-counters counts events of a GPU: give --device cuda
${options[*]} CPU --profile-ranks 0 | 2 | group CPU is of a CPU; give one of a GPU
${options[*]} TIMELINE --profile-ranks 0 | 2 | group TIMELINE is sampled: give it to --profile-sampling
${options[*]} NONE --profile-ranks 0 | 2 | NONE
${options[*]} STEP:layer --profile-ranks 0 | 2 | after the colon, give step, phase or op
${options[*]} STEP --profile-ranks 0 --profile-on-demand go | 2 | needs a schedule, not --profile-on-demand
${options[*]} STEP --profile-ranks 0 --capture-tensors x --capture-gradients | 2 | with --capture-gradients: both change how a step runs
${options[*]} STEP --profile-ranks 0 --capture-tensors x | 2 | counts events of a GPU
${options[*]} STEP --profile-ranks 0 --capture-tensors x --recompute mlp | 2 | with --recompute: both change how a step runs
run --device cpu --model tiny --steps 1 --quiet --profile-ranks 0 --profile-attach window | 2 | --profile-attach window needs --profile-on-demand
run --device cpu --model tiny --steps 1 --quiet --profile-ranks 0 --profile-sampling-interval 100 | 2 | --profile-sampling-interval 100 needs --profile-sampling
run --device cpu --model tiny --steps 1 --quiet --profile-sampling TIMELINE | 2 | --profile-sampling needs --profile-ranks
run --device cpu --model tiny --steps 1 --quiet --profile-ranks 0 --profile-sampling TIMELINE | 2 | --profile-sampling samples counters of a GPU
END
[[ ! -e profile ]] || fail 'a refused option left a folder'
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
