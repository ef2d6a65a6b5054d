#!/bin/bash
# convergence_test.sh BENCH SOURCE - suite convergence: the rows of a run, equal in every process and as a graph; the
# comparison with stored losses; a run that learns nothing; a pretrained model that knows less than nothing.
bench=$1 source=$2
. "${0%/*}/../../cli.sh"

# measure OUT ARG...: trains `tiny` for 60 steps.
measure() {
    local out=$1
    "$bench" --suite convergence --model tiny --steps 60 --tuning full --moments "${MOMENTS:-f32}" -n 1 --out "$out" "${@:2}" >log 2>&1
}
value() { awk -F, -v metric="$2" '$6 == metric { print $9, $11 }' "$1/results.csv"; }

measure a --no-compare || fail "a run: $(tail -n 1 log)"
for metric in first_loss loss_at_50 last_loss; do
    [[ $(value a $metric) =~ ^[1-9]\.[0-9]+\ ok$ ]] || fail "$metric: $(value a $metric)"
done
[[ $(value a skipped_steps) == '0 ok' ]] || fail "skipped_steps: $(value a skipped_steps)"
! grep -q '^[^,]*,[^,]*,[^,]*,[^,]*,ceiling/' a/results.csv || fail 'a suite that times nothing has ceilings'
awk -v f="$(value a first_loss)" -v m="$(value a loss_at_50)" 'BEGIN { exit !(f + 0 > m + 0.05) }' ||
    fail 'the loss does not fall'

# Threads and graphs change nothing.
measure b --no-compare --threads 1 --mode graph || fail "as a graph: $(tail -n 1 log)"
for metric in first_loss loss_at_50 last_loss; do
    [[ $(value a $metric) == "$(value b $metric)" ]] || fail "$metric: $(value a $metric) eager, $(value b $metric) as a graph"
done

# Moments in 8 bits are another case, with other losses.
MOMENTS=8bit measure m --no-compare || fail "moments in 8 bits: $(tail -n 1 log)"
grep -q '&moments=8bit&' m/results.csv || fail 'the key does not name the format of the moments'
[[ $(value m last_loss) =~ ok$ && $(value m last_loss) != "$(value a last_loss)" ]] || fail "8 bits: $(value m last_loss)"

# Stored losses gate: a loss that is higher by more than the bound fails, a lower one does not.
mkdir stored && cp "$source/baselines/gates.csv" stored/
expect 0 'counters from' "$bench" baseline counters a --baseline stored --reason test
measure c --baseline stored || fail "against its own losses: $(tail -n 3 log)"
grep -qE '^note: exact counters against .*: 4 equal$' log || fail "not four equal counters: $(grep exact log)"
sed -i -E '/,last_loss,/s/,last_loss,([^,]*,[^,]*,)[0-9.]+/,last_loss,\14/' stored/exact/convergence.csv
grep -q ',last_loss,.*4' stored/exact/convergence.csv || fail "the stored loss was not changed: $(grep last_loss stored/exact/convergence.csv)"
expect 1 'REGRESSED' "$bench" --suite convergence --model tiny --steps 60 --tuning full --moments f32 -n 1 --out d --baseline stored

# A learning rate of nearly nothing is not an option of the suite; too few steps are refused.
expect 2 'need 20 to 1000000' "$bench" --suite convergence --model tiny --steps 19 -n 1 --dry-run

# Random weights of a user's folder: above the loss of equal probabilities.
head -n 20 "$source/data/corpus.jsonl" >few.jsonl
"$bench" --suite convergence --model "$source/tests/fixtures/hf/llama" --tokenizer bytes --data few.jsonl --steps 20 --batch 1 \
    -n 1 --no-compare --out e >log 2>&1 && fail 'a damaged model passes'
[[ $(value e first_loss) == *wrong ]] && grep -q 'above ln V = 5.768' e/results.csv || fail "random weights: $(value e first_loss)"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
