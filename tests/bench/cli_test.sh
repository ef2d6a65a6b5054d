#!/bin/bash
# cli_test.sh BENCH_FIXTURE BENCH - the program bench as a user sees it: exit codes, hints, interrupts, crashes, a full
# disk. BENCH_FIXTURE is bench with the suites of fixture_suites.c.
fixture=$1 bench=$2
. "${0%/*}/../cli.sh"

rows() { tail -n +2 "$1/results.csv"; } # rows DIR: the rows of its results
count() { rows "$1" | grep -cF -e "$2"; } # count DIR TEXT: number of rows that contain the text
whole() { # whole DIR: must have one header, and all columns in every row
    [[ $(grep -c '^bench_version,' "$1/results.csv") -eq 1 ]] || fail "$1: the header is missing or repeated"
    [[ $(sed 's/"[^"]*"//g' "$1/results.csv" | awk -F, 'NF != 14' | wc -l) -eq 0 ]] ||
        fail "$1: a line has the wrong number of fields"
    [[ -z $(tail -c 1 "$1/results.csv") ]] || fail "$1: the last line has no newline"
}

"$fixture" --version | grep -qxE 'bench [0-9]+\.[0-9]+\.[0-9]+, commit ([0-9a-f]{7,}|unknown)' || fail "--version: $("$fixture" --version)"

# ---- the table: arguments | exit code | text ---------------------------------------------------------
table "$fixture" <<'TABLE'
help                                     |   0 | exit codes
--help                                   |   0 | usage: bench COMMAND
-h                                       |   0 | naps that behave
--version                                |   0 | , commit
version                                  |   0 | , commit
version 2                                |   2 | version takes no arguments
help run                                 |   0 | --processes N
run --help                               |   0 | fresh processes
help rum                                 |   2 | 'rum' is not a command; did you mean 'run'?
list                                     |   0 | --width [16]
help compare                             |   0 | --allow-mismatch
report /proc/nowhere                     |   2 | nowhere
plot                                     |   2 | runs
list models                              |   0 | smollm2-135m
list suites                              |   0 | toy          naps that behave as their mode says
list suites                              |   0 | --batch [1,2,8]
--suite toy --batch 1,,2                 |   2 | axis batch: '1,,2' has an empty value
--suite toy --batch 1,                   |   2 | axis batch: '1,' has an empty value
list columns                             |   0 | what became of the row: ok, throttled, pass
list statuses                            |   0 | timeout        the case hung
list --columns                           |   0 | note
list metrics                             |   0 | backward_time
list metric                              |   2 | did you mean 'metrics'?
list requirements                        |   0 | highest roofline_fraction of kernels/rope_fwd?dtype=bf16&shape=
list formats                             |   0 | benchfmt
export --to nothing                      |   2 | unknown format 'nothing'
export --to bmf --better lower           |   2 | --better is only for --to gab
export --to gab                          |   2 | writes one direction per file
--suite kernels --samples 2000           |   2 | --samples 2000: at most 1024
--suite kernels --gates /nope.csv        |   2 | --gates /nope.csv: No such file
compare no/base no/head --suite kernels  |   2 | no/base: No such file
compare --self --must-find 10            |   2 | 10% or 1000%?
import nvbench                           |   2 | name at least one result file of nvbench
import nccl-test x                       |   2 | did you mean 'nccl-tests'?
import nvbench /proc/nowhere             |   2 | nowhere
report --format html                     |   2 | need one of text|markdown|junit
completion bash                          |   0 | complete -F _bench bench
completion zsh                           |   2 | bench completion bash
rnu                                      |   2 | 'rnu' is not a command; did you mean 'run'?
run                                      |   2 | no suite is given: --suite NAME, one of ceiling, toy
--suite tyo                              |   2 | there is no suite 'tyo'; did you mean 'toy'?
--suite                                  |   2 | option --suite needs a value
--suite toy --dry-run                    |   0 | 48 s  in all: 3 processes of 5 cases
--suite toy --dry-run --grid full        |   0 | toy/step?batch=8&mode=fine&width=32
--suite toy --dry-run --grid full -n 1   |   0 | 1 processes of 10 cases
run --suite toy --grid fell              |   2 | did you mean 'full'?
--suite toy --dry-run --batch 4 --width=8|   0 | toy/other?batch=4&mode=fine&width=8
--suite toy --dry-run --batch 4 -n 1     |   0 | 1 processes of 4 cases
--suite toy --dry-run -abatch=1,4 -n 1   |   0 | 1 processes of 6 cases
--suite toy --dry-run -a batch=1 --batch 4 -n 1 | 0 | 1 processes of 6 cases
--suite toy --batsh 4                    |   2 | run has no option '--batsh'; did you mean '--batch'?
--suite toy -a bacth=4                   |   2 | suite toy has no axis 'bacth'; did you mean 'batch'?
--suite toy -a batch                     |   2 | axis batch: need NAME=V1,V2
--suite toy --batch 1/2                  |   2 | axis batch=1/2
--suite ceiling --batch 4                |   2 | suite ceiling has no axis 'batch'; it has none
--suite toy --mode never                 |   2 | mode never cannot be
--suite toy --mode few,never             |   2 | mode never cannot be
--suite toy --mode few --batch 1,8       |   2 | mode few cannot be with batch 8
--suite toy --mode few other             |   2 | mode few cannot be with batch 8
--suite toy --dry-run --mode few -n 1    |   0 | 1 processes of 4 cases
--suite toy --dry-run --mode few,fine -n 1 | 0 | 1 processes of 7 cases
--suite clumsy --dry-run                 |   2 | mode never cannot be
--suite clumsy --dry-run --impl blas     |   2 | mode never cannot be
--suite clumsy --dry-run --batch 2 -n 1  |   0 | 1 processes of 3 cases
--suite toy --dry-run other -n 1         |   0 | 1 processes of 3 cases
--suite toy --dry-run --filter *batch=2* |   0 | toy/step?batch=2
--suite toy --dry-run toy/step?batch=2&mode=fine&width=16 -n 1 | 0 | 1 processes of 3 cases
--suite toy othr                         |   2 | none of 3 cases of suite toy matches 'othr'; did you mean 'other'?
--suite toy --dry-run --impl blas        |   0 | toy/step?batch=1&impl=blas&mode=fine&width=16
--suite toy --processes 0                 |   2 | --processes 0: need a whole number from 1
--suite toy --processes=2x                |   2 | need a whole number
--suite toy --min-time -1                |   2 | need a number of seconds
--suite toy --quiet=yes                  |   2 | --quiet takes no value
--suite toy --device gpu                 |   2 | need one of cpu|cuda
--suite toy --dry-run --launches 2       |   0 | 2 processes of 5 cases
--suite toy --launches 0                 |   2 | --processes 0: need a whole number from 1
report --gate contracts                  |   2 | no run found
--suite toy --proceses 2                 |   2 | did you mean '--processes'?
--suite toy -Z                           |   2 | run has no option '-Z'
--suite toy --out /proc/nowhere/x        |   2 | --out /proc/nowhere: No such file or directory
--suite toy --out /dev/null/x            |   2 | --out /dev/null
TABLE

# ---- a whole run ---------------------------------------------------------------------------------------
expect 0 'results: a/results.csv' "$fixture" --suite toy --out a --seed 5
whole a
[[ $(count a ,kernel_time,) -eq 9 && $(count a ,copy_rate,) -eq 3 ]] ||
    fail "a: results.csv does not have 3 processes of 3 cases and of the ceilings"
[[ $(count a 'requirement/T-1,requirement,1,none,5,0,pass') -eq 3 ]] || fail "a: not one conclusion a process"
[[ $(rows a | head -1) == *ceiling/copy* ]] || fail "a: the ceilings are not first"
[[ $(tail -n +2 a/samples.csv | wc -l) -eq 27 ]] || fail "a: samples.csv does not have 3 samples per timed row"
grep -q '"truncated": false' a/run.json || fail "a: run.json does not say that the run is complete"
machine=$(rows a | head -1 | cut -d, -f3)
[[ $machine =~ ^cpu-.*-[0-9]+c-[0-9a-f]{8}$ ]] || fail "a: machine_id is '$machine'"
grep -qF "\"machine_id\": \"$machine\"" a/run.json || fail "a: run.json names another machine"
order() { rows "$1" | grep toy/ | cut -d, -f4,5; }
for i in 1 2 3 4 5 6 7 8; do expect 0 results "$fixture" --suite toy --out "o$i" --seed "$i" -n 1; done
[[ $(for i in 1 2 3 4 5 6 7 8; do order "o$i" | md5sum; done | sort -u | wc -l) -gt 1 ]] || fail "cases are not shuffled"
expect 0 results "$fixture" --suite toy --out b --seed 5
[[ $(order a) == "$(order b)" ]] || fail "the same seed gives another order"
expect 0 'too few for a comparison, which needs 3' "$fixture" --suite toy --out c --processes 2
PB_CONTROLS=maybe expect 2 'PB_CONTROLS=maybe: need one of yes|no, or no such variable' "$fixture" --suite toy --dry-run
PB_DISTURBANCE=ignor expect 2 'PB_DISTURBANCE=ignor: need one of ignore' "$fixture" --suite toy --dry-run
PB_DEBUG=sync,foo expect 2 "PB_DEBUG: 'foo' is not one of sync, trace" "$fixture" --suite toy --dry-run
PB_DEBUG=sync,trace expect 0 'in all' "$fixture" --suite toy --dry-run
secret=hunter2
PB_URL=https://u:$secret@h PB_PASS=$secret PB_AUTH=$secret PB_BEARER=$secret PB_SESSION=$secret PB_PRIVATE=$secret \
    CUDA_CRED=$secret CUDA_PW=$secret NCCL_AUTH=$secret NCCL_COOKIE=$secret OMP_X_KEY=$secret MY_TOKEN=$secret \
    PB_DATA=https://user:$secret@host/data NCCL_ALGO=Ring \
    expect 0 results "$fixture" --suite toy --out d -n 1 --threads 1 --baseline "ftp://u:$secret@h:21/@x"
grep -q '"NCCL_ALGO": "Ring"' d/run.json || fail "d: no environment is recorded"
grep -q '"PB_DATA": "https://host/data"' d/run.json || fail "d: the URL is not recorded without its user name"
grep -q '"ftp://h:21/@x"' d/run.json || fail "d: a URL in argv lost more than its user"
grep -q "$secret" d/* && fail "d: a credential is recorded"
grep -q '"threads": 1' d/run.json || fail "d: --threads is not recorded"

# The memory of a run and the size of run.json must not grow with the number of processes asked for, and --budget
# applies.
expect 125 'the budget is used up' timeout 60 "$fixture" --suite toy -n 1000000 --budget 1 --no-compare --quiet --out many
[[ $(stat -c %s many/run.json) -lt 1000000 ]] || fail "many: run.json has $(stat -c %s many/run.json) bytes"
expect 125 'the budget is used up' timeout 60 "$fixture" run --resume many --budget 1
expect 2 '--processes 2000000000: at most 1000000000' "$fixture" --suite toy --out more -n 2000000000
expect 2 'the axes give more than 20000 cases' "$fixture" --suite toy --dry-run --batch $(seq -s, 200) --width $(seq -s, 200)
[[ ! -e more ]] || fail "more: a folder was made for a run that was refused"

# An --out folder that holds results is not changed.
before=$(md5sum a/results.csv)
expect 2 '--out a: the folder is not empty' "$fixture" --suite toy --out a
[[ $(md5sum a/results.csv) == "$before" ]] || fail "a: the existing results.csv was changed"
# Nor is a folder with other files.
mkdir mine && touch mine/.file
expect 2 '--out mine: the folder is not empty' "$fixture" --suite toy --out mine
[[ $(ls -A mine) == .file ]] || fail "mine: files were left: $(ls -A mine)"
# A run whose process cannot start leaves no files.
FIXTURE_PLANNED=$dir/planned expect 125 'no memory for a process' "$fixture" --suite refused --out refused -n 1
[[ ! -e refused ]] || fail "a run that could not start left files: $(ls -d refused/*)"
mkdir closed && chmod 500 closed
if [[ $(id -u) -eq 0 ]]; then as=(setpriv --reuid 65534 --regid 65534 --clear-groups); chmod 755 "$dir"; else as=(); fi
expect 2 'Permission denied' "${as[@]}" "$fixture" --suite toy --out "$dir/closed/run"
[[ -z $(ls closed) ]] || fail "closed: something was written"

# ---- the table and the comparison at the end of a run ---------------------------------------------------
mkdir -p baselines
printf 'suite,metric,better,stored_limit,ceiling,gating\ntoy,kernel_rate,higher,0.1,,yes\n' >baselines/gates.csv
expect 0 'PASS' "$fixture" report a
expect 0 'saved baselines/' "$fixture" baseline save a -m 'for the test'
expect 0 'for the test' "$fixture" baseline show
expect 0 'inconclusive=4' "$fixture" --suite toy --out n1 # one session cannot show that a row is within 10 %
expect 2 'a reason is required: --reason TEXT' "$fixture" baseline update n1
expect 0 '2 sessions' "$fixture" baseline update n1 -m 'one more'
expect 2 'is already a session of this baseline' "$fixture" baseline update n1 -m 'once more'
expect 0 'is one of the sessions it is compared with' "$fixture" compare n1
expect 0 'against the mean of 2 sessions' "$fixture" compare n1 --explain
expect 0 'REGRESSED and IMPROVED need 5 sessions' "$fixture" compare a
expect 0 '2 sessions' "$fixture" baseline show
sleep 1.1 # run_ids have a resolution of one second
expect 0 'missing=0' "$fixture" --suite toy --out n2 --quiet other
grep -q '^ceiling' "$dir/log" && fail "n2: --quiet printed a table"
# n2 lacks cases: an older session keeps its rows of them
expect 0 '2 sessions (1 older dropped)' "$fixture" baseline update n2 --sessions 1 -m 'only this' --accept-regression # the old name of --subset
expect 0 '1 session,' "$fixture" baseline save a -m 'start over'
expect 0 'inconclusive=4' "$fixture" compare a n1
expect 2 'compare takes at most 2' "$fixture" compare a b n1
expect 0 'NO-BASELINE' "$fixture" --suite toy --out n3 --baseline elsewhere
expect 4 'NO-BASELINE' "$fixture" --suite toy --out n4 --baseline elsewhere --require-baseline
expect 0 'results: n5' "$fixture" --suite toy --out n5 --no-compare
grep -q BASELINE "$dir/log" && fail "n5: --no-compare compared"
expect 2 "must be save, update, counters or show; did you mean 'save'?" "$fixture" baseline sav
for f in baselines/*/toy.csv; do # make the baseline a thousand times faster
    awk -F, -v OFS=, '$6 == "kernel_rate" { $9 = "1e+12" } 1' "$f" >fast && mv fast "$f"
done
expect 0 'suspect=4' "$fixture" compare n1
ten_sessions baselines/*/toy.csv baseline:
expect 0 'SUSPECT: not confirmed' "$fixture" compare n1
expect 0 'suspect=4' "$fixture" --suite toy --out n6 --no-confirm
expect 1 'regressed=4' "$fixture" compare n6 --confirmed n1
expect 2 'n6/results.csv: is the candidate itself' "$fixture" compare n6 --confirmed n6
sed 's/,tests\//,elsewhere\//' n1/results.csv >elsewhere.csv
expect 0 'reference=3' "$fixture" compare elsewhere.csv # the sessions are of another host
expect 2 'was measured on another host' "$fixture" compare n6 --confirmed elsewhere.csv
expect 0 'against the sessions before: 4 ' "$fixture" baseline update n6 -m 'slower'
rm -r baselines

# ---- export and import ------------------------------------------------------------------------------------
expect 0 ':::MLLOG {' "$fixture" export a --to mllog
expect 0 'g.smaller.json' "$fixture" export a --to gab --out g.json
[[ -s g.smaller.json && -s g.bigger.json && ! -e g.json ]] || fail "gab: not two files"
expect 0 'g.txt' "$fixture" export a --to benchfmt --out g.txt
grep -q '^BenchmarkToy/step/batch=1/mode=fine/width=16 [0-9]* ' g.txt || fail "g.txt: no line of a case"
before=$(md5sum g.txt)
expect 2 'nowhere' "$fixture" export nowhere --to benchfmt --out g.txt
[[ $(md5sum g.txt) == "$before" && ! -e g.txt.new ]] || fail "g.txt: a failed export changed the file"
expect 2 'No such file' "$fixture" export a --to bmf --out no/such/x.json
before=$(md5sum <a/results.csv)
for same in a/results.csv ./a/../a/results.csv; do
    expect 2 'these are the results to be exported' "$fixture" export a --to benchfmt --out $same
done
mkdir alone && cp -r a alone/a
expect 2 'these are the results to be exported' "$fixture" export --runs alone --to benchfmt --out alone/a/results.csv
for other in alone/a/results.csv alone/a/run.json; do
    expect 2 "--out $other: this file belongs to a run: give another name" "$fixture" export a --to benchfmt --out $other
done
cd alone/a || exit
expect 2 'this file belongs to a run' "$fixture" export ../../a --to benchfmt --out samples.csv
cd "$dir" || exit
expect 0 alone/a/exported.txt "$fixture" export a --to benchfmt --out alone/a/exported.txt
[[ $(md5sum <a/results.csv) == "$before" ]] || fail 'a/results.csv: an export changed it'
# The newest run is the one that was written last, whatever its name.
mkdir named && cp -r a named/zebra && cp -r a named/apple && touch -d '1 hour ago' named/zebra/results.csv
expect 0 named/apple/results.csv "$fixture" report --runs named
touch -d '2 hours ago' named/apple/results.csv
expect 0 named/zebra/results.csv "$fixture" report --runs named
fixtures=${0%/*}/../fixtures/exchange
expect 0 'imported 32 rows from 2 files' "$fixture" import nccl-tests "$fixtures/nccl.txt" "$fixtures/nccl.txt" --out im
whole im
expect 4 'bus_bandwidth' "$fixture" report im
expect 2 '--out im: the folder is not empty' "$fixture" import nccl-tests "$fixtures/nccl.txt" --out im
printf 'x\n' >bad.csv
expect 2 "bad.csv:1: not nvbench's CSV" "$fixture" import nvbench bad.csv --out im2
[[ ! -e im2 ]] || fail "im2: a refused import created the folder"
head -c -1 "$fixtures/nccl.txt" >cut.txt
expect 2 'cut.txt:19: cut off' "$fixture" import nccl-tests cut.txt --out im2
sed '/Rank/d' "$fixtures/nccl.txt" >anonymous.txt
expect 0 'results: im3' "$fixture" import nccl-tests anonymous.txt --out im3
[[ $(count im3 "$machine") -eq $(rows im3 | wc -l) ]] || fail "im3: the rows do not have this machine's id"
[[ $(count im3 'the file names no machine; this machine is assumed') -eq $(rows im3 | wc -l) ]] ||
    fail "im3: a row lacks the note on the assumed machine"

# ---- statuses --------------------------------------------------------------------------------------------
expect 4 results "$fixture" --suite toy --mode failed,fine --out e -n 1
[[ $(count e ',outcome,1,none,,0,failed,the device said no') -eq 3 && $(count e ,ok,) -eq 8 ]] ||
    fail "e: results.csv does not have the expected rows"
expect 0 results "$fixture" --suite toy --mode unsupported --out f -n 1
[[ $(count f ',,0,unsupported,not on this device') -eq 3 ]] || fail "f: results.csv does not have the expected rows"
expect 4 results "$fixture" --suite toy --mode wrong --out g -n 1
expect 4 results "$fixture" --suite toy --mode nan --out h -n 1
[[ $(count h ',error,1,none,,0,failed,the value is not finite') -eq 3 ]] ||
    fail "h: results.csv does not have the expected rows"
cut -d, -f9 a/results.csv b/results.csv e/results.csv h/results.csv | grep -qi 'nan\|inf' && fail "a number is not finite"

# ---- a process that loses its device, or runs out of memory ---------------------------------------------------
expect 125 'bench: toy/step?batch=1&mode=lost&width=16: the device is lost: taken away on purpose' \
    "$fixture" --suite toy --mode lost,fine --batch 1 --out p --seed 3 step
[[ $(grep '^bench:' "$dir/log" | grep -vc warning) -eq 1 ]] || fail "p: stderr does not have exactly one line"
whole p
[[ $(count p 'mode=lost&width=16,outcome,1,none,,0,failed,the device is lost: taken away on purpose') -eq 1 ]] ||
    fail "p: results.csv does not have the expected rows"
[[ $(rows p | awk -F, '$4 == 0 && /,ok,/' | wc -l) -eq 6 ]] || fail "p: rows of the earlier process are missing"
[[ $(rows p | awk -F, '$4 == 1' | tail -n 1) == *,failed,* ]] || fail "p: cases were measured on a lost device"
[[ $(rows p | awk -F, '$4 == 2' | wc -l) -eq 0 ]] || fail "p: another process was started"
grep -q '"truncated": true' p/run.json || fail "p: run.json does not say truncated"
expect 125 'bench: toy/step?batch=1&mode=memory&width=16: ' "$fixture" --suite toy --mode memory,fine --batch 1 --out q step
grep -q 'results: q/results.csv' "$dir/log" || fail "q: no table after the run"
[[ $(count q ',outcome,1,none,,0,failed,') -eq 3 && $(count q ,kernel_time,) -eq 3 ]] ||
    fail "q: results.csv does not have the expected rows"
grep -q '"truncated": false' q/run.json || fail "q: run.json says truncated"

# ---- a process that crashes --------------------------------------------------------------------------------
expect 4 'process 1: ended by exit code 1 in toy/step' "$fixture" --suite toy --mode exit --batch 1 --out x step
[[ $(count x 'failed,the process was ended by exit code 1') -eq 1 && $(count x ,kernel_time,) -eq 2 ]] ||
    fail "x: results.csv does not have the expected rows"
export ASAN_OPTIONS=handle_segv=0 # AddressSanitizer must not catch the crash
expect 4 'process 1: killed by signal 11' "$fixture" --suite toy --mode crash --batch 1 --out i step
whole i
[[ $(count i 'failed,the process was killed by signal 11') -eq 1 ]] || fail "i: no row says that the process crashed"
[[ $(count i ,kernel_time,) -eq 2 && $(count i ,copy_rate,) -eq 3 ]] || fail "i: the other processes did not run"

# wait_for DIR TEXT: waits until a row of the results contains the text.
wait_for() {
    for _ in $(seq 200); do
        grep -qsF -e "$2" "$1/results.csv" && return
        sleep 0.05
    done
    fail "$1: no row with '$2' appeared"
}

"$fixture" --suite toy --mode slow --batch 1 --out j step >"$dir/log" 2>&1 & pid=$!
wait_for j matmul_rate
kill -KILL "$(cat /proc/$pid/task/$pid/children)"
wait_for j 'killed by signal 9'
wait_for j ',1,ceiling/matmul'
kill -TERM $pid
wait $pid
[[ $? -eq 125 ]] || fail "j: exit code after SIGTERM"

# ---- interrupts ------------------------------------------------------------------------------------------------
for signal in INT TERM; do
    "$fixture" --suite toy --mode slow --batch 1 --out "k$signal" step >"$dir/log" 2>&1 & pid=$!
    wait_for k$signal matmul_rate
    sleep 0.3
    kill -$signal $pid
    wait $pid
    [[ $? -eq 125 ]] || fail "k$signal: exit code"
    whole k$signal
    [[ $(count k$signal ',truncated,interrupted after ') -eq 1 ]] || fail "k$signal: no truncated row"
    [[ $(count k$signal _rate,) -eq 2 && $(rows k$signal | wc -l) -eq 3 ]] ||
        fail "k$signal: results.csv does not have the expected rows"
    grep -q '"truncated": true' k$signal/run.json || fail "k$signal: run.json does not say truncated"
    grep -qF 'interrupted; the rows measured so far are in' "$dir/log" || fail "k$signal: no line on stderr"
    n=$(tail -n +2 k$signal/samples.csv | wc -l)
    [[ $n -ge 1 && $n -lt 100 ]] || fail "k$signal: $n samples"
done

# ---- a full disk: files are limited to 1 KiB (too little for run.json) or 4 KiB (too little for samples.csv) ----
# A run that cannot create all of its files removes them, so that its folder can be used again.
for limit in 1 4; do
    (ulimit -f $limit; exec "$fixture" --suite toy --batch $(seq -s, 30) --out l$limit -n 1 step) >"$dir/log" 2>&1
    [[ $? -eq 125 ]] || fail "l$limit: exit code"
    [[ $(grep '^bench:' "$dir/log" | grep -vc warning) -eq 1 ]] || fail "l$limit: stderr does not have exactly one line"
    grep -q 'bench: .*: File too large' "$dir/log" || fail "l$limit: no reason"
done
whole l4
[[ ! -e l1 ]] || fail "l1: a folder that is no run was left behind: $(ls l1)"
[[ $(count l4 ,ok,) -ge 5 && -z $(tail -c 1 l4/samples.csv) ]] ||
    fail "l4: complete rows are missing, or a row is incomplete"
grep -q '"truncated": true' l4/run.json || fail "l4: run.json does not say truncated"
"$fixture" list >/dev/full 2>"$dir/log"
[[ $? -eq 125 ]] || fail "stdout full: exit code"

# ---- the real suites ----------------------------------------------------------------------------------------------
expect 0 'ceiling' "$bench" list
expect 0 'dtype=f32&impl=ref&shape=' "$bench" --suite kernels --impl ref --dry-run rmsnorm_fwd
expect 2 "did you mean 'ref'?" "$bench" --suite kernels --impl reff --dry-run
expect 0 'results' "$bench" --suite kernels --dtype f32 --impl ref -n 1 --samples 1 --out m rmsnorm_fwd
whole m
for metric in copy_rate matmul_rate call_time range_time kernel_time kernel_rate roofline_fraction error; do
    [[ $(rows m | grep ",$metric," | grep -c ',ok,') -eq 1 ]] || fail "m: no $metric"
done

mkdir scratch
TMPDIR=$PWD/scratch expect 0 'SELF-SAMPLE' "$bench" --suite self -n 1 --samples 3 --out self
whole self
rmdir scratch || fail "self: it leaves files behind"
for metric in sample_overhead row_time compare_time; do # one value, and samples around it
    value=$(rows self | awk -F, -v m=$metric '$6 == m && $11 == "ok" { print $9 }')
    awk -F, -v m=$metric -v v="$value" '$4 == m { n++; below += $6 <= v; above += $6 >= v }
        END { exit !(v > 0 && n == 3 && below >= 2 && above >= 2) }' self/samples.csv || fail "self: $metric"
done
[[ $(rows self | grep -c "^2,.*,self/sample,sample_overhead,s,lower,$(rows self | awk -F, '$5 == "requirement/SELF-SAMPLE" { print $9 }'),") -eq 1 ]] ||
    fail "self: the requirement has another value"

# ---- what a run on a GPU would measure; needs no GPU -----------------------------------------------------------------
expect 0 'ceiling/matmul_f32' "$bench" --suite ceiling --device cuda --dry-run
grep -q ceiling/range "$dir/log" || fail "a GPU's run does not measure its ranges"
expect 0 'self/row' "$bench" --suite self --device cuda --dry-run
grep -q self/sample "$dir/log" && fail "a GPU's run measures samples that wait for it"
expect 0 'ceiling/matmul_f32' "$bench" --suite ceiling --device cuda --dry-run
grep -q ceiling/call "$dir/log" && fail "a GPU's ceilings have a CPU's call"
expect 0 'mode=eager&model=qwen2.5-1.5b&rank=16&seq=2048' "$bench" --suite backward --device cuda --dry-run
[[ $(grep -c 'mode=graph' "$dir/log") -eq 23 ]] || fail "not 23 graphed cases on a GPU"
[[ $(grep -c 'backward/losses?.*&model=qwen2.5-1.5b&.*&tuning=qlora$' "$dir/log") -eq 1 ]] || fail "no losses of QLoRA"
for axis in '--model tiny' '--mode eager' '--tuning lora'; do # of other cases the requirement says nothing
    expect 0 'backward/step' "$bench" --suite backward --device cuda --dry-run $axis
    grep -q 'backward/losses' "$dir/log" && fail "$axis: losses are compared"
done
expect 0 'tuning=full' "$bench" --suite throughput --device cuda --grid full --dry-run
throughput=("$bench" --suite throughput --device cuda --dry-run)
expect 0 'mode=eager&model=qwen2.5-1.5b' "${throughput[@]}" --model tiny,qwen2.5-1.5b --tuning full --batch 256 --seq 2048 \
    --mode eager --clip multi --ceilings no
[[ $(grep -c 'throughput/step' "$dir/log") -eq 2 ]] || fail "not the two models"
grep -q attention= "$dir/log" && fail "an attention that neither model has a choice of"
expect 0 'model=tiny' "${throughput[@]}" --model tiny
expect 2 'bench: tiny has no sparse attention' "${throughput[@]}" --model tiny --attention sparse
expect 2 'bench: tiny has no sparse attention' "${throughput[@]}" --model tiny,v4-flash-layer --attention sparse
expect 2 'tiny has dense attention only' "${throughput[@]}" --model tiny --attention dense
# a key names what is computed again, and omits that nothing is
for suite in backward throughput; do
    expect 0 '&recompute=mlp&' "$bench" --suite $suite --model tiny --tuning lora --batch 1 --mode graph --clip fused \
        --recompute none,attention,mlp,layer --dry-run
    [[ $(grep -c "$suite/step" "$dir/log") -eq 4 && $(grep -c recompute= "$dir/log") -eq 3 ]] || fail "recompute: $(cat "$dir/log")"
    expect 2 "axis recompute: 'all' is not one of its values" "$bench" --suite $suite --model tiny --recompute all --dry-run
done
for suite in backward throughput; do # three processes fit into one command of ten minutes
    expect 0 'in all: 3 processes' "$bench" --suite $suite --device cuda --dry-run
    [[ $(tail -n 1 "$dir/log" | awk '{ print $1 }') -lt 540 ]] || fail "$suite takes nine minutes on a GPU"
done
expect 0 'model=smollm2-135m' "$bench" --suite backward --dry-run
check_help "$bench"
bash -n <("$bench" completion bash) || fail "the completion script is not valid bash"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
