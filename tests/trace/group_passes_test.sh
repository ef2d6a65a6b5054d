#!/bin/bash
# group_passes_test.sh PROGRAM GROUPS - every metric group of a GPU against the host interface of the installed libcupti,
# which needs no GPU: the chip has its counters, and the file states the number of passes. Skipped (77) without libcupti.
program=$1 groups=$2
. "${0%/*}/../cli.sh"
checked=0
for file in "$groups"/*.txt; do
    grep -q '^CHIP *cpu' "$file" && continue
    "$program" passes "$file" >log 2>&1
    code=$?
    if grep -q 'libcupti was not found\|libnvperf_host is not beside it' log; then
        echo "skipped: $(cat log)"
        exit 77
    fi
    [[ $code -eq 0 ]] || fail "$(cat log)"
    grep -qE 'states ([0-9]+), needs \1$' log || fail "$(cat log)"
    checked=$((checked + 1))
done
[[ $checked -ge 5 ]] || fail "only $checked groups of a GPU"
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
