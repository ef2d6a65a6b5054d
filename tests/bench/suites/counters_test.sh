#!/bin/bash
# counters_test.sh BENCH SOURCE - the exact counters of the model `tiny` are those of SOURCE/baselines/exact/, and every
# op has some. A change of the code that raises one fails here. If it is intended, `bench baseline counters` renews the
# file (HACKING.md).
bench=$1 source=$2
. "${0%/*}/../../cli.sh"

# One process with one sample for each case: no time is looked at. The timeout is for a machine with other load.
for suite in backward throughput optimizer convergence; do
    expect 0 "note: exact counters against $source/baselines/exact/$suite.csv: " "$bench" --suite $suite --model tiny \
        -n 1 --samples 1 --min-time 0 --ceilings no --case-timeout 300 --baseline "$source/baselines" --out $suite
    grep -qE '^note: exact counters against .*: [0-9]+ equal$' log || fail "$suite: a counter changed"
    ! grep -q 'not stored yet' log || fail "$suite: a counter is not stored"
    ! grep -q ",$suite/step.*,unsupported," $suite/results.csv || fail "$suite: a row is unsupported"
done

# Every op has stored counters of a CPU: without them a lost fusion inside the op would pass.
"$bench" list kernels | awk '{ print $1 }' >ops
[[ $(wc -l <ops) -ge 52 ]] || fail 'bench list kernels has no list of ops'
while read -r op; do
    grep -q "[^,]*,[^,]*,cpu,[^,]*,kernels/$op?.*,kernel_launches," "$source/baselines/exact/kernels.csv" ||
        fail "$op: no counters are stored: run scripts/renew-counters"
done <ops

# The counters of two runs of one program are equal; those of a copy with one more launch are not.
expect 0 'note: exact counters: ' "$bench" compare backward backward --gates "$source/baselines/gates.csv"
grep -qE '^note: exact counters: [0-9]+ equal$' log || fail "the counters of a run are not equal to themselves"
cp -r backward more
awk -F, -v OFS=, '$6 == "graph_nodes" { $9++ } 1' backward/results.csv >more/results.csv
expect 1 'REGRESSED: exact, ' "$bench" compare backward more --gates "$source/baselines/gates.csv"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
