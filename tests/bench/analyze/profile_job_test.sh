#!/bin/bash
# profile_job_test.sh TRAIN BENCH - a profiled job from the command to the analysis: three ranks, eager and replayed;
# what a job leaves that is interrupted or whose options are wrong; what bench analyze says of it.
train=$1 bench=$2
. "${0%/*}/../../cli.sh"
. "$tests/train/ranks.sh"
tiny=(--batch 1 --seq 32 --quiet)

# ---- which ranks and steps ---------------------------------------------------------------------------------------------
expect 0 '' "$train" --ranks 3 --steps 6 "${tiny[@]}" --profile-ranks 0,2 --profile-steps 2:0:1:2 --profile-out eager
[[ $(cd eager/traces && echo */*) == 'step4-5/rank0.json.gz step4-5/rank2.json.gz' ]] || fail "traces: $(find eager)"
[[ $(cd eager/ranks && echo *) == 'rank0.json rank1.json rank2.json' ]] || fail "ranks: $(ls eager/ranks)"
# A trace that lacks records is incomplete.
expect 0 'topology' "$bench" analyze eager
cp -r eager lost
zcat eager/traces/step4-5/rank2.json.gz | sed 's/"dropped":0/"dropped":7/' | gzip >lost/traces/step4-5/rank2.json.gz
expect 4 'rank 2, step 4: 7 ranges and GPU records lost, 0 events left out' "$bench" analyze lost
PB_PROFILE_RANKS=all expect 0 'profile: ranks 0-2 of 3 (as asked for), steps 3, into replayed' "$train" --ranks 3 --steps 5 --batch 1 --seq 32 \
    --mode graph --profile-steps 3 --profile-out replayed
# The size is announced before the window, from the ranges of the step before; here both steps are alike.
announced=$(sed -n 's/^profile: steps 4-4: \([0-9]*\) ranges a step; the trace of a rank will have about .* MB of JSON, .* MB compressed$/\1/p' log)
recorded=$(zcat replayed/traces/step4-4/rank0.json.gz | grep -c '"ph":"X"')
[[ $announced -gt 0 && $announced -eq $recorded ]] || fail "announced '$announced' ranges, recorded $recorded"
expect 0 'recording begins with the first step, so the size of its traces is not known; --profile-limit bounds it' \
    "$train" --steps 2 --batch 1 --seq 32 --profile-ranks all --profile-steps 0:0:0:1 --profile-out first
expect 0 'recording begins with the first step' "$train" --steps 2 --batch 1 --seq 32 --profile-ranks all --profile-steps 0:0:1:1 \
    --profile-out warm
expect 0 'profile: steps 2-2: ' "$train" --steps 2 --batch 1 --seq 32 --profile-ranks all --profile-steps 1:0:0:1 --profile-out second
! grep 'not known' log || fail 'the size of a later window is said to be unknown'
expect 0 '' "$train" --steps 2 "${tiny[@]}"
[[ ! -e profile ]] || fail 'profiled without being asked to'

# ---- what a trace contains ---------------------------------------------------------------------------------------------
events() { zcat "$1" | sed -n 's/.*"ph":"X".*"name":"\([^"]*\)".*"kind":"\([a-z]*\)".*/\2 \1/p' | sort | uniq -c | sed 's/^ *//'; }
for trace in eager/traces/step4-5/rank2.json.gz replayed/traces/step4-4/rank2.json.gz; do
    steps=2 && [[ $trace == replayed* ]] && steps=1
    events "$trace" >found
    for name in forward loss backward clip optimizer; do
        grep -qx "$steps phase $name" found || fail "$trace: not $steps times phase $name"
    done
    grep -q '^[0-9]* step ProfilerStep#4$' found || fail "$trace: no step 4"
    grep -q ' op attention_bwd$' found || fail "$trace: no op"
    zcat "$trace" | grep '"kind":"op"' >ops
    for name in attention_fwd attention_bwd; do # of the two layers of the model tiny
        [[ $(grep "\"name\":\"$name\"" ops | grep -o '"layer":[0-9]*' | sort | uniq -c | tr -s ' \n' ' ') == " $steps \"layer\":0 $steps \"layer\":1 " ]] ||
            fail "$trace: layers of $name: $(grep "$name" ops | grep -o '"layer":.*')"
    done
    grep -E '"name":"(adamw_step|clip_multi|xent_bwd|embedding_fwd)"' ops | grep -q layer && fail "$trace: an op outside the layers has a layer"
    grep -q ' collective all_reduce$' found || fail "$trace: no collective"
    zcat "$trace" | grep -q '"dropped":0,"omitted":0,"truncated":false' || fail "$trace: not complete"
done
grep -q '^1 replay replay$' found || fail 'no replay'

# ---- the analysis --------------------------------------------------------------------------------------------------------
expect 0 'ranks 0,2 of 3 (as asked for), topology dp=3' "$bench" analyze eager
grep -qE '^backward +[0-9.]+ [mun]?s' log || fail 'no phase'
grep -qE '^attention_bwd +2 ' log || fail 'no op, or not one of each layer'
expect 0 'against eager: mean step' "$bench" analyze replayed --against eager
"$bench" analyze eager --format csv >csv && "$bench" analyze replayed --format csv >replayed.csv || fail 'csv'
"$bench" analyze replayed --against eager --format csv >change && python3 "${0%/*}/check_change.py" change replayed.csv csv >log 2>&1 ||
    fail "replayed against eager: $(cat log)"
grep -q '^change_part,,,other,time,' change && grep -q '^change_collective,,,all_reduce dp f32,time,' change || fail "changes: $(cat change)"
# Six steps: the third is the warm-up, the fourth and fifth are recorded, and the sixth follows: also on rank 1, which only waits.
for r in 0 1 2; do
    tr -d ' \n' <eager/ranks/rank$r.json | grep -q '"off":{"steps":2,.*"recorded":{"steps":3,.*"after":{"steps":1,' || fail "step times of rank $r: $(cat eager/ranks/rank$r.json)"
done
expect 0 'longer while they record' "$bench" analyze eager
"$bench" analyze eager --format csv | awk -F, '$1 == "waits" { v[$4, $5] = $6; name[$4] }
    END { for (r in name) { q1 = v[r, "step_off_q1"]; step = v[r, "step_off"]; q3 = v[r, "step_off_q3"]
        if (!(q1 > 0 && q1 <= step && step <= q3)) exit 1 } }' || fail 'the quartiles do not enclose the median'
grep -qE '^profiled +2 +2, 3, 1 +[0-9.]+ [mun]?s +[0-9.]+ [mun]?s to [0-9.]+ [mun]?s ' log || fail 'no steps or no spread'
[[ $("$bench" analyze eager --format csv | grep -c '^waits,,,not profiled,') -eq 8 ]] || fail 'the waits of ranks that were not chosen'
expect 0 '| rank | host |' "$bench" analyze eager --format markdown
"$bench" analyze eager --format csv >csv || fail 'csv'
awk -F, 'NR == 1 { exit !($0 == "part,rank,first_step,name,metric,value,unit") }' csv || fail "columns: $(head -1 csv)"
awk -F, '$1 == "rank" { v[$2, $5] = $6 }
    END { for (r = 0; r < 3; r += 2) { d = v[r, "time"] - v[r, "compute"] - v[r, "exposed_communication"] - v[r, "other"]
        if (!(v[r, "time"] > 0) || !(v[r, "exposed_communication"] > 0) || !(d < 1e-8 && d > -1e-8)) exit 1 } }' csv || fail 'the parts are not the step'
# ---- rates of ops: the work of a step is the same eager and replayed; the share of given ceilings ----------------------------
"$bench" analyze replayed --format csv >replayed.csv || fail 'csv'
work() { awk -F, '$1 == "op" { v[$4, $5] = $6; n[$4] } END { for (o in n) printf "%s %.6g %.6g\n", o, v[o, "flop_rate"] * v[o, "host_time"], v[o, "byte_rate"] * v[o, "host_time"] }' "$1" | sort; }
diff <(work csv) <(work replayed.csv) >differ || fail "eager and replayed steps do other work: $(cat differ)"
# Two layers of tiny: seven products and the head, batch 1, 32 tokens, 2 FLOPs for each weight: D 64, q 192, kv 128, I 176, V 272
[[ $(work csv | sed -n 's/^linear_fwd \([^ ]*\) .*/\1/p') == $(awk 'BEGIN { printf "%.6g", 2 * 32 * (2 * (64 * (192 + 128) + 192 * 64 + 3 * 64 * 176) + 64 * 272) }') ]] ||
    fail "work of linear_fwd: $(work csv | grep '^linear_fwd')"
head=bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note
ceilings() { printf '%s\n2,r,%s,0,ceiling/copy,copy_rate,B/s,higher,1e11,1,ok,\n%s' "$head" "$1" "$2" >ceilings.csv; }
ceilings cpu-x $'2,r,cpu-x,0,ceiling/matmul,matmul_rate,FLOP/s,higher,1e11,1,ok,\n'
expect 0 'of the ceiling: empty, because no ceilings are given' "$bench" analyze eager
expect 0 'ceilings: copy 100 GB/s, matrix product 100 GFLOP/s (cpu-x)' "$bench" analyze eager --ceilings-run ceilings.csv
expect 0 'of the ceiling |' "$bench" analyze eager --ceilings-run ceilings.csv --format markdown
"$bench" analyze eager --format csv --ceilings-run ceilings.csv | awk -F, '$1 == "op" { v[$4, $5] = $6; n[$4] }
    END { for (o in n) { f = v[o, "flop_rate"] / 1e11; b = v[o, "byte_rate"] / 1e11; s = v[o, "ceiling_share"]; w = f > b ? f : b
        if (w > 0) { count++; d = s / w - 1; if (!(d < 1e-6 && d > -1e-6)) exit 1 } else if (s > 0) exit 1 } exit count < 10 }' || fail 'shares of the ceilings'
ceilings cpu-x ''
expect 2 'the run has no ceilings copy_rate and matmul_rate' "$bench" analyze eager --ceilings-run ceilings.csv
ceilings cuda-x $'2,r,cuda-x,0,ceiling/matmul,matmul_rate,FLOP/s,higher,1e11,1,ok,\n'
expect 2 'ceilings of cuda-x, but the traces are of a CPU' "$bench" analyze eager --ceilings-run ceilings.csv
expect 2 'nowhere' "$bench" analyze eager --ceilings-run nowhere
# ---- the page ------------------------------------------------------------------------------------------------------------
expect 0 '' "$bench" analyze eager --timeline page.html
[[ $(tail -n 1 page.html) == '</html>' ]] || fail 'the page is not complete'
! grep -qE 'src=|href=|https?://' page.html || fail 'the page loads something'
python3 - page.html <<'EOF' || fail 'the data of the page'
import json, sys
data = json.loads(open(sys.argv[1]).read().split("const data = ")[1].split(";\nconst COLOURS")[0])
rows = {r["name"].rsplit(" ", 1)[0] for r in data["rows"]}
assert rows == {"rank 0, thread", "rank 2, thread"}, rows
for row in data["rows"]:
    for e in row["events"]:  # a range lies inside one of the row above it
        if e[3]:
            assert any(o[3] == e[3] - 1 and o[0] <= e[0] + 1e-3 and e[0] + e[1] <= o[0] + o[1] + 2e-3 for o in row["events"]), e
found = {(data["kinds"][e[4]], data["names"][e[2]], e[3]) for row in data["rows"] for e in row["events"]}
assert {("step", "ProfilerStep#4", 0), ("phase", "backward", 2), ("collective", "all_reduce", 0)} <= found, found
EOF
expect 2 '/proc/nowhere/page.html' "$bench" analyze eager --timeline /proc/nowhere/page.html
rm eager/traces/step4-5/rank2.json.gz
expect 4 'rank 2 on ' "$bench" analyze eager
grep -q 'no trace of step 4' log || fail 'the missing trace is not named'
expect 2 'manifest.json' "$bench" analyze nowhere
expect 2 'one folder, not 2' "$bench" analyze eager replayed
expect 2 'writes only text|markdown|csv' "$bench" analyze eager --format junit
head -c 300 replayed/traces/step4-4/rank1.json.gz >x && mv x replayed/traces/step4-4/rank1.json.gz
expect 2 'rank1.json.gz: the file is cut off' "$bench" analyze replayed

# ---- a job that is interrupted in a window, and options that are wrong ---------------------------------------------------
"$train" --steps 100000 "${tiny[@]}" --profile-ranks 0 --profile-steps 0:0:0:100000 --profile-out cut >log 2>&1 &
for _ in $(seq 600); do [[ -e cut/manifest.json ]] && break || sleep 0.1; done
sleep 1
kill -TERM $! && wait $!
[[ $? -eq 125 ]] || fail 'interrupted: not exit code 125'
zcat cut/traces/*/rank0.json.gz | grep -q '"truncated":true' || fail 'interrupted: the trace does not say that it is truncated'
expect 4 'truncated' "$bench" analyze cut

# ---- a trace that its size limit cut -----------------------------------------------------
expect 0 '' "$train" --steps 200 "${tiny[@]}" --profile-ranks 0 --profile-steps 0:0:0:200:1 --profile-limit 1 --profile-out limited
expect 4 'rank 0, step 1: truncated, 0 ranges and GPU records lost, ' "$bench" analyze limited
grep -qE 'lost, [1-9][0-9]* events left out' log || fail "limited: nothing is left out: $(head -n 3 log)"

# ---- a rank that is killed in a window: the others write what they recorded, and the analysis names the missing one ---------
"$train" --ranks 3 --steps 100000 "${tiny[@]}" --rank-timeout 5 --profile-ranks all --profile-steps 0:0:0:100000 --profile-out "$PWD/killed" >log 2>&1 &
for _ in $(seq 600); do [[ -e killed/manifest.json ]] && break || sleep 0.1; done
sleep 1
kill -KILL "$(ps -C train -o pid=,args= | grep -F -- "--profile-out $PWD/killed" | sort -n | awk 'END { print $1 }')"
wait $!
[[ $? -eq 125 ]] || fail 'a rank was killed: not exit code 125'
expect 4 'no trace of step 1' "$bench" analyze killed
[[ $(grep -c '^rank [0-2], step 1: truncated' log) -eq 2 ]] || fail 'not two truncated traces'
bad() { # bad TEXT OPTION...: the same error on all ranks, and one line
    expect 2 "$1" "$train" --ranks 2 --steps 1 "${tiny[@]}" "${@:2}"
    [[ $(wc -l <log) -eq 1 ]] || fail "more than one line: ${*:2}"
}
bad 'rank 2 does not exist, there are 2' --profile-ranks 0,2
bad "profile-steps: '1:x'" --profile-ranks all --profile-steps 1:x
bad 'holds traces of another run' --profile-ranks all --profile-out cut
bad '--profile-sampling needs --profile-ranks' --profile-sampling TIMELINE
bad '--profile-sampling samples counters of a GPU: give --device cuda' --profile-ranks all --profile-sampling TIMELINE
bad '--profile-sampling STALL: this group is counted, not sampled' --profile-ranks all --profile-sampling STALL
bad "there is no metric group 'NONE'" --profile-ranks all --profile-sampling NONE
bad '--profile-sampling-interval 49: need 50 to 1000000' --profile-ranks all --profile-sampling TIMELINE --profile-sampling-interval 49
# The variable is set for rank 0 alone, as mpirun does for ranks of other hosts without -x.
around_ranks train <<'END'
#!/bin/bash
[[ $OMPI_COMM_WORLD_RANK == 0 ]] || unset PB_PROFILE_RANKS
exec "$@"
END
PB_PROFILE_RANKS=all bad '--profile-ranks or PB_PROFILE_RANKS differs: rank 0 has all, rank 1 on '
unset PB_MPIRUN
bad '/proc/nowhere cannot be made' --profile-ranks all --profile-out /proc/nowhere
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
