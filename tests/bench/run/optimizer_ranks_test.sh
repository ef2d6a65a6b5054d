#!/usr/bin/env bash
# optimizer_ranks_test.sh BENCH - suite optimizer on several ranks: the rows of AdamW and NorMuon with every --shard, with and
# without the NaN guard, equal to one rank; figures that follow from each other, bad input. Times are only compared with
# other figures of the same rows.
bench=$1
. "${0%/*}/../../cli.sh"
export TMPDIR=$dir

measure() { # measure DIR CODE TEXT ARG...
    expect "$2" "$3" timeout -k 1 120 "$bench" --ceilings no --no-compare -n 1 --samples 2 --out "$1" --suite optimizer \
        --model tiny --layers 0 --seq 16 "${@:4}"
}
want() { # want DIR COUNT REGEX: so many rows of the first process must match
    local n
    n=$(grep -E ',0,optimizer/' "$1/results.csv" | grep -cE -e "$3")
    [[ $n -eq $2 ]] || fail "$1: $n rows match '$3', want $2: $(cut -d, -f4-12 "$1/results.csv")"
}

# ---- every shard, guard off and on, eager and as a graph -------------------------------------------------------------
measure all 0 "results: all/results.csv" --ranks 2 --optimizer normuon --iteration polar_express \
    --shard none,optimizer,gradients,parameters --guard off,on --mode eager,graph --filter 'optimizer/step*'
for metric in optimizer_time exposed_communication_time step_time_spread; do
    want all 16 "^.*&ranks=2&seq=16&.*,$metric,[^,]+,[a-z]+,[-0-9.e]+,2,ok,"
done
for metric in one_rank_optimizer_time optimizer_speedup ranks_difference peak_memory gradient_error; do
    want all 16 ",$metric,[^,]+,[a-z]+,[0-9.e+-]+,0,ok,"
done
want all 8 ',guard_over_off,1,lower,[0-9.e]+,0,ok,'
want all 8 'mode=graph.*,record_time,s,none,[0-9.e-]+,1,ok,'
want all 4 '&seq=16&targets=q.v&tuning=full,ranks_difference' # shard=none is not in keys
want all 0 ',(step_time|tokens_per_second|loss|scaling_efficiency),'
awk -F, '/ranks_difference/ && !($9 <= 1)' all/results.csv | grep -q . && fail "all: a difference above 1 is ok"
awk -F, '
    /^[^#]/ && $5 ~ /^optimizer/ { v[$5, $6] = $9; keys[$5] }
    END {
        for (k in keys) {
            r = v[k, "optimizer_speedup"] * v[k, "optimizer_time"] / v[k, "one_rank_optimizer_time"]
            if (!(r > 0.999999 && r < 1.000001)) { print k, r; bad = 1 }
            if (!(v[k, "step_time_spread"] >= 1)) { print k, "spread"; bad = 1 }
        }
        exit bad
    }' all/results.csv >log || fail "a figure does not follow from the others"

# ---- three ranks, another iteration, AdamW -------------------------------------------------------------------------------
measure some 0 results --ranks 3 --optimizer normuon --iteration gram --guard on --shard none,optimizer --mode eager
want some 2 '^.*optimizer/step\?.*&ranks=3&.*,ranks_difference,1,none,[0-9.e-]+,0,ok,'
# moments in f32, bf16 and 8 bits, whole and divided
measure adamw 0 results --ranks 2 --optimizer adamw --shard none,optimizer --filter 'optimizer/step*'
want adamw 6 ',optimizer_speedup,1,higher,[0-9.e]+,0,ok,'

# ---- the cases of two GPUs, by default ---------------------------------------------------------------------------------
expect 0 'guard=on&iteration=polar_express' "$bench" --suite optimizer --device cuda --ranks 2 --dry-run -n 1
[[ $(grep -c 'optimizer/.*mode=graph.*&ranks=2&' log) -eq 10 ]] || fail "not the 10 cases of several GPUs: $(cat log)"

# ---- bad input ---------------------------------------------------------------------------------------------------------
bad() { # bad TEXT ARG...
    measure bad 2 "$1" "${@:2}"
    [[ ! -e bad ]] || fail "a folder is left: ${*:2}"
}
bad "shard=optimizer needs several ranks: --ranks N" --optimizer adamw --shard optimizer
bad "axis shard: 'halves' is not one of its values" --ranks 2 --shard halves
bad "clip=sync: several ranks or micro-batches need multi or fused" --ranks 2 --clip sync

((failures == 0)) || exit 1
