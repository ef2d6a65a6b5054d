#!/bin/bash
# history_cli_test.sh BENCH SOURCE - bench history as a user runs it: the commit of a run comes into its rows, into a
# stored baseline and into the history; wrong options are one line. BENCH is bench with quick suites (bench_fixture).
bench=$(realpath "$1")
. "${0%/*}/../../cli.sh"

mkdir runs
for i in 1 2; do
    expect 0 '' "$bench" run --suite toy --samples 2 --no-compare --quiet --out runs/$i other
done
commit=$(sed -n 's/^ *"commit": "\(.*\)",$/\1/p' runs/1/run.json)
[[ -n $commit ]] || fail "run.json has no commit"
awk -F, -v c="$commit" 'NR > 1 && $(NF - 1) != c' runs/1/results.csv | grep -q . && fail "a row without the commit $commit"
expect 0 'history: rows=' "$bench" history --runs runs --all --ascii
expect 0 ",$commit," "$bench" history --runs runs --all --format csv

for i in 1 2; do
    expect 0 saved "$bench" baseline update runs/$i --reason why --baseline stored
done
[[ $commit == unknown ]] || expect 0 ",$commit," "$bench" history --baseline stored --all --format csv

# Files that scripts store next to the sessions are left out. The baselines of this repository have all kinds of them.
echo 'commit,device' >"$(dirname stored/*/toy.csv)/gate_score.csv"
expect 0 'history: rows=' "$bench" history --baseline stored --all
expect 0 'history: rows=' "$bench" history --baseline "$2/baselines"

# The locale decides how sparklines are drawn.
metric=$(awk -F, 'NR == 2 { print $6 }' stored/*/toy.csv)
LC_ALL=C expect 0 '' "$bench" history --baseline stored --metric "$metric"
grep -q '[▁█]' log && fail "UTF-8 in the locale C"
if LC_ALL=C.UTF-8 locale charmap 2>/dev/null | grep -qx UTF-8; then
    LC_ALL=C.UTF-8 expect 0 '' "$bench" history --baseline stored --metric "$metric"
    grep -q '[▁▄█]' log || fail "no UTF-8 in a UTF-8 locale"
    LC_ALL=C.UTF-8 expect 0 '' "$bench" history --baseline stored --metric "$metric" --ascii
    grep -q '[▁▄█]' log && fail "UTF-8 with --ascii"
fi

table "$bench" history <<'TABLE'
--format junit                | 2 | bench history writes only text
--alpha 0.0001                | 2 | need at least 0.001
--alpha 2                     | 2 | 2% or 200%
--alpha 200%                  | 2 | less than 1
--runs none --all             | 2 | none: No such file or directory
--runs runs --metric speed    | 2 | 'speed' is not a metric
--baseline none --all         | 2 | none: No such file or directory
--runs runs nothing --all     | 2 | rows is selected
--samples 3                   | 2 | --samples
TABLE
expect 2 'bench report writes only text|markdown|junit' "$bench" report --format csv
expect 2 'bench compare writes only text|markdown|junit' "$bench" compare --format svg

exit $((failures > 0))
