#!/bin/bash
# on_demand_test.sh TRAIN BENCH - windows that a trigger file opens while three ranks train: a first one, bad content, one
# of some ranks, and one that SIGTERM cuts off; what bench analyze says of them.
train=$1 bench=$2
. "${0%/*}/../../cli.sh"
expect 2 'profile-on-demand needs --profile-ranks' "$train" --steps 1 --quiet --profile-on-demand go

"$train" --ranks 3 --steps 100000 --batch 1 --seq 32 --quiet --profile-ranks all --profile-steps 0:0:0:2 \
    --profile-on-demand go --profile-out out >job 2>&1 &
job=$!
await() { # await COMMAND...: until it succeeds, for at most two minutes
    for _ in $(seq 1200); do "$@" 2>/dev/null && return; sleep 0.1; done
    fail "not in time: $*" && kill -TERM $job && wait $job
    cat job
    exit 1
}
traces() { [[ $(find out/traces -name 'rank*.json.gz' | wc -l) -ge $1 ]]; }
windows() { [[ $(grep -c '^profile: steps' job) -ge $1 ]]; }
said() { grep -qF "$1" job; }
ask() { echo "$1" >new && mv new go; } # ranks never read half a request
await test -e out/ranks
sleep 1
[[ ! -e out/traces || -z $(ls out/traces) ]] || fail 'a window without a request'
touch go
await traces 3
ask 'steps=many'
await said "go: 'steps=many' is not steps=N"
ask 'steps=3 ranks=0,2'
await traces 5
find out/traces -name rank1.json.gz | wc -l | grep -qx 1 || fail 'rank 1 recorded a window of ranks 0 and 2'
[[ $(find out/traces -name 'step*' | wc -l) -ge 2 ]] || fail 'no second folder'
ask 'steps=100000'
await windows 3
sleep 1
kill -TERM $job && wait $job
[[ $? -eq 125 ]] || fail 'interrupted: not exit code 125'
grep -c 'no window is opened' job | grep -qx 1 || fail 'the bad file was not named once'
cut=$(find out/traces -path '*rank0*' -newer go)
zcat "$cut" | grep -q '"truncated":true' || fail 'the window that was cut off does not say so'
grep -q '"trigger_looks": [1-9]' out/ranks/rank0.json || fail 'no cost of looking'
"$bench" analyze out >log 2>&1
[[ $? -eq 4 ]] || fail 'analyze: not exit code 4'
grep -q '^rank 0, step [0-9]*: truncated' log || fail 'analyze: the truncated trace is not named'
middle=$(grep -m 1 'ranks 0,2 of 3' job | sed 's/.*steps \([0-9]*\)-.*/\1/')
! grep -q "^rank 1 on .* no trace of step $middle\$" log || fail 'analyze: misses a rank that was not to record the window'
[[ $failures -eq 0 ]] || { cat job && echo "$failures failed" && exit 1; }
