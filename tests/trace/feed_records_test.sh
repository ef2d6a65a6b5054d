#!/bin/bash
# feed_records_test.sh FEED TRAIN BENCH SOURCE - records of GPUs that were stored once (tests/trace/records) go through the
# writer of traces: every kernel has its op and every node its place; the sums by op that `bench analyze` prints are those of
# another join of the same records, and so are the means of sampled counters by phase. Records of a run on the CPU give its
# trace once more.
feed=$1 train=$2 bench=$3 source=$4
. "${0%/*}/../cli.sh"

# ---- records of GPUs ---------------------------------------------------------------------------------------------------
stored=0
for file in "$source"/tests/trace/records/*.records.gz; do
    name=${file##*/} && name=${name%.records.gz}
    [[ $(stat -c %s "$file") -lt 200000 ]] || fail "$name: more than 200 kB"
    "$feed" "$file" "$name" >line 2>&1 || { fail "$name: $(cat line)" && continue; }
    read -r _ steps _ kernels _ unjoined _ replayed _ unplaced _ dropped <line
    [[ $kernels -gt 0 && $kernels -eq $(zcat "$file" | grep -c '^kernel ') ]] || fail "$name: $kernels kernels"
    [[ $steps -gt 0 && $steps -eq $(zcat "$file" | grep -c '^range step ') ]] || fail "$name: $steps steps"
    zcat "$name"/traces/*/rank0.json.gz | sed -n 's/.*"cat":"kernel".*"ts":\([0-9.]*\),.*/\1/p' >begins
    [[ $(wc -l <begins) -eq $kernels ]] && sort -nc begins || fail "$name: kernels are not in the order of their begins"
    ! zcat "$name"/traces/*/rank0.json.gz | grep '"cat":"cuda_sync"' | grep -qv '"stream":-1[,}]' ||
        fail "$name: a wait has a stream, so that other tools count it as work of the GPU"
    [[ $unjoined == 0 && $unplaced == 0 && $dropped == 0 ]] || fail "$name: $(cat line)"
    [[ $name != *graph* || $replayed -ge $kernels ]] || fail "$name: only $replayed events of replayed graphs"
    [[ $name != *eager* || $replayed == 0 ]] || fail "$name: $replayed events of replayed graphs"
    expect 0 'GPU of rank' "$bench" analyze "$name"
    "$bench" analyze "$name" --format csv >csv 2>log || fail "$name: analyze"
    python3 "$source/tests/trace/join_records.py" "$file" csv >log 2>&1 || fail "$name: another join gives other sums"
    stored=$((stored + 1))
done
[[ $stored -ge 1 ]] || fail 'no stored records'

# ---- a rank whose GPU is slow in one phase of a replayed graph is named; longer collectives do not make it slow ---------------
cat >second_rank.py <<'TEXT'
import glob, gzip, json
first = glob.glob("h200-tiny-graph/traces/*/rank0.json.gz")[0]
trace = json.load(gzip.open(first))
trace["distributedInfo"]["rank"] = 1
for e in trace["traceEvents"]:
    if e.get("cat") == "kernel":
        e["dur"] *= 3 if "nccl" in e["name"] else 1.5 if e["args"].get("phase") == "forward" else 0.9
gzip.open(first.replace("rank0", "rank1"), "wt").write(json.dumps(trace))
about = json.load(open("h200-tiny-graph/manifest.json"))
about.update(ranks=2, profiled=[0, 1], hosts=["a", "b"])
json.dump(about, open("h200-tiny-graph/manifest.json", "w"))
TEXT
python3 second_rank.py || fail 'no second rank'
"$bench" analyze h200-tiny-graph --format csv >csv 2>log || fail "two ranks: $(cat log)"
grep -qx 'phase,,,forward,gpu_rank_of_most,1,1' csv || fail "forward: $(grep forward csv)"
grep -qx 'phase,,,backward,gpu_rank_of_most,0,1' csv || fail "backward: $(grep backward csv)"
grep -q '^phase.*,rank_of_most' csv && fail 'a replayed graph has no ranges, but its host time names a rank'
expect 0 '1, +20 %' "$bench" analyze h200-tiny-graph

# ---- samples of hardware counters become tracks, and change nothing of the other figures ------------------------------------
graph="$source/tests/trace/records/h200-tiny-graph.records.gz"
names=$(zcat "$graph" | grep -c '^name ')
{
    zcat "$graph" | head -n -1
    printf 'name sm_busy\nname %%\nsampled 0 1000 0 0 0 1 %d %d\n' "$names" $((names + 1))
    printf 'sample %d 1000000 %d\n' 0 40 1000000 50 2000000 60
} >lines
{ cat lines && echo "end $(wc -l <lines)"; } | gzip >sampled.records.gz
"$feed" "$graph" unsampled >log 2>&1 && "$feed" sampled.records.gz sampled >log 2>&1 || fail "samples: $(cat log)"
[[ $(zcat sampled/traces/*/rank0.json.gz | grep '"ph":"C"' | grep -c '"name":"sm_busy (%)"') -eq 3 ]] || fail 'not three samples'
"$bench" analyze sampled --format csv >with 2>log && "$bench" analyze unsampled --format csv >without 2>log || fail "samples: $(cat log)"
[[ $(grep -c '^samples,,,step,sm_busy,' with) -eq 1 ]] || fail 'the samples are in no table'
! grep '^samples,' without || fail 'a table of samples without samples'
cmp -s <(grep -v '^samples,' with) without || fail 'samples change the other figures of bench analyze'
"$bench" analyze h200-sampled-graph >log 2>&1 || fail "sampled: $(cat log)"
grep -qx 'blurred, because their pieces are shorter than 10 samples: forward, loss, backward, clip, optimizer, no phase, idle' log ||
    fail "sampled: the short phases are not named: $(grep blurred log)"

# Two windows of equally many steps: the means of both are weighted by the sampled times.
cat >second_window.py <<'TEXT'
import glob, gzip, json, os
first = glob.glob("h200-sampled-graph/traces/*/rank0.json.gz")[0]
trace = json.load(gzip.open(first))
counts = [e for e in trace["traceEvents"] if e["ph"] == "C"]
middle = sorted(e["ts"] for e in counts)[len(counts) // 2]
trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ph"] != "C" or e["ts"] < middle]
for e in counts:
    e["args"]["value"] = 3 * e["args"]["value"] + 1
trace["plumb"]["steps"] = [900, 900 + trace["plumb"]["steps"][1] - trace["plumb"]["steps"][0]]
os.makedirs("second/traces/step900")
gzip.open("second/traces/step900/rank0.json.gz", "wt").write(json.dumps(trace))
TEXT
python3 second_window.py && cp h200-sampled-graph/manifest.json second && cp -r h200-sampled-graph both &&
    cp -r second/traces/* both/traces || fail 'no second window'
for job in h200-sampled-graph second both; do
    "$bench" analyze $job --format csv 2>log | grep '^samples,' || fail "$job: $(cat log)"
done | awk -F, '{ n = job[$4, $5]++; v[n, $4, $5] = $6 }
    END { for (k in job) { split(k, a, SUBSEP); t = a[1] SUBSEP "sampled_time"; x = v[0, t]; y = v[1, t]
        want = a[2] == "sampled_time" ? (x + y) / 2 : (x * v[0, k] + y * v[1, k]) / (x + y)
        d = v[2, k] - want; seen += job[k] == 3
        if (!(d <= 1e-6 * want && d >= -1e-6 * want)) { print k, v[2, k], want; bad = 1 } } exit bad || seen < 40 }' >log ||
    fail "two windows: $(cat log)"

# ---- collectives: their kernels know them, and their exposed times add up to that of the GPU --------------------------------
"$feed" "$source/tests/trace/records/synthetic.records.gz" collectives >log 2>&1 || fail "$(cat log)"
known='"Collective name":"all_gather","bytes":2097152,"dtype":"bf16","Process Group Name":"dp","Group size":2,"Seq":77'
[[ $(zcat collectives/traces/*/rank0.json.gz | grep '"cat":"kernel"' | grep -cF "$known") -eq 2 ]] || fail 'a replayed kernel of NCCL does not know its collective'
"$feed" "$source/tests/trace/copies.records.gz" copies >log 2>&1 || fail "$(cat log)"
zcat copies/traces/*/rank0.json.gz | grep '"cat":"gpu_memcpy"' >found
[[ $(grep '"bytes":1048576,' found | grep -cF "${known/bytes/collective bytes}") -eq 1 ]] ||
    fail 'a copy of a collective does not know it, or not its own bytes'
[[ $(grep -c Collective found) -eq 1 ]] || fail 'a copy outside collectives has one'
"$bench" analyze copies --format csv >csv 2>log || fail 'copies: analyze'
python3 "$source/tests/trace/join_records.py" "$source/tests/trace/copies.records.gz" csv >log 2>&1 ||
    fail 'copies: another join gives other sums'
grep -q '^collective_copy,.*,Memcpy DtoD,bytes,1048576,' csv || fail "copies: $(grep Memcpy csv)"
[[ $(zcat collectives/traces/*/rank0.json.gz | grep '"name":"ncclDevKernel_AllReduce' | grep -c '"Collective name":"all_reduce","bytes":1048576,.*"Seq":[1-6]}') -eq 6 ]] ||
    fail 'a kernel of NCCL does not know its collective'
[[ $(zcat collectives/traces/*/rank0.json.gz | grep '"cat":"kernel"' | grep -v '"name":"nccl' | grep -c 'Collective') -eq 0 ]] || fail 'another kernel has a collective'
# Work on the GPU has the layer of its op: eager that of the range around the call, replayed that of the captured node.
zcat "$source/tests/trace/records/synthetic.records.gz" |
    sed -E 's/^(range op [0-9]+ [0-9]+ [0-9]+) -1/\1 3/; /^place/s/ op ([0-9]+) -1/ op \1 5/' | gzip >layers.records.gz
"$feed" layers.records.gz layers >log 2>&1 || fail "$(cat log)"
zcat layers/traces/*/rank0.json.gz | grep '"cat":"kernel"' | grep '"op":"' >kernels
eager=$(grep -c '"layer":3,' kernels) replayed=$(grep -c '"layer":5,' kernels)
[[ $eager -gt 0 && $replayed -gt 0 && $((eager + replayed)) -eq $(wc -l <kernels) ]] ||
    fail "layers: of $(wc -l <kernels) kernels $eager and $replayed have one"
for mode in eager graph; do # records of a GPU, whose names are mangled
    "$feed" "$source/tests/trace/records/h200-tiny-$mode.records.gz" "real-$mode" >log 2>&1 || fail "$(cat log)"
    zcat "real-$mode"/traces/*/rank0.json.gz | grep '"cat":"kernel","name":"nccl' >kernels
    [[ $(wc -l <kernels) -eq 12 && $(grep -c '"Process Group Name":"dp","Group size":2,"Seq":' kernels) -eq 12 ]] ||
        fail "$mode: of $(wc -l <kernels) kernels of NCCL only $(grep -c '"Seq":' kernels) know their collective"
done
"$bench" analyze collectives --format csv >csv 2>log || fail 'analyze'
awk -F, '$1 == "gpu" && $5 == "exposed_communication" { want = $6 }
    $1 == "collective" && $5 == "exposed" { sum += $6 }
    $1 == "collective" && $5 == "calls" { calls[$4] = int(3 * $6 + 0.5) }
    END { d = sum - want; exit !(want > 0 && d < 1e-9 && d > -1e-9 && calls["all_reduce dp bf16"] == 6 && calls["all_gather dp bf16"] == 1) }' csv ||
    fail "collectives: $(grep -E '^collective|exposed' csv)"

# ---- one run against another: the parts of a step, phases, collectives and ops ----------------------------------------------
changes() { # changes NOW BEFORE: of two jobs whose traces have equally many steps
    "$bench" analyze "$1" --against "$2" --format csv >change 2>log && "$bench" analyze "$1" --format csv >now 2>>log &&
        "$bench" analyze "$2" --format csv >before 2>>log || fail "$1 against $2: $(cat log)"
    python3 "$source/tests/bench/analyze/check_change.py" change now before >log 2>&1 || fail "$1 against $2: $(cat log)"
}
changes real-graph real-eager
grep -q '^change_collective,,,[a-z_]* dp [a-z0-9]*,time,' change || fail "no change of a collective: $(grep ^change_ change)"
expect 0 "part of the GPU's step" "$bench" analyze real-graph --against real-eager
cp -r real-graph unequal && cp -r h200-sampled-graph/traces/* unequal/traces
"$bench" analyze unequal --against real-eager --format csv >change 2>log || fail "unequal: $(cat log)"
python3 "$source/tests/bench/analyze/check_change.py" change >log 2>&1 || fail "windows of unequal length: $(cat log)"

# ---- records that lack a node, or a call ---------------------------------------------------------------------------------
lines() { zcat "$source/tests/trace/records/synthetic.records.gz"; }
without() { # without PATTERN: the records without the first line that matches it
    lines | awk -v p="$1" '!n && $0 ~ p { n = 1; next } /^end / { print "end " (NR - 1 - n); next } { print }' >less
}
without '^node [0-9]+ [1-9]' && expect 0 'unjoined 1 replayed 22 unplaced 1 ' "$feed" less less.out
without '^call .* 1 100 ' && expect 0 'unjoined 1 replayed 22 unplaced 0 ' "$feed" less less.out
lines | sed '$d' >less && expect 2 'feed_records: less: the file is cut off' "$feed" less less.none
[[ ! -e less.none ]] || fail 'a job was made of damaged records'

# ---- records of this machine -----------------------------------------------------------------------------------------------
PB_PROFILE_RECORDS=yes expect 0 '' "$train" --steps 4 --batch 1 --seq 32 --quiet --profile-ranks all --profile-steps 1:0:0:2 \
    --profile-out run
[[ $(ls run/records) == step2-3-rank0.records.gz ]] || fail "records: $(ls run/records)"
expect 0 'steps 2 kernels 0 ' "$feed" run/records/step2-3-rank0.records.gz again
events() { zcat "$1/traces/step2-3/rank0.json.gz" | grep '"ph":"X"' | sed 's/"pid":[0-9]*/"pid":1/'; }
[[ $(events run | wc -l) -gt 50 ]] || fail 'no events'
cmp <(events run) <(events again) || fail 'the trace of the records is another'
# Against a run on a GPU only the parts are compared that both have.
changes real-graph run
grep -q '^change_part,,,other,time,' change && ! grep -qE '^change_collective|^change_part,,,.*idle' change || fail "a CPU and a GPU: $(grep ^change_ change)"
expect 0 'only one of the two runs has work of a GPU' "$bench" analyze run --against real-graph
expect 0 '' "$train" --steps 2 --batch 1 --seq 32 --quiet --profile-ranks all --profile-steps 1 --profile-out plain
[[ ! -e plain/records ]] || fail 'records that nobody wanted'
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
