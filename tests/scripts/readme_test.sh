#!/bin/bash
# readme_test.sh BENCH SOURCE - scripts/readme: documents and figures from stored files, and what --check says when they
# differ.
bench=$1 source=$2
. "${0%/*}/../cli.sh"
readme() { python3 "$source/scripts/readme" --bench "$bench" --root f --machine f/machine "$@"; }
fine() { "$@" >"$dir/log" 2>&1 || fail "exit code $?: $*"; }
fresh() { rm -rf f && cp -r "$source/tests/fixtures/readme" f && touch f/docs/{attention,gate,results-cpu,results-h200,statistics}.md; }
golden() { # golden FILE: without the packages, which are those of the source tree
    diff <(sed '/table: dependencies/,/<!-- end/{/^| `/d}' "f/$1") "$source/tests/fixtures/readme/$1.golden" ||
        fail "another $1"
}

# ---- with all files -------------------------------------------------------------------------------------------------
fresh
expect 1 'is not what backward.csv gives' readme --check
grep -q '^-old$' "$dir/log" || fail "--check shows no diff"
[[ ! -e f/machine/crossover.svg ]] && cmp -s f/README.md "$source/tests/fixtures/readme/README.md" || fail "--check wrote"
fine readme
golden README.md
golden docs/more.md
grep -q '^| `gcc` | compiler | everyone |$' f/docs/more.md || fail "no packages"
fine readme --check
[[ -s $dir/log ]] && fail "--check prints something though all is right"
cp f/machine/crossover.svg once.svg
fine readme
cmp -s f/machine/crossover.svg once.svg || fail "the same files give another figure"
grep -q 'eager time / graphed time' once.svg || fail "the figure is not the crossover"
[[ $(grep -c '<title>gnuplot_plot_' f/machine/roofline.svg) -eq 6 ]] || fail "not two ceilings and four families of ops"
grep -q 'arithmetic intensity' f/machine/roofline.svg || fail "the figure is not the roofline"
grep -q 'tokens of a sequence' f/machine/attention.svg || fail "the figure is not that of attention"
[[ $(grep -c '<title>gnuplot_plot_' f/machine/attention.svg) -eq 3 ]] || fail "not a line for every list with two lengths"
[[ $(grep -c '<title>gnuplot_plot_' f/machine/dynmask.svg) -eq 2 ]] || fail "not dense and dynamic-mask attention of two lengths"

# ---- the range of order statistics that contains a median -------------------------------------------------------------
# Of 12 values 1 - 2 (1 + 12 + 66) / 2^12 for the third least to the third largest; fewer than 9: all.
PYTHONPATH="$source/scripts" fine python3 - <<'END'
from readme_tables import inner
for n, kept, sure in (5, [0, 4], 1 - 2 / 2**5), (6, [0, 5], 1 - 2 / 2**6), (12, [2, 9], 1 - 2 * 79 / 2**12):
    values, probability = inner([(i * 7) % n for i in range(n)] if n % 7 else list(range(n)))
    assert [values[0], values[-1]] == kept and abs(probability - sure) < 1e-12, (n, values, probability)
END

# ---- a requirement that two runs of suite profile judged: the newer one counts, whatever its file is called ---------------
for run in profile_cost:20260103T000000Z-profile-1:6e-08 profile_cost_bars:20260102T000000Z-profile-2:9e-08; do
    IFS=: read -r name id value <<<"$run"
    { head -n 1 f/machine/comm.csv && for process in 0 1 2; do
        echo "2,$id,cuda-nvidia-h200-132sm-00000000,$process,requirement/RANGE-RING-TSC?clock=tsc,requirement,1,none,$value,0,fail,a range costs little: seconds per range <= 5e-08; time-stamp counter: $value"
    done; } >f/machine/$name.csv
done
PYTHONPATH="$source/scripts" fine python3 - <<'END'
from readme_results import Stored
from readme_findings import judged_of, failed
stored = Stored("f/machine", "")
found = [(q.id, q.value, file) for q, file in judged_of(stored) if q.id == "RANGE-RING-TSC"]
assert found == [("RANGE-RING-TSC", 6e-08, "profile_cost.csv")], found
assert "measured median 6e-08, worst of 3 processes 6e-08 (tsc)" in failed(stored), failed(stored)
END
rm f/machine/profile_cost*.csv

# ---- a requirement that became stricter after the session was stored ---------------------------------------------------------
grep -q 'seq 512 .*seconds <= 0.034 | 1 of 1' f/docs/more.md || fail "the stored bound is not shown"
mkdir -p f/bench/derived
cat >f/bench/derived/requirements.def <<'END'
REQUIREMENT_ON_CASES("SPEED-STEP-1.5B-B4-S512", "a whole QLoRA step "
    "as one graph", "seconds", "<=", 24e-3 * 1, h200, step_time, lowest,
END
expect 1 '| at most 24.0 ms | **failed** |' readme --check
grep -q '^+.*seconds <= 0.024 | 0 of 1' "$dir/log" || fail "the list of requirements has the old bound"
rm -r f/bench

# ---- documents that differ from the files --------------------------------------------------------------------------------
sed -i 's/| 42.4 us |/| 40.0 us |/' f/README.md
expect 1 '+| NF4 dequantise, 14336 x 4096 | `table` | 42.4 us |' readme --check
fine readme
sed -i 's/| 6.60 ms |/| 6.50 ms |/' f/docs/more.md
expect 1 '+| qwen2.5-0.5b | qlora | 1 | 128 | 6.60 ms |' readme --check
fine readme
sed -i 's/,0.0041,/,0.0051,/' f/machine/backward.csv # new values, old tables
expect 1 'crossover.svg: is not what backward.csv gives' readme --check
grep -qF '| 5.10 ms |' "$dir/log" || fail "the diff lacks the new figure"
fine readme
sed -i 's/Produced by GNUPLOT [0-9.]*/Produced by GNUPLOT 1.0/' f/machine/crossover.svg
expect 0 'drawn by another gnuplot: not compared' readme --check
sed -i 's/(docs\/more.md)/(docs\/less.md)/' f/README.md
expect 1 'README.md: no file docs/less.md' readme --check
sed -i '/table: cpu -->/,/<!-- end/d' f/docs/more.md
expect 1 "no document has the table 'cpu'" readme --check

# ---- without a file its tables are empty, and nothing else changes --------------------------------------------------------
fresh
fine readme
rm f/machine/backward.csv f/machine/peers.csv
expect 1 'crossover.svg: has nothing to show' readme --check
fine readme
[[ ! -e f/machine/crossover.svg ]] || fail "a figure of nothing"
grep -q 'CUDA graph gain\|Hugging Face\|cuDNN' f/README.md f/docs/more.md && fail "a row without its file"
grep -q '26.1 ms | 5.30 GB | at most 34.0 ms | met |$' f/README.md || fail "the steps without peers"
sed -i 's/,0.0036,/,0.0037,/' f/machine/attention.csv
expect 1 'attention.svg: is not what attention.csv gives' readme --check
rm -r f/machine/*.csv f/machine/validation f/cpu-test
fine readme
[[ ! -e f/machine/attention.svg ]] || fail "a figure of no attention"
[[ $(sed '/^old$/d' "$source/tests/fixtures/readme/README.md") == "$(cat f/README.md)" ]] || fail "tables of nothing"

# ---- several sessions: their median, and the verdicts of the newest --------------------------------------------------------
fresh
sed -n 's/,baseline:/,baseline:z/; 2,$s/,fail,/,pass,/; 2,$p' f/machine/kernels.csv >later
cat later >>f/machine/kernels.csv
fine readme
grep -q 'kernels.csv`, median of 2 sessions of 3 processes' f/README.md || fail "two sessions are not named"
grep -v dequantize later >part # a row that only the first two sessions have
sed 's/,baseline:z/,baseline:y/' part >>f/machine/kernels.csv
fine readme
grep -q 'kernels.csv`, median of 2 to 3 sessions of 3 processes' f/README.md || fail "rows of unequal numbers of sessions"
sed -i '/,baseline:y/d' f/machine/kernels.csv
fine readme
grep -q 'cross-entropy with gradient.*| met |$' f/README.md || fail "an old verdict outlives a new one"
sed 's/,baseline:z/,baseline:a/; s/,pass,/,fail,/' later >>f/machine/kernels.csv
fine readme
grep -q 'cross-entropy with gradient.*| met |$' f/README.md || fail "an old verdict comes after a new one"

# ---- errors ----------------------------------------------------------------------------------------------------------------
fresh
sed -i 's/table: steps/table: stairs/' f/README.md
expect 2 "README.md: no table 'stairs' exists" readme
fresh
sed -i '0,/<!-- end -->/{/<!-- end -->/d}' f/docs/more.md
expect 2 'more.md: a table has no <!-- end -->' readme
fresh
sed -i 's/: seconds <= 0.00125; .*/"/' f/machine/kernels.csv
expect 2 'the note is not `statement: metric relation bound; how`' readme
fresh
sed -i '2s/,4.2e+12,/,much,/' f/machine/backward.csv
before=$(md5sum f/README.md)
expect 2 'readme: ' readme
printf 'x\n' >>f/machine/backward.csv
expect 2 'readme: ' readme
[[ $(md5sum f/README.md) == "$before" ]] || fail "a README from bad files"
expect 2 'README.md: no such file' python3 "$source/scripts/readme" --root nowhere --machine f/machine --bench "$bench"

# ---- a run of suite profile becomes the file of its table -----------------------------------------------------------------------
mkdir run && cp "$source/tests/fixtures/readme/cpu-test/profile_cost.csv" run/results.csv
printf '{"suite": "profile", "machine_id": "cpu-test", "truncated": false}' >run/run.json
ends() { echo 'process,start_utc,seconds,outcome,retry_of,reason' && for p in 0 1 2 3 4; do echo "$p,t,1,${1:-ok},,"; done; }
ends >run/processes.csv
sed 's/cpu-test,0,/cpu-test,5,/' run/results.csv | grep 'cpu-test,5,' >more && cat more >>run/results.csv
sed -n '2s/?/?control=second\&/p' run/results.csv >more && [[ -s more ]] && cat more >>run/results.csv # a control case
echo '5,t,1,throttled,,load' >>run/processes.csv
store() { python3 "$source/scripts/store-profile-cost" "$@"; }
expect 0 '5 processes; 1 that were disturbed or cut short are left out' store run stored
cmp -s stored/cpu-test/profile_cost.csv "$source/tests/fixtures/readme/cpu-test/profile_cost.csv" || fail 'other rows are stored'
sed -i 's/throttled,,load/interrupted,,Terminated/' run/processes.csv # ended by a time limit in its last process
sed -i 's/false/true/' run/run.json
expect 0 '5 processes; 1 that were disturbed or cut short are left out' store run short
cmp -s short/cpu-test/profile_cost.csv stored/cpu-test/profile_cost.csv || fail 'a run that was cut short is stored otherwise'
cp -r run two && sed -i 's/&rank=[0-9]*&/&ranks=2\&/' two/results.csv
expect 0 'profile_cost_ranks2.csv: 5 processes' store two stored
ends throttled >run/processes.csv
expect 2 'run: 0 undisturbed processes of 5, need 5' store run other
ends >run/processes.csv
sed -i '2s/,ok,/,profiled,/' run/results.csv
expect 2 'is profiled' store run other
sed -i 's/"profile"/"kernels"/' run/run.json
expect 2 'not a run of suite profile' store run other
[[ ! -e other ]] || fail 'a refused run was stored'

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
