#!/bin/bash
# real_gates_test.sh BENCH SOURCE - `bench compare` of a program with itself, with the gates that the repository has: in
# no suite that gates is a row MISSING or FAILED. Times are not judged: two pairs find nothing.
bench=$1 source=$2
. "${0%/*}/../../cli.sh"

compare() { # compare SUITE ARG...: must end with 0, and lack no row
    expect 0 'missing=0 incomparable=0 failed=0' timeout -k 1 100 "$bench" compare "$bench" "$bench" --suite "$@" --pairs 2 \
        --max-pairs 2 --gates "$source/baselines/gates.csv" --out "$1"
    rows=$(grep -c "^[a-z].* 2/2 " log)
    [[ $rows -ge 1 ]] || fail "$1: no row of two pairs"
}
step=(--model tiny --layers 1 --seq 16 --tuning lora)
compare backward "${step[@]}"
compare throughput "${step[@]}"
compare kernels --filter '*/rmsnorm_fwd?dtype=f32*'
compare attention --filter '*/fwd?*seq=256&topk=32*'
for suite in $(tail -n +2 "$source/baselines/gates.csv" | grep -E ',(yes|pairs)$' | cut -d, -f1 | sort -u); do
    [[ -d $suite ]] || fail "suite $suite gates, but is not compared here"
done
exit $((failures > 0))
