#!/usr/bin/env bash
# launch_test.sh - the launcher names a rank that dies, stops, hangs, fails or is slow, ends the others, and leaves no
# process. $1: launch_probe, $2: yes if mpirun is installed. The ranks are started by a small script in place of
# mpirun, and once by mpirun.
# shellcheck disable=SC2154 # dir and failures: cli.sh
source "$(dirname "$0")/../cli.sh"
probe=$1
export TMPDIR=$dir

# Starts the ranks as mpirun does, each in a process group of its own.
cat >starter <<'END'
#!/usr/bin/env bash
while [[ $1 != */launch_probe ]]; do [[ $1 == -np ]] && n=$2; shift; done
set -m
for ((i = 0; i < n; i++)); do
    while [[ $i -eq 1 && $LATE && ! -e $LATE ]]; do sleep 0.05; done
    OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$n "$@" &
done
wait
END
chmod +x starter
export PB_MPIRUN=$dir/starter

said() { grep -qE -e "$1" log || fail "'$1' is not in the output"; }
# Waits until $1 contains "works". Empty the file before the ranks start in the background: until then it has the old
# text.
works() {
    local i
    for ((i = 0; i < 200; i++)); do
        grep -qs works "$1" && return
        sleep 0.05
    done
    fail 'no rank works'
}
none_left() { # no process of this test's ranks, and no folder of the launcher
    local i
    for ((i = 0; i < 100; i++)); do
        grep -lzs "TMPDIR=$dir" /proc/[0-9]*/environ 2>/dev/null | sed 's|/environ|/comm|' | xargs -r grep -lx launch_probe >left 2>/dev/null
        [[ -s left ]] || break
        sleep 0.1
    done
    [[ ! -s left ]] || fail "$1: left running: $(cat left)"
    [[ -z $2 ]] || ! compgen -G "$dir/plumb-ranks-*" >/dev/null || fail "$1: the launcher's folder is left"
}

expect 0 'rank 0 works' "$probe" 3 20 steps
! grep -q 'must be silent' log || fail 'rank 1 printed to standard output'
none_left steps x

# The cases wait for timeouts, so they run side by side, each in a folder of its own.
run_case() { # CODE TIMEOUT WHAT TEXT
    trap - EXIT # the folder of the whole test stays
    dir=$dir/$3 failures=0
    mkdir "$dir" && cd "$dir" || exit 1
    expect "$1" '' "$probe" 3 "$2" "$3"
    said "$4"
    [[ $(grep -c 'the job ends' log) -le 1 ]] || fail "$3: more than one rank is named"
    exit "$failures"
}
pids=()
run_case 125 30 die 'rank 1 on .* died: .*; the job ends' & pids+=($!)
run_case 125 2 halt 'rank 1 on .* is silent: .* the job ends' & pids+=($!)
run_case 125 3 hang 'rank 1 on .*phase backward hangs: .*; the job ends' & pids+=($!)
run_case 2 2 exit2 '^rank 1: a bad file' & pids+=($!)
run_case 0 20 slow 'rank 1 on .*is slow: phase forward' & pids+=($!)
for p in "${pids[@]}"; do wait "$p" || failures=$((failures + 1)); done
none_left troubles x

# A signal reaches every rank once, and the job ends by itself.
: >log
"$probe" 3 20 wait >log 2>&1 &
launcher=$!
works log
kill -TERM $launcher
wait $launcher
[[ $? -eq 125 ]] || fail 'the exit code after SIGTERM is not 125'
! grep -q 'the job ends' log || fail 'SIGTERM was taken for a failure'
none_left SIGTERM x

# The ranks of a launcher that is killed end.
: >log
"$probe" 3 20 wait >log 2>&1 &
launcher=$!
works log
kill -KILL $launcher
wait $launcher 2>/dev/null
none_left 'killed launcher' ''
rm -rf "$dir"/plumb-ranks-*

# A stranger is refused, and the ranks continue. The port is taken while the first launcher lives.
port=$((20000 + $$ % 20000))
: >first
PB_LAUNCH_PORT=$port "$probe" 2 20 wait >first 2>&1 &
launcher=$!
works first
head -c 4000 /dev/zero 2>/dev/null >"/dev/tcp/127.0.0.1/$port"
expect 125 "cannot listen on port $port: Address already in use" env PB_LAUNCH_PORT=$port "$probe" 2 20 steps
for ((i = 0; i < 100; i++)); do grep -q 'refused a connection' first && break; sleep 0.05; done
kill -INT $launcher
wait $launcher
[[ $? -eq 125 ]] || fail 'the exit code after a stranger and SIGINT is not 125'
cp first log
said 'refused a connection'
! grep -q 'the job ends' log || fail 'a stranger ended the job'

# A stranger that knows all but the token cannot take the place of a rank.
: >first
LATE=$dir/go PB_LAUNCH_PORT=$((port + 1)) "$probe" 2 20 wait >first 2>&1 &
launcher=$!
works first
expect 125 '' timeout 10 env "PB_LAUNCH=127.0.0.1:$((port + 1)):00112233445566778899aabbccddeeff:20" \
    OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$probe" 2 20 wait
touch go
kill -INT $launcher
wait $launcher
[[ $? -eq 125 ]] || fail 'the exit code after SIGINT is not 125'
cp first log
said 'refused a connection'
! grep -q 'the job ends' log || fail 'a stranger without the token ended the job'

expect 2 'is not a port' env PB_LAUNCH_PORT=x "$probe" 2 20 steps
# more ranks than files may be open: the limit is raised, if the system allows it, else the job is refused
expect 125 'to watch 60 ranks, 156 files must be open at once, and 100 are allowed (ulimit -Hn)' bash -c 'ulimit -n 100; exec "$@"' limited \
    timeout 60 env PB_MPIRUN=/bin/false "$probe" 60 20 steps
expect 125 'ended with exit code 1 before a rank had connected' bash -c 'ulimit -Sn 32; exec "$@"' limited \
    timeout 60 env PB_MPIRUN=/bin/false "$probe" 60 20 steps
expect 125 'ranks need Open MPI' env PB_MPIRUN=/nonexistent "$probe" 2 20 steps
expect 125 'ended with exit code 1 before a rank had connected' env PB_MPIRUN=/bin/false "$probe" 2 20 steps
[[ $(wc -l <log) -eq 1 ]] || fail 'more than one line'
expect 125 'does not answer' env PB_LAUNCH=127.0.0.1:1:00112233445566778899aabbccddeeff:5 "$probe" 2 20 steps
if [[ $2 == yes ]]; then
    unset PB_MPIRUN
    expect 0 'rank 0 works' "$probe" 3 20 steps
    expect 125 'rank 1 on' "$probe" 3 20 die
    none_left mpirun x
fi
exit $((failures > 0))
