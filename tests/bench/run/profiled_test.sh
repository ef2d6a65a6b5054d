#!/bin/bash
# profiled_test.sh BENCH BENCH_FIXTURE - bench run --profile-out: what the traces contain, and that no figure of such a run
# is used.
bench=$1 fixture=$2
. "${0%/*}/../../cli.sh"
export PB_STATE=$dir/kept
tiny=(--model tiny --layers 1 --seq 8 --tuning lora --samples 2)

# ---- the traces: one per case, with the ranges of suite, case, samples, phases and ops ---------------------------------------
expect 0 'one process records a trace into prof' "$bench" --suite throughput "${tiny[@]}" --mode eager,graph --profile-out prof --out run
[[ $(cd prof/traces && echo */*) == 'case1-1/rank0.json.gz case2-2/rank0.json.gz' ]] || fail "traces: $(find prof)"
events() { zcat "$1" | sed -n 's/.*"ph":"X".*"name":"\([^"]*\)".*"kind":"\([a-z]*\)".*/\2 \1/p' | sort | uniq -c | sed 's/^ *//'; }
for trace in prof/traces/*/rank0.json.gz; do
    key=$(zcat "$trace" | sed -n 's/.*"plumb".*"name":"\([^"]*\)".*/\1/p')
    events "$trace" >found
    grep -qx "1 case $key" found && [[ $key == throughput/step?* ]] || fail "$trace: no range of the case '$key'"
    grep -qx '1 suite throughput' found || fail "$trace: no range of the suite"
    grep -qx '2 sample sample' found || fail "$trace: not 2 samples"
    for phase in forward loss backward clip optimizer; do grep -q "^[0-9]* phase $phase\$" found || fail "$trace: no phase $phase"; done
    [[ $key != *mode=eager* ]] || grep -qx '3 phase forward' found || fail "$trace: not a phase in the warm-up and in each sample"
    grep -q ' op attention_bwd$' found || fail "$trace: no op"
done
PB_CONTROLS='' expect 0 'no control cases' "$bench" --suite throughput "${tiny[@]}" --profile-out none --dry-run
grep -q '"name": "throughput/step?' prof/ranks/rank0.json || fail 'the windows have no names'
expect 0 'attention_bwd' "$bench" analyze prof
# suite backward times two phases, and suite kernels single ops
expect 0 '' "$bench" --suite backward "${tiny[@]}" --mode eager --clip fused --profile-out back --out back-run
events back/traces/case1-1/rank0.json.gz >found
grep -q '^[0-9]* phase clip$' found || fail 'suite backward: no phase'
key=$("$bench" --suite kernels --dry-run | grep -o 'kernels/rmsnorm_fwd?dtype=f32.*' | head -n 1)
expect 0 '' "$bench" --suite kernels "$key" --samples 2 --profile-out ops --out ops-run
[[ $(find ops -name '*.gz' | wc -l) -ge 1 ]] || fail 'suite kernels: no trace'

# ---- no figure: the status, no value, no sample, no session, no comparison ----------------------------------------------------
[[ $(awk -F, 'NR > 1 { print $9 "|" $11 }' run/results.csv | sort -u) == '|profiled' ]] || fail "rows: $(cut -d, -f6,9,11 run/results.csv)"
[[ $(wc -l <run/samples.csv) -eq 1 ]] || fail 'samples were written'
[[ $(awk -F, '{ print $4 }' run/results.csv | sort -u | wc -l) -eq 2 ]] || fail 'not one process'
mkdir baselines && printf 'suite,metric,better,stored_limit,ceiling,gating\nthroughput,step_time,lower,0.1,,yes\n' >baselines/gates.csv
for how in save 'update -m why'; do
    # shellcheck disable=SC2086 # several words
    expect 2 'is profiled' "$bench" baseline $how run
done
[[ -z $(find baselines kept -name 'throughput.csv' 2>/dev/null) ]] || fail 'stored'
expect 0 'requirements: 0 pass, 0 fail, 1 unsupported' "$bench" --suite self sample --samples 3 --profile-out self --out self-run
expect 2 'the run recorded a trace, so it has no figures to compare' "$bench" compare run
expect 0 profiled "$bench" report run
expect 0 '' "$fixture" --suite paired --n 1 -n 3 --profile-out made-up --out paired-run
grep -q '^kept as' log && fail 'it says that the run is kept'
[[ $(grep -c ',profiled,' paired-run/results.csv) -eq 2 ]] || fail 'not one process, although three were asked for'
[[ ! -e kept ]] || fail 'kept as a session'

# ---- options that do not fit, folders in use ------------------------------------------------------------------------------------
table "$bench" <<'T'
--suite throughput --profile-out x --ranks 2              | 2 | --profile-out excludes --ranks
--suite backward --profile-out x --instructions perf      | 2 | --profile-out excludes --instructions
--suite throughput --profile-out x --gate requirements    | 2 | --profile-out excludes --gate
--suite backward --profile-out x --throttle-retries 1     | 2 | --profile-out excludes --throttle-retries
--suite profile --profile-out x                           | 2 | suite profile measures each case in a process of its own
--resume run                                              | 2 | --profile-out excludes --resume
T
expect 2 'prof holds traces of another run' "$bench" --suite throughput "${tiny[@]}" --profile-out prof --out again
[[ ! -e again ]] || fail 'an empty run is left'
expect 2 '/proc/nowhere cannot be made' "$bench" --suite throughput "${tiny[@]}" --profile-out /proc/nowhere --out again
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
