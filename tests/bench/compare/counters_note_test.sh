#!/bin/bash
# counters_note_test.sh BENCH - the notes on counters that changed: none for the row `all rows`, which is a mean and no
# counter, when two runs are equal; one for a row that changed.
bench=$1
. "${0%/*}/../../cli.sh"
# run FILE RUN BYTES: three processes of two cases, the second with BYTES
run() {
    local p
    echo "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note,commit,host" >"$1"
    for p in 0 1 2; do
        echo "2,$2,m,$p,backward/step?seq=1,peak_memory,B,lower,1000000000,0,ok,,,h" >>"$1"
        echo "2,$2,m,$p,backward/step?seq=2,peak_memory,B,lower,$3,0,ok,,,h" >>"$1"
    done
}
run a.csv one 20000000000
run b.csv two 20000000000
run c.csv three 15000000000
mkdir base
printf 'suite,metric,better,stored_limit,ceiling,gating\nbackward,peak_memory,lower,0.05,,yes\n' >base/gates.csv
expect 0 'saved' "$bench" baseline save a.csv --baseline base --reason test --machine M
expect 0 'all rows  peak_memory' "$bench" compare b.csv --baseline base --machine M
grep -q 'a counter changed' log && fail "equal runs: $(grep 'a counter changed' log)"
expect 0 'note: a counter changed: peak_memory of backward/step?seq=2, 20.0 GB -> 15.0 GB' "$bench" compare c.csv --baseline base --machine M
[[ $(grep -c 'a counter changed' log) -eq 1 ]] || fail "one counter changed: $(grep 'a counter changed' log)"
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
