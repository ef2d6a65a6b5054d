#!/bin/bash
# long_check_test.sh BENCH - a check of the gradient that took long is made once in a run: later processes report what the
# earlier one found. A run is ended in its second process, the first gets a row that says how long its check took, and the
# run continues.
bench=$1
. "${0%/*}/../../cli.sh"
export PB_CONTROLS=no PB_DISTURBANCE=ignore
case=(--suite throughput --model tiny --layers 1 --seq 8 --batch 1 --tuning lora --mode eager,graph --clip multi)

# ends_in_second DIR: starts a run of three processes and ends it when the first has ended.
ends_in_second() {
    "$bench" run "${case[@]}" -n 3 --min-time 1 --ceilings no --no-compare --no-keep --quiet --out "$1" >"$dir/log" 2>&1 & pid=$!
    while kill -0 $pid 2>/dev/null && [[ ! -f $1/processes.csv || $(wc -l <"$1/processes.csv") -lt 2 ]]; do sleep 0.02; done
    kill -INT $pid
    wait $pid
    [[ $(cut -d, -f1,4 "$1/processes.csv" | tr '\n' ' ') == 'process,outcome 0,ok '* ]] && ! grep -q '^2,' "$1/processes.csv" ||
        fail "$1: not ended in its second process: $(cat "$1/processes.csv")"
}
# notes DIR PROCESS: the notes of its rows of gradient_error
notes() { awk -F, -v p="$2" '$4 == p && $6 == "gradient_error"' "$1/results.csv" | cut -d, -f12-13; }
# says DIR: inserts a row that says 151 s for each case whose gradient process 0 has checked itself, and tells progress.csv
# how many bytes it added
says() {
    local last bytes
    last=$(tail -n 1 "$1/progress.csv")
    bytes=$(cut -d, -f3 <<<"$last")
    head -c "$bytes" "$1/results.csv" >rows
    awk -F, -v OFS=, '$4 == 0 && $6 == "gradient_error" && $12 == "" {
        $6 = "gradient_check_time"; $7 = "s"; $9 = 151; print }' rows >more
    [[ -s more ]] || fail "$1: process 0 has checked no gradient"
    cat rows more >"$1/results.csv"
    sed -i '$d' "$1/progress.csv"
    awk -F, -v OFS=, -v more="$(wc -c <more)" '{ $3 += more; print }' <<<"$last" >>"$1/progress.csv"
}

ends_in_second long
says long
expect 0 '' "$bench" run --resume long
[[ $(notes long 2 | grep -cx '"measured in process 0 of this run, where the check took 151 s"') -eq 2 ]] ||
    fail "process 2 checked again, or says that it did: $(notes long 2)"
[[ $(awk -F, '$6 == "gradient_error" { print $9 }' long/results.csv | sort -u | wc -l) -eq 1 ]] || fail 'another error'

# a row of one process, the time of the check, does not keep the run from becoming a stored session; a build with sanitizers
# cannot store its times, and their values do not matter here
sed -i 's/-fsanitize=[a-z,]*//' long/run.json
expect 0 '' "$bench" baseline save long --baseline stored --reason 'a long check'
[[ -n $(find stored -name throughput.csv) ]] && ! grep -rq gradient_check_time stored || fail 'stored nothing, or the time'

ends_in_second again # no check took long
expect 0 '' "$bench" run --resume again
[[ $(notes again 2) != *'process 0'* ]] || fail "process 2 made no check, though none took long: $(notes again 2)"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
