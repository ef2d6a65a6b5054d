#!/bin/bash
# readme_test.sh BENCH SOURCE - scripts/readme: makes a README and a figure from stored files, and --check reports when
# they differ.
bench=$1 source=$2
. "${0%/*}/cli.sh"
readme() { python3 "$source/scripts/readme" --bench "$bench" --readme f/README.md --machine f/machine "$@"; }
fine() { "$@" >"$dir/log" 2>&1 || fail "exit code $?: $*"; }
fresh() { rm -rf f && cp -r "$source/tests/fixtures/readme" f; }

# ---- with all files -------------------------------------------------------------------------------------------------
fresh
expect 1 'is not what backward.csv gives' readme --check
grep -q '^-old$' "$dir/log" || fail "--check shows no diff"
[[ ! -e f/machine/crossover.svg ]] && cmp -s f/README.md "$source/tests/fixtures/readme/README.md" || fail "--check wrote"
fine readme
diff f/README.md "$source/tests/fixtures/readme/README.golden" || fail "another README"
fine readme --check
[[ -s $dir/log ]] && fail "--check speaks of what is right"
cp f/machine/crossover.svg once.svg
fine readme
cmp -s f/machine/crossover.svg once.svg || fail "the same files give another figure"
grep -q 'eager time / graphed time' once.svg || fail "the figure is not the crossover"
grep -q 'tokens of a sequence' f/machine/attention.svg || fail "the figure is not that of attention"
[[ $(grep -c '<title>gnuplot_plot_' f/machine/attention.svg) -eq 3 ]] || fail "not a line for every list with two lengths"

# ---- differences -----------------------------------------------------------------------------------------------------
sed -i 's/| 42.4 us |/| 40.0 us |/' f/README.md
expect 1 '+| NF4 dequantise, 14336 x 4096 | 42.4 us |' readme --check
fine readme
sed -i 's/,0.0041,/,0.0051,/' f/machine/backward.csv # new values, old tables
expect 1 'crossover.svg: is not what backward.csv gives' readme --check
grep -qF '| 5.10 ms |' "$dir/log" || fail "the diff lacks the new figure"
fine readme
sed -i 's/Produced by GNUPLOT [0-9.]*/Produced by GNUPLOT 1.0/' f/machine/crossover.svg
expect 0 'drawn by another gnuplot: not compared' readme --check

# ---- when a file is missing, its sections are left out and nothing else changes --------------------------------------
rm f/machine/backward.csv f/machine/peers.csv
expect 1 'crossover.svg: has nothing to show' readme --check
fine readme
[[ ! -e f/machine/crossover.svg ]] || fail "a figure of nothing"
grep -q 'CUDA graph buys\|crossover.svg\|Hugging Face' f/README.md && fail "a section without its file"
grep -q '26.1 ms | 5.30 GB | at most 34.0 ms | met |$' f/README.md || fail "the steps without peers"
sed -i 's/,0.0036,/,0.0037,/' f/machine/attention.csv
expect 1 'attention.svg: is not what attention.csv gives' readme --check
grep -q '^+.*| 3.70 ms |.*| - / 3.30 ms |' log && fail "peers without their file"
rm -r f/machine/*.csv f/machine/proof
fine readme
[[ ! -e f/machine/attention.svg ]] || fail "a figure of no attention"
[[ $(sed '/^old$/d' "$source/tests/fixtures/readme/README.md") == "$(cat f/README.md)" ]] || fail "tables of nothing"

# ---- several sessions: their median, and the newest one's verdicts ---------------------------------------------------
fresh
sed -n 's/,baseline:/,baseline:z/; 2,$s/,fail,/,pass,/; 2,$p' f/machine/kernels.csv >later
cat later >>f/machine/kernels.csv
fine readme
grep -q 'kernels.csv`, median of 2 sessions of 3 launches' f/README.md || fail "two sessions are not said"
grep -q 'cross-entropy with gradient.*| met |$' f/README.md || fail "an old verdict outlives a new one"
sed 's/,baseline:z/,baseline:a/; s/,pass,/,fail,/' later >>f/machine/kernels.csv
fine readme
grep -q 'cross-entropy with gradient.*| met |$' f/README.md || fail "an old verdict comes after a new one"

# ---- refused input ---------------------------------------------------------------------------------------------------
fresh
sed -i 's/table: steps/table: stairs/' f/README.md
expect 2 "there is no table 'stairs'" readme
fresh
sed -i '0,/<!-- end -->/{/<!-- end -->/d}' f/README.md
expect 2 'has no <!-- end -->' readme
fresh
sed -i '2s/,4.2e+12,/,much,/' f/machine/backward.csv
before=$(md5sum f/README.md)
expect 2 'readme: ' readme
printf 'x\n' >>f/machine/backward.csv
expect 2 'readme: ' readme
[[ $(md5sum f/README.md) == "$before" ]] || fail "a README from bad files"
expect 2 'readme: ' python3 "$source/scripts/readme" --readme nowhere.md --machine f/machine --bench "$bench"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
