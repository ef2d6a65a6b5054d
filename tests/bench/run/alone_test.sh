#!/bin/bash
# alone_test.sh BENCH_FIXTURE - suites whose cases are measured alone: each case has a process of its own in each process
# number, in shuffled order, and the conclusions see all of them; a run that was interrupted between two cases continues.
fixture=$1
. "${0%/*}/../../cli.sh"
quick=(--suite alone --no-compare --no-keep)
rows() { grep -c "$1" "$2/results.csv"; }

expect 0 '3 processes of 3 cases' "$fixture" "${quick[@]}" --dry-run
grep -q ceiling log && fail 'ceilings are planned'
expect 0 '' "$fixture" "${quick[@]}" --out run --seed 4
[[ $(rows ',kernel_rate,.*,ok,' run) -eq 9 ]] || fail "not 9 cases: $(cat run/results.csv)"
pids=$(awk -F, '$6 == "kernel_rate" { print $9 }' run/results.csv | sort -u | wc -l)
[[ $pids -eq 9 ]] || fail "$pids processes for 9 cases"
[[ $(rows 'requirement/T-2,requirement,1,.*,3,0,pass,' run) -eq 3 ]] || fail 'the conclusions do not see the three cases of each process number'
orders=$(awk -F, '$6 == "kernel_rate" { order[$4] = order[$4] " " $5 } END { for (p in order) print order[p] }' run/results.csv | sort -u | wc -l)
[[ $orders -ge 2 ]] || fail 'the cases are not shuffled'
[[ $(cut -d, -f4 run/processes.csv | sort | uniq -c | tr -s ' ') == *' 3 ok'* ]] || fail "processes.csv: $(cat run/processes.csv)"

# ---- a case that fails for lack of memory does not keep the others from being measured ------------------------------------
expect 125 '' "$fixture" "${quick[@]}" --mode fine,memory --n 1,2,3 -n 2 --seed 1 --out memory
[[ $(rows 'mode=fine.*,kernel_rate,.*,ok,' memory) -eq 6 && $(rows 'mode=memory.*,failed,' memory) -eq 6 ]] || fail 'a case is missing after one without memory'

# ---- a run that is interrupted, and resumed: no case is missing, none is measured twice --------------------------------------
touch slow
FIXTURE_SLOW=slow "$fixture" "${quick[@]}" --mode fine,wait -n 2 --seed 1 --out cut >log 2>&1 &
for _ in $(seq 300); do [[ -e cut/run.json ]] && break || sleep 0.1; done
sleep 0.5
kill -TERM $! && wait $!
rm slow
expect 0 '' "$fixture" --resume cut
[[ $(rows ',kernel_rate,.*,ok,' cut) -eq 12 && $(rows truncated cut) -eq 0 ]] || fail "after resuming: $(cut -d, -f4,5,6,11 cut/results.csv)"
[[ $(rows 'requirement/T-2,requirement,1,.*,6,0,pass,' cut) -eq 2 ]] || fail 'after resuming: the conclusions'
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
