#!/bin/bash
# controls_test.sh BENCH_FIXTURE - control cases: how often a run measures them, where, that no table, verdict, stored
# session or export takes them for cases, and that the noise they show is part of the rule. The times of suite paired
# are simulated, so nothing here depends on real time.
fixture=$1
. "${0%/*}/../../cli.sh"
unset PB_CONTROLS
mkdir baselines
printf 'suite,metric,better,stored_limit,ceiling,gating\npaired,kernel_time,lower,0.1,,yes\n' >baselines/gates.csv
export XDG_STATE_HOME=$dir/state FIXTURE_SEED=5
cases=$(seq -s, 40)
options=(--suite paired --n "$cases" --ceilings no --seed 3 --no-compare --no-keep)
keys=(control={first,second}'&n='{1,2})

# ---- the plan: four copies, if they take a tenth of the time at most; else one of each of the two shortest cases ----------
expect 0 'processes of 44 cases' "$fixture" "${options[@]}" --dry-run
grep -q '^2 control cases are measured twice more in each process' log || fail "the dry run does not name the controls"
for key in "${keys[@]}"; do grep -q "paired/step?$key\$" log || fail "the dry run does not list $key"; done
[[ $(grep -c 'paired/step?n=' log) -eq 40 ]] || fail "the keys of the other cases changed"
grep -q 'longer' log && fail "the dry run says that controls of a tenth of the time are dear"
once='measured once more in each process, to show the noise of the run'
plan() { expect 0 "$2" "$fixture" --suite paired --n "$1" --ceilings no --dry-run; } # plan N TEXT
plan "$(seq -s, 39)" 'processes of 41 cases'
grep -q "^2 control cases are $once\$" log || fail "39 cases: not two controls of 5 % of the time"
plan 1,2,3 "2 control cases are $once; it takes 67 % longer for that (PB_CONTROLS=no: without)"
[[ $(grep -c 'control=second' log) -eq 2 && $(grep -c 'control=first' log) -eq 0 ]] || fail "3 cases: not one copy of each control"
plan 7 "1 control case is $once; it takes 100 % longer for that"
[[ $(grep -c 'paired/step?control=second&n=7$' log) -eq 1 && $(grep -c 'paired/' log) -eq 2 ]] || fail "1 case: not one copy"
PB_CONTROLS=no expect 0 'processes of 40 cases' "$fixture" "${options[@]}" --dry-run
grep -q control log && fail "PB_CONTROLS=no does not switch the controls off"

# ---- the rows: every control in every process, at other places in each ---------------------------------------------------
expect 0 '2 control cases are measured twice more' "$fixture" "${options[@]}" --out run
sed '/^run /q' log | grep -q '^2 control cases are measured twice more' || fail "the run does not begin with its controls"
for key in "${keys[@]}"; do
    [[ $(grep -c "paired/step?$key,kernel_time," run/results.csv) -eq 3 ]] || fail "$key is not in every process"
done
# The distances of control=first and control=second of each case in the orders of run.json: shuffled, so not all equal.
distances=$(sed -n '/"order"/,/^  \]/p' run/run.json | grep -n 'paired/step' | awk -F: '
    match($0, /control=[a-z]*&n=[0-9]/) {
        split(substr($0, RSTART + 8, RLENGTH - 8), part, "&"); at[int(($1 - 1) / 46) part[2] part[1]] = $1
    }
    END { for (key in at) if (sub(/first/, "", key)) { d = at[key "second"] - at[key "first"]; print d } }' | sort -u | wc -l)
[[ $distances -ge 3 ]] || fail "the controls are not at shuffled places: $distances distances"

# A run of few cases: the case itself and its copy, in every process, not always in the same order.
few=(--suite paired --n 1,2,3 --ceilings no --seed 3 --no-compare --no-keep)
expect 0 "2 control cases are $once" "$fixture" "${few[@]}" -n 8 --out few
for n in 1 2; do
    for key in "n=$n" "control=second&n=$n"; do
        [[ $(grep -c "paired/step?$key,kernel_time," few/results.csv) -eq 8 ]] || fail "few: $key is not in every process"
    done
done
[[ $(awk -F, '$6 == "kernel_time" && /n=1,/ { print /control/ ? "copy" : "case" }' few/results.csv |
    paste -d' ' - - | sort -u | wc -l) -eq 2 ]] || fail "few: the copy has always the same place"

# ---- no table, verdict, stored session, export or figure takes a control for a case ------------------------------------------
absent() { # absent WHAT COMMAND...: the command's output and its file `out` do not name a control
    local what=$1
    shift
    rm -f out
    "$@" >log 2>&1 || fail "$what: exit code $?"
    cat log out 2>/dev/null | grep -q 'control=\|control.*first' && fail "$what shows a control"
}
absent report "$fixture" report run
absent 'report in Markdown' "$fixture" report run --format markdown
absent JUnit "$fixture" report run --format junit
for format in gbench gab benchfmt; do absent "export to $format" "$fixture" export run --to $format --out out; done
absent 'compare --all' "$fixture" compare run run --all
absent 'the baseline' "$fixture" baseline update run --reason 'a first session'
absent 'report of few cases' "$fixture" report few
absent 'export of few cases' "$fixture" export few --to gbench --out out
absent 'compare of few cases' "$fixture" compare few few --all
absent 'the baseline of few cases' "$fixture" baseline update few --reason 'few cases' --subset
PB_STATE=$dir/kept expect 0 'results' "$fixture" --suite paired --n 1,2,3 --ceilings no -n 3 --no-compare --out kept_run
grep -rq 'paired/step?n=3' kept || fail "no session is kept"
grep -rq 'control=' baselines kept && fail "a stored or kept session has controls"
find baselines -name '*.csv' | xargs grep -q 'paired/step?n=40,kernel_time' || fail "the baseline stores no case"

# ---- the noise that they show: p2, worked out here from results.csv. The made-up times of a case are all equal ----------------
cp -r run noisy
awk -F, -v OFS=, '/control=first&n=1,kernel_time/ { $9 *= 1.2 } /control=first&n=2,kernel_time/ { $9 *= 0.9 } { print }' \
    run/results.csv >noisy/results.csv
median() { grep "paired/step?$1,kernel_time," noisy/results.csv | cut -d, -f9 | sort -g | sed -n 2p; }
p=$(echo "$(median "${keys[0]}") $(median "${keys[2]}") $(median "${keys[1]}") $(median "${keys[3]}")" |
    awk '{ printf "%.3g", 100 * sqrt((log($1 / $2) ^ 2 + log($3 / $4) ^ 2) / 4) }')
[[ $p == 10.5 ]] || fail "p is $p %, not sqrt((ln(1.2)^2 + ln(0.9)^2) / 4)"
expect 0 "p $p %" "$fixture" compare run noisy --all --explain
[[ $(grep -c "kernel_time" log) -ge 40 && $(grep -c "p $p %" log) -ge 40 ]] || fail "p is not in every row"

# One copy: its pair is the case itself, and counts in the row of that case too. p: sqrt((ln(1.2)^2 + 0) / 4).
shown() { grep -o 'p [0-9.]* %' log | sort -u; }
slower() { # slower OUT REGEX FACTOR: run `few`, whose values of these rows are multiplied
    rm -rf "$1" && cp -r few "$1" && awk -F, -v OFS=, -v factor="$3" "/$2/"' { $9 *= factor } { print }' few/results.csv >"$1/results.csv"
}
expect 0 '' "$fixture" compare few few --all --explain
before=$(shown)
slower copy 'control=second&n=1,kernel_time' 1.2
expect 0 'p 9.12 %' "$fixture" compare few copy --all --explain
[[ $(grep -c 'p 9.12 %' log) -ge 3 && $(shown) == 'p 9.12 %' ]] || fail "the copy is not in every row: $(shown)"
# A slower case is slower in its copy as well: that is no noise.
slower both 'n=1,kernel_time' 1.5
expect 0 '' "$fixture" compare few both --all --explain
[[ $(shown) == "$before" ]] || fail "a slower case counts as noise: $(shown), not $before"

# ---- a control that failed or is wrong is not hidden ------------------------------------------------------------------------
cp -r run broken
awk -F, -v OFS=, '/control=first&n=1,kernel_time/ { $11 = "wrong" } { print }' run/results.csv >broken/results.csv
expect 4 'control=first' "$fixture" report broken
rm -rf broken && cp -r few broken
awk -F, -v OFS=, '/control=second&n=1,kernel_time/ { $11 = "wrong" } { print }' few/results.csv >broken/results.csv
expect 4 'control=second' "$fixture" report broken

# ---- a run that was killed and resumed has every row once; a comparison of executables has no controls --------------------------
setsid "$fixture" "${options[@]}" --out killed >log 2>&1 & pid=$!
while kill -0 $pid 2>/dev/null && [[ ! -f killed/run.json || $(wc -l <killed/results.csv) -lt 50 ]]; do :; done
kill -KILL -- -$pid 2>/dev/null
wait $pid 2>/dev/null
if grep -q '"truncated": true' killed/run.json; then
    PB_CONTROLS=no expect 2 'its cases differ' "$fixture" --resume killed
    expect 0 'results: killed' "$fixture" --resume killed
fi
rows() { tail -n +2 "$1/results.csv" | cut -d, -f4-6 | sort; }
[[ $(rows killed) == "$(rows run)" ]] || fail "the resumed run has other rows"
expect 0 'inconclusive=' "$fixture" compare "$fixture" --self --time-slice 0 --suite paired --n "$cases" \
    --pairs 2 --max-pairs 2 --quiet --out pairs
grep -q 'control=' pairs/base/results.csv pairs/cand/results.csv && fail "the pairs have controls"
exit "$failures"
