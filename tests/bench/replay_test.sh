#!/bin/bash
# replay_test.sh BENCH WRITE_CAPTURE - bench replay: its table, its exit codes, and one line for what it cannot replay.
program=$(realpath "$1") write_capture=$(realpath "$2")
. "${0%/*}/../cli.sh"
shape=B2.S3.G1.D7.p0.a0.f0

"$write_capture" good rmsnorm_fwd f32 $shape ref && "$write_capture" nan rmsnorm_fwd f32 $shape ref nan || fail 'no captures'
"$write_capture" wrong rmsnorm_fwd f32 $shape ref wrong || fail 'no wrong capture'
"$write_capture" step normuon_momentum bf16 N2.R40.S5.b0.o3.c1.a0 ref || fail 'no capture of lists'

# replays CODE TEXT ARGUMENT...: bench replay ends with CODE, and its output has a line that matches TEXT.
replays() {
    local code=$1 text=$2
    shift 2
    "$program" replay "$@" >out 2>err
    [[ $? == "$code" ]] || fail "replay $*: not exit code $code: $(cat out err)"
    grep -qE "$text" out err || fail "replay $*: no line '$text': $(cat out err)"
    [[ $code == 0 || $code == 1 || $(wc -l <err) == 1 && ! -s out ]] || fail "replay $*: not one line: $(cat out err)"
}
replays 0 '^0 +y +\[6,7\] +ref +0 +0 +0 +- +0 +0 +1e-06 +same bits$' good
replays 0 '^call 0 +rmsnorm_fwd f32 B2.S3.G1.D7.p0.a0.f0 eps=0.100000001, cpu.ref$' good
replays 0 '^step +3$' good
replays 0 '^0 +y +\[6,7\] +omp +0 +0 +0 +- .* agrees$' good --impl omp
replays 0 '^0 +y +\[6,7\] +omp +7 +7 +0 +0,0 .* agrees$' nan --impl omp
replays 1 '^0 +y +\[6,7\] +ref +0 +0 +0 +- .* DIFFERS$' wrong
replays 1 '^0 +rstd +\[1,6\] +ref .* same bits$' wrong
replays 0 '^0 +u1 +\[1,38\] +ref .* same bits$' step # the second matrix of a list
replays 2 "^bench: --impl onp: no op of the capture has it on cpu; did you mean 'omp'\?$" good --impl onp
replays 2 '^bench: replay needs one FILE, a capture; 2 were given$' good nan
replays 2 '^bench: replay needs one FILE, a capture; 0 were given$'
replays 2 '^bench: nothing: ' nothing
head -c 400 good >short
replays 2 '^bench: short: ' short
sed 's/rmsnorm_fwd/rmsnorm_bwd/' good >other # another text of the same length: the checksum finds it
replays 2 '^bench: other: damaged: its checksum is ' other
exit $((failures > 0))
