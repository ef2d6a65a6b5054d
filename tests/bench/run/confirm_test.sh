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
expect 0 'the budget has no time to confirm it; bench run --resume tight --budget ' \
    "${run[@]}" --out tight --confirm-after 500 --budget 100
grep -q SUSPECT "$dir/log" || fail 'tight: not SUSPECT'
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
exit $((failures > 0))
