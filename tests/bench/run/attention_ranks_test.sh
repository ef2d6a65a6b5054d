#!/usr/bin/env bash
# attention_ranks_test.sh BENCH - suite attention on rows that several ranks share: the outputs of all ranks are right for
# every variant, list and division of the row, figures follow from each other, and bad input is refused in one line.
bench=$1
. "${0%/*}/../../cli.sh"
export TMPDIR=$dir

measure() { # measure DIR CODE TEXT ARG...
    expect "$2" "$3" timeout -k 1 120 "$bench" --suite attention --ceilings no --no-compare -n 1 --samples 2 --out "$1" "${@:4}"
}
want() { # want DIR COUNT REGEX: so many rows of the first process must match
    local n
    n=$(grep -E ',0,attention/' "$1/results.csv" | grep -cE -e "$3")
    [[ $n -eq $2 ]] || fail "$1: $n rows match '$3', want $2: $(cut -d, -f4-12 "$1/results.csv")"
}

# ---- the default cases: sparse, deterministic and dense, in contiguous and zigzag slices -------------------------------
measure two 0 results --ranks 2 --seq 128 --dtype f32,bf16 --masked 0
for metric in error rel_diff kernel_time exposed_communication_time score_imbalance kernel_flops one_rank_kernel_time \
    scaling_efficiency; do
    want two 18 ",$metric,[^,]+,[a-z]+,-?[0-9.e+-]+,[02],ok,"
done
want two 4 'bwd.*variant=sparse.*,error,.*,ok,dq. sampled|bwd.*variant=sparse.*,error,.*,ok,"?d(kv|q|sink)'
want two 6 'list=random.*,score_imbalance,1,lower,1,0,ok,'
want two 4 'slices=zigzag.*,score_imbalance,1,lower,1,0,ok,'
want two 4 'topk=0&variant=dense,score_imbalance,1,lower,1\.496124' # the last of two ranks has 6176 of 8256 pairs
awk -F, '
    function is(x, y, what) { if (!(x / y > 0.999999 && x / y < 1.000001)) { print what, x, y; bad = 1 } }
    $4 == 0 && /fwd/ && /f32/ && /slices=zigzag/ { v[$6] = $9 }
    END {
        is(v["scaling_efficiency"] * v["kernel_time"] * 2, v["one_rank_kernel_time"], "efficiency")
        is(v["kernel_flops"] * v["kernel_time"] * 2, 8256 * 8 * 2 * 1024, "FLOPs of a rank")
        exit bad
    }' two/results.csv >log || fail "two: a figure does not follow from the others: $(cat log)"

# ---- other numbers of ranks; half of the slots masked; a window ------------------------------------
measure three 0 results --ranks 3 --cp 3 --seq 384 --topk 200
want three 9 ',error,1,none,[0-9.e-]+,0,ok,'
measure four 0 results --ranks 4 --cp 4 --seq 64 --topk 40 --list random --masked 50 --variant sparse
want four 2 ',error,1,none,[0-9.e-]+,0,ok,'
measure window 0 results --ranks 2 --cp 2 --seq 96 --topk 17 --list causal --masked 0 --variant dense --slices zigzag
want window 2 ',error,1,none,[0-9.e-]+,0,ok,'

# ---- bad input ----------------------------------------------------------------------------------------------------------
bad() { # bad TEXT ARG...
    measure bad 2 "$1" "${@:2}"
    [[ ! -e bad ]] || fail "a folder is left: ${*:2}"
}
bad "cp=2, ranks=3: in suite attention all ranks share each row: --ranks N --cp N" --ranks 3
bad "cp=2, ranks=1: in suite attention all ranks share each row" fwd --cp 2 --variant sparse --list random
bad "slices=zigzag needs variant=dense" fwd --ranks 2 --cp 2 --slices zigzag --variant sparse --list random
bad "slices=zigzag needs variant=dense, and ranks that share rows" fwd --slices zigzag --variant dense --list causal --topk 0
bad "cp=2: the rows of variant=dense_gqa are not divided here, but in suite throughput" \
    fwd --ranks 2 --cp 2 --variant dense_gqa --list causal --topk 0 --qk 64
bad "seq=252: 2 ranks share the row, so it needs a multiple of 8" --ranks 2 --seq 252 fwd --list v4 --variant sparse
bad "'random' is not one of contiguous, zigzag" fwd --ranks 2 --cp 2 --slices random

((failures == 0)) || exit 1
