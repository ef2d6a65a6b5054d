#!/bin/bash
# watch_test.sh BENCH_FIXTURE - processes that hang: in a case, before the first case, after the last one, at exit, and
# while ignoring signals. The hanging case is named, everything else is measured once, and bench never waits for ever.
fixture=$1
. "${0%/*}/../../cli.sh"

# start NAME ARG...: runs bench in the background, since every hang takes seconds; `end NAME CODE TEXT` waits for it.
declare -A pids
start() {
    local name=$1
    shift
    timeout -k 1 90 "$fixture" --suite toy --no-compare --case-timeout 1 --seed 3 --out "$name" "$@" >"$name.log" 2>&1 & pids[$name]=$!
}
end() {
    local got
    wait "${pids[$1]}"
    got=$?
    cp "$1.log" "$dir/log"
    [[ $got -eq $2 ]] || fail "$1: exit $got, want $2"
    grep -qF -e "$3" "$dir/log" || fail "$1: '$3' is not in its output"
}
rows() { grep -c -e "$2" "$1/results.csv"; } # rows DIR REGEX: number of matching rows
want() { # want DIR COUNT REGEX: so many rows must match
    [[ $(rows "$1" "$3") -eq $2 ]] || fail "$1: $(rows "$1" "$3") rows match '$3', want $2: $(cut -d, -f4-12 "$1/results.csv")"
}

start hang --mode 'hang,fine' --batch 1 -n 4 step
start once --mode 'hangonce,fine' --batch 1 -n 3 step
start dawdle --mode 'dawdle,fine' --batch 1 -n 2 step
start paced --mode paced --batch 1 -n 1 step
start last --mode 'hanglast,fine' --batch 1 -n 2 step
start exit --mode 'hangatexit,fine' --batch 1 -n 2 step
start first --mode hangfirst --batch 1 -n 2 step
start budget --mode 'hang,fine' --batch 1 -n 1 --case-timeout 1h --budget 2 step
start done --mode 'hangatexit,fine' --batch 1 -n 2 --case-timeout 1h --budget 4 step
PB_UNKILLABLE=1 start stuck --mode 'hang,fine' --batch 1 -n 1 step

# ---- a case that hangs: tried in two processes, then skipped; all other cases are measured once per process -------
end hang 4 'bench: process 0: toy/step?batch=1&mode=hang&width=16 hung: ended after '
for process in 0 1; do want hang 1 ",$process,toy/step?batch=1&mode=hang&width=16,outcome,1,none,,0,timeout,\"hung: ended after [6-9].*, the last [6-9]"; done
for process in 2 3; do want hang 1 ",$process,toy/step?batch=1&mode=hang&width=16,outcome,1,none,,0,timeout,not tried again: it hung in two earlier processes"; done
want hang 0 'mode=hang&width=16,kernel_rate' # rows of an unfinished case are removed
for process in 0 1 2 3; do
    want hang 2 ",$process,ceiling/"
    want hang 1 ",$process,toy/step?batch=1&mode=fine&width=16,kernel_time,.*,ok,"
    want hang 1 ",$process,requirement/T-1,requirement,1,none,3,0,pass" # ceilings and a case
done
[[ $(grep -c ',hung,,"\?toy/step?batch=1&mode=hang.*hung: ended after' hang/processes.csv) -eq 2 ]] || fail "hang: $(cat hang/processes.csv)"
grep -q '"truncated": false' hang/run.json || fail "hang: run.json says truncated"
before=$(md5sum <hang/results.csv)
expect 4 results "$fixture" run --resume hang # the run is complete
[[ $(md5sum <hang/results.csv) == "$before" ]] || fail "hang: a whole run was changed"
expect 4 timeout "$fixture" report hang
expect 4 'type="timeout"' "$fixture" report hang --format junit

end once 4 'hung: ended after'
want once 1 ',timeout,'
want once 2 ',[12],toy/step?batch=1&mode=hangonce&width=16,kernel_time,.*,ok,'
want once 3 'mode=fine&width=16,kernel_time,.*,ok,'

# A case that ends when it is interrupted counts as hung all the same, and gets no second row.
end dawdle 4 'mode=dawdle&width=16 hung: ended after 1'
want dawdle 2 'mode=dawdle'
want dawdle 2 'mode=dawdle.*,timeout,'
want dawdle 2 'mode=fine&width=16,kernel_time,.*,ok,'

# Takes three times as long as the watchdog allows without a heartbeat, but sends heartbeats.
end paced 0 results
want paced 1 'mode=paced&width=16,kernel_time,.*,ok,'

# ---- hangs outside of a case ----------------------------------------------------------------------------------
end last 4 'bench: process 0: toy/conclusions hung: ended after'
want last 1 'toy/conclusions,outcome,1,none,,0,timeout,'
want last 4 ',kernel_time,.*,ok,'
want last 1 ',1,requirement/T-1'
end exit 0 'bench: process 0 hung for'
want exit 4 ',kernel_time,.*,ok,'
want exit 2 'requirement/T-1'
end first 125 'before its first case and was ended'
grep -q '^0,.*,failed,,hung for .* before its first case' first/processes.csv || fail "first: $(cat first/processes.csv)"
grep -q '"truncated": true' first/run.json || fail "first: run.json does not say truncated"

# ---- the budget also ends a case that ignores signals; --resume tries it again ------------------------------------
end budget 125 'the budget is used up'
want budget 1 'mode=hang'
want budget 1 'mode=hang&width=16,outcome,1,none,,0,truncated,killed: the budget was used up'
grep -q 'killed by' budget.log && fail "budget: called a crash"
expect 4 'hung: ended after' "$fixture" run --resume budget --budget 1h --case-timeout 1
want budget 1 ',timeout,"hung'
want budget 1 'mode=fine&width=16,kernel_time,.*,ok,'

# A process that has measured everything has ended, although the budget then ends it; --resume begins the next one.
end done 125 'the budget is used up'
grep -q '^0,.*,ok,,$' done/processes.csv || fail "done: $(cat done/processes.csv)"
expect 0 results "$fixture" run --resume done --budget 1h --case-timeout 1
[[ $(cut -d, -f1,4 done/processes.csv | tr '\n' ' ') == 'process,outcome 0,ok 1,ok ' ]] || fail "done: $(cat done/processes.csv)"
want done 4 ',kernel_time,.*,ok,'

# The budget also bounds the time that such a case gets to end: without that, SIGKILL comes PB_GRACE = 5 s after SIGTERM.
before=${EPOCHREALTIME/./}
expect 125 'the budget is used up' timeout -k 1 90 "$fixture" --suite toy --no-compare --seed 3 --out short --mode hang \
    --batch 1 -n 1 --case-timeout 1h --budget 3 step
took=$(((${EPOCHREALTIME/./} - before) / 1000))
[[ $took -lt 5500 ]] || fail "a budget of 3 s took $took ms"
expect 2 '--budget 0.9: need at least 1 s' "$fixture" --suite toy --out none --budget 0.9 step
[[ ! -e none ]] || fail "a refused budget left a folder"

# ---- a process that cannot be killed is abandoned --------------------------------------------------------------------
end stuck 125 'survived SIGKILL in a driver call'
left=$(sed -n 's/.*: process \([0-9]*\) survived SIGKILL.*/\1/p' stuck.log)
kill -0 "$left" || fail "stuck: process '$left' is not there"
want stuck 1 'mode=hang&width=16,outcome,1,none,,0,timeout,'
(expect 2 'still being measured' "$fixture" run --resume stuck; exit $failures) || failures=$((failures + 1))
grep -q '^0,.*,abandoned,,"\?process [0-9]* survived SIGKILL' stuck/processes.csv || fail "stuck: $(cat stuck/processes.csv)"
kill -KILL "$left"
expect 4 results "$fixture" run --resume stuck
want stuck 1 'mode=fine&width=16,kernel_time,.*,ok,'

# ---- the time left, on a terminal ---------------------------------------------------------------------------------
left() { # left ARG...: prints the numbers of seconds that the progress line shows
    script -qec "$(printf '%q ' "$fixture" "$@")" /dev/null </dev/null | tr '\r' '\n' | tee "$dir/log" |
        sed -n 's/.*case [0-9]* of \([0-9]*\), about \([0-9]*\) s left.*/\2/p'
}
mapfile -t shown < <(left --suite toy --mode slow --batch 1,2 --samples 10 -n 2 --no-compare --seed 1 --out whole step)
# The estimate is scaled by the measured pace: on a busy machine each number is larger than the expected 12 seconds.
[[ ${#shown[@]} -eq 8 && ${shown[0]} -ge 12 && ${shown[2]} -ge 3 && ${shown[7]} -lt ${shown[0]} ]] || fail "time left: ${shown[*]}"
head -n 6 whole/progress.csv >part && mv part whole/progress.csv # as if killed in process 1
mapfile -t again < <(left run --resume whole)
[[ ${#again[@]} -eq 4 && ${again[0]} -ge 6 && ${again[2]} -ge 1 && ${again[3]} -lt ${again[0]} ]] || fail "time left after --resume: ${again[*]}"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
