#!/bin/bash
# clocks_job_test.sh TRAIN BENCH SKEW - ranks whose clocks differ by seconds: their traces are on rank 0's clock, and say so;
# ranks of one clock are left as they are.
train=$1 bench=$2 skew=$3
. "${0%/*}/../../cli.sh"
job=(--ranks 3 --steps 4 --batch 1 --seq 32 --quiet --profile-ranks all --profile-steps 1:0:0:2)

# AddressSanitizer refuses a library that is loaded before its own, unless told otherwise.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 LD_PRELOAD=$skew PB_SKEW_NS=7250000000 expect 0 '' "$train" "${job[@]}" --profile-out skewed
expect 0 '' "$train" "${job[@]}" --profile-out plain
tail_of() { zcat "$1/traces/step2-3/rank$2.json.gz" | tail -n 1; }
for r in 1 2; do
    tail_of skewed $r | grep -q '"clock_shifted":true' || fail "rank $r: $(tail_of skewed $r)"
    # The offsets at both ends are the skew, to within their uncertainty.
    tail_of skewed $r | sed 's/.*"clock_offsets_ns":\[\([-0-9]*\),\([-0-9]*\)\],"clock_uncertainty_ns":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2 \3 \4/' |
        awk '{ for (i = 1; i <= 2; i++) { d = $i + 7250000000; u = $(i + 2) + 1000; if (!($(i + 2) > 0 && d < u && d > -u)) exit 1 } }' ||
        fail "rank $r: the offsets are not the skew: $(tail_of skewed $r)"
    tail_of plain $r | grep -q '"clock_shifted":false' || fail "rank $r of one clock: $(tail_of plain $r)"
done
tail_of skewed 0 | grep -q '"clock_offsets_ns":\[0,0\],"clock_uncertainty_ns":\[0,0\],"clock_shifted":false' || fail 'rank 0'
[[ $(grep -c '"offset_ns": -72[45]' skewed/manifest.json) -eq 4 ]] || fail "manifest: $(cat skewed/manifest.json)"
grep -q '"clocks": \[' plain/manifest.json || fail 'the manifest has no clocks'

# The steps of all ranks begin within a second of each other, though the clocks differ by seven.
for r in 0 1 2; do zcat "skewed/traces/step2-3/rank$r.json.gz" | sed -n 's/.*"ProfilerStep#2".*"ts":\([0-9.]*\),.*/\1/p'; done |
    awk 'NR == 1 || $1 < a { a = $1 } NR == 1 || $1 > b { b = $1 } END { exit !(NR == 3 && b - a < 1e6) }' || fail 'the steps are apart'
expect 0 "the clock of rank 1 differed from rank 0's by -7.25 s" "$bench" analyze skewed
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
