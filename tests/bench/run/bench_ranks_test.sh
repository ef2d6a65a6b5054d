#!/usr/bin/env bash
# bench_ranks_test.sh BENCH BENCH_FIXTURE - bench run --ranks N: every collective of suite comm, checked and with the
# bandwidths of nccl-tests; only rank 0 writes; the slowest rank's time counts; a rank that fails, dies or hangs gives
# one row; bad input gives one line; and no process is left.
bench=$1 fixture=$2
. "${0%/*}/../../cli.sh"
export TMPDIR=$dir

rows() { grep -cE -e "$2" "$1/results.csv"; } # rows DIR REGEX: number of matching rows
want() {                                     # want DIR COUNT REGEX: so many rows must match
    [[ $(rows "$1" "$3") -eq $2 ]] || fail "$1: $(rows "$1" "$3") rows match '$3', want $2: $(cut -d, -f4-12 "$1/results.csv")"
}
# No process of this test is left: ranks, mpirun and supervisors have $dir as their folder. Ranks that were killed may need
# a moment to disappear.
nothing_left() {
    local i left process command
    for ((i = 0; i < 100; i++)); do
        left=
        for process in /proc/[0-9]*; do
            [[ $process/cwd -ef $dir ]] || continue
            command=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline")
            [[ $command == *mpirun* || $command == *child-dir* ]] && left+="$command; "
        done
        [[ $left ]] || break
        sleep 0.1
    done
    [[ -z $left ]] || fail "$1: processes are left: $left"
    compgen -G "plumb-ranks-*" >/dev/null && fail "$1: a folder of the launcher is left"
}

comm() { # comm DIR CODE TEXT ARG...
    expect "$2" "$3" timeout -k 1 90 "$bench" --suite comm --ceilings no --no-compare -n 1 --samples 2 --out "$1" "${@:4}"
    nothing_left "$1"
}

# ---- suite comm with one, two and three ranks --------------------------------------------------------------------
for n in 1 2 3; do
    comm "c$n" 0 "results: c$n/results.csv" --ranks $n --bytes 96..3072*32
    want "c$n" 20 ",0,comm/[a-z_]+\?bytes=(96|3072)&dtype=(f32|bf16)&ranks=$n,wrong_count,1,none,0,0,ok,"
    want "c$n" 20 ",time,s,lower,[0-9.e-]+,2,ok,"
    want "c$n" 20 ",algorithm_bandwidth,B/s,higher,[0-9.e+]+,2,ok,"
    want "c$n" 10 ",bf16_over_f32,1,lower,[0-9.e-]+,0,ok,"
    [[ $(wc -l <"c$n/results.csv") -eq 91 ]] || fail "c$n: more than one rank writes rows"
    [[ $(wc -l <"c$n/samples.csv") -eq $((n == 1 ? 81 : 121)) ]] || fail "c$n: $(wc -l <"c$n/samples.csv") samples"
done
want c1 20 ',bus_bandwidth,B/s,higher,,0,unsupported,one rank: nothing passes a bus between ranks'
# bytes / algorithm_bandwidth is the time, and bus / algorithm bandwidth the factor of nccl-tests
for n in 2 3; do
    awk -F, -v n=$n '
        { key = $5; value[key, $6] = $9; if (key ~ /^comm/) keys[key] }
        END {
            for (key in keys) {
                factor = key ~ /all_reduce/ ? 2 * (n - 1) / n : key ~ /broadcast/ ? 1 : (n - 1) / n
                match(key, /bytes=[0-9]+/)
                bytes = substr(key, RSTART + 6, RLENGTH - 6)
                a = value[key, "algorithm_bandwidth"]; b = value[key, "bus_bandwidth"]; t = value[key, "time"]
                if (!(b / a / factor > 0.999999 && b / a / factor < 1.000001)) { print key ": bus", b, a; bad = 1 }
                if (!(a * t / bytes > 0.999999 && a * t / bytes < 1.000001)) { print key ": algorithm", a, t; bad = 1 }
                ++count
            }
            exit bad || count != 20
        }' "c$n/results.csv" >log || fail "c$n: a bandwidth is wrong"
done
comm odd 0 "996 bytes were moved: 3 ranks do not divide the elements" --ranks 3 --bytes 1000 --dtype f32 all_gather
comm few 0 "4 bytes are less than one element of f32 for each of 2 blocks" --ranks 2 --bytes 4 --dtype f32 all_to_all
want few 1 ",outcome,1,none,,0,unsupported,4 bytes"

# ---- bad input: one line, one exit code, no folder ---------------------------------------------------------------
bad() { # bad CODE TEXT ARG...
    comm bad "$1" "$2" "${@:3}"
    [[ $(grep -vc 'bench: warning' log) = 1 ]] || fail "not one line: ${*:3}"
    [[ ! -e bad ]] || fail "a folder is left: ${*:3}"
}
bad 2 "--ranks 0: need a whole number from 1" --ranks 0
bad 2 "--ranks x: need a whole number" --ranks x
bad 2 "--ranks 257: at most 256 on one host" --ranks 257
bad 2 "the number of ranks is no axis, but an option: --ranks N" --axis ranks=2
bad 2 "suite kernels measures one rank only" --ranks 2 --suite kernels
bad 2 "bytes=9..8*2: need 1 <= begin <= end" --ranks 2 --bytes '9..8*2'
bad 2 "bytes=8..16*1: need 1 <= begin <= end, and a factor of at least 2" --bytes '8..16*1'
bad 2 "bytes=0: need a whole number from 1 to 2^40" --bytes 0
bad 2 "dtype=f64: need f32 or bf16" --dtype f64
bad 2 "all_reduce" all_redcue
PB_MPIRUN=nowhere bad 125 "nowhere cannot be started; ranks need Open MPI" --ranks 2
PB_MPIRUN=false bad 125 "false ended with exit code 1 before a rank had connected" --ranks 2
PB_LAUNCH_PORT=x bad 125 "PB_LAUNCH_PORT='x' is not a port" --ranks 2

# ---- ranks that behave differently -------------------------------------------------------------------------------
toy() { # toy DIR CODE TEXT ARG...
    expect "$2" "$3" timeout -k 1 90 "$fixture" --suite toy --ranks 3 --batch 1 --no-compare -n 1 --out "$1" "${@:4}" step
    nothing_left "$1"
}
case_of() { printf '%s' ",0,toy/step\?batch=1&mode=$1&ranks=3&width=16,"; }

toy slow 0 "results" --mode rankslow
want slow 1 "$(case_of rankslow)kernel_time,s,lower,0\.(0[4-9]|[1-9])[0-9]*,3,ok," # not 1 ms, the time of the others
want slow 2 ',ceiling/[a-z]+\?ranks=3,'

toy fails 4 "the last rank said no" --mode rankfails,fine
want fails 1 "$(case_of rankfails)outcome,1,none,,0,failed,rank 2 on .*: the last rank said no"
want fails 2 "$(case_of fine)"

toy dies 125 "rank 2 on" --mode rankdies
want dies 1 "$(case_of rankdies)outcome,1,none,,0,failed,\"?rank 2 on .* died: "
want dies 1 "$(case_of rankdies)" # nothing else of the case
grep -q ',crashed,,"rank 2 on .* died: ' dies/processes.csv || fail "dies: $(cat dies/processes.csv)"

toy hangs 4 "the others wait for rank 2 on " --mode rankhangs,fine --case-timeout 3
want hangs 1 "$(case_of rankhangs)outcome,1,none,,0,timeout,\"hung: ended after .*; the others wait for rank 2 on "
want hangs 2 "$(case_of fine)"

# ---- a signal ends all ranks, and --resume continues -------------------------------------------------------------
timeout -k 1 90 "$fixture" --suite toy --ranks 2 --batch 1 --mode slow --no-compare -n 1 --out stop step >log 2>&1 & pid=$!
for ((i = 0; i < 300; i++)); do
    [[ $(rows stop ceiling 2>/dev/null) -eq 2 ]] 2>/dev/null && break
    sleep 0.1
done
kill -INT "$(pgrep -P $pid)"
wait $pid
got=$?
[[ $got -eq 125 ]] || fail "stop: exit $got, want 125"
grep -q 'bench run --resume stop continues' log || fail "stop: it does not say how to continue"
nothing_left stop
want stop 0 ',failed,'
expect 0 "results: stop/results.csv" timeout -k 1 90 "$fixture" run --resume stop
want stop 1 ',0,toy/step\?batch=1&mode=slow&ranks=2&width=16,kernel_time,s,lower,[0-9.e-]+,100,ok,'

((failures == 0)) || exit 1
