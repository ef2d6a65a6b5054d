#!/bin/bash
# counted_test.sh BENCH - bench run --counters: what it refuses and why, that a machine that cannot count leaves no files,
# that counted rows are in results.csv and nothing is timed, and that a group whose metrics do not exist is refused.
bench=$1
. "${0%/*}/../../cli.sh"

table "$bench" run --device cpu --no-compare --out none <<'EOT'
--suite kernels --counters NOPE                       | 2 | there is no metric group 'NOPE'; there are CACHE, CPU, L2
--suite kernels --counters MEM                        | 2 | this group is for the chip GH100, and the run is on cpu
--suite kernels --counters TIMELINE --device cuda     | 2 | --counters TIMELINE: this group is sampled over time, not counted
--suite kernels --counters SYSTEM --device cuda       | 2 | this group is for cpu, and the run is on cuda
--suite backward --counters SYSTEM                    | 2 | suite backward measures graphs, steps or ranks
--suite kernels --counters SYSTEM --samples 3         | 2 | --counters excludes --samples: each case is counted in 10 calls
--suite kernels --counters SYSTEM --min-time 1        | 2 | --counters excludes --min-time
--suite kernels --counters SYSTEM --threads 2         | 2 | --counters excludes --threads: the events of one thread are counted
--suite kernels --counters SYSTEM --ceilings yes      | 2 | --counters excludes --ceilings yes: ceilings are times
--suite kernels --counters SYSTEM --instructions perf | 2 | --counters excludes --instructions: both count
--suite kernels --counters SYSTEM --profile-out here  | 2 | --counters excludes --profile-out: a trace and counters never
--suite ceiling --counters SYSTEM --ranks 2           | 2 | --counters excludes --ranks: a kernel that waits for another rank
EOT

case='kernels/swiglu_fwd?dtype=f32*'
count() { # count FOLDER OPTION...
    "$bench" run --suite kernels --filter "$case" --no-compare --no-keep --processes 1 --out "$@" >log 2>&1
}

# A group that needs counters of the processor: counted, or refused in one line and without files.
count processor --counters CPU
case $? in
0) grep -q ',cpu_cycles,1,none,[1-9]' processor/results.csv || fail 'no cycles are counted' ;;
125)
    grep -qE '^bench: --counters CPU: (the system forbids it|this machine offers no counter|perf_event_open of)' log ||
        fail "a refusal without its reason: $(cat log)"
    [[ $(wc -l <log) -eq 1 && ! -e processor ]] || fail 'a refusal is more than one line, or leaves files'
    ;;
*) fail "another exit code: $(cat log)" ;;
esac

# The system counts page faults itself; a sandbox may refuse even that.
count system --counters SYSTEM
case $? in
0)
    [[ $(grep -cE ',(page_faults|context_switches|cpu_migrations),1,none,[0-9.]+,10,ok,' system/results.csv) -eq 3 ]] ||
        fail 'not one row for each metric of the group'
    ! grep -qE '_time,|_rate,|roofline|kernel_launches' system/results.csv || fail 'a counting run has times'
    grep -q '"counters": "SYSTEM of cpu"' system/run.json || fail 'run.json does not say what was counted'
    expect 2 '--counters' "$bench" run --resume system --counters CPU
    # Stored sessions have times and their ratios, which a run that counts does not lack.
    mkdir stored && cp "${0%/*}/../../../baselines/gates.csv" stored
    expect 0 results "$bench" run --suite kernels --filter 'kernels/swiglu_fwd?*' --no-compare --no-keep --processes 3 --samples 5 \
        --min-time 0 --ceilings no --out timed
    # A build with sanitizers cannot store its times; their values do not matter here.
    sed -i 's/-fsanitize=[a-z,]*//' timed/run.json
    expect 0 saved "$bench" baseline save timed --baseline stored --subset --reason test
    grep -q 'swiglu_fwd.*,bf16_over_f32,' stored/*/kernels.csv || fail 'the sessions have no ratio that gates'
    expect 0 ' missing=0 ' "$bench" compare system --baseline stored
    mv system/run.json kept && expect 4 ' missing=1 ' "$bench" compare system --baseline stored # as a timed run
    mv kept system/run.json
    ;;
125) grep -q '^bench: --counters SYSTEM: the system forbids it' log || fail "refused: $(cat log)" ;;
*) fail "another exit code: $(cat log)" ;;
esac

mkdir groups
printf 'SHORT s\nCHIP cpu\nPASSES 1\nEVENTS\na page-faults\nMETRICS\nno_such_metric 1 a\n' >groups/MINE.txt
PB_GROUPS=$PWD/groups count mine --counters MINE
[[ $? -eq 2 ]] && grep -q "group MINE: there is no metric 'no_such_metric'" log || fail 'an unknown metric is accepted'
printf 'SHORT s\nCHIP cpu\nPASSES 1\nEVENTS\na page-faults\nMETRICS\npage_faults 1 a +\n' >groups/MINE.txt
PB_GROUPS=$PWD/groups count mine --counters MINE
[[ $? -eq 2 ]] && grep -q 'groups/MINE.txt:7: the formula is wrong: a name, a number or a parenthesis is missing' log ||
    fail 'a wrong formula is accepted'
[[ ! -e mine ]] || fail 'a refused group leaves files'
PB_GROUPS=$PWD/groups expect 2 'MINE.txt:7: the formula is wrong' "$bench" list groups
expect 0 '    dram_rate                B/s   (read + write) / (time * 1e-9)' "$bench" list groups

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
