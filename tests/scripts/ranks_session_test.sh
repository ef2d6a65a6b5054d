#!/bin/bash
# ranks_session_test.sh BENCH SOURCE - scripts/ranks-session with three ranks on the CPU: its files, rows and projection;
# which cases it would measure on GPUs; and a session without time. No time is compared with a bound.
real=$1 source=$2
. "${0%/*}/../cli.sh"
unset RANKS DEVICE PROCESSES PB_PEER_PYTHON PB_CONTROLS
export TMPDIR=$dir
mkdir -p build/bin path && ln -s "$real" build/bin/bench && ln -s "${real%/*}/train" build/bin/train
session() { PATH=$dir/path:$PATH timeout -k 1 200 "$source/scripts/ranks-session" build out "$@"; }

# ---- the whole session with model tiny -------------------------------------------------------------------------------
DEVICE=cpu RANKS=3 PROCESSES=1 expect 0 'ranks-session: bench project --ranks 3 from 1 and 2 ranks: exit code 0' session
grep -q '^projected steps\|^step' out/tables.txt || fail "no steps are projected: $(tail -n 30 out/tables.txt)"
[[ $(find out -type f | wc -l) -eq 7 && $(find out -mindepth 2 | wc -l) -eq 0 ]] || fail "not seven files: $(ls out)"
# A step on one rank, two with 2 and two with 3 ranks, all eager and as a graph, and a step of the large model; 3 collectives
# in 2 types and 3 sizes. On a busy machine rows are marked as throttled.
rows() { # rows NUMBER FILE REGEX: so many rows with a value match
    [[ $(grep -cE "$3,[a-zA-Z/]*,[a-z]*,[0-9.e-]+,[0-9]*,(ok|throttled)" "out/$2") -eq $1 ]] ||
        fail "$2: $(grep -cE "$3" "out/$2") rows match '$3', want $1"
}
rows 11 throughput.csv 'throughput/.*,step_time'
rows 1 throughput.csv 'throughput/.*&ranks=3&recompute=layer&.*shard=parameters.*,step_time'
for n in 2 3; do
    [[ $(grep -cE "mode=graph.*ranks=$n.*,scaling_efficiency,1,higher,[0-9]" out/throughput.csv) -eq 2 ]] ||
        fail "not 2 efficiencies of graphs of $n ranks"
    rows 18 comm.csv "comm/.*&ranks=$n,time"
    rows 2 attention.csv "attention/.wd\?cp=$n&.*&ranks=$n&.*,kernel_time"
done
rows 2 optimizer.csv 'optimizer/.*&ranks=3&.*,optimizer_time'
[[ $(tar -tzf out/profile.tgz | grep -cE 'traces/.*/rank[02].json') -eq 2 ]] || fail "not two traces: $(tar -tzf out/profile.tgz)"
grep -q 'collectives are in the traces of several ranks' out/tables.txt || fail "the trace is not analysed: $(tail -n 30 out/tables.txt)"
for suite in comm throughput optimizer attention; do
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
rm build/bin/train
printf '#!/bin/bash\necho "$*" >>"%s/trained"\n' "$dir" >build/bin/train
chmod +x build/bin/bench build/bin/train
expect 0 'from 1 and 2 ranks' env RANKS=8 PATH="$dir/path:$PATH" "$source/scripts/ranks-session" build out
count() { # count NUMBER REGEX: so many planned cases match
    [[ $(grep -cE "$2" cases) -eq $1 ]] || fail "$(grep -cE "$2" cases) cases match '$2', want $1: $(grep -v ceiling cases)"
}
for mode in eager graph; do
    count 1 "throughput/step\?batch=4&.*&mode=$mode&model=qwen2.5-1.5b&rank=16&seq=512&.*tuning=qlora"
    for n in 2 4 8; do
        count 1 "throughput/.*&mode=$mode&model=qwen2.5-1.5b&.*&ranks=$n&seq=512&targets=q.v&tuning=qlora"
        count 8 "throughput/.*&mode=$mode&model=qwen2.5-0.5b&.*&ranks=$n&.*tuning=full"
        count 4 "throughput/.*&mode=$mode&model=qwen.*&ranks=$n&.*shard=parameters"
    done
done
for n in 2 4 8; do count 32 "comm/all_reduce\?bytes=[0-9]*&dtype=.*&ranks=$n"; done
count 0 'ranks=16'
for n in 2 8; do
    count 2 "attention/.wd\?cp=$n&.*&list=v4&.*&ranks=$n&seq=65536&.*variant=sparse"
    count 2 "attention/.wd\?cp=$n&.*&ranks=$n&seq=65536&slices=zigzag&.*variant=dense"
done
count 2 'optimizer/matrices\?.*&model=qwen2.5-0.5b&.*&ranks=8&'
count 1 'throughput/.*&mode=graph&model=llama-3.1-8b&.*&ranks=8&.*shard=parameters&.*tuning=full'
grep -q -- '--ranks 8 .*--profile-ranks 0,7 ' trained || fail "no trace of two ranks: $(cat trained)"
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
rm cases trained
expect 0 'from 1 and 2 ranks' env RANKS=2 PATH="$dir/path:$PATH" "$source/scripts/ranks-session" build out
count 2 'throughput/.*control=second&.*&mode=graph&.*&ranks=2'
count 2 'comm/.*control=second'
count 0 'control=.*mode=eager'
count 0 'attention/|optimizer/|llama'
[[ ! -e trained ]] || fail "two ranks are traced"

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
