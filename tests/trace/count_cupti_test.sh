#!/bin/bash
# count_cupti_test.sh PROGRAM LIBRARY GROUPS - counting by a range profiler that a fake library stands for: the counts of a
# call's kernels are added, each call begins at zero, and each refusal is one clear line.
program=$1 library=$2 groups=$3
. "${0%/*}/../cli.sh"
export LD_LIBRARY_PATH=${library%/*}
refused() { # refused KIND TEXT
    PB_FAKE_CUPTI=$1 expect 3 "$2" "$program" count "$groups/MEM.txt"
    [[ $(wc -l <log) -eq 1 ]] || fail "$1: more than one line"
}
expect 0 'read=300 write=302 time=304' "$program" count "$groups/MEM.txt"
[[ $(sort -u log | wc -l) -eq 1 && $(wc -l <log) -eq 2 ]] || fail 'two equal calls have other counts'
refused held 'unsupported: counters: another tool, such as Nsight or DCGM, holds the counters'
refused denied 'unsupported: counters: the driver lets only administrators count (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)'
refused virtual 'unsupported: counters: this GPU offers none: it is virtual'
refused chip 'unsupported: counters: group MEM is for the chip GH100, and this GPU is a AD102'
refused passes 'unsupported: counters: group MEM needs 99 passes on this GPU, and 16 are allowed'
refused lost 'device: counters: the call launched more than 1024 kernels: 3 were not counted'
refused partial 'device: counters: counting ended before all passes were run'
refused empty 'device: counters: the call launched no kernel that can be counted'
refused decode 'device: counters: CUPTI failed in cuptiRangeProfilerDecodeData: CUPTI_ERROR_UNKNOWN'

# Ranges: each has its own counts, whatever the order in which they are reported, and a session knows nothing of the one
# before it.
export PB_FAKE_CUPTI=one
expect 0 'read=0 write=1 time=2' "$program" ranges "$groups/MEM.txt"
[[ $(sort log | uniq -c | awk '$1 == 2' | wc -l) -eq 3 ]] || fail 'two equal sessions have other counts'
[[ $(sed -n 2p log) == 'read=1000 write=1001 time=1002' ]] || fail "the second range: $(sed -n 2p log)"
[[ $(sed -n 3p log) == 'read=2000 write=2001 time=2002' ]] || fail "the third range: $(sed -n 3p log)"
unset PB_FAKE_CUPTI
expect 3 'unsupported: counters: group MEM needs 2 passes on this GPU, and work that runs once has one' "$program" ranges "$groups/MEM.txt"
export PB_FAKE_CUPTI=one
expect 0 '1,0,MEM,eager,step,,train_step,,400,40,0,1,2' "$program" steps "$groups/MEM.txt" step
[[ $(wc -l <log) -eq 3 ]] || fail 'steps: not a row for each'
expect 0 '2,0,MEM,eager,phase,backward,backward,,100,10,1000,1001,1002' "$program" steps "$groups/MEM.txt" phase
expect 0 '1,0,MEM,eager,op,forward,attention,1,100,10,1000,1001,1002,1000,1001,2001,' "$program" steps "$groups/MEM.txt" op
[[ $(wc -l <log) -eq 9 ]] || fail 'ops: the op inside another one is counted, or one is missing'
expect 3 'device: counters: the step had no range of kind suite' "$program" steps "$groups/MEM.txt" suite
PB_FAKE_CUPTI=fault expect 3 "device: counters: the GPU's work failed" "$program" steps "$groups/MEM.txt" op
unset PB_FAKE_CUPTI
PB_FAKE_CUPTI=stray expect 3 'device: counters: CUPTI counted a range that was not pushed: 5' "$program" ranges "$groups/MEM.txt"
PB_FAKE_CUPTI=fault expect 3 "device: counters: the GPU's work failed (CUDA driver error 700)" "$program" ranges "$groups/MEM.txt"

sed 's/dram__bytes_write.sum/no_such_counter.sum/' "$groups/MEM.txt" >MEM.txt
expect 3 'invalid: counters: group MEM: chip GH100 has no counter no_such_counter.sum' "$program" count MEM.txt
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
