#!/bin/bash
# simulate_cli_test.sh BENCH SOURCE - `bench compare --simulate` on folders: which processes form a pair, which rows are
# judged, samples take precedence over row values, and what is refused.
bench=$1 source=$2
. "${0%/*}/../../cli.sh"

# run FOLDER RUN PROCESSES SECONDS SUITE METRIC: writes a run of three cases with 11 samples per process, which vary by
# about 0.3 %. ROWVALUE (environment) sets the column `value`; default: the median.
run() {
    mkdir -p "$1"
    awk -v run="$2" -v n="$3" -v base="$4" -v suite="$5" -v metric="$6" -v rowvalue="${ROWVALUE:-}" -v folder="$1" '
    function noise(a, b, c) { a = sin(a * 12.9898 + b * 78.233 + c * 37.719) * 43758.5453; return a - int(a) }
    BEGIN {
        results = folder "/results.csv"; samples = folder "/samples.csv"; salt = length(run) + base * 1000
        print "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note" >results
        print "run_id,process,key,metric,index,value" >samples
        for (l = 0; l < n; l++) for (k = 0; k < 3; k++) {
            level = base * (1 + 0.003 * noise(l, k, salt)); key = suite "/c?i=" k
            for (i = 0; i < 11; i++) printf "%s,%d,%s,%s,%d,%.9g\n", run, l, key, metric, i, level * (1 + 1e-5 * i) >samples
            printf "1,%s,m,%d,%s,%s,s,lower,%.9g,11,ok,\n", run, l, key, metric, rowvalue == "" ? level : rowvalue >results
        }
    }'
}
sed '/^kernels,kernel_time,/s/,pairs$/,no/' "$source/baselines/gates.csv" >gates.csv
simulate() { "$bench" compare --gates gates.csv --trials 200 --simulate "$@"; }

# ---- runs of one program, and pairs ---------------------------------------------------------------------------------
run plain r 49 0.001 backward backward_time
expect 0 'bench: processes=48 pairs=24 rows=3 recorded=1 recorded_alarms=0' simulate plain
grep -q '3 gating rows, one family' "$dir/log" || fail "the size of the family is not printed"
grep -q '^note: all rates come from 48 processes' "$dir/log" || fail "the number of processes is not printed"
cp "$dir/log" first
expect 0 'exit=0' simulate plain
cmp -s "$dir/log" first || fail "a second call prints another output"
{ head -1 plain/results.csv && tail -n +2 plain/results.csv | tac; } >turned && mv turned plain/results.csv
expect 0 'exit=0' simulate plain
cmp -s "$dir/log" first || fail "the order of the rows matters"
run kernels k 24 0.001 kernels kernel_time
expect 0 'rows=3 recorded=3 recorded_alarms=0' simulate kernels
grep -q 'no row gates: each of 3 rows is a comparison of its own' "$dir/log" ||
    fail "rows that do not gate are not judged one by one"
expect 0 'rows=3 recorded=1 recorded_alarms=0' simulate kernels --gates "$source/baselines/gates.csv"
grep -q '3 gating rows, one family' "$dir/log" || fail "what gates pairs does not gate"
expect 0 'recorded=6 recorded_alarms=0' simulate kernels kernels --pairs 12 --max-pairs 12
run pairs/base b 24 0.001 kernels kernel_time
run pairs/cand c 24 0.00102 kernels kernel_time
expect 0 'processes=48 pairs=24 rows=3 recorded=3 recorded_alarms=0' simulate pairs # differences are centred
grep -q '(centred)' "$dir/log" || fail "centring is not mentioned"
expect 0 'recorded=3 recorded_alarms=3' simulate pairs --self
expect 0 'with one row 5 % worse' simulate pairs --inject-slowdown 5%

# ---- samples take precedence over row values; pairs are matched by number --------------------------------------------
ROWVALUE=0.5 run pairs/cand c 24 0.001 kernels kernel_time
expect 0 'recorded=3 recorded_alarms=0' simulate pairs --self
rm pairs/cand/samples.csv
expect 0 'recorded=3 recorded_alarms=3' simulate pairs --self
run pairs/cand c 24 0.001 kernels kernel_time
sed -i '/,m,3,/d' pairs/cand/results.csv # a pair needs both sides
expect 0 'processes=46 pairs=23 rows=3' simulate pairs
sed -i '/,m,7,.*i=1,/d' pairs/cand/results.csv # a row that one process lacks is left out
expect 0 'processes=46 pairs=23 rows=2' simulate pairs
grep -q 'note: rows left out because a process lacks them: 1' "$dir/log" ||
    fail "the row that was left out is not counted"

# ---- stored pairs -------------------------------------------------------------------------------------------------------
# stored SESSION PAIRS SESSION PAIRS...: sessions of two cases that a gate does not name
stored() {
    echo machine_id,bench_version,more,session,key,metric,pairs,ratios
    awk 'BEGIN { for (s = 1; s < ARGC; s += 2) for (k = 0; k < 2; k++) {
        printf "m,2,x,%s,kernels/c?i=%d,kernel_time,%d,", ARGV[s], k, ARGV[s + 1]
        for (i = 0; i < ARGV[s + 1]; i++) printf "%s%.9g", i ? " " : "", 0.001 * sin(i * 7 + k + s)
        print ""
    } }' "$@"
}
stored a 12 b 24 >s.csv
expect 0 'processes=72 pairs=36 rows=2 recorded=4 recorded_alarms=0' simulate s.csv --self
expect 0 '2 sessions, 36 pairs' simulate s.csv
grep -q '(centred)' "$dir/log" || fail "stored pairs are not centred"
stored c 12 >t.csv
expect 0 'processes=96 pairs=48 rows=2 recorded=6' simulate s.csv t.csv --self
sed 's/,12,[^ ]* /,11,/' t.csv | sed '2s/,11,/,12,0.001 /' >u.csv # a case that lacks a pair of its session
expect 0 'pairs=12 rows=1 recorded=1' simulate u.csv --self
grep -q 'note: rows left out because a process lacks them: 1' "$dir/log" || fail "a stored row left out is not said"

# ---- refused input: one line, and nothing on standard output ---------------------------------------------------------
refuse() {
    expect 2 "$@"
    [[ $(wc -l <"$dir/log") -eq 1 ]] || fail "more than one line"
}
run few f 23 0.001 backward backward_time
refuse '22 processes were recorded, which are 11 pairs; the first look needs 12 pairs' simulate few
run other o 24 0.001 backward backward_time
sed -i 's/,m,/,n,/' other/results.csv
refuse 'the machine or bench_version differs from that of' simulate plain other
run bad b 24 0.001 backward backward_time
sed -i '30s/,[^,]*$/,-1/' bad/samples.csv
refuse 'samples.csv:' simulate bad
run bad b 24 0.001 backward backward_time
sed -n 2p bad/samples.csv >>bad/samples.csv
refuse 'the samples of a row are not contiguous' simulate bad
refuse 'name at least one run folder' simulate
wrong() { # wrong MESSAGE SED: stored pairs with a fault
    sed "$2" t.csv >wrong.csv
    refuse "$1" simulate wrong.csv
}
wrong 'wrong.csv:1: the header lacks the column session' '1s/session/sessions/'
wrong 'wrong.csv:2: no such metric: kernel_tide' '2s/kernel_time/kernel_tide/'
wrong 'wrong.csv:3: ratios is not a list of as many numbers as pairs says' '3s/,12,/,13,/'
wrong 'wrong.csv:3: ratios is not a list' '3s/,12,[^ ]*/,12,nan/'
wrong 'wrong.csv:3: ratios is not a list' '3s/,12,[^ ]*/,12,0.1x/'
wrong 'wrong.csv:2: ratios is not a list' "2s/,12,.*/,25,$(printf '0.1 %.0s' {1..25})/"
wrong 'wrong.csv:3: not sorted by session' '3s/,c,/,b,/'
wrong 'a second row of kernels/c?i=0' '3s/i=1/i=0/'
wrong 'wrong.csv:3: the line lacks the column ratios' '3s/,12,.*/,12/'
wrong 'wrong.csv: the machine or bench_version differs' '3s/^m,/n,/'
wrong 'wrong.csv: has a header but no rows' '2,$d'
wrong 'wrong.csv:2: a quote out of place' '2s/,x,/,x"x,/'
refuse 'needs a share between 0 and 10' simulate plain --inject-slowdown 1100%
refuse '--inject-slowdown 11: 11% or 1100%? Give a share of 1 or more in percent' simulate plain --inject-slowdown 11
refuse 'need 2 <= pairs <= max-pairs <= 24' simulate plain --max-pairs 25
refuse 'nowhere' simulate nowhere
refuse 'prints only text, not junit' simulate plain --format junit
refuse 'takes at most one executable' "$bench" compare plain plain --self

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
