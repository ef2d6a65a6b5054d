#!/bin/bash
# attach_cupti_test.sh PROGRAM LIBRARY - one clear line when CUPTI cannot be attached: another profiler holds it, the driver
# does not permit it, or it fails.
program=$1 library=$2
. "${0%/*}/../cli.sh"
export LD_LIBRARY_PATH=${library%/*}
refused() { # refused KIND TEXT
    PB_FAKE_CUPTI=$1 expect 3 "$2" "$program"
    [[ $(wc -l <log) -eq 1 ]] || fail "$1: more than one line"
}
expect 0 '0 records' "$program"
refused held 'unsupported: profile: another profiler, such as Nsight, is attached to this process, and CUPTI admits one'
refused denied 'unsupported: profile: the driver does not permit profiling to this user (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)'
refused broken 'device: profile: CUPTI failed in cuptiActivityEnable: CUPTI_ERROR_UNKNOWN'
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
