#!/bin/bash
# lost_test.sh TRAIN TRAIN_LOST BENCH_FIXTURE [DEVICE] - a device that is lost during a step, an evaluation or a
# checkpoint: exit code 125 and one line, earlier checkpoints are complete, and training resumes from them with an
# identical result. TRAIN_LOST is train with lose_train.c; DEVICE is cpu, or cuda on a machine that has one. TUNINGS
# (environment) is lora, full or both [both], so that two processes can share the work.
train=$1 lost=$2 fixture=$3 device=${4:-cpu}
. "${0%/*}/../cli.sh"
base=(--device "$device" --deterministic --steps 6 --seq 128 --batch 1 --lr 1e-3 --eval-split 0.03 --eval-interval 2 -q)
save=(--save ck --save-interval 2 --log l.csv)

# check WHAT: checks a run of TRAIN_LOST that ended with $code and has its checkpoints in ck
check() {
    [[ $code -eq 125 ]] || fail "$1: exit $code"
    [[ $(wc -l <log) -eq 1 && $(head -c 28 log) == 'train: the device is lost: '* ]] || fail "$1: the line"
    [[ ! -e l.csv || -z $(tail -c 1 l.csv) && $(awk -F, 'NR == 1 { n = NF } NF != n' l.csv | wc -l) -eq 0 ]] || fail "$1: the log ends in half a row"
    [[ ! -e ck || -z $(find ck -mindepth 1 -maxdepth 1 ! -name 'iter_*[0-9]' ! -name "latest*.txt" ! -name .lock) ]] || fail "$1: half a checkpoint: $(ls ck)"
    saved=$(cat ck/latest*.txt 2>/dev/null)
    [[ -z $saved || -d ck/iter_$(printf %07d "$saved") ]] || fail "$1: latest is $saved of $(ls ck)"
    "$train" "${base[@]}" --save ck --resume latest --export rest >log 2>&1 || fail "$1: it does not go on"
    diff -r all rest >/dev/null || fail "$1: the resumed run gives other weights"
    saves+="${saved:-0} "
    rm -rf rest ck l.csv
}

for t in ${TUNINGS:-lora full}; do
    saves=
    PB_DEBUG=trace "$train" "${base[@]}" --tuning $t --export all >log 2>&1 || { fail "$t: exit $?"; continue; }
    ops=$(grep -c "\.$device\." log)
    for n in 1 $((ops / 3)) $((ops / 2)) $((ops * 3 / 4)) $((ops - 1)); do
        PB_LOSE_OP=$n "$lost" "${base[@]}" --tuning $t "${save[@]}" >log 2>&1
        code=$?
        base+=(--tuning $t) && check "$t, op $n of $ops" && base=("${base[@]:0:${#base[@]}-2}")
    done
    # Steps read losses and norms; checkpoints read all trained tensors.
    for ((n = 1; ; n += n / 2 + 1)); do
        PB_LOSE_READ=$n "$lost" "${base[@]}" --tuning $t "${save[@]}" >log 2>&1
        code=$?
        [[ $code -eq 0 ]] && break # the run has fewer reads
        base+=(--tuning $t) && check "$t, read $n" && base=("${base[@]:0:${#base[@]}-2}")
    done
    [[ $n -gt 20 ]] || fail "$t: only $n reads"
    for saved in 0 2 4; do [[ " $saves" == *" $saved "* ]] || fail "$t: never lost behind checkpoint $saved: $saves"; done
    rm -r all ck l.csv
done
PB_LOSE_READ=3 "$lost" eval --device "$device" --tuning lora --seq 32 --dump-logits logits >log 2>&1
[[ $? -eq 125 && ! -e logits && $(cat log) == *'the device is lost: '* ]] || fail 'eval'

# The process that finished earlier keeps its rows; cli_test.sh checks more of this, on the CPU.
expect 125 'mode=lost&width=16: the device is lost: ' "$fixture" --suite toy --device "$device" --mode lost --batch 1 --out p step
[[ $(grep -c ',failed,the device is lost' p/results.csv) -eq 1 && $(awk -F, '$4 == 0 && /,ok,/' p/results.csv | wc -l) -eq 4 ]] ||
    fail "p: $(cat p/results.csv)"

[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
