#!/bin/bash
# confirm_test.sh BENCH_FIXTURE - `bench run` measures rows again that are worse than the stored sessions. The times are
# those of a simulated clock.
fixture=$1
. "${0%/*}/../../cli.sh"
export PB_STATE=$dir/kept PB_MACHINE=lab FIXTURE_SLOW=$dir/slow FIXTURE_WRONG=$dir/wrong
mkdir baselines
printf 'suite,metric,better,stored_limit,ceiling,gating\npaired,kernel_time,lower,0.15,,yes\n' >baselines/gates.csv
run=("$fixture" --suite paired --no-keep --confirm-after 0 --n 2)
plan=' worse beyond the bound: in '

expect 0 'NO-BASELINE' "$fixture" --suite paired --n 2 --out first
machine=$(cut -d, -f3 first/results.csv | sed -n 2p)
sessions=baselines/$machine/paired.csv
expect 0 saved "$fixture" baseline save first -m base
touch slow
expect 0 SUSPECT "${run[@]}" --out few
[[ ! -e few/again ]] || fail 'one session: measured again'
ten_sessions "$sessions" baseline:

rm slow
expect 0 ' same=' "${run[@]}" --out same
[[ ! -e same/again ]] || fail 'same: measured again'

touch slow
expect 1 'REGRESSED' "${run[@]}" --out worse
grep -q "$plan" "$dir/log" || fail 'worse: it does not say that it measures again'
[[ $(tail -n +2 worse/again/results.csv | cut -d, -f4 | sort -u | wc -l) -eq 6 ]] || fail 'worse: not 6 processes'
expect 1 'REGRESSED' "$fixture" compare worse --subset # finds worse/again
expect 0 'SUSPECT' "${run[@]}" --out unsure --no-confirm
[[ ! -e unsure/again ]] || fail 'unsure: measured again'
expect 1 'REGRESSED' "$fixture" run --resume worse

# Four sessions are too few for REGRESSED, so a second measurement could change nothing; five are enough. The sessions
# are those of one folder alone: none is kept.
for k in 4 5; do
    mkdir -p "of$k/$machine" && cp baselines/gates.csv of$k
    awk -F, -v last=$((9 + k)) 'NR == 1 || substr($2, 10) + 0 <= last' "$sessions" >"of$k/$machine/paired.csv"
done
PB_STATE='' expect 0 'SUSPECT: REGRESSED and IMPROVED need 5 sessions' "${run[@]}" --out four --baseline of4
[[ ! -e four/again ]] || fail 'four sessions: measured again'
PB_STATE='' expect 1 'REGRESSED' "${run[@]}" --out five --baseline of5
[[ -e five/again ]] || fail 'five sessions: not measured again'

# A budget without time for a second measurement: the rows stay SUSPECT, and the run is complete.
expect 0 'the budget has no time to confirm it; bench run --resume tight --budget ' \
    "${run[@]}" --out tight --confirm-after 500 --budget 100
grep -q SUSPECT "$dir/log" || fail 'tight: not SUSPECT'
[[ ! -e tight/again ]] || fail 'tight: measured again without time'
expect 1 'REGRESSED' "$fixture" run --resume tight --confirm-after 0 --budget 1h

# waiting RUN OPTION...: starts bench and returns while it waits to measure again.
waiting() {
    local out=$1
    : >"$dir/log" # the line of the run before must not be found
    "${run[@]}" --out "$out" --confirm-after 3 >"$dir/log" 2>&1 & pid=$!
    until grep -q "$plan" "$dir/log" || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
}
waiting once
rm slow
wait $pid || fail "once: exit code $?"
grep -q 'not confirmed when measured again' "$dir/log" || fail 'once: not SUSPECT'
touch slow
waiting wrong-again
touch wrong
wait $pid
[[ $? -eq 4 ]] || fail 'wrong-again: exit code'
grep -q 'the second measurement in wrong-again/again failed' "$dir/log" || fail 'wrong-again: it does not say so'
rm wrong
for signal in TERM HUP; do
    waiting $signal
    kill -$signal $pid
    wait $pid
    [[ $? -eq 125 ]] || fail "$signal: exit code"
    grep -q "bench run --resume $signal measures them again" "$dir/log" || fail "$signal: it does not say how to go on"
    grep -q '"truncated": false' $signal/run.json || fail "$signal: the first run is not whole"
done
expect 0 SUSPECT "$fixture" compare TERM --subset
expect 1 REGRESSED "$fixture" run --resume TERM --confirm-after 0

# A second measurement that is stopped in its fourth process, which waits: by the budget, by SIGINT for the whole group
# of processes, as from a terminal, or by SIGKILL. The run keeps every row, the three complete processes confirm nothing,
# although they would be enough for a run, and --resume measures six processes anew.
stopped() { # stopped RUN OUTCOMES: RUN was complete before it was stopped, and can be resumed
    local run=$1 before
    [[ $(cut -d, -f1,4 "$run/again/processes.csv" | tr '\n' ' ') == "process,outcome 0,ok 1,ok 2,ok $2" ]] ||
        fail "$run: not stopped in process 3"
    grep -q '"truncated": true' "$run/again/run.json" || fail "$run: the second measurement seems whole"
    grep -q '"truncated": false' "$run/run.json" || fail "$run: the run seems truncated"
    expect 0 'SUSPECT: not confirmed' "$fixture" compare "$run" --subset
    grep -q 'measured again' "$dir/log" && fail "$run: a part of a measurement was used"
    before=$(rows_of "$run")
    expect 1 REGRESSED "$fixture" run --resume "$run" --confirm-after 0 --budget 1h
    [[ $(tail -n +2 "$run/again/results.csv" | cut -d, -f4 | sort -u | wc -l) -eq 6 &&
        $(tail -n +2 "$run/again/results.csv" | cut -d, -f2 | sort -u | wc -l) -eq 1 ]] ||
        fail "$run: not six processes of one measurement"
    [[ $(rows_of "$run") == "$before" ]] || fail "$run: its rows changed"
}
rows_of() { cat "$1/results.csv" "$1/samples.csv" "$1/processes.csv" | md5sum; }
says() { # says RUN WHAT
    grep -q "bench: $2 before the worse rows were confirmed; $1 is complete; bench run --resume $1" "$dir/log" ||
        fail "$1: it does not say how to go on"
}
FIXTURE_STALL=/again expect 0 'SUSPECT: not confirmed' "${run[@]}" --ceilings no --out late --budget 8 \
    --case-timeout 30
says late 'the budget is used up'
stopped late '3,interrupted '
for signal in INT KILL; do
    : >"$dir/log"
    rm -f stalled
    FIXTURE_STALL=/again FIXTURE_STALLED=stalled PB_STATE=$dir/$signal-kept setsid "$fixture" --suite paired \
        --confirm-after 0 --n 2 --ceilings no --out $signal >"$dir/log" 2>&1 & pid=$!
    until [[ -e stalled ]] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    whole=$(rows_of $signal)
    kill -$signal -- -$pid
    wait $pid 2>/dev/null
    code=$?
    [[ $(rows_of $signal) == "$whole" ]] || fail "$signal: the run changed"
    if [[ $signal == INT ]]; then
        [[ $code -eq 125 ]] || fail 'INT: exit code'
        says INT interrupted
        grep -q 'kept as a session' "$dir/log" || fail 'INT: a complete run is not kept as a session'
    fi
    if [[ $signal == KILL ]]; then # as if killed between two processes: then no row is marked as truncated
        sed -i '/,3,paired/d' KILL/again/results.csv
        ! grep -q truncated KILL/again/results.csv || fail 'KILL: a truncated row is left'
    fi
    stopped $signal "$([[ $signal == KILL ]] || echo '3,interrupted ')"
done
exit $((failures > 0))
