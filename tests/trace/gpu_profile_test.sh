#!/bin/bash
# gpu_profile_test.sh TRAIN BENCH - what only a GPU can show of profiles: windows that open late, on demand, in a job whose
# graphs were recorded long before, with CUPTI attached from the start or at the window, have an op for every kernel;
# sampled counters become tracks with values, and none is missing; counted phases have bytes, time and busy SMs. scripts/gpu-check
# runs it. It needs a GPU of the chip GH100.
train=$1 bench=$2
. "${0%/*}/../cli.sh"
args=(--device cuda --model smollm2-135m --tuning lora --dtype bf16 --batch 2 --seq 128 --mode graph)

until_true() { # until_true WHAT COMMAND...: waits for at most 60 s
    local i
    for ((i = 0; i < 600; i++)); do
        "${@:2}" && return
        sleep 0.1
    done
    fail "$1 took more than 60 s"
}
logged() { [[ -e $1.csv && $(wc -l <"$1.csv") -gt 150 ]]; }
traced() { compgen -G "$1/traces/*/rank0.json.gz" >traces; }
figure() { awk -F, -v part="$1" -v metric="$2" '$1 == part && $5 == metric { print $6 }' csv; }

for attach in start window; do
    rm -f go
    "$train" "${args[@]}" --quiet --steps 1000000 --log $attach.csv --profile-ranks 0 --profile-steps 0:0:0:3 \
        --profile-on-demand go --profile-attach $attach --profile-out $attach >$attach.log 2>&1 &
    job=$!
    until_true "$attach: 150 steps" logged $attach
    touch go
    until_true "$attach: a trace" traced $attach
    kill "$job" && wait "$job"
    "$bench" analyze $attach --format csv >csv 2>log || fail "$attach: $(cat log $attach.log)"
    [[ $(figure gpu kernels) -gt 100 && $(figure gpu unjoined_kernels) == 0 ]] ||
        fail "$attach: $(figure gpu kernels) kernels a step, $(figure gpu unjoined_kernels) of no op"
    echo "$attach: $(figure gpu kernels) kernels a step, $(figure gpu unjoined_kernels) of no op"
done

expect 0 '' "$train" "${args[@]}" --steps 20 --profile-ranks 0 --profile-steps 4:0:1:10 --profile-sampling TIMELINE \
    --profile-sampling-interval 200 --profile-out sampled
tracks=$(zcat sampled/traces/*/rank0.json.gz | grep '"ph":"C"' | grep -o '"name":"[a-z0-9_]*' | sort | uniq -c)
echo "$tracks"
zcat sampled/traces/*/rank0.json.gz | grep '"name":"sm_busy (%)"' | grep -qE '"value":[1-9]' || fail 'no sample has a busy SM'
[[ $(wc -l <<<"$tracks") -eq 8 && $(awk '$1 < 100' <<<"$tracks" | wc -l) -eq 0 ]] || fail "tracks: $tracks"
tr -d ' \n' <sampled/ranks/rank0.json | grep -q '"lost":0,"outside":0,"overflows":0' || fail "samples: $(cat sampled/ranks/rank0.json)"

expect 0 '' "$train" "${args[@]}" --steps 8 --profile-ranks 0 --profile-steps 4:0:1:3 --profile-counters STEP:phase --profile-out counted
"$bench" analyze counters counted --format csv >csv 2>log || fail "counters: $(cat log)"
for phase in forward backward optimizer; do
    for metric in counted_time dram_bytes sm_busy; do
        awk -F, -v p=$phase -v m=$metric '$4 == p && $5 == m && $6 > 0 { found = 1 } END { exit !found }' csv ||
            fail "counters: no $metric of $phase: $(cat csv)"
    done
done
exit $((failures > 0))
