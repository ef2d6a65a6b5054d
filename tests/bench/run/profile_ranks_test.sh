#!/usr/bin/env bash
# profile_ranks_test.sh BENCH - suite profile on two ranks of the CPU: which ranks record, the time of the others, the
# ratios to level off, and cases that cannot be. No time is compared with anything but another figure of the same rows.
bench=$1
. "${0%/*}/../../cli.sh"
export TMPDIR=$dir
run=(timeout -k 1 120 "$bench" --suite profile --ranks 2 --samples 2 --no-compare --no-keep --layers 1 --seq 8)
want() { # want COUNT REGEX: so many rows must match
    [[ $(grep -cE -e "$2" p/results.csv) -eq $1 ]] || fail "$(grep -cE -e "$2" p/results.csv) rows match '$2', want $1"
}

expect 0 results "${run[@]}" -n 4 --out p
for mode in eager graph; do
    want 4 "level=off&mode=$mode&.*&ranks=2&.*,step_time,s,lower,[0-9.e-]+,2,ok,,"
    want 4 "level=off&mode=$mode&.*&ranks=2&.*,other_ranks_time,s,lower,[0-9.e-]+,2,ok,,"
    want 4 "level=ring&mode=$mode&.*&recorders=first&.*,step_time,.*,ok,\"recorded on 1 of 2 ranks; rank 0: [1-9][0-9]* ranges, 0 records"
    want 4 "level=ring&mode=$mode&.*&recorders=all&.*,step_time,.*,ok,\"recorded on 2 of 2 ranks; rank 0: [1-9][0-9]* ranges, 0 records"
    want 4 "level=ring&mode=$mode&.*&recorders=first&.*,other_ranks_time,s,lower,[0-9.e-]+,2,ok,,"
    want 4 "level=ring&mode=$mode&.*&recorders=first&.*,others_over_off,1,lower,[0-9.]+,"
    want 8 "level=ring&mode=$mode&.*,recorded_over_off,1,lower,[0-9.]+,"
done
want 0 'recorders=all.*,other_ranks_time,'
want 24 'profile/step.*,loss,[^,]+,[a-z]+,[0-9.]+,'

# ---- ratios are those of the two times --------------------------------------------------------------------------------
awk -F, '
    $6 == "step_time" || $6 == "other_ranks_time" { t[$6, $4, $5] = $9 }
    $6 == "other_ranks_time" { others[$4, $5] = $9 }
    $6 == "recorded_over_off" || $6 == "others_over_off" { r[$6, $4, $5] = $9 }
    END {
        for (k in others) if (t["step_time", k] > others[k]) first++ # rank 0 was the slowest one
        # by chance in one of 65536 runs, with 16 pairs of times
        if (!first) { print "rank 0 is never slower than the others"; bad = 1 }
        for (k in r) {
            split(k, at, SUBSEP)
            of = at[1] == "recorded_over_off" ? "step_time" : "other_ranks_time"
            off = at[3]
            sub(/level=ring/, "level=off", off)
            sub(/&recorders=[a-z]*/, "", off)
            d = r[k] * t[of, at[2], off] / t[of, at[2], at[3]] - 1
            if (!(d < 1e-6 && d > -1e-6)) { print "ratio", k, r[k]; bad = 1 }
        }
        exit bad
    }' p/results.csv >log || fail "a figure does not follow from the others: $(cat log)"

# ---- three ranks ------------------------------------------------------------------------------------------------------
expect 0 results timeout -k 1 120 "$bench" --suite profile --ranks 3 --samples 2 --no-compare --no-keep --layers 1 --seq 8 step \
    --mode graph -n 1 --out three
grep -q 'recorders=all.*,step_time,.*"recorded on 3 of 3 ranks' three/results.csv || fail "three: $(grep step_time three/results.csv)"
[[ $(grep -c 'ranks=3.*,other_ranks_time,s,lower,[0-9.e-]*,2,ok' three/results.csv) -eq 2 ]] || fail "three: not two times of others"

# ---- a level that no rank can record has no figure, and a reason -----------------------------------------------------
expect 0 unsupported "${run[@]}" step --mode eager --level activity --recorders first,all -n 1 --out a
[[ $(grep -c 'level=activity.*,outcome,.*,unsupported,.*need --device cuda' a/results.csv) -eq 2 ]] || fail "activity: $(grep activity a/results.csv)"

table "$bench" <<'T'
--suite profile --ranks 2 step --level ring --recorders last    | 2 | recorders=last: need first or all
--suite profile --ranks 2 step --level off --recorders all      | 2 | recorders=all: at level=off no rank records
--suite profile --ranks 2 step --clip sync                      | 2 | clip=sync: several ranks or micro-batches need multi or fused
T
exit $((failures > 0))
