#!/bin/bash
# attack_test.sh BENCH TRAIN SOURCE WRITE_RUNS WRITE_CAPTURE - runs every command of both programs on a full disk,
# without standard streams, together with a second process that writes the same output, and with FIFOs, devices and
# wrong files as input or output. BENCH is bench with quick suites (bench_fixture). Each command must end with the documented exit code and
# one line on stderr, must not leave half-written files, must not destroy existing files, and must not hang.
declare -A program=([bench]=$(realpath "$1") [train]=$(realpath "$2"))
source=$(realpath "$3") write_runs=$(realpath "$4") write_capture=$(realpath "$5")
. "${0%/*}/../cli.sh"
LIMIT=30 # seconds; a command normally takes less than one

# ---- the table ---------------------------------------------------------------------------------------------------
# One line per command: program and command | input file, as IN | output: folder, the ending of a file, or - | attacks
# that are skipped | arguments. OUT is the output, a name in an empty folder.
table=$(cat <<'TABLE'
bench run        | -          | folder |      | run --suite toy -n 1 --samples 1 --no-compare --quiet --out OUT other
bench list       | -          | -      |      | list metrics
bench report     | run.csv    | -      |      | report IN
bench compare    | -          | folder |      | compare --self --suite paired --pairs 2 --max-pairs 2 --samples 2 --quiet --out OUT
bench history    | gates.csv  | .csv   |      | history --baseline stored --gates IN --format csv --out OUT
bench analyze    | -          | -      |      | analyze inputs/profile
bench replay     | call.safetensors | - |     | replay IN
bench project    | comm.csv   | .csv   |      | project --format csv --ranks 2,3,4,5,6,7,8,2,3,4,5,6,7,8,2,3,4,5,6,7,8,2,3,4,5,6,7,8 IN --out OUT
bench baseline   | base.csv   | folder |      | baseline save IN --reason why --gates inputs/gates.csv --baseline OUT
bench export     | run.csv    | .txt   |      | export IN --to benchfmt --out OUT
bench import     | nccl.txt   | folder |      | import nccl-tests IN --out OUT
bench doctor     | -          | -      |      | doctor
bench plot       | run.csv    | .svg   |      | plot IN -o OUT
bench completion | -          | -      |      | completion bash
bench help       | -          | -      |      | help run
bench version    | -          | -      |      | version
train run        | data.jsonl | folder |      | run --steps 1 --batch 1 --seq 32 --data IN --save OUT
train eval       | data.jsonl | -      |      | eval --batch 1 --seq 32 --data IN
train export     | tiny.gguf  | folder |      | export --model IN --tokenizer bytes --out OUT
train generate   | -          | -      |      | generate --prompt a --max-tokens 3
train smoke      | data.jsonl | -      |      | smoke --batch 1 --seq 32 --data IN
train tokenize   | text       | -      |      | tokenize IN
train plan       | -          | -      |      | plan
train completion | -          | -      |      | completion bash
train help       | -          | -      |      | help run
train version    | -          | -      |      | version
TABLE
)
mkdir inputs baselines
cp "$source/tests/fixtures/report/results.csv" inputs/run.csv
cp "$source/tests/fixtures/exchange/nccl.txt" inputs/
cp "$source/tests/fixtures/project/collectives.csv" inputs/comm.csv
mkdir runs && "$write_runs" "$source/tests/fixtures/compare/cases.txt" runs && cp runs/gates.csv inputs/
# More rows than fit on a disk of 4 KB.
mkdir -p stored/m1
for of in base:inputs/base sessions_10:stored/m1/backward; do
    awk 'NR == 1 { print } NR > 1 { for (i = 1; i < 30; i++) { row = $0; sub(/[?]/, "?a" i "=1\\&", row); print row } }' \
        "runs/${of%:*}.csv" >"${of#*:}.csv"
done
"$write_capture" inputs/call.safetensors rmsnorm_fwd f32 B1.S2.G1.D8.p0.a0.f0 ref || fail 'no capture to replay'
head -n 3 "$source/data/corpus.jsonl" >inputs/data.jsonl
echo text >inputs/text
cp "$source/tests/fixtures/gguf/small.gguf" inputs/tiny.gguf
"${program[train]}" --steps 1 --batch 1 --seq 32 --quiet --profile-ranks 0 --profile-steps 0 --profile-out inputs/profile >log 2>&1 ||
    fail 'no profile to analyze'
printf 'suite,metric,better,stored_limit,ceiling,gating\npaired,kernel_time,lower,0.1,,yes\n' >baselines/gates.csv

# Every command must have a line, so that new commands are attacked as well.
for which in bench/options/commands.def:bench train/commands.def:train; do
    sed -n 's/^COMMAND(\([a-z]*\),.*/\1/p' "$source/${which%:*}" | while read -r name; do
        grep -q "^${which#*:} $name  *|" <<<"$table" || echo "${which#*:} $name"
    done
done >missing
[[ ! -s missing ]] || fail "commands without a line in the table: $(cat missing)"

# ---- one command -------------------------------------------------------------------------------------------------
# words OUT IN: sets the array `words` to the command line of the current entry.
words() {
    local w
    words=(timeout "$LIMIT" "${program[$of]}")
    for w in $arguments; do
        case $w in OUT) w=$1 ;; IN) w=$2 ;; esac
        words+=("$w")
    done
}
# named FOLDER: the path of OUT in that folder.
named() { if [[ $makes == folder ]]; then echo "$1/out"; else echo "$1/out$makes"; fi; }
# complaint FILE: succeeds when the output ends with the only error line (notes may come before it) and contains no
# control characters.
complaint() {
    [[ $(tail -n 1 "$1") == "$of: "* && $(grep "^$of: " "$1" | grep -vcE "$notes") -le 1 ]] || return 1
    ! grep -q '[[:cntrl:]]' <<<"$(tr -d '\n\t' <"$1")"
}
notes='warning|note|left out|skipped bad line|exit code 125' # the last: a process of a comparison failed
# listing FOLDER: its files, without names that contain the time.
listing() { (cd "$1" && find . | sed 's/[0-9]\{8\}T[0-9]*Z/TIME/g' | sort); }
# refused CODE WHAT: the last command, whose output is in log, must have ended with this code and one line of error.
refused() {
    [[ $got -eq $1 ]] || fail "$entry: $2: exit code $got, want $1"
    complaint log || fail "$entry: $2: not one line of complaint"
}
run() { got=0; "$@" >log 2>&1 || got=$?; }

# ---- attacks -----------------------------------------------------------------------------------------------------
# Each attack starts with its own folder `work`. `whole` holds the output of the undisturbed command, $usual its exit
# code.

# Closes the descriptors 0 to 2, alone and together: output for a closed stream must not get into a file.
attack_streams() {
    local how f
    for how in '<&-' '>&-' '2>&-' '<&- >&-' '>&- 2>&-' '<&- >&- 2>&-'; do
        rm -rf work && mkdir work
        words "$(named work)" "inputs/$input"
        got=0
        eval '"${words[@]}" </dev/null >log 2>&1' "$how" || got=$?
        [[ $got -eq $usual ]] || fail "$entry: $how: exit code $got, want $usual"
        [[ $makes == - ]] && continue
        [[ $(listing work) == "$(listing whole)" ]] || fail "$entry: $how: other files: $(diff <(listing whole) <(listing work))"
        while read -r f; do
            cmp -s -n 16 "whole/$f" "work/$f" || fail "$entry: $how: $f begins with: $(head -c 60 "work/$f")"
        done < <(cd whole && find . -type f -size +15c ! -name '*.log')
    done
}

# A disk with room for that many kilobytes. Once there is room again, the same command must succeed or resume.
full_disk='
    mount -t tmpfs -o size="$1"k tmpfs work || exit 99
    shift
    "$@" >log 2>&1
    code=$?
    find work -name "*.partial" -o -name "*.new" -o -size 0 -type f ! -name .lock ! -name "*.log" >left
    mount -o remount,size=64m work || exit 99
    [ $code -eq 125 ] || exit $code
    if [ -e work/out/run.json ] || [ -e work/out/compare.json ]; then set -- $resume; fi
    "$@" >again 2>&1 || echo "then: $(tail -n 1 again)" >>left
    exit $code'
attack_disk() {
    local room full=0
    [[ $makes != - ]] || return 0
    for room in 4 8 12 16 24 48 96; do
        rm -rf work && mkdir work
        words "$(named work)" "inputs/$input"
        if [[ $namespaces ]]; then
            export resume="${program[$of]} ${entry#* } --quiet --resume work/out"
            run unshare -rm bash -c "$full_disk" bash $room "${words[@]}"
        else
            (ulimit -f $room && "${words[@]}") >log 2>&1; got=$?
            find work -name '*.partial' -o -name '*.new' >left
        fi
        [[ $got -ne $usual ]] || continue
        full=$((full + 1))
        refused 125 "a disk of $room KB"
        [[ ! -s left ]] || fail "$entry: a disk of $room KB: left behind: $(cat left)"
    done
    [[ $full -gt 0 || ! $namespaces ]] || fail "$entry: no disk was full"
}

# Two processes with the same output: at least one succeeds, and the other does not damage its output.
attack_twice() {
    local first second
    [[ $makes != - ]] || return 0
    rm -rf work && mkdir work
    words "$(named work)" "inputs/$input"
    "${words[@]}" >log1 2>&1 &
    "${words[@]}" >log2 2>&1
    second=$?
    wait $!
    first=$?
    cat log1 log2 >log
    [[ $first -eq $usual || $second -eq $usual ]] || fail "$entry: twice at once: exit codes $first and $second"
    for got in $first $second; do
        [[ $got -eq $usual || $got -eq 2 ]] || fail "$entry: twice at once: exit code $got"
    done
    [[ $(listing work) == "$(listing whole)" ]] || fail "$entry: twice at once: $(diff <(listing whole) <(listing work))"
}

# The input is a FIFO without a writer, a device, a folder, or missing.
attack_inputs() {
    local what
    [[ $input != - ]] || return 0
    mkfifo fifo 2>/dev/null
    for what in fifo /dev/zero /dev/full /dev/null nowhere; do
        rm -rf work && mkdir work
        words "$(named work)" "$what"
        run "${words[@]}"
        refused 2 "reads $what"
        [[ -z $(ls work) ]] || fail "$entry: reads $what: made $(ls work)"
    done
}

# The output exists and is something else, or its folder is a file.
attack_outputs() {
    local what out
    [[ $makes != - ]] || return 0
    for what in fifo device file; do
        [[ $what != file || $makes == folder ]] || continue # an existing file is replaced
        rm -rf work && mkdir work
        out=$(named work)
        case $what in fifo) mkfifo "$out" ;; device) ln -s /dev/full "$out" ;; file) echo mine >"$out" ;; esac
        words "$out" "inputs/$input"
        run "${words[@]}"
        refused 2 "writes to a $what"
        [[ $(ls work) == "${out##*/}" ]] || fail "$entry: writes to a $what: left $(ls work)"
        [[ $what != file || $(cat "$out") == mine ]] || fail "$entry: a file was overwritten"
    done
    rm -rf work && mkdir work && echo mine >work/file
    words "$(named work/file)" "inputs/$input"
    run "${words[@]}"
    refused 2 'writes below a file'
    [[ $(cat work/file) == mine ]] || fail "$entry: a file was overwritten"
}

# ---- all commands ------------------------------------------------------------------------------------------------
namespaces=
unshare -rm bash -c 'mkdir -p tried && mount -t tmpfs tmpfs tried' 2>/dev/null && namespaces=yes
[[ $namespaces ]] && echo 'full disks are tmpfs of their own' || echo 'full disks are limits on the size of files (ulimit -f)'
while IFS='|' read -r entry input makes without arguments; do
    [[ $entry != 'bench plot'* ]] || command -v gnuplot >/dev/null || continue
    entry=${entry%"${entry##*[! ]}"} of=${entry%% *} input=${input// /} makes=${makes// /}
    rm -rf whole && mkdir whole
    words "$(named whole)" "inputs/$input"
    run "${words[@]}"
    usual=$got
    [[ $usual -eq 0 || $usual -eq 4 ]] || fail "$entry: exit code $usual undisturbed"
    for attack in streams disk twice inputs outputs; do
        [[ " $without " == *" $attack "* ]] || attack_$attack
    done
done <<<"$table"

# ---- names and texts that gnuplot or the shell could execute -----------------------------------------------------
hit=$dir/hit
mkdir bin && printf '#!/bin/sh\ntouch %s\n' "$hit" >bin/pwn && chmod +x bin/pwn
harmless() { # harmless COMMAND...: must draw a picture and execute nothing
    PATH=$PATH:$dir/bin expect 0 wrote "$@"
    [[ ! -e $hit ]] || fail "executed: $*"
    rm -f "$hit"
}
if command -v gnuplot >/dev/null; then
    bench=${program[bench]}
    mkdir plots home && printf 'set print "%s"\nprint 1\n' "$hit" | tee plots/backward.gp home/.gnuplot >home/gnuplotrc
    sed "s|^1,[^,]*,[^,]*,|1,\"'; system('pwn'); '\",\"\`pwn\`\",|" inputs/run.csv >inputs/texts.csv
    for name in '|pwn;x' '<pwn;x' "-e system('pwn')" "'; system('pwn'); '" '`pwn`' '$(pwn)' $'a\nsystem("pwn")'; do
        mkdir "./$name" && cp inputs/run.csv "./$name/results.csv"
        if [[ $name != *$'\n'* ]]; then # the line "wrote ..." cannot contain a newline
            harmless "$bench" plot "./$name"
            harmless "$bench" plot inputs/run.csv --out "$name.svg"
            [[ -s ./$name/backward.svg && -s ./$name.svg ]] || fail "plot: no picture at $name"
        fi
        TMPDIR="$dir/$name" harmless "$bench" plot inputs/run.csv --out x.svg
        [[ -z $(compgen -G "./$name/pb-plot-*") ]] || fail "plot left its temporary folder in $name"
    done
    HOME=$dir/home GNUPLOT_LIB=$dir/plots harmless "$bench" plot inputs/run.csv --out x.svg
    harmless "$bench" plot inputs/texts.csv --out x.svg
    if [[ $namespaces ]]; then # the disk of gnuplot's temporary folder is too small for the picture
        mkdir small && echo mine >mine.svg
        for room in 4 12 16 20; do
            expect 125 'bench: ' unshare -rm bash -c 'mount -t tmpfs -o size=$1k tmpfs small && shift && TMPDIR=small "$@"' \
                bash $room "$bench" plot inputs/run.csv --out mine.svg
        done
        [[ $(cat mine.svg) == mine ]] || fail "plot: a part of a picture was kept"
    fi
    expect 125 'wrote no picture from backward.gp' "$bench" plot inputs/run.csv --out x.svg --plots plots
    [[ -e $hit ]] || fail "--plots: its script was not executed"
fi

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
