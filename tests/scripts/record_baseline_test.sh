#!/bin/bash
# record_baseline_test.sh SOURCE - scripts/record-baseline with a bench that is a script: what it measures and stores,
# and what it does when a suite fails or the machine is busy.
source=$1
. "${0%/*}/../cli.sh"
unset PROCESSES ARGUMENTS DEVICE
cat >bench <<'SH'
#!/bin/bash
echo "$*" >>"$LOG"
[[ $* != *"--suite $FAILING "* ]] || exit 4
[[ $* != *"baseline update "*"-$REFUSED-"* ]] || exit 2
SH
chmod +x bench
export BENCH=$dir/bench LOG=$dir/calls FORCE=1 RUNS=$dir/runs BASELINES=$dir/stored FAILING=none REFUSED=none
record() { : >"$LOG" && "$source/scripts/record-baseline" "$@"; }

expect 0 '' record
grep -q -- '^--suite backward --device cpu --processes 5 --out .*/runs/baseline-backward-' calls || fail "the default suite"
grep -q '^baseline update .*/runs/baseline-backward-.* --baseline .*/stored --reason recorded by scripts/record-baseline$' calls ||
    fail "not stored"
DEVICE=cuda ARGUMENTS='--threads 2' expect 0 '' record kernels 'a reason'
grep -q -- '--suite kernels --device cuda .* --no-compare --threads 2$' calls || fail "device or arguments"
grep -q -- '--reason a reason$' calls || fail "another reason"

all='ceiling backward throughput optimizer attention kernels load convergence comm profile self'
expect 0 '' record --all
[[ $(sed -n 's/^--suite \([a-z]*\) .*--processes 3 .*/\1/p' calls | paste -sd' ') == "$all" ]] || fail "not all suites"
[[ $(sed -n 's/^baseline update .*baseline-\([a-z]*\)-.*/\1/p' calls | paste -sd' ') == "$all" ]] || fail "not all stored"
FAILING=throughput expect 4 'throughput is not stored: exit code 4' record --all
[[ $(grep -c '^--suite' calls) -eq 11 && $(grep -c '^baseline update' calls) -eq 10 ]] || fail "a failed suite cost another"
REFUSED=kernels FAILING=load expect 4 'kernels is not stored: exit code 2' record --all

[[ $(grep -c -- '--ranks 2' calls) -eq 1 ]] && grep -q -- '^--suite comm .* --ranks 2$' calls || fail "comm without two ranks"

# The suites of --all exist, and are all suites.
for suite in $all; do
    grep -q "^SUITE($suite)" "$source/bench/suites/suites.def" || fail "no suite $suite"
done
[[ $(grep -c '^SUITE(' "$source/bench/suites/suites.def") -eq 11 ]] || fail "--all does not know a new suite"
sed "s|/proc/loadavg|$dir/loadavg|" "$source/scripts/record-baseline" >busy && chmod +x busy
mkdir -p there/scripts && mv busy there/scripts/record-baseline && echo '0.80 1 1' >loadavg
FORCE='' expect 2 'the load is 0.80' there/scripts/record-baseline
exit $((failures > 0))
