#!/bin/bash
# instructions_test.sh BENCH SOURCE - bench run --instructions: what it refuses and why, that callgrind's count of one
# case is the same in two processes and in two runs, that such a run has no times, and that a larger count fails a
# comparison.
bench=$1 source=$2
. "${0%/*}/../../cli.sh"

table "$bench" run --device cpu --no-compare <<'EOT'
--suite kernels --instructions callgrind --threads 2     | 2 | --instructions excludes --threads: only one thread
--suite kernels --instructions callgrind --samples 5     | 2 | --instructions excludes --samples: calls of each case are counted
--suite kernels --instructions callgrind --min-time 1    | 2 | --instructions excludes --min-time
--suite kernels --instructions callgrind --ceilings yes  | 2 | --instructions excludes --ceilings yes: ceilings are times
--suite kernels --instructions callgrind --device cuda   | 2 | --instructions excludes --device: only the instructions of a CPU
--suite throughput --instructions callgrind              | 2 | suite throughput is measured by its times; instructions are counted in
--suite kernels --instructions cachegrind                | 2 | cachegrind
EOT

# A system that refuses its counter says why; one that has it counts.
case='kernels/swiglu_fwd?dtype=f32*S5.I1000*'
count() { # count FOLDER OPTION...
    "$bench" run --suite kernels --filter "$case" --no-compare --out "$@" >log 2>&1
}
count perf --instructions perf --processes 1
got=$?
if [[ $got -eq 125 ]]; then
    grep -qE '^bench: --instructions perf: (the system forbids it|this machine offers no counter|perf_event_open: )' log ||
        fail 'perf is refused without its reason'
    [[ $(wc -l <log) -eq 1 && ! -e perf ]] || fail 'a refusal is more than one line, or leaves files'
else
    [[ $got -eq 0 ]] && grep -q ',instructions,1,none,[1-9]' perf/results.csv || fail 'perf counts nothing'
fi

# Without Valgrind the message names the package.
PATH=/nonexistent "$bench" run --suite kernels --filter "$case" --instructions callgrind --out none >log 2>&1
[[ $? -eq 125 && ! -e none ]] || fail 'without valgrind: another exit code than 125, or files are left'
grep -q 'install the package valgrind' log || fail 'without valgrind: the package is not named'

if ! grep -q 'valgrind/callgrind.h' log && command -v valgrind >/dev/null; then
    count one --instructions callgrind --processes 2 || fail 'callgrind does not count'
    count two --instructions callgrind --processes 1 --threads 1 || fail 'callgrind does not count with one thread'
    [[ $(grep -c ',instructions,1,none,[1-9][0-9]*,0,ok,' one/results.csv) -eq 2 ]] || fail 'not one count in each process'
    ! grep -qE '_time,|_rate,|_flops,FLOP/s|roofline' one/results.csv || fail 'a counting run has times'
    ! ls one | grep -q callgrind || fail "callgrind's files are left"
    # 5000 elements, 8 at a time, some tens of instructions each.
    least=$(awk -F, '$6 == "instructions" { print $9; exit }' one/results.csv)
    [[ $least -gt 5000 && $least -lt 500000 ]] || fail "one call of 5000 elements has $least instructions"
    grep -q '"instructions": "callgrind-' one/run.json || fail 'run.json does not say what counted'
    ! grep -q 'impl=avx512' one/results.csv || fail 'the key names an instruction set that Valgrind does not have'

    judge() { # judge CODE TEXT FACTOR: compares `one` with a copy that has FACTOR times as many instructions
        cp -r one changed
        awk -F, -v OFS=, -v f="$3" '$6 == "instructions" { $9 = int($9 * f) } 1' one/results.csv >changed/results.csv
        expect "$1" "$2" "$bench" compare --gates "$source/baselines/gates.csv" one changed
        rm -r changed
    }
    expect 0 ' equal' "$bench" compare --gates "$source/baselines/gates.csv" one two
    ! grep -q REGRESSED log || fail 'the same program differs from itself'
    judge 1 'REGRESSED: exact, ' 1.3
    judge 0 ' better' 0.7
    judge 0 ' equal' 1.004
    # A run that counts nothing is no run that lost a counter.
    mkdir timed && sed '/,instructions,/d' one/results.csv >timed/results.csv
    sed '/"instructions": "callgrind-/d' one/run.json >timed/run.json
    expect 0 '' "$bench" compare --gates "$source/baselines/gates.csv" one timed
    # Other flags of the compiler give another number of instructions.
    cp -r two other
    sed -i 's/"flags": "/&-O1 /' other/run.json
    awk -F, -v OFS=, '$6 == "instructions" { $9 *= 2 } 1' two/results.csv >other/results.csv
    expect 0 'not comparable' "$bench" compare --gates "$source/baselines/gates.csv" one other
else
    echo 'skipped: counting by callgrind, because valgrind is not installed or the build lacks its header'
fi

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
