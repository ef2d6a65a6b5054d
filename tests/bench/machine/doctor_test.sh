#!/bin/bash
# doctor_test.sh BENCH WATCHED FAKE_NVML - what bench reports about a machine, which processes it measures again, and
# that locked clocks are reset however a run ends. WATCHED is bench_fixture, whose processes on the CPU are observed
# like those on a GPU; FAKE_NVML replaces the driver's library.
bench=$1 watched=$2 fake=$3
. "${0%/*}/../../cli.sh"
export PB_FAKE_NVML_STATE=$dir/starts PB_FAKE_NVML_LOG=$dir/clocks

with() { LD_LIBRARY_PATH=${fake%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"; } # with COMMAND...: uses the fake
state() { # state NAME WANT: the state of a check in the log
    grep -qE "^$2 +$1 " "$dir/log" || fail "doctor: $1 is not $2"
}

# ---- bench doctor ---------------------------------------------------------------------------------------
expect 0 'bench: good=' "$bench" doctor
grep -qE ' gpu_' "$dir/log" && fail "doctor: a GPU is looked at on --device cpu"
[[ $(grep -cE '^(good|note|bad|unknown) ' "$dir/log") -eq 14 ]] || fail "doctor: not 14 checks of the host"
state timer '(good|note|bad)'
expect 2 'takes no arguments' "$bench" doctor x
expect 0 'unknown' env LD_LIBRARY_PATH= "$bench" doctor --device cuda
if ! ldconfig -p | grep -q libnvidia-ml; then # a real driver would give its own answers
    grep -q 'NVML is not available' "$dir/log" || fail "doctor: without NVML it does not say so"
    [[ $(grep -c '^unknown  gpu_' "$dir/log") -eq 9 ]] || fail "doctor: without NVML not every GPU check is unknown"
fi

expect 0 'GPU: NVIDIA Paper, driver 999.1' with "$bench" doctor --device cuda
state gpu_throttle good && state gpu_clocks note && state gpu_persistence good && state gpu_power bad
state gpu_processes bad && state gpu_busy good && state gpu_temperature good && state gpu_ecc good
state gpu_mig unknown # the fake does not have this function
expect 3 'bad ' with "$bench" doctor --device cuda --strict
PB_FAKE_NVML_THROTTLE=41 expect 0 'idle, hw_thermal' with "$bench" doctor --device cuda
state gpu_throttle bad
PB_FAKE_NVML_THROTTLE=4 expect 0 'power_cap' with "$bench" doctor --device cuda
state gpu_throttle note
PB_FAKE_NVML_LACKS=DeviceGetCurrentClocksThrottleReasons,DeviceGetTemperature \
    expect 0 'the driver does not report it' with "$bench" doctor --device cuda
state gpu_throttle unknown && state gpu_temperature unknown && state gpu_ecc good
PB_FAKE_NVML_DEAD=1 expect 0 'NVML does not start' with "$bench" doctor --device cuda
state gpu_persistence unknown
with "$bench" doctor --device cuda --json >json || fail "doctor --json: exit code"
grep -q '"name": "gpu_power"' json && grep -q '"device": "cuda"' json || fail "doctor --json: a field is missing"
if command -v python3 >/dev/null; then
    python3 -c 'import json; d = json.load(open("json")); c = d["checks"]; assert len(c) == 23 and all(
        sorted(x) == ["effect", "found", "name", "remedy", "state", "what"] for x in c)
assert sum(d[k] for k in ("good", "note", "bad", "unknown")) == 23' || fail "doctor --json: not what it should be"
fi

# ---- processes observed through NVML ----------------------------------------------------------------------
toy=(--suite toy --batch 1 --samples 2 --seed 3 -n 3 --no-compare --quiet step)
rows() { tail -n +2 "$1/results.csv"; }
processes() { rows "$1" | cut -d, -f4 | sort -nu | tr '\n' ' '; } # processes DIR: the numbers of its processes
# outcomes DIR: number, outcome and retry_of of each row of processes.csv
outcomes() { tail -n +2 "$1/processes.csv" | awk -F, '{ print $1 ":" $4 ($5 == "" ? "" : ":" $5) }' | tr '\n' ' '; }
entries() { grep -c '"steal_s"' "$1/run.json"; }
# run CODE DIR THROTTLE ARG...: runs bench; the fake library starts once for the fingerprint, then once per process.
run() {
    local code=$1 out=$2 script=$3
    shift 3
    rm -f "$PB_FAKE_NVML_STATE"
    PB_FAKE_NVML_THROTTLE=$script with "$watched" "${toy[@]}" --out "$out" "$@" >"$dir/log" 2>&1
    local got=$?
    [[ $got -eq $code ]] || fail "$out: exit $got, want $code"
}

run 0 cool 0,0
[[ $(outcomes cool) == '0:ok 1:ok 2:ok ' && $(entries cool) -eq 3 ]] || fail "cool: $(outcomes cool)"
grep -q '"sm_clock_hz": 1700000000.0' cool/run.json || fail "cool: run.json has no clocks"
grep -q '"gpu_uuid": "GPU-0-1-2"' cool/run.json || fail "cool: the fingerprint has no UUID"
grep -q '"gpu_power_limit_w": 500.0' cool/run.json || fail "cool: the fingerprint has no power limit"
grep -q '"gpu_ecc": true' cool/run.json || fail "cool: the fingerprint does not say that ECC is on"
run 0 capped 0,5 # idle, power cap: not faults
[[ $(outcomes capped) == '0:ok 1:ok 2:ok ' ]] || fail "capped: $(outcomes capped)"

run 0 once 0,0,8,0 # the second process is throttled
[[ $(outcomes once) == '0:ok 1:throttled 2:ok 3:ok:1 ' && $(entries once) -eq 4 ]] || fail "once: $(outcomes once)"
grep -q 'process 1 was throttled: hw_slowdown (measured again)' "$dir/log" || fail "once: it does not say so"
grep -q '^1,.*,throttled,,hw_slowdown (measured again)$' once/processes.csv || fail "once: processes.csv does not say why"
grep -q 'throttled"\|retry_of' once/run.json && fail "once: run.json says what processes.csv says"
grep -q throttled once/results.csv && fail "once: a row of results.csv says that its process was throttled"
[[ $(tail -1 once/progress.csv) == "4,0,$(stat -c %s once/results.csv),$(stat -c %s once/samples.csv)" ]] ||
    fail "once: progress.csv does not fit"
[[ $(grep -c '^1,' once/progress.csv) -eq $(grep -c '^0,' once/progress.csv) ]] || fail "once: progress.csv lacks lines of the throttled process"
for what in once once/results.csv; do
    expect 0 'kernel_time' "$bench" report $what
    grep -q '3 of 4 processes: 1 throttled' "$dir/log" || fail "$what: the throttled process is among the figures"
done
cp once/results.csv alone.csv
expect 0 'kernel_time' "$bench" report alone.csv # a table without its folder: four processes
grep -q 'throttled' "$dir/log" && fail "alone.csv: throttled"
before=$(md5sum <once/results.csv)
with "$watched" run --resume once >"$dir/log" 2>&1 || fail "once: it cannot be resumed"
[[ $(md5sum <once/results.csv) == "$before" ]] || fail "once: a whole run was changed by --resume"

run 0 hot 0,20 # every process is throttled: three processes, each repeated twice
[[ $(processes hot) == '0 1 2 3 4 5 6 7 8 ' ]] || fail "hot: $(processes hot)"
[[ $(outcomes hot) == '0:throttled 1:throttled 2:throttled 3:throttled:0 4:throttled:1 5:throttled:2 6:throttled:3 7:throttled:4 8:throttled:5 ' ]] ||
    fail "hot: $(outcomes hot)"
[[ $(grep -c 'sw_thermal (after 2 retries)' hot/processes.csv) -eq 3 ]] || fail "hot: what is kept does not say so"
run 0 never 0,20 --throttle-retries 0
[[ $(processes never) == '0 1 2 ' && $(outcomes never) == '0:throttled 1:throttled 2:throttled ' ]] || fail "never: $(outcomes never)"

# Throttled only between the snapshots: neither the one before nor the one after shows it.
PB_FAKE_NVML_SECOND=40 run 0 midway 0 --mode slow --samples 30 -n 1 --throttle-retries 0
[[ $(outcomes midway) == '0:throttled ' ]] || fail "midway: $(outcomes midway)"
[[ $(grep -c '"throttle_bits": 0.0' midway/run.json) -eq 2 ]] || fail "midway: a snapshot saw it, so this tests nothing"

PB_FAKE_NVML_LACKS=DeviceGetCurrentClocksThrottleReasons run 0 mute 0,20
[[ $(outcomes mute) == '0:ok 1:ok 2:ok ' ]] || fail "mute: $(outcomes mute)"
grep -q '"throttle_bits": null' mute/run.json || fail "mute: run.json claims to know"
PB_FAKE_NVML_DEAD=1 run 0 dead 0
grep -q '"gpu_unknown": "NVML does not start' dead/run.json || fail "dead: run.json does not say why"
[[ $(outcomes dead) == '0:ok 1:ok 2:ok ' ]] || fail "dead: $(outcomes dead)"

# ---- other work on the CPUs --------------------------------------------------------------------------------
# busy CODE DIR OTHERS STEAL ARG...: runs bench while other processes use so many of two CPUs (watch_cpu.c).
busy() {
    local code=$1 out=$2 others=$3 steal=$4
    shift 4
    PB_DISTURBANCE='' PB_FAKE_OTHERS=$others PB_FAKE_STEAL=$steal PB_FAKE_NVML_DEAD=1 expect "$code" '' with "$watched" \
        "${toy[@]}" --mode slow --samples 22 --threads 2 --out "$out" "$@" # a process takes more than a second
}
busy 0 idle 0.3 0
[[ $(outcomes idle) == '0:ok 1:ok 2:ok ' ]] || fail "idle: $(outcomes idle)"
busy 0 loaded 0,0.5,0 0
grep -q 'process 1 was disturbed: load (others used 0.5 of 2 CPUs) (measured again)' "$dir/log" || fail "loaded: it does not say so"
[[ $(outcomes loaded) == '0:ok 1:throttled 2:ok 3:ok:1 ' ]] || fail "loaded: $(outcomes loaded)"
expect 0 '3 of 4 processes: 1 throttled' "$bench" report loaded
busy 0 stolen 0 0,0,0.1,0
[[ $(outcomes stolen) == '0:ok 1:ok 2:throttled 3:ok:2 ' ]] || fail "stolen: $(outcomes stolen)"
grep -q '^2,.*,throttled,,steal ([0-9.]* % of the CPU time) (measured again)$' stolen/processes.csv || fail "stolen: processes.csv does not say why"
busy 0 crowded 1 0 # other work that lasts: one retry
[[ $(outcomes crowded) == '0:throttled 1:throttled 2:throttled 3:throttled:0 ' ]] || fail "crowded: $(outcomes crowded)"
[[ $(grep -c ',load (others used 1.0 of 2 CPUs)$' crowded/processes.csv) -eq 2 ]] || fail "crowded: what is kept does not say so"
before=$(cat crowded/* | md5sum)
PB_FAKE_OTHERS=1 PB_FAKE_NVML_DEAD=1 expect 0 '' with "$watched" run --resume crowded
[[ $(outcomes crowded) == '0:throttled 1:throttled 2:throttled 3:throttled:0 ' ]] || fail "crowded: resumed: $(outcomes crowded)"
busy 0 asked 1 0 -n 1 --throttle-retries 2
[[ $(outcomes asked) == '0:throttled 1:throttled:0 2:throttled:1 ' ]] || fail "asked: $(outcomes asked)"
# a run that records a trace has one process, disturbed or not
FIXTURE_NAP=900 PB_DISTURBANCE='' PB_FAKE_OTHERS=1 PB_FAKE_STEAL=0 PB_FAKE_NVML_DEAD=1 expect 0 'process 0 was disturbed' \
    with "$watched" --suite paired --n 1,2 --quiet --out traced --profile-out traces
[[ $(outcomes traced) == '0:throttled ' && -n $(find traces -name rank0.json.gz) ]] || fail "traced: $(outcomes traced)"
busy 0 spent 1 0 -n 1 --budget 8s --samples 80 # complete, although nothing is left for a retry
[[ $(outcomes spent) == '0:throttled ' ]] || fail "spent: $(outcomes spent)"
busy 0 single 0.9 0 -n 1 --threads 1 # the second CPU was idle
[[ $(outcomes single) == '0:ok ' ]] || fail "single: $(outcomes single)"
# Where the kernel tells how long threads wait for a CPU, each process judges its samples by that (PB_FAKE_LOST).
PB_FAKE_LOST=0.04 busy 0 beside 2 0
[[ $(outcomes beside) == '0:ok 1:ok 2:ok ' ]] || fail "beside: other work from which the threads did not suffer counts: $(outcomes beside)"
PB_FAKE_LOST=0.5,0.7 busy 0 passing 2 0 -n 1
[[ $(outcomes passing) == '0:ok ' ]] || fail "passing: other work that ended counts: $(outcomes passing)"
grep -q 'kernel_time,s,lower,[^,]*,22,ok' passing/results.csv || fail "passing: not 22 samples: $(rows passing)"
PB_FAKE_LOST=0.5 busy 0 lasting 2 0 -n 1
[[ $(outcomes lasting) == '0:throttled 1:throttled:0 ' ]] || fail "lasting: $(outcomes lasting)"
grep -q '^0,.*,throttled,,load (other work left too little CPU time to 1 measurement) (measured again)$' lasting/processes.csv ||
    fail "lasting: processes.csv does not say why"
PB_FAKE_QUOTA=1.5 PB_FAKE_LOST=0.5 busy 0 quota 0.3 0 -n 1 # the two threads wait for each other
[[ $(outcomes quota) == '0:ok ' ]] || fail "quota: waiting for the container's quota counts as other work: $(outcomes quota)"
PB_FAKE_OTHERS=1 expect 0 '' "$watched" "${toy[@]}" --mode slow --samples 22 --out ignored -n 1
[[ $(outcomes ignored) == '0:ok ' ]] || fail "ignored: PB_DISTURBANCE=ignore does not hold"

# ---- results.csv only grows -------------------------------------------------------------------------------
# Every state of results.csv that can be seen while a run measures is a beginning of its last one, in the same file.
rm -f "$PB_FAKE_NVML_STATE"
PB_FAKE_NVML_THROTTLE=0,8,0,8,0 with "$watched" --suite toy --mode slow --batch 1 --samples 4 -n 2 --no-compare --quiet step \
    --out grows >"$dir/log" 2>&1 & pid=$!
seen=0 inode=
while kill -0 $pid 2>/dev/null; do
    [[ -s grows/results.csv ]] && cp grows/results.csv seen.$((seen++)) && inode=${inode:-$(stat -c %i grows/results.csv)}
    sleep 0.02
done
wait $pid || fail "grows: exit code"
[[ $(outcomes grows) == '0:throttled 1:ok 2:throttled:0 3:ok:2 ' ]] || fail "grows: $(outcomes grows)"
[[ $seen -gt 9 && $(stat -c %i grows/results.csv) == "$inode" ]] || fail "grows: seen $seen times, or another file"
for ((i = 0; i < seen; i++)); do
    cmp -s -n "$(stat -c %s seen.$i)" seen.$i grows/results.csv || fail "grows: results.csv was changed after state $i of $seen"
done
awk -F, 'NR > 2 && ($3 < results || $4 < samples) { exit 1 } { results = $3; samples = $4 }' grows/progress.csv ||
    fail "grows: progress.csv has a size that is smaller than the one before"

# ---- kill -9 after a process has ended --------------------------------------------------------------------
# ends DIR: makes DIR from `once` as it is when process 1 has ended, and processes.csv does not say so yet.
ends() {
    local sizes
    cp -r once "$1"
    sizes=$(awk -F, '$1 == 2 && $2 == 0 { print $3 "," $4 }' once/progress.csv)
    truncate -s "${sizes%,*}" "$1/results.csv"
    truncate -s "${sizes#*,}" "$1/samples.csv"
    sed -n '1,/^2,0,/p' once/progress.csv >"$1/progress.csv"
    head -n 2 once/processes.csv >"$1/processes.csv"
    rm -f "$PB_FAKE_NVML_STATE"
}
ends cut # whether it was throttled is not known: it is measured again
PB_FAKE_NVML_THROTTLE=0 expect 0 'whether process 1 was throttled is not known; it is measured again' \
    with "$watched" run --resume cut
[[ $(outcomes cut) == '0:ok 1:ok 2:ok ' && $(processes cut) == '0 1 2 ' ]] || fail "cut: $(outcomes cut)"
[[ $(rows cut | cut -d, -f4-6 | sort) == "$(rows cool | cut -d, -f4-6 | sort)" ]] || fail "cut: other rows than an undisturbed run"
[[ $(cut -d, -f2-4 cut/samples.csv | sort) == "$(cut -d, -f2-4 cool/samples.csv | sort)" ]] || fail "cut: other samples"
ends again # and it is throttled then
PB_FAKE_NVML_THROTTLE=0,8,0 expect 0 'process 1 was throttled: hw_slowdown' with "$watched" run --resume again
[[ $(outcomes again) == '0:ok 1:throttled 2:ok 3:ok:1 ' ]] || fail "again: $(outcomes again)"
expect 0 '3 of 4 processes: 1 throttled' "$bench" report again
ends marked # processes.csv says so, run.json does not yet; the next row is half written
head -n 3 once/processes.csv >marked/processes.csv && printf '2,2026-01' >>marked/processes.csv
expect 0 '' "$bench" report marked
expect 0 '' with "$watched" run --resume marked
[[ $(outcomes marked) == '0:ok 1:throttled 2:ok 3:ok:1 ' ]] || fail "marked: $(outcomes marked)"
expect 0 '3 of 4 processes: 1 throttled' "$bench" report marked
ends gaps # more rows are missing than a kill can cost
head -n 1 once/processes.csv >gaps/processes.csv
before=$(cat gaps/* | md5sum)
expect 2 'gaps/processes.csv: lacks process 0; progress.csv says that process 2 is next' with "$watched" run --resume gaps
[[ $(cat gaps/* | md5sum) == "$before" ]] || fail "gaps: a refused --resume changed the run"

# ---- a pair whose process was throttled ------------------------------------------------------------------------
printf 'suite,metric,better,stored_limit,ceiling,gating\npaired,kernel_time,lower,0.1,,yes\n' >pair.csv
paired=(compare --self --suite paired --seed 7 --quiet --time-slice 0 --pairs 4 --max-pairs 4 --gates pair.csv)
rm -f "$PB_FAKE_NVML_STATE"
PB_FAKE_NVML_THROTTLE=0,8,0 with "$watched" "${paired[@]}" --out pair >"$dir/log" 2>&1 || fail "pair: exit code $?"
for side in base cand; do
    [[ $(rows pair/$side | cut -d, -f4-6 | sort | uniq -d) == '' ]] || fail "pair/$side: a row twice"
    [[ $(processes pair/$side) == '0 1 2 3 ' ]] || fail "pair/$side: $(processes pair/$side)"
    [[ $(cut -d, -f2-5 pair/$side/samples.csv | sort | uniq -d) == '' ]] || fail "pair/$side: a sample twice"
done
cat pair/base.log pair/cand.log | grep -q 'process 0 was throttled' || fail "pair: no process was throttled, so this tests nothing"
grep -q throttled pair/*/results.csv && fail "pair: the rows of the throttled attempt were stored"
PB_FAKE_NVML_THROTTLE=8 with "$watched" "${paired[@]}" --out heat >"$dir/log" 2>&1
for side in base cand; do # the comparison ends after the first pair, since no row has a figure of both sides
    [[ $(rows heat/$side | grep kernel_time | grep -c ',throttled,throttled: hw_slowdown (after 2 retries)') -eq 3 ]] ||
        fail "heat/$side: the rows do not say that they are of throttled processes"
done

# ---- a processes.csv that is damaged ----------------------------------------------------------------------------
head=$(head -n 1 once/processes.csv)
damaged() { # damaged LINES TEXT: `bench report` must give TEXT in one line when processes.csv holds LINES
    cp -r once damaged
    printf "$1" >damaged/processes.csv
    expect 2 "$2" "$bench" report damaged
    [[ $(wc -l <"$dir/log") -eq 1 ]] || fail "'$1': not one line: $(cat "$dir/log")"
    rm -r damaged
}
damaged '' 'damaged/processes.csv:0: no header'
damaged 'process,outcome\n' 'processes.csv:1: a line must have six fields'
damaged "${head/outcome/result}\n" 'processes.csv:1: the header must be process,'
damaged "$head\n1,t,1,ok,,\n" 'processes.csv:2: the process number is not the next one: 1'
damaged "$head\n0,t,1,ok,,\n0,t,1,ok,,\n" 'processes.csv:3: the process number is not the next one: 0'
damaged "$head\n0,t,1,interrupted,,\n1,t,1,ok,,\n" 'processes.csv:3: the process number is not the next one'
damaged "$head\n-1,t,1,ok,,\n" 'processes.csv:2: the process number is not valid here: -1'
damaged "$head\n99999999999999999999,t,1,ok,,\n" 'processes.csv:2: the process number is not valid here'
damaged "$head\n0,t,nan,ok,,\n" 'processes.csv:2: not a number of seconds: nan'
damaged "$head\n0,t,1,fine,,\n" 'processes.csv:2: no such outcome: fine'
damaged "$head\n0,t,1,ok,0,\n" 'processes.csv:2: the process number is not valid here: 0'
damaged "$head\n0,t,1,ok,,\"x\n" 'processes.csv:2: a quote out of place'
damaged "$head\n0,t,1,ok,,x\001y\n" 'processes.csv:2: a control character in the column reason'
damaged "$head\n0,t,1,ok,,$(printf %0999d 0)\n" 'processes.csv:2: a field is too long in the column reason'
damaged "$head\n0,$(printf %040d 0),1,ok,,\n" 'processes.csv:2: not a time'

# ---- verdicts on throttled rows -------------------------------------------------------------------------
printf 'suite,metric,better,stored_limit,ceiling,gating\ntoy,kernel_rate,higher,0.15,,yes\n' >gates.csv
compare() { # compare CODE TEXT BASE CAND ARG...: expects this of a comparison
    local code=$1 text=$2
    shift 2
    expect "$code" "$text" "$bench" compare --gates gates.csv "$@"
}
compare 0 'same=1' cool once --strict
grep -q 'note: 1 throttled process of the candidate is not in its values' "$dir/log" || fail "once: no note"
cp -r hot slow
sed -i 's/,1e+09,0,ok/,5e+08,0,ok/; s/,1000000000,0,ok/,500000000,0,ok/' slow/results.csv
grep -q ',500000000,\|,5e+08,' slow/results.csv || fail "slow: the fixture is not slower"
compare 0 'INCONCLUSIVE: throttled: sw_thermal' cool slow
compare 0 'regressed=0 ' cool slow
compare 3 'inconclusive=1' cool slow --strict
compare 3 'inconclusive=1' slow cool --strict
expect 2 'is throttled' "$bench" baseline save hot --baseline b
cp -r hot old && rm old/processes.csv # a run of a program that wrote the status into results.csv
sed -i 's|,ok,,|,throttled,throttled: sw_thermal (after 2 retries),|' old/results.csv
compare 0 'INCONCLUSIVE: throttled: sw_thermal' cool old
expect 2 'is throttled' "$bench" baseline save old --baseline b
expect 0 'kernel_time' "$bench" report hot

# ---- notes on what may explain a difference ---------------------------------------------------------------
cp -r cool other
sed -i 's/"gpu_power_limit_w": 500.0/"gpu_power_limit_w": 700.0/; s/"environment": {/"environment": {"NCCL_ALGO": "Ring",/' other/run.json
compare 0 'note: gpu_power_limit_w differs: 500.0 -> 700.0' cool other
grep -q 'note: NCCL_ALGO differs: none -> Ring' "$dir/log" || fail "other: the environment is not compared"
grep -q 'gpu_ecc differs' "$dir/log" && fail "other: what is the same is listed"

# ---- locked clocks -----------------------------------------------------------------------------------------
changes() { cat "$PB_FAKE_NVML_LOG" 2>/dev/null | tr '\n' ';'; }
reset() { # reset WHAT: waits for the process that resets the clocks; it outlives a killed run
    for _ in $(seq 100); do [[ $(changes) == *reset* ]] && break; sleep 0.1; done
    [[ $(changes) == "lock ffffff01 ffffff01;reset 0 0;" ]] || fail "$1: the clocks were changed so: $(changes)"
    rm -f "$PB_FAKE_NVML_LOG"
}
run 0 locked 0 --lock-gpu-clocks base && reset locked
grep -q '"gpu_clocks_locked": "base"' locked/run.json || fail "locked: the fingerprint does not say so"
compare 0 'shared 5 %' locked cool --explain
compare 0 'shared 1 %' cool locked --explain # the candidate's clocks are locked
run 0 most 0 --lock-gpu-clocks max
[[ $(changes) == 'lock 7bc 7bc;reset 0 0;' ]] || fail "max: $(changes)"
rm -f "$PB_FAKE_NVML_LOG"
run 0 mhz 0 --lock-gpu-clocks 1500
[[ $(changes) == 'lock 5dc 5dc;reset 0 0;' ]] || fail "1500: $(changes)"
rm -f "$PB_FAKE_NVML_LOG"
ASAN_OPTIONS=handle_segv=0 run 4 crashed 0 --mode crash --lock-gpu-clocks base && reset crashed
expect 2 'locked: the folder is not empty' with "$watched" "${toy[@]}" --out locked --lock-gpu-clocks base && reset 'no folder'
for sig in TERM INT HUP QUIT KILL SEGV; do
    rm -rf ended
    (export LD_LIBRARY_PATH=${fake%/*}; ulimit -c 0
        exec setsid "$watched" "${toy[@]}" --mode slow --samples 200 --out ended --lock-gpu-clocks base) >"$dir/log" 2>&1 & pid=$!
    until [[ -s ended/results.csv && $(wc -l <ended/results.csv) -ge 3 ]] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    [[ $(changes) == 'lock ffffff01 ffffff01;' ]] || fail "$sig: not locked while it runs: $(changes)"
    kill -$sig $pid
    wait $pid 2>/dev/null
    reset "SIG$sig"
done
PB_FAKE_NVML_ROOT=no run 125 rootless 0 --lock-gpu-clocks base
grep -q "the GPU's clocks cannot be locked: only root may" "$dir/log" || fail "rootless: it does not say why"
[[ $(grep -vc warning: "$dir/log") -eq 1 && ! -e rootless ]] || fail "rootless: more than one line, or a folder"
PB_FAKE_NVML_LACKS=DeviceSetGpuLockedClocks run 125 lacking 0 --lock-gpu-clocks base
PB_FAKE_NVML_LACKS=DeviceResetGpuLockedClocks run 125 stuck 0 --lock-gpu-clocks base
grep -q 'cannot be reset' "$dir/log" || fail "stuck: it does not say that the clocks stay locked"
rm -f "$PB_FAKE_NVML_LOG"
PB_FAKE_NVML_DEAD=1 run 125 deaf 0 --lock-gpu-clocks base
run 2 fast 0 --lock-gpu-clocks fast
grep -q 'need base, max or 100 to 10000 MHz' "$dir/log" || fail "fast: the hint"
expect 2 'is for --device cuda' "$bench" --suite ceiling --lock-gpu-clocks base
[[ -z $(changes) ]] || fail "the clocks were changed all the same: $(changes)"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
