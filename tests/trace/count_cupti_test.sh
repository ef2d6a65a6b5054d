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
refused partial 'device: counters: kernel replay ended before all passes were run'
refused empty 'device: counters: the call launched no kernel that can be counted'
refused decode 'device: counters: CUPTI failed in cuptiRangeProfilerDecodeData: CUPTI_ERROR_UNKNOWN'
sed 's/dram__bytes_write.sum/no_such_counter.sum/' "$groups/MEM.txt" >MEM.txt
expect 3 'invalid: counters: group MEM: chip GH100 has no counter no_such_counter.sum' "$program" count MEM.txt
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
