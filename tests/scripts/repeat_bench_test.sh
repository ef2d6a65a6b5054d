#!/bin/bash
# repeat_bench_test.sh SOURCE - scripts/repeat-bench with a program that stands for bench: what it passes on, what it
# reads from the output of each run, its exit codes, its file, and that its load has ended.
source=$1
. "${0%/*}/../cli.sh"
unset PB_MACHINE

# It answers run N with the file answer-N, whose first line is the exit code.
cat >bench <<'SH2'
#!/bin/bash
echo "$PB_MACHINE $XDG_STATE_HOME $*" >>calls
n=$(wc -l <calls)
tail -n +2 "answer-$n"
exit "$(head -n 1 "answer-$n")"
SH2
chmod +x bench
time_row='backward/step?mode=eager  backward_time  12.1 ms  14.0 ms  +15.0 %  6/6  REGRESSED  beyond its bound'
counter_row='backward/step?mode=graph  kernel_launches  100  101  +1.0 %  1/1  REGRESSED  more'
answer() { # answer RUN CODE SESSIONS [ROW...]
    local file=answer-$1
    printf '%s\n' "$2" "against $3 sessions a row is beyond" "${@:4}" >"$file"
}
repeat() { "$source/scripts/repeat-bench" "$@"; }

# ---- the same program ----------------------------------------------------------------------------
answer 1 0 0
answer 2 0 5
expect 0 '2 of 2 runs ended with 0; REGRESSED by counters in 0, by times in 0; of 1 runs with five sessions or more' \
    repeat --runs 2 --no-load ./bench out -- --model tiny
[[ $(head -n 1 calls) == "repeat-bench $dir/out/state run --suite backward --model tiny --out $dir/out/run-1" ]] ||
    fail "called with: $(cat calls)"
grep -q '^2,same,[0-9]*,[0-9.]*,5,0,0,0,,$' out/runs.csv || fail "wrong rows: $(cat out/runs.csv)"
grep -q 'against 5 sessions' out/run-2.txt || fail "the output of a run is not kept"

# A further call continues: it makes the runs that are missing, and one with an alarm is counted.
answer 3 1 6 "$time_row"
answer 4 1 7 "$counter_row" "$time_row"
# Two cases of run 4: 10 and 14 (standard deviation 2.83, mean 12), 20 and 20; a failed one and a control case are not read.
mkdir -p out/run-4
printf '%s\n' machine_id,process,key,metric,status,value m,0,a,backward_time,ok,10 m,1,a,backward_time,ok,14 \
    'm,0,backward/step?batch=1&control=second,backward_time,ok,1' 'm,1,backward/step?batch=1&control=second,backward_time,ok,9' \
    m,0,b,backward_time,ok,20 m,1,b,backward_time,ok,20 m,0,b,step_time,ok,7 m,1,b,backward_time,throttled,90 >out/run-4/results.csv
expect 1 '2 of 4 runs ended with 0; REGRESSED by counters in 1, by times in 2; of 3 runs with five sessions or more, by times in 2' \
    repeat --runs 4 --no-load ./bench out
[[ $(wc -l <calls) -eq 4 && $(wc -l <out/runs.csv) -eq 5 ]] || fail "not two more runs: $(cat out/runs.csv)"
grep -q '^4,.*,7,1,1,1,0.0,23.6$' out/runs.csv || fail "wrong standard deviations: $(cat out/runs.csv)"
grep -qF 'backward_time varies by 0.0 to 23.6 %' log || fail "the standard deviations are not printed: $(cat log)"

# ---- a slower program: each run must end with an alarm, and is not kept -----------------------------
answer 5 1 7 "$time_row"
expect 0 '0 of 1 runs ended with 0' repeat --runs 1 --no-load --state out/state --slower ./bench ./bench slow
[[ $(tail -n 1 calls) == "repeat-bench $dir/out/state run --suite backward --no-keep --out $dir/slow/run-1" ]] ||
    fail "called with: $(tail -n 1 calls)"
answer 6 0 7
expect 1 '1 of 2 runs ended with 0' repeat --runs 2 --no-load --slower ./bench ./bench slow

# ---- the load ends with it, and bad input -------------------------------------------------------------
answer 7 0 0
expect 0 '1 of 1 runs' env PB_MACHINE=mine "$source/scripts/repeat-bench" --runs 1 ./bench loaded
[[ $(tail -n 1 calls) == "mine "* ]] || fail "the name of the machine is not passed on: $(tail -n 1 calls)"
left=$(grep -lzsx "XDG_STATE_HOME=$dir/state" /proc/[0-9]*/environ | sed 's|environ|comm|' | xargs -r grep -lxs sh)
[[ -z $left ]] || fail "the load still runs: $left"
expect 2 'nothing does not exist or is no program' repeat nothing out
[[ $(wc -l <calls) -eq 7 ]] || fail "bad input ran the program"
exit $((failures > 0))
