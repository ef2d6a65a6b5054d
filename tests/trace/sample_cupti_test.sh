#!/bin/bash
# sample_cupti_test.sh PROGRAM LIBRARY GROUPS - PM sampling that a fake library stands for: two windows have a sample in
# each interval, what is missing is counted, and each refusal is one clear line.
program=$1 library=$2 groups=$3
. "${0%/*}/../cli.sh"
export LD_LIBRARY_PATH=${library%/*}
sampled() { # sampled KIND CODE TEXT ARGUMENTS...: both windows, or the line after them, say TEXT
    local kind=$1 code=$2 text=$3
    shift 3
    PB_FAKE_CUPTI=$kind expect "$code" "$text" "$program" "$groups/TIMELINE.txt" "$@"
}
sampled none 0 'complete, ordered, values right, nothing lost, outside 0, overflows 0, sm_busy %' 1000
[[ $(sort -u log | wc -l) -eq 1 && $(wc -l <log) -eq 2 ]] || fail 'the second window differs from the first'
sampled none 0 'complete, ordered, values right, nothing lost' 50
sampled gap 0 'incomplete, ordered, values right, lost' 1000
sampled none 0 'incomplete, ordered, values right, lost' 1000 10
sampled silent 3 'device: counters: the GPU completed none of the ' 1000
sampled overflow 0 'lost, outside 0, overflows 1' 50 # short, so that a window is decoded more than twice
[[ $(grep -c 'overflows 1' log) -eq 2 ]] || fail 'the window after an overflow was not sampled'
sampled clock 3 "device: counters: none of " 1000
grep -q 'the first begins -3600 s after its begin: CUPTI.s clock of samples is not CLOCK_REALTIME' log || fail 'the clock'
sampled broken 3 'device: counters: CUPTI failed in cuptiPmSamplingDecodeData: CUPTI_ERROR_UNKNOWN' 1000

refused() { # refused KIND TEXT
    sampled "$1" 3 "$2" 1000
    [[ $(wc -l <log) -eq 1 ]] || fail "$1: more than one line"
}
refused held 'unsupported: counters: another tool, such as Nsight or DCGM, holds the counters'
refused denied 'unsupported: counters: the driver lets only administrators count (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)'
refused virtual 'unsupported: counters: this GPU offers none: it is virtual'
refused chip 'unsupported: counters: group TIMELINE is for the chip GH100, and this GPU is a AD102'
refused passes 'unsupported: counters: group TIMELINE needs 99 passes on this GPU, and a sample has one'
PB_FAKE_CUPTI=links expect 3 'unsupported: counters: group NVLINK: this GPU does not offer counter NVLRX.' "$program" "$groups/NVLINK.txt" 1000
PB_FAKE_CUPTI=links expect 0 'complete' "$program" "$groups/TIMELINE.txt" 1000
expect 3 'invalid: counters: group MEM is counted in ranges of work, not sampled' "$program" "$groups/MEM.txt" 1000
for interval in 49 1000001; do
    expect 3 "invalid: counters: a sample every $interval us: need 50 to 1000000" "$program" "$groups/TIMELINE.txt" $interval
done
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
