#!/bin/bash
# ranks_session_test.sh BENCH SOURCE - scripts/ranks-session with two ranks on the CPU: its files, rows and projection;
# which cases it would measure on GPUs; and a session without time. No time is compared with a bound.
real=$1 source=$2
. "${0%/*}/../cli.sh"
unset RANKS DEVICE PROCESSES PB_PEER_PYTHON PB_CONTROLS
export TMPDIR=$dir
mkdir -p build/bin path && ln -s "$real" build/bin/bench
session() { PATH=$dir/path:$PATH timeout -k 1 200 "$source/scripts/ranks-session" build out "$@"; }

# ---- the whole session with model tiny -------------------------------------------------------------------------------
DEVICE=cpu RANKS=2 PROCESSES=1 expect 0 'ranks-session: bench project --ranks 2 from 1 and 2 ranks: exit code 0' session
grep -q '^projected steps\|^step' out/tables.txt || fail "no steps are projected: $(tail -n 30 out/tables.txt)"
[[ $(find out -type f | wc -l) -eq 4 && $(find out -mindepth 2 | wc -l) -eq 0 ]] || fail "not four files: $(ls out)"
# One step on one rank, two with 2 ranks, all eager and as a graph; 3 collectives in 2 types and 3 sizes. On a busy machine
# rows are marked as throttled.
[[ $(grep -cE 'throughput/.*,step_time,s,lower,[0-9.e-]+,[0-9]*,(ok|throttled)' out/throughput.csv) -eq 6 ]] ||
    fail "not 6 steps"
[[ $(grep -cE 'mode=graph.*ranks=2.*,scaling_efficiency,1,higher,[0-9]' out/throughput.csv) -eq 2 ]] ||
    fail "not 2 efficiencies of graphs"
[[ $(grep -cE ',time,s,lower,[0-9.e-]+,[0-9]*,(ok|throttled)' out/comm.csv) -eq 18 ]] || fail "not 18 collectives"
for suite in comm throughput; do
    [[ $(grep -c '^bench_version' "out/$suite.csv") -eq 1 ]] || fail "$suite.csv: not one header"
done
tar -tzf out/runs.tgz | grep -q 'throughput-2/samples.csv' || fail "runs.tgz has no samples"
rm -rf out

# ---- bad input, and no time ---------------------------------------------------------------------
expect 2 'usage: scripts/ranks-session BUILD OUT' "$source/scripts/ranks-session" build
RANKS=1 expect 2 'ranks-session: 1 GPUs: need at least 2' session
[[ ! -e out ]] || fail "a folder is left"
DEVICE=cpu RANKS=2 expect 124 'ranks-session: no time left for throughput-1' session 3
rm -rf out

# ---- what it would measure on 8 GPUs --------------------------------------------------------------
rm build/bin/bench
cat >build/bin/bench <<SH
#!/bin/bash
[[ \$1 != project ]] || printf '%s\n' "\$@" >"$dir/project"
[[ \$1 == run ]] || exit 0
"$real" "\$@" --dry-run >>"$dir/cases" 2>&1
SH
chmod +x build/bin/bench
expect 0 'from 1 and 2 ranks' env RANKS=8 PATH="$dir/path:$PATH" "$source/scripts/ranks-session" build out
count() { # count NUMBER REGEX: so many planned cases match
    [[ $(grep -cE "$2" cases) -eq $1 ]] || fail "$(grep -cE "$2" cases) cases match '$2', want $1: $(grep -v ceiling cases)"
}
for mode in eager graph; do
    count 1 "throughput/step\?batch=4&.*&mode=$mode&model=qwen2.5-1.5b&rank=16&seq=512&.*tuning=qlora"
    for n in 2 4 8; do
        count 1 "throughput/.*&mode=$mode&model=qwen2.5-1.5b&.*&ranks=$n&seq=512&targets=q.v&tuning=qlora"
        count 8 "throughput/.*&mode=$mode&model=qwen2.5-0.5b&.*&ranks=$n&.*tuning=full"
        count 4 "throughput/.*&mode=$mode&.*&ranks=$n&.*shard=parameters"
    done
done
for n in 2 4 8; do count 32 "comm/all_reduce\?bytes=[0-9]*&dtype=.*&ranks=$n"; done
count 0 'ranks=16'
count 0 'control=' # one process of each run
# The model of a step needs the same step on one rank, so it gets no step with an axis that one rank does not have.
mapfile -t filters < <(sed -n '/^--filter$/ { n; p }' project)
while read -r key; do
    matched=no wanted=no
    # shellcheck disable=SC2053 # the filter is a glob
    for filter in "${filters[@]}"; do [[ $key != $filter ]] || matched=yes; done
    [[ $key =~ \&(shard|ranks=[48])[=\&] ]] || wanted=yes
    [[ $matched == "$wanted" ]] || fail "$key: projected: $matched, want $wanted"
done < <(grep -oE 'throughput/step[^ ]*&mode=eager&[^ ]*' cases | sort -u)

# ---- on two GPUs, the runs of three processes, which become stored sessions, have control cases -----------------------
rm cases
expect 0 'from 1 and 2 ranks' env RANKS=2 PATH="$dir/path:$PATH" "$source/scripts/ranks-session" build out
count 2 'throughput/.*control=second&.*&mode=graph&.*&ranks=2'
count 2 'comm/.*control=second'
count 0 'control=.*mode=eager'

# ---- with peers: PyTorch's collectives next to Plumb's, and its steps next to the measured runs --------------------
mkdir -p tree/scripts/peers && cp "$source/scripts/ranks-session" tree/scripts
cat >tree/scripts/peers/run <<'SH'
#!/bin/bash
echo "$PB_PEER_PYTHON $*" >>"${0%/*}/asked"
while [ "$1" != --out ]; do shift; done
printf 'key\n%s\n' row >"$2"
SH
chmod +x tree/scripts/peers/run
printf '#!/bin/bash\nwhile [ $# -gt 1 ]; do [ "$1" != --out ] || { mkdir -p "$2" && echo key >"$2/results.csv"; }; shift; done\n' \
    >build/bin/bench
RANKS=2 PB_PEER_PYTHON=python3 expect 0 'peers-2 took' timeout 100 tree/scripts/ranks-session build out
grep -q '^python3 .* --what comm --ranks 2 .* --processes 2' tree/scripts/peers/asked || fail "no peers of comm"
grep -q -- '--what ranks .*--plumb .*/throughput-2/results.csv --plumb .*/throughput-2-eager/results.csv' \
    tree/scripts/peers/asked || fail "the peers do not get the runs: $(cat tree/scripts/peers/asked)"
[[ $(cat out/peers.csv) == $'key\nrow\nrow' ]] || fail "not one header, and the rows of both: $(cat out/peers.csv)"

exit $((failures > 0))
