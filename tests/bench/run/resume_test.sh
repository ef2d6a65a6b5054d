#!/bin/bash
# resume_test.sh BENCH_FIXTURE - runs that are interrupted and resumed: by kill -9 at many points, by a signal, by
# --budget. In the end they have every row of an undisturbed run exactly once.
fixture=$1
. "${0%/*}/../../cli.sh"

fine() { "$@" >"$dir/log" 2>&1 || fail "exit code $?: ${*##*/}"; }

# content DIR: the process, key, metric and status of each row, the number of samples of each, and the number of cases
# that its conclusions counted.
content() {
    tail -n +2 "$1/results.csv" | cut -d, -f4-6,11 | sort
    tail -n +2 "$1/samples.csv" | cut -d, -f2-4 | sort | uniq -c
    grep requirement/T-1 "$1/results.csv" | cut -d, -f4,9
}
same() { # same DIR: must equal the undisturbed run
    [[ $(content "$1") == "$(content whole)" ]] ||
        fail "$1: other rows than an undisturbed run: $(diff <(content whole) <(content "$1"))"
    [[ $(cut -d, -f2 "$1/results.csv" | sort -u | wc -l) -eq 2 ]] || fail "$1: more than one run_id" # and the header
    [[ $(grep -v ',interrupted,' "$1/processes.csv" | cut -d, -f1,4- | tr '\n' ' ') == 'process,outcome,retry_of,reason 0,ok,, 1,ok,, ' ]] ||
        fail "$1: $(cat "$1/processes.csv")"
    grep -q '"truncated": false' "$1/run.json" || fail "$1: run.json does not say that it is whole"
}
options=(--suite toy --mode 'fine,slow' --batch '1,2' --samples 3 --seed 3 -n 2 --no-compare --quiet step)
fine "$fixture" "${options[@]}" --out whole
[[ $(grep -c ',requirement,' whole/results.csv) -eq 2 ]] || fail "whole: not two conclusions"

# rows DIR N: waits until results.csv has N lines, or the run has ended.
rows() {
    while kill -0 $pid 2>/dev/null && [[ ! -f $1/run.json || $(wc -l <"$1/results.csv") -lt $2 ]]; do sleep 0.01; done
}
# killed DIR N WHOM ARG...: starts bench and, when the results have N lines, kills it in the middle of its next case:
# bench and its measuring process (both), or bench alone (parent).
killed() {
    local run=$1 lines=$2 whom=$3
    shift 3
    setsid "$fixture" "$@" >"$dir/log" 2>&1 & pid=$!
    rows "$run" "$lines"
    [[ $whom == both ]] || sleep 0.1
    [[ $whom == parent ]] || kill -KILL -- -$pid $(cat /proc/$pid/task/$pid/children 2>/dev/null) 2>/dev/null
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
}

# ---- kill -9 at many points, and again while it resumes ---------------------------------------------------
for at in 1 2 5 8 10 11 16 18; do
    for whom in both parent; do
        run=k$at$whom
        killed "$run" $at $whom "${options[@]}" --out "$run"
        killed "$run" $((at + 3)) $whom run --resume "$run"
        fine "$fixture" run --resume "$run"
        same "$run"
    done
done

# ---- data after the last complete case ------------------------------------------------------------------------
killed part 6 both "${options[@]}" --out part
printf '1,half a ro' >>part/results.csv
printf 'half a samp' >>part/samples.csv
printf '1,2,30' >>part/progress.csv
printf '0,20' >>part/processes.csv
printf '{' >part/run.json.new
fine "$fixture" run --resume part
same part
before=$(cat part/results.csv part/samples.csv part/progress.csv | md5sum)
fine "$fixture" run --resume part # the run is complete already
[[ $(cat part/results.csv part/samples.csv part/progress.csv | md5sum) == "$before" ]] || fail "part: a whole run was changed"

# Rows can reach the disk later than progress.csv.
killed late 12 both "${options[@]}" --out late
size=$(awk -F, 'NR == 3 { print $3 }' late/progress.csv)
truncate -s $((size + 5)) late/results.csv
fine "$fixture" run --resume late
same late

# ---- stopped by a signal and by a budget ------------------------------------------------------------------------
setsid "$fixture" "${options[@]}" --out signal >"$dir/log" 2>&1 & pid=$!
rows signal 5
kill -TERM $pid
wait $pid
[[ $? -eq 125 ]] || fail "signal: exit code"
grep -q 'bench run --resume signal continues' "$dir/log" || fail "signal: it does not say how to go on"
fine "$fixture" run --resume signal
same signal
grep -q ',interrupted,,Terminated$' signal/processes.csv || fail "signal: processes.csv does not say what ended the process"
[[ $(grep -c truncated signal/results.csv) -eq 0 ]] || fail "signal: the truncated row stayed"

expect 125 'the budget is used up; the rows measured so far are in slow; bench run --resume slow continues' \
    "$fixture" "${options[@]}" --out slow --budget 2.2s
calls=1
until "$fixture" run --resume slow >"$dir/log" 2>&1; do # each time with the same budget
    calls=$((calls + 1))
    [[ $calls -lt 40 ]] || break
done
[[ $calls -gt 2 ]] || fail "slow: the budget held nothing back"
same slow
grep -q ',interrupted,,the budget is used up$' slow/processes.csv || fail "slow: processes.csv does not say what ended the process"
fine "$fixture" "${options[@]}" --out quick --budget 1h
same quick
# A case that takes much longer than the budget is cut off, and a case that is not expected to fit is not started.
expect 125 'used up' "$fixture" --suite toy --mode slow --batch 1 --samples 200 -n 1 --no-compare --out long \
    --budget 4 step
grep -q ',kernel_time,.*,ok,' long/results.csv && fail "long: the budget did not stop a case of 10 s"

# ---- one process at a time ----------------------------------------------------------------------------------------
setsid "$fixture" --suite toy --mode slow --batch 1 --samples 1000 -n 1 --no-compare --out busy step >"$dir/log" 2>&1 & pid=$!
rows busy 3
before=$(md5sum <busy/results.csv)
expect 2 'busy/results.csv: the run is still being measured' "$fixture" run --resume busy
[[ $(md5sum <busy/results.csv) == "$before" ]] || fail "busy: its rows were touched"
kill -TERM $pid
wait $pid

# ---- a process that crashed is not repeated by --resume -----------------------------------------------------------
export ASAN_OPTIONS=handle_segv=0
expect 4 'killed by signal 11' "$fixture" --suite toy --mode crash --batch 1 --out crash --no-compare step
before=$(md5sum crash/results.csv)
grep -q ',crashed,,"\?killed by signal 11 .* in toy/step' crash/processes.csv || fail "crash: $(cat crash/processes.csv)"
expect 4 results "$fixture" run --resume crash
[[ $(md5sum crash/results.csv) == "$before" ]] || fail "crash: rows changed"

# ---- changes that would make the run inconsistent ------------------------------------------------------------------
before=$(cat whole/* | md5sum)
table "$fixture" <<'TABLE'
run --resume nowhere               | 2 | nowhere/run.json: No such file
run --resume whole --samples 4     | 2 | a resumed run keeps its --samples
run --resume whole --processes 5    | 2 | keeps its --processes
run --resume whole --seed 4        | 2 | keeps its --seed
run --resume whole --out x         | 2 | keeps its --out
run --resume whole --batch 8       | 2 | its cases differ
run --resume whole other           | 2 | its cases differ
run --suite toy --budget 9x        | 2 | --budget 9x: need a number of seconds
TABLE
edited() { # edited WHAT BY TEXT: --resume must give TEXT after sed has replaced WHAT by BY
    cp -r whole edited
    sed -i "s/$1/$2/" edited/run.json
    expect 2 "$3" "$fixture" run --resume edited
    rm -r edited
}
edited '"commit": "[^"]*"' '"commit": "0"' 'the run was started by commit 0'
edited '"bench_version": "[^"]*"' '"bench_version": "0"' 'version 0; this program is'
edited '"machine_id": "[^"]*"' '"machine_id": "other"' 'the run was started on other'
edited '"host": "[^"]*"' '"host": "other\/"' 'the run was started on the host other/'
edited '"seed": [0-9]*' '"seed": 9' 'its cases differ'
edited '"--suite"' '7' 'an element that is not a string'
edited '"run",' '"compare",' 'does not begin with bench run'
edited '"--quiet"' '"--child-dir=\/"' "has no option '--child-dir"
edited '"--quiet"' '"--help"' 'cannot have --help'
edited '"--quiet"' '"--resume=x"' 'its argv has --resume'
edited '"--quiet"' '"\\u001b[2J"' 'control characters: ?[2J'
edited '"machine_id": "' '"machine_id": "\\u001b[2J' 'control characters'
edited '{' '[' 'edited/run.json'
for file in progress.csv processes.csv; do
    cp -r whole edited && rm edited/$file
    expect 2 "$file: No such file" "$fixture" run --resume edited
    mkfifo edited/$file
    expect 2 'is a FIFO' timeout 20 "$fixture" run --resume edited
    rm -r edited
done

# Rows are appended in the order of this program's columns; readers accept any order.
cp -r whole edited
sed -i '1s/commit,host$/host,commit/' edited/results.csv
rows_before=$(cat edited/* | md5sum)
expect 2 'edited/results.csv: its columns are not those that this program writes' "$fixture" run --resume edited
[[ $(wc -l <"$dir/log") -eq 1 && $(cat edited/* | md5sum) == "$rows_before" ]] || fail "columns: more than a refusal"
rm -r edited

# A refused --resume changes nothing: everything is checked before a file is truncated.
marked() { # marked LINE TEXT: --resume must give TEXT when progress.csv has only that line
    cp -r whole edited
    printf 'process,case,results,samples\n%s\n' "$1" >edited/progress.csv
    expect 2 "$2" "$fixture" run --resume edited
    [[ $(cat edited/results.csv edited/samples.csv edited/run.json | md5sum) == "$rows_before" ]] || fail "'$1' cost rows"
    rm -r edited
}
rows_before=$(cat whole/results.csv whole/samples.csv whole/run.json | md5sum)
marked 0,9,101,38 'process 0, case 9; there are 2 processes of 6 cases'
marked 3,0,101,38 'process 3, case 0; there are 2 processes'
marked 2,1,101,38 'process 2, case 1; there are 2 processes'
marked 4294967296,0,101,38 'progress.csv:2: need process,case,results,samples'
marked 0,0,9223372036854775808,38 'progress.csv:2: need'
marked -1,0,101,38 'progress.csv:2: need'
marked 0,0,101,38,5 'progress.csv:2: need'
marked 0,0,90,38 'results.csv: no line ends at byte 90'
marked 0,0,101,37 'samples.csv: no line ends at byte 37'
marked 0,0,0,38 'the first 0 are complete'
marked "0,0,$(stat -c %s whole/results.csv),38" 'a row of process 0 is among the rows of processes before 0'
marked 1,0,101,38 'process 1 is next, but results.csv lacks cases of process 0'
marked $'0,0,101,38\n1,0,101,38' 'process 1 is next, but rows of process 0 would be cut off'
[[ $(cat whole/* | md5sum) == "$before" ]] || fail "whole: a refused call changed it"

# forged LINE...: a run with three of the six cases of process 0, and a progress.csv with these lines; SIZES becomes the
# sizes of its files.
sizes=$(awk -F, '$1 == 0 && $2 == 3 { print $3 "," $4 }' whole/progress.csv)
forged() {
    cp -r whole edited
    truncate -s "${sizes%,*}" edited/results.csv
    truncate -s "${sizes#*,}" edited/samples.csv
    (echo process,case,results,samples && printf '%s\n' "${@//SIZES/$sizes}") >edited/progress.csv
    rows_before=$(cat edited/* | md5sum)
}
for lines in '1,0,SIZES' '0,0,101,38 0,3,SIZES 1,0,SIZES' '0,0,101,38 1,0,SIZES'; do
    # shellcheck disable=SC2086 # one word a line
    forged $lines
    expect 2 'process 1 is next, but results.csv lacks cases of process 0' "$fixture" run --resume edited
    [[ $(cat edited/* | md5sum) == "$rows_before" ]] || fail "'$lines': a refused --resume changed the run"
    rm -r edited
done
# A process that died before its first case has no rows, and the next one follows.
cp -r whole edited
truncate -s 101 edited/results.csv && truncate -s 38 edited/samples.csv
printf 'process,case,results,samples\n0,0,101,38\n1,0,101,38\n' >edited/progress.csv
fine "$fixture" run --resume edited
[[ $(tail -n +2 edited/results.csv | cut -d, -f4 | sort -u) == 1 ]] || fail "edited: not the rows of process 1"
rm -r edited

# ---- runs that begin in the same second have folders of their own -------------------------------------------
for i in 1 2 3 4 5 6; do
    "$fixture" --suite paired --n 1 -n 1 --no-compare --quiet >"$dir/log$i" 2>&1 &
done
wait
[[ $(find runs -name run.json | wc -l) -eq 6 ]] || fail "runs of the same second: $(cat "$dir"/log[1-6])"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
