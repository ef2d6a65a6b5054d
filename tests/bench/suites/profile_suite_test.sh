#!/bin/bash
# profile_suite_test.sh BENCH TOOL - suite profile on a CPU: which cases have figures, that each level recorded what it
# should, the ratios to level off, and cases that cannot be. No time is judged here.
bench=$1 tool=$2
. "${0%/*}/../../cli.sh"
run=(--suite profile --samples 2 --no-compare --no-keep)

expect 0 results "$bench" "${run[@]}" step --layers 1 --seq 8 -n 2 --out p
expect 0 results "$bench" "${run[@]}" range -n 2 --out r
for level in off nvtx ring; do
    for mode in eager graph; do
        found=$(awk -F, -v l="level=$level&mode=$mode" 'index($5, l) && $6 == "step_time" && $11 == "ok"' p/results.csv | wc -l)
        [[ $found -eq 2 ]] || fail "level $level, mode $mode: $found step times"
    done
done
[[ $(grep -c 'level=activity&mode=eager.*,outcome,.*,unsupported,.*need --device cuda' p/results.csv) -eq 2 ]] || fail 'activity has a figure, or no reason'
[[ $(grep -c 'level=attached&mode=.*,outcome,.*,unsupported,.*need --device cuda' p/results.csv) -eq 4 ]] || fail 'attached has a figure, or no reason'
[[ $(grep -c 'level=nodes&mode=graph.*,outcome,.*,unsupported,.*need --device cuda' p/results.csv) -eq 2 ]] || fail 'nodes has a figure, or no reason'
grep 'level=ring&mode=.*,step_time,' p/results.csv | grep -qv ',"\{0,1\}[1-9][0-9]* ranges, 0 records of the GPU' && fail 'level ring does not say what was recorded'
grep -E 'level=(off|nvtx)&mode=.*,step_time,' p/results.csv | grep -q ' ranges' && fail 'a level without a ring recorded ranges'
# two samples and a warm-up call of 2^20 ranges, in two processes
[[ $(grep 'profile/range?clock=.*,range_time,.*,31457[0-9][0-9] ranges were written' r/results.csv | wc -l) -eq 4 ]] || fail "the ring of case range: $(grep range_time r/results.csv)"
[[ $(grep -cE '^2,.*,profile/range.level=(off|nvtx),range_time,.*,ok,' r/results.csv) -eq 4 ]] || fail 'range at level off or nvtx'
[[ $(awk -F, '$5 ~ /^requirement\// { print $5 }' r/results.csv | sort | uniq -c | tr -s ' ' | tr '\n' ';') == \
    ' 2 requirement/NVTX-RANGE; 2 requirement/RANGE-RING-CLOCK; 2 requirement/RANGE-RING-TSC;' ]] || fail 'requirements'

# ---- control cases judge no requirement ---------------------------------------------------------------------------------------
PB_CONTROLS='' expect 0 results "$bench" "${run[@]}" --grid full --filter '*/step?batch=1&*&seq=32&*' --filter '*/range?*' -n 1 --out c
[[ $(grep -cE 'profile/range.control=(first|second)&level=(off|nvtx),range_time,.*,ok,' c/results.csv) -eq 4 ]] || fail "control cases: $(grep -c control c/results.csv)"
[[ $(grep -c '^2,.*,requirement/NVTX-RANGE,' c/results.csv) -eq 1 ]] || fail "requirements: $(grep requirement/ c/results.csv)"

# ---- the ratio of a process number is that of its own two times --------------------------------------------------------------
awk -F, '$6 == "step_time" { t[$4, $5] = $9 } $6 == "recorded_over_off" { r[$4, $5] = $9; off = $5; sub(/level=[a-z]*/, "level=off", off); of[$4, $5] = off; n++ }
    END { for (k in r) { split(k, at, SUBSEP); want = t[k] / t[at[1], of[k]]; d = r[k] / want - 1; if (!(d < 1e-6 && d > -1e-6)) exit 1 } exit n != 8 }' \
    p/results.csv || fail "ratios: $(grep recorded_over_off p/results.csv)"

# ---- with a tool attached there is no level off ---------------------------------------------------------------------------------
expect 0 '' env NVTX_INJECTION64_PATH="$tool" PB_RANGES_LOG="$dir/ranges" "$bench" "${run[@]}" 'profile/range?level=off' -n 1 --out tool
grep -q 'range?level=off,outcome,.*,unsupported,a profiler is attached' tool/results.csv || fail 'measured with a tool'

# ---- cases that cannot be ----------------------------------------------------------------------------------------------------------
table "$bench" <<'T'
--suite profile --level loud                        | 2 | level=loud: need off, nvtx, attached, ring, activity, graphs, nodes or sampled
--suite profile step --level nodes --mode eager     | 2 | only mode=graph has graphs
--suite profile step --level activity --mode graph  | 2 | level=activity is that of an eager step
--suite profile range --level ring --clock sun      | 2 | clock=sun: need tsc or gettime
--suite profile --grid full range --ranks 2         | 2 | case range has one rank
--suite profile step --recorders all                | 2 | recorders=all needs several ranks
T
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
