#!/usr/bin/env bash
# throughput_ranks_test.sh BENCH - suite throughput on several ranks: the rows of a case, equal to one rank with every
# --shard and --reduce, figures that follow from each other, one key per case, bad input, and bench project on the rows.
# No time is compared with anything but another figure of the same row set.
bench=$1
. "${0%/*}/../../cli.sh"
export TMPDIR=$dir

measure() { # measure DIR CODE TEXT ARG...
    expect "$2" "$3" timeout -k 1 120 "$bench" --ceilings no --no-compare -n 1 --samples 2 --out "$1" "${@:4}"
}
steps() { measure "$1" "$2" "$3" --suite throughput --model tiny --seq 16 "${@:4}"; }
want() { # want DIR COUNT REGEX: so many rows of the first process must match
    local n
    n=$(grep -E ',0,throughput/' "$1/results.csv" | grep -cE -e "$3")
    [[ $n -eq $2 ]] || fail "$1: $n rows match '$3', want $2: $(cut -d, -f4-12 "$1/results.csv")"
}

# ---- every metric, from figures of the same rows ---------------------------------------------------------------------
steps two 0 "results: two/results.csv" --ranks 2 --batch 2 --tuning full
for metric in forward_time loss_time backward_time clip_time optimizer_time step_time exposed_communication_time; do
    want two 1 "&ranks=2&seq=16&.*,$metric,s,[a-z]+,[-0-9.e]+,2,ok,"
done
for metric in ranks_difference step_time_spread loss one_rank_step_time scaling_efficiency tokens_per_second \
    tokens_per_second_per_rank peak_memory gradient_error; do
    want two 1 ",$metric,[^,]+,[a-z]+,[0-9.e+-]+,[02],ok,"
done
awk -F, '
    function is(x, y, what) { if (!(x / y > 0.999999 && x / y < 1.000001)) { print what, x, y; bad = 1 } }
    $4 == 0 && $5 ~ /^throughput/ { v[$6] = $9 }
    END {
        is(v["tokens_per_second"] * v["step_time"], 2 * 2 * 16, "tokens of all ranks")
        is(v["tokens_per_second_per_rank"] * 2, v["tokens_per_second"], "tokens of a rank")
        is(v["scaling_efficiency"] * v["step_time"], v["one_rank_step_time"], "efficiency")
        if (!(v["exposed_communication_time"] < v["step_time"])) { print "exposed", v["exposed_communication_time"]; bad = 1 }
        if (!(v["step_time_spread"] >= 1)) { print "spread", v["step_time_spread"]; bad = 1 }
        exit bad
    }' two/results.csv >log || fail "a figure does not follow from the others"

# ---- every shard and type of reduction equals one rank ---------------------------------------------------------------
steps all 0 results --ranks 3 --tuning full --shard none,optimizer,gradients,parameters --reduce f32,bf16
want all 8 ',ranks_difference,1,none,[0-9.e-]+,0,ok,'
want all 2 '&ranks=3&(reduce=bf16&)?seq=16&targets=q.v&tuning=full,ranks_difference' # none and f32 are not in keys
awk -F, '/ranks_difference/ && !($9 <= 1)' all/results.csv | grep -q . && fail "all: a difference above 1 is ok"
grep -q 'reduce=bf16.*ranks_difference,1,none,0,' all/results.csv && fail "gradients in bf16 have no rounding error"
steps moments 0 results --ranks 2 --tuning full --shard optimizer --moments bf16,8bit
want moments 2 ',ranks_difference,1,none,[0-9.e-]+,0,ok,'
steps scales 0 results --ranks 2 --tuning qlora --nf4-scales 8bit --shard parameters
want scales 1 ',ranks_difference,1,none,[0-9.e-]+,0,ok,'
steps parts 0 results --ranks 2 --accumulate 1,2 --tuning qlora --shard parameters --mode eager,graph
want parts 4 ',ranks_difference,1,none,[0-9.e-]+,0,ok,'
want parts 4 ',step_time,s,lower,[0-9.e-]+,2,ok,'
want parts 4 ',exposed_communication_time,s,none,[-0-9.e]+,2,ok,'
want parts 4 ',step_time_spread,1,none,[0-9.e]+,2,ok,'
want parts 2 'mode=graph.*,record_time,s,none,[0-9.e-]+,1,ok,'
want parts 4 ',peak_memory,B,lower,[1-9][0-9.e+]+,0,ok,'
want parts 1 ',backward_time,' # phases of several micro-batches are not measured separately

# ---- ranks that share rows equal one rank; each has half of a row's tokens ----------------------------------------------
steps shared 0 results --ranks 2 --cp 2 --slices zigzag,contiguous --tuning full --mode eager,graph
want shared 4 ',ranks_difference,1,none,[0-9.e-]+,0,ok,'
awk -F, '/ranks_difference/ && !($9 <= 1)' shared/results.csv | grep -q . && fail "shared: a difference above 1 is ok"
want shared 2 '&cp=2&.*&slices=zigzag&.*,score_imbalance,1,lower,1,0,ok,'
want shared 2 '&cp=2&.*&slices=contiguous&.*,score_imbalance,1,lower,1\.470588' # of 136 scores the last of two ranks has 100
want shared 4 ',exposed_communication_time,s,none,[-0-9.e]+,2,ok,'
awk -F, '
    function is(x, y, what) { if (!(x / y > 0.999999 && x / y < 1.000001)) { print what, x, y; bad = 1 } }
    $4 == 0 && /mode=eager/ && /slices=contiguous/ { v[$6] = $9 }
    END {
        is(v["tokens_per_second"] * v["step_time"], 16, "tokens of the row")
        is(v["tokens_per_second_per_rank"] * 2, v["tokens_per_second"], "tokens of a rank")
        is(v["scaling_efficiency"] * v["step_time"] * 2, v["one_rank_step_time"], "efficiency")
        exit bad
    }' shared/results.csv >log || fail "shared: a figure does not follow from the others"
steps groups 0 results --ranks 4 --cp 2 --tuning lora --batch 2
want groups 1 ',ranks_difference,1,none,[0-9.e-]+,0,ok,'

# ---- one rank: several micro-batches; the defaults are not in the key ------------------------------------------------
steps one 0 results --accumulate 2 --tuning full
want one 1 '/step\?accumulate=2&batch=1&.*,step_time,'
want one 0 ',(exposed_communication_time|scaling_efficiency|tokens_per_second_per_rank),'
expect 0 'throughput/step?batch=1&clip=multi&dtype=f32&layers=0&mode=eager&model=tiny&rank=16&seq=256&targets=q+v&tuning=full' \
    "$bench" --suite throughput --model tiny --tuning full --shard none --reduce f32 --accumulate 1 --dry-run
grep -qE 'shard=|reduce=|accumulate=' log && fail "a default is in the key"

# ---- the cases of two GPUs, by default ---------------------------------------------------------------------------------
expect 0 'ranks=2&reduce=bf16&seq=2048&shard=parameters' "$bench" --suite throughput --device cuda --ranks 2 --dry-run -n 1
[[ $(grep -c 'throughput/step?.*mode=graph.*&ranks=2&' log) -eq 9 ]] || fail "not the 9 cases of requirements: $(cat log)"

# ---- bad input ---------------------------------------------------------------------------------------------------------
bad() { # bad TEXT ARG...
    steps bad 2 "$1" "${@:2}"
    [[ ! -e bad ]] || fail "a folder is left: ${*:2}"
}
bad "shard=parameters needs several ranks: --ranks N" --shard parameters
bad "clip=none: several ranks or micro-batches need multi or fused" --ranks 2 --clip none
bad "clip=sync: several ranks or micro-batches need multi or fused" --accumulate 2 --clip sync
bad "cp=3: 2 ranks do not divide by it: --ranks N" --ranks 2 --cp 3
bad "cp=2: 1 ranks do not divide by it: --ranks N" --cp 2
bad "seq=18: 2 ranks share a row, so it needs a multiple of 4" --ranks 2 --cp 2 --seq 18
bad "slices=contiguous needs ranks that share rows: --cp N" --ranks 2 --slices contiguous
bad "ranks that share rows of v4-tiny need contiguous slices" --ranks 2 --cp 2 --slices zigzag --model v4-tiny --tuning full --seq 512
bad "axis cp: 0 is outside 1..65536" --ranks 2 --cp 0
bad "axis shard: 'halves' is not one of its values" --ranks 2 --shard halves
bad "axis reduce: 'f16' is not one of its values" --ranks 2 --reduce f16
bad "axis accumulate: 0 is outside" --ranks 2 --accumulate 0

# ---- bench project reads the rows --------------------------------------------------------------------------------------
# The machine may be busy, so the model may be refused (exit code 3); what was measured is shown in any case.
for n in 1 2 3; do steps "s$n" 0 results --ranks $n --tuning full; done
for n in 2 3; do measure "c$n" 0 results --suite comm --ranks $n --bytes '4096..4194304*8' --dtype f32 all_reduce; done
"$bench" project --ranks 4 --host-ranks 4 c2 c3 s1 s2 s3 >log 2>&1
code=$?
[[ $code -eq 0 || $code -eq 3 ]] || fail "project: exit $code"
grep -q 'throughput/step' log || fail "project: no step is shown"
grep -qE 'kept.out|kept out' log || fail "project: nothing is said about the points that were kept out"
expect 0 'projected steps (no figure below was measured): throughput/step?' "$bench" project --ranks 4 --host-ranks 4 --unchecked \
    c2 c3 s1 s2 s3
"$bench" project --ranks 4 --host-ranks 4 --unchecked --format csv c2 c3 s1 s2 s3 >out.csv 2>log
[[ $(grep -c '^projected,' out.csv) -gt 0 ]] || fail "project: no projected figure in the CSV: $(cat out.csv)"

((failures == 0)) || exit 1
