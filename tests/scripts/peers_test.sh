#!/bin/bash
# peers_test.sh BENCH CORPUS_IDS ATTENTION_LISTS - scripts/peers with a simulated bench and simulated peers: arguments,
# token ids compared with the trainer's, order, columns, ratios, missing packages. PyTorch is not needed.
bench=$1 corpus_ids=$2 attention_lists=$3 peers=$(cd "${0%/*}/../../scripts/peers" && pwd)
. "${0%/*}/../cli.sh"
export PYTHONDONTWRITEBYTECODE=1

# ---- the simulated programs ----------------------------------------------------------------------------
# Each records its name. Its value depends on the round, so that a ratio of values from two rounds would be noticed.
axes='clip=multi&dtype=f32&layers=0&mode=eager&model=tiny&rank=16&seq=64&targets=q+v&tuning=qlora'
export KEY="throughput/step?batch=1&$axes" LOG=$dir/order COMMON=$peers
cat >player.py <<'PYTHON'
import os
import sys
sys.path.insert(0, os.environ["COMMON"])
import common

side, out, figures = sys.argv[1], sys.argv[2], [float(v) for v in sys.argv[3:]]
with open(os.environ["LOG"], "a") as log:
    log.write(side + "\n")
done = open(os.environ["LOG"]).read().split().count(side) - 1
rows = common.Rows(out, "played")
keys = [os.environ["KEY"]] + [os.environ["KEY"].replace("eager", "graph")] * (side == "plumb")
if keys[0].startswith("attention/"):
    keys = [keys[0] if side == "plumb" else keys[0].replace("=dynmask", "=" + side)]
for key, scale in zip(keys, (1, 0.5)):
    rows.emit(key, os.environ.get("TIME", "step_time"), scale * figures[done % len(figures)], 5)
    rows.emit(key, "tokens_per_second", 64 / figures[done % len(figures)])
    if os.environ.get("TIME") == "optimizer_time":
        rows.emit(key, "peak_memory", 1e6)
if side == "plumb":
    rows.emit("ceiling/copy", "copy_rate", 1e10)
if os.environ.get("UNWELL") == side:
    rows.emit(os.environ["KEY"], "loss", float("nan"))
PYTHON
cat >bench <<'SH'
#!/bin/bash
case $* in *--mode\ graph*) KEY=${KEY/eager/graph} ;; esac
case $* in *--dry-run* | *--throttle-retries\ 0\ *) ;; *) echo 'bench: would measure a disturbed process twice' >&2 && exit 2 ;; esac
[ -z "$BENCH_ENDS" ] || { echo 'bench: no device' >&2 && exit "$BENCH_ENDS"; }
echo "$@" >"${0%/*}/bench_arguments"
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) printf ' 1.0 s  %s\n' ceiling/copy "$KEY" "${KEY/eager/graph}" && exit ;;
    --out) mkdir -p "$2" && exec python3 "${0%/*}/player.py" plumb "$2/results.csv" 0.01 0.02 0.04 ;;
    esac
    shift
done
SH
cat >python <<'SH'
#!/bin/bash
[ "$1" != -c ] || { echo "$LACKS" && exit; }
case $1 in
*torch_step.py | *torch_ranks.py) side=torch figures='0.03 0.08 0.08' ;;
*hf_step.py) side=hf figures='0.1 0.2 0.4' ;;
*gqa_peers.py) side=flex figures='0.03 0.08 0.08' && echo "$@" >"${0%/*}/gqa_arguments" ;;
*liger_step.py) side=liger figures='0.05 0.1 0.2' ;;
*optimizer_peers.py) side=$(sed 's/.*--peer \([a-z_]*\) .*/\1/' <<<"$*") figures='0.03 0.08 0.08' && echo "$@" >>"${0%/*}/optimizer_arguments" ;;
*compile_step.py) side=compile figures='0.02 0.1 0.1' ;;
esac
[ -z "$PEER_ENDS" ] || exit "$PEER_ENDS"
while [ "$1" != --out ]; do shift; done
exec python3 "${0%/*}/player.py" $side "$2" $figures
SH
chmod +x bench python
export PB_BENCH=$dir/bench PB_PEER_PYTHON=$dir/python

run() { "$peers/run" --what qlora --cases tiny:1x64 "$@"; }

# ---- arguments ------------------------------------------------------------------------------------------
table "$peers/run" <<'TABLE'
--help                            |   0 | --what
--what qloar                      |   2 | 'qloar' is not one of full, qlora, backward, kernels, attention, optimizer, ranks, comm
--peers jax                       |   2 | 'jax' is not one of torch, hf, liger, compile, dion, dion_triton, tilelang, cudnn, flashmla, sdpa_cudnn, sdpa_flash, flex, dmattn
--what full --peers hf            |   2 | none of them measures full
--what backward --peers liger     |   2 | none of them measures backward
--what full --recompute norms     |   2 | invalid choice: 'norms'
--what comm,kernels --ranks 2 --recompute layer |   2 | --recompute: not with --what comm
--what qlora,backward --loss-chunk 512 |   2 | --loss-chunk: not with --what backward
--what ranks --ranks 2 --mlp-chunk 64 |   2 | --mlp-chunk: not with --what ranks
--what qlora --loss-chunk few     |   2 | 'few' is not a number of tokens
--cases tiny                      |   2 | 'tiny' is not MODEL:BATCHxSEQ
--cases tiny:0x64                 |   2 | 'tiny:0x64' is not MODEL:BATCHxSEQ
--cases tiny:1x64:half            |   2 | 'tiny:1x64:half' is not MODEL:BATCHxSEQ
--ranks 1                         |   2 | --what ranks and comm need --ranks N, with N at least 2
--what comm                       |   2 | --what ranks and comm need --ranks N, with N at least 2
--what full --ranks 2             |   2 | --ranks: full has one rank
--what optimizer --ranks 1        |   2 | --ranks N: N must be at least 2; without --ranks, --what optimizer has one rank
--what optimizer --recompute layer |   2 | --recompute: not with --what optimizer
--what optimizer --path muon=x    |   2 | 'muon=x' is not NAME=PATH, with NAME one of tilelang, cudnn, flashmla, dion
--ranks 2 --plumb a.csv          |   2 | --plumb needs --what ranks --processes 1
--processes 0                      |   2 | --processes must be at least 1
--device tpu                      |   2 | invalid choice
TABLE
for peer in hf liger compile; do expect 2 "no case of qlora for $peer" run --peers $peer --modes graph; done
touch there.csv
expect 2 'there.csv exists' run --out there.csv

# ---- missing packages and programs -----------------------------------------------------------------------
LACKS='peft bitsandbytes' expect 125 'python lacks peft, bitsandbytes' run --out a.csv
[[ $(wc -l <log) -eq 1 ]] || fail 'missing packages: more than a line'
PB_PEER_PYTHON=/proc/nowhere expect 125 '/proc/nowhere' run --out a.csv
PB_BENCH=/proc/nowhere expect 125 '/proc/nowhere' run --out a.csv
BENCH_ENDS=125 expect 125 'bench ended with exit code 125' run --out a.csv
[[ ! -e a.csv ]] || fail 'a.csv is there although nothing was measured'
PEER_ENDS=3 expect 125 'hf_step.py ended with exit code 3' run --processes 2 --out a.csv
[[ $(grep -c -- '-plumb,' a.csv) -eq 10 && $(grep -c 'ended with' log) -eq 4 ]] || fail 'a lost peer took the others along'

# ---- a run: order, columns, ratios ------------------------------------------------------------------------
: >"$LOG"
expect 0 'rows: b.csv, seed 7' run --processes 3 --seed 7 --out b.csv
cp log b.txt && cp "$LOG" b.order
awk 'NR % 5 == 1 { n++ } { if (seen[n, $1]++) bad = 1 } END { exit bad || NR != 15 }' b.order ||
    fail 'a round has not every side once'
grep -qE '^torch: .* eager +/ plumb eager +0\.08 +0\.02 +3\.000 \(2\.000 to 4\.000, 3\)$' b.txt || fail 'ratio of torch'
grep -qE '^liger: .* eager +/ plumb eager +0\.1 +0\.02 +5\.000 ' b.txt || fail 'ratio of liger'
grep -qE '^hf: .* eager +/ plumb graph +0\.2 +0\.01 +20\.000 \(20\.000 to 20\.000, 3\)$' b.txt || fail 'ratio of hf'
"$bench" list --columns | awk '{ print $1 }' | paste -sd, >columns
head -n 1 b.csv | diff - columns >"$dir/log" || fail 'columns are not those of bench'
grep -q 'played; order .*, seed 7' b.csv || fail 'the seed is not in the rows'
awk -F, 'NR > 1 { n[$2]++ } END { for (r in n) print r, n[r] }' b.csv | sort | sed 's/^[^-]*-//' >sides
printf 'compile 9\nhf 9\nliger 9\nplumb 15\ntorch 9\n' | diff - sides >"$dir/log" || fail 'rows of a side are missing'
# ours_over_peer: of one round each, 0.005 over 0.03 and so on. No peer has a graph, so Plumb's graph counts.
awk -F, '$6 == "ours_over_peer" { print $2, $4, $7, $8, $9, $11 }' b.csv | sed 's/^[^-]*-//' | sort >over
printf '%s 1 lower %s ok\n' 'compile 0' 0.25 'compile 1' 0.1 'compile 2' 0.2 'hf 0' 0.05 'hf 1' 0.05 'hf 2' 0.05 \
    'liger 0' 0.1 'liger 1' 0.1 'liger 2' 0.1 'torch 0' 0.166666667 'torch 1' 0.125 'torch 2' 0.25 |
    diff - over >"$dir/log" || fail 'ours_over_peer'
grep -q "ours_over_peer.*Plumb's graph: 0.005 s over 0.1 s" b.csv || fail 'ours_over_peer does not name the variant'
for side in plumb torch hf liger compile; do
    awk -F, -v side="-$side\$" 'NR == 1 || $2 ~ side' b.csv >$side.csv
    expect 0 'throughput/step' "$bench" report $side.csv
done
expect 0 'throughput/step' "$bench" report b.csv
expect 3 'step_time' "$bench" compare plumb.csv torch.csv --all --subset --strict --gates "$peers/../../baselines/gates.csv"

: >"$LOG"
expect 0 'seed 7' run --processes 3 --seed 7 --out c.csv
diff "$LOG" b.order >"$dir/log" || fail 'the same seed gave another order'
: >"$LOG"
expect 0 'seed 8' run --processes 8 --peers torch --seed 8 --out d.csv
[[ $(awk 'NR % 2' "$LOG" | sort -u | wc -l) -eq 2 ]] || fail 'the same side always went first'
: >"$LOG"
UNWELL=hf expect 4 'rows: e.csv' run --processes 1 --out e.csv
grep -q ',loss,1,none,,0,wrong,"loss is not finite;' e.csv || fail 'a loss that is not finite has no row'
expect 0 'no time for round 2 of 3 of qlora' run --processes 3 --limit 0.001 --out f.csv

# ---- several ranks: Plumb's rows from a run that was measured before, and a case without ours -----------------------
KEY="throughput/step?batch=1&${axes/seq=/"ranks=2&seq="}"
: >"$LOG"
python3 player.py plumb plumb_run.csv 0.01
sed -n '2,$s/?/?control=second\&/p' plumb_run.csv >more && cat more >>plumb_run.csv # a control case, which is not compared
expect 0 'rows: g.csv' "$peers/run" --what ranks --ranks 2 --processes 1 --plumb plumb_run.csv --out g.csv
grep -qE '^torch: .* eager ranks=2 +/ plumb graph +0\.03 +0\.005 ' log || fail 'no ratio of the peer of several ranks'
[[ $(grep -c -- '-plumb,' g.csv) -eq 5 ]] || fail "not the rows of --plumb"
KEY="throughput/step?batch=1&$axes"

# ---- grouped-query attention: a peer without --path; its ratio is to the variant that computes the same --------------
mkdir torch_stub
: >"$LOG"
export TIME=kernel_time
KEY='attention/fwd?dtype=bf16&heads=32&list=union&masked=0&qk=64&seq=8192&topk=1024&variant=dynmask'
expect 0 'rows: h.csv' "$peers/run" --what attention --peers flex --processes 1 --out h.csv
grep -qE '^flex: fwd union S8192 H32 D64 W1024 +/ plumb dynmask +0\.03 +0\.01 ' log || fail 'no ratio of flex'
grep -q "variant=flex,ours_over_peer,.*,0.333333333,.*Plumb's dynmask: 0.01 s over 0.03 s" h.csv || fail 'ours_over_peer of flex'
grep -q -- "--peer flex --out .* ${KEY//\?/.}" gqa_arguments || fail "not the arguments of flex: $(cat gqa_arguments)"

# ---- NorMuon: both peers are loaded from one path; a peer with a graph is compared with our graph -----------------------
one_line() { # one_line EXIT TEXT COMMAND...: as expect, with one line of output
    expect "$@"
    [[ $(wc -l <log) -eq 1 ]] || fail "more than a line: $2"
}
optimizer() { "$peers/run" --what optimizer "$@"; }
normuon='batch=1&clip=multi&dtype=bf16&guard=off&iteration=polar_express&layers=0&mode=eager&model=tiny&optimizer=normuon'
normuon+='&rank=16&ranks=2&seq=64&targets=q+v&tuning=full'
: >"$LOG"
export TIME=optimizer_time KEY="optimizer/matrices?$normuon"
mkdir -p muon/dion && touch muon/dion/normuon.py
expect 0 'rows: i.csv' optimizer --ranks 2 --path dion=muon --cases tiny:1x64 --processes 1 --out i.csv
for peer in dion dion_triton; do
    grep -qE "^$peer: normuon polar_express tiny bf16 eager ranks=2 +/ plumb eager +0\.03 +0\.01 +3\.000" log || fail "no ratio of $peer"
    grep -qE "^$peer: .* +/ plumb graph +0\.03 +0\.005 +6\.000" log || fail "no ratio of $peer to the graph"
    grep -q -- "-$peer,.*,ours_over_peer,1,lower,0.166666667,.*Plumb's graph: 0.005 s over 0.03 s" i.csv || fail "ours_over_peer of $peer"
    grep -q -- "--peer $peer --path muon --out .* ${KEY//\?/.}" optimizer_arguments || fail "not the arguments of $peer"
done
grep -qF -- "-plumb0 $KEY" bench_arguments || fail "Plumb measures other cases than the peers: $(cat bench_arguments)"
grep -q '^peak_memory' log && fail 'the memory of a whole trainer is compared with that of the matrices alone'
one_line 2 '--path dion=PATH is missing: a checkout of microsoft/dion' optimizer --out j.csv
one_line 2 '--path dion=PATH is missing: a checkout of microsoft/dion' optimizer --peers dion_triton --path cudnn=muon
one_line 125 'nowhere is not there: a checkout of microsoft/dion' optimizer --path dion=nowhere
one_line 125 'torch_stub: want dion/normuon.py in it' optimizer --path dion=torch_stub
optimizer_peers() { "$peers/optimizer_peers.py" --peer dion "$@"; }
one_line 2 '--path dion=PATH is missing' optimizer_peers "$KEY"
for other in "${KEY/guard=off/guard=on}" "${KEY/polar_express/gram}" "${KEY/seq=/"shard=optimizer&seq="}" "${KEY/eager/graph}" \
    "${KEY/matrices/step}" "${KEY/tuning=full/tuning=lora}"; do
    one_line 2 "$other: want optimizer/matrices?" optimizer_peers --path muon "$other"
done
# The factors of the formula are those of Plumb's kernels, and the shapes those of the model.
PYTHONPATH=$peers python3 -c 'import optimizer_peers as op, sys
for name, (table, safety) in op.ITERATIONS.items():
    f = op.factors(table)
    print(name, safety, len(f), f[0][0], f[4][2])
c = op.Case(sys.argv[1], "cpu")
print(len(c.shapes), *c.shapes[3:7])' "$KEY" >shapes
printf '%s\n' 'quintic 1.0 5 4.0848 1.2012' 'polar_express 1.02 5 8.156554524902461 0.42323551169305323' \
    "14 ('o', 64, 192) ('gate', 176, 64) ('up', 176, 64) ('down', 64, 176)" | diff - shapes >"$dir/log" || fail 'other factors or shapes'
unset TIME
KEY="throughput/step?batch=1&$axes"
# ---- layers that are computed again: the case in the table, and what the peers' scripts accept ----------------------
KEY="throughput/step?batch=1&${axes/seq=/"recompute=layer&seq="}"
: >"$LOG"
expect 0 'rows: recompute.csv' run --processes 1 --peers liger --recompute layer --out recompute.csv
grep -qE '^liger: .* eager recompute=layer +/ plumb graph +0\.05 +0\.005 ' log ||
    fail 'no ratio of a case with recompute=layer'
KEY="throughput/step?batch=1&$axes"
echo 'float32 = bfloat16 = None' >torch_stub/torch.py # all that the module needs to read a key
case_of() { PYTHONPATH=$peers:torch_stub python3 -c 'import step, sys
cases = [step.Case(key) for key in sys.argv[1:]]
print(*[c.recompute for c in cases], len({c.group() for c in cases}))' "$@"; }
expect 0 'none none layer 2' case_of "$KEY" "${KEY/mode=/"loss-chunk=512&mlp-chunk=64&mode="}" \
    "${KEY/seq=/"recompute=layer&seq="}"
expect 2 'peers have recompute=none or layer, not norms' case_of "${KEY/seq=/"recompute=norms&seq="}"
expect 2 'peers do not have the axis pack' case_of "${KEY/rank=/"pack=on&rank="}"

# ---- the geometry of scaled RoPE; the frequencies are those of transformers -----------------------------------------
PYTHONPATH=$peers python3 -c 'import common
for name in "llama-3.1-8b", "tiny-llama":
    g = common.geometry(name)
    f = common.rope_frequencies(g)
    print(name, g["family"], g["factor"], len(f), *[f"{x:.5g}" for x in (f[0], f[len(f) // 2], f[-1])])
    print(*[f"{x:.5g}" for x in f[28:37:4]])' >rope
printf '%s\n' 'llama-3.1-8b LLAMA 8.0 64 1 0.00052485 3.0689e-07' '0.0032114 0.00052485 7.7847e-05' 'tiny-llama LLAMA 1.0 16 1 0.01 0.00017783' '' |
    diff - rope >"$dir/log" || fail 'other frequencies than those of transformers'

# ---- the cases of every peer, from the real bench -----------------------------------------------------------
export PB_BENCH=$bench
unset PB_CONTROLS
expect 0 'hf: throughput/step?batch=4&clip=multi&dtype=bf16&layers=0&mode=eager&model=qwen2.5-1.5b&rank=16&seq=2048' \
    "$peers/run" --what qlora,backward --device cuda --dry-run
[[ $(grep -c '^qlora torch: ' log) -eq 16 && $(grep -c '^backward hf: ' log) -eq 8 ]] || fail 'not 8 cases'
[[ $(grep -c '^qlora liger: \|^backward compile: ' log) -eq 16 ]] || fail 'not 8 cases of liger and compile'
expect 0 'liger: throughput/step?batch=4&clip=multi&dtype=bf16&layers=0&loss-chunk=512&mlp-chunk=4096&mode=eager' \
    "$peers/run" --what qlora --device cuda --cases llama-3.1-8b:4x4096 --recompute layer --loss-chunk 512 --mlp-chunk 4096 --dry-run
[[ $(grep -c '&model=llama-3.1-8b&rank=16&recompute=layer&seq=4096&' log) -eq 5 ]] || fail 'not 5 cases of 8 billion parameters'
expect 0 'kernels torch: kernels/nf4_dequantize?dtype=bf16&shape=' \
    "$peers/run" --what kernels --filter 'kernels/nf4_dequantize?dtype=bf16&*' --dry-run
expect 0 'comm torch: comm/all_gather?bytes=1073741824&dtype=bf16&ranks=2' "$peers/run" --device cuda --ranks 2 --dry-run
[[ $(grep -c '^ranks torch: .*&mode=eager&.*&ranks=2&' log) -eq 12 && $(grep -c '^comm torch: ' log) -eq 30 ]] ||
    fail 'not 12 steps and 30 collectives'
[[ $(grep -c '^ranks .*shard=parameters' log) -eq 6 && $(grep -c '^ranks .*1.5b.*tuning=lora' log) -eq 4 ]] ||
    fail 'not 6 steps of FSDP2, or not 4 of LoRA'
grep -q '^ranks .*mode=graph\|^comm .*control=' log && fail 'a case that the peer has not'
count() { # count N PEER WORD: the dry run in log has N cases of the peer with the word
    [[ $(grep -c "^optimizer $2: .*$3" log) -eq $1 ]] || fail "not $1 cases of $2 with $3"
}
expect 0 'dion: optimizer/matrices?batch=1&clip=multi&dtype=bf16&guard=off&iteration=polar_express&layers=0&mode=eager' \
    optimizer --device cuda --dry-run
count 1 dion '&mode=eager&model=qwen2.5-0.5b&optimizer=normuon&rank=16&seq=64&targets=q+v&tuning=full$'
count 1 dion '&mode=graph&' && count 1 dion_triton '&mode=eager&' && count 1 dion_triton '&mode=graph&'
count 2 'dion[_triton]*' 'mode=eager' && [[ $(wc -l <log) -eq 4 ]] || fail 'not 4 cases of one rank'
expect 0 '&mode=graph&model=qwen3-0.6b&' optimizer --device cuda --ranks 2 --cases tiny:1x64,qwen3-0.6b:1x64 --peers dion --dry-run
[[ $(wc -l <log) -eq 4 && $(grep -c 'ranks=2&seq=64&targets' log) -eq 4 ]] || fail 'not 4 cases of two ranks, nothing sharded'
expect 0 'iteration=quintic' optimizer --peers dion --filter '*iteration=quintic*' --dry-run
[[ $(wc -l <log) -eq 1 ]] || fail 'not the one case of --filter on a CPU, which has no graph'
expect 2 'no case of optimizer for dion' optimizer --peers dion --cases tiny:1x64:lora --dry-run
# A row's unit is looked up in metrics.def: a metric that is not there would fail the case.
grep -ohE 'emit\([a-z_]+, "[a-z_0-9]+"' "$peers"/*.py | sed 's/.*"\(.*\)"/\1/' | sort -u >emitted
[[ $(wc -l <emitted) -gt 10 ]] || fail 'the metrics that peers emit were not found'
"$bench" list metrics | sed 's/ .*//' | sort | comm -13 - emitted >"$dir/log"
[[ ! -s $dir/log ]] || fail 'peers emit metrics that metrics.def does not have'

"$bench" list requirements | sed -n 's|^    .* of \(kernels/[^ ]*\) .*|\1|p' | sort >judged
[[ $(wc -l <judged) -gt 5 ]] || fail 'requirements judge no kernels'
printf '#!/bin/sh\n[ "$1" = list ] || { printf "%%s\\n" "$@" >asked; exit; }\nexec "%s" "$@"\n' "$bench" >listing && chmod +x listing
PB_BENCH=./listing "$peers/run" --what kernels --device cuda --dry-run >/dev/null 2>&1
sed -n 's|&\*shape=|\&shape=|p' asked | sort | diff judged - >"$dir/log" || fail 'not the kernels that requirements judge'

# ---- sparse attention: one line names what is missing; cases; key lists ------------------------------------------
mkdir -p miles wheels/cudnn/deepseek_sparse_attention mla/csrc/sm90/prefill/sparse/instantiations
touch miles/tilelang_sparse_mla_fwd.py
kernel=mla/csrc/sm90/prefill/sparse/instantiations/phase1_k512.cu && echo 'nothing;' >$kernel
attention() { "$peers/run" --what attention --device cuda "$@"; }
for peer in tilelang cudnn flashmla; do
    one_line 2 "--path $peer=PATH is missing" attention --peers $peer
    one_line 125 'nowhere is not there: a ' attention --path $peer=nowhere
    one_line 2 "--path $peer=PATH is missing" "$peers/attention_peers.py" --peer $peer key
done
one_line 125 'miles: want miles_plugins/models/deepseek_v4/ops/kernel/tilelang_sparse_mla_fwd.py or tilelang_sparse_mla_fwd.py' \
    attention --path tilelang=miles
one_line 125 'wheels: want cudnn/deepseek_sparse_attention in it' attention --path cudnn=wheels
mkdir -p wheels/nvidia_cutlass_dsl/dsl_packages && printf '#!/bin/sh\nshift 2\necho "$@"\n' >bare && chmod +x bare
PB_PEER_PYTHON=./bare one_line 125 './bare lacks torch, tvm_ffi; pip install them' attention --path cudnn=wheels
one_line 125 "miles: want ${kernel#mla/} in it" attention --path flashmla=miles
build() { "$peers/attention_peers.py" --peer flashmla --path mla --build mla.so; }
one_line 125 'mla/csrc/cutlass/include: no CUTLASS headers there; PB_CUTLASS names their folder' build
mkdir -p headers/cutlass && touch headers/cutlass/cutlass.h
PB_CUTLASS=headers one_line 125 'no instantiation of run_fwd_phase1_kernel' build
echo 'template void run_fwd_phase1_kernel<512, false>(const SparseAttnFwdParams& params);' >$kernel
PB_CUTLASS=headers CUDACXX=/proc/nowhere one_line 125 '/proc/nowhere: ' build
printf '#!/bin/sh\ngrep -q "run_fwd_phase1_kernel<512, false>(p)" mla.so.cu && echo "x.cu(1): error: why" >&2\nexit 1\n' >nvcc
chmod +x nvcc
PB_CUTLASS=headers CUDACXX=./nvcc one_line 125 'FlashMLA does not build: x.cu(1): error: why' build
[[ ! -e mla.so.cu ]] || fail 'the wrapper is left behind'
expect 2 'is not NAME=PATH' attention --path jax=x
expect 0 'attention tilelang: attention/fwd?dtype=bf16&heads=64&list=v4&masked=0&qk=512&seq=4096&topk=640&variant=sparse' \
    attention --peers tilelang,cudnn,flashmla --dry-run
for sides in 'tilelang 12' 'cudnn 6' 'flashmla 6'; do
    [[ $(grep -c "^attention ${sides% *}: " log) -eq ${sides#* } ]] || fail "not $sides cases"
done
grep -q 'cudnn: .*/fwd\|flashmla: .*/bwd\|variant=dense' log && fail 'a case that the peer has not'
expect 0 'attention flex: attention/bwd?dtype=bf16&heads=32&list=union&masked=0&qk=128&seq=16384&topk=1024&variant=dynmask' \
    attention --dry-run
for peer in sdpa_cudnn sdpa_flash flex dmattn; do
    [[ $(grep -c "^attention $peer: " log) -eq 8 ]] || fail "not 8 cases of $peer"
done
[[ $(wc -l <log) -eq 32 && $(grep -c '^attention sdpa.*variant=dense_gqa$' log) -eq 16 ]] || fail 'other cases than those of PyTorch'
one_line 2 'want attention/fwd?variant=dynmask&... or bwd' "$peers/gqa_peers.py" --peer flex 'attention/fwd?variant=sparse'
key='attention/fwd?dtype=bf16&heads=8&list=causal&masked=0&qk=512&seq=40&topk=16&variant=sparse'
"$attention_lists" "$key" | od -An -v -t d4 -w64 >lists
[[ $(wc -l <lists) -eq 40 ]] || fail 'not 40 lists of 16'
awk '{ n = 0; for (w = 1; w <= 16; w++) { if ($w >= NR || seen[NR, $w]++ && $w >= 0) bad = 1; n += $w >= 0 } }
    n != (NR < 16 ? NR : 16) { bad = 1 } END { exit bad }' lists || fail 'lists that are not the case'"'"'s'
expect 2 'has no lists' "$attention_lists" "${key/sparse/dense}"
# Dynamic mask: the biases of the backward pass too, and the keys that each query of the definition keeps.
key='attention/bwd?dtype=bf16&heads=8&list=KIND&masked=0&qk=64&seq=90&topk=16&variant=dynmask'
for kind in union exact; do
    "$attention_lists" "${key/KIND/$kind}" >"$kind" || fail "no lists of $kind"
    PYTHONPATH=$peers python3 - $kind 2 90 16 <<'PYTHON' >"$dir/log" 2>&1 || fail "lists of $kind that are not the case's"
import array
import sys

import common

kind, K, S, keep = sys.argv[1], *map(int, sys.argv[2:])
data = open(kind, "rb").read()
bias, lists = array.array("f", data[:4 * K * S]), array.array("i", data[4 * K * S:])
assert bias == array.array("f", [2 * (2 * common.uniform(4, i) - 1) for i in range(K * S)]), "biases"
L = len(lists) // (2 * K)
for k in range(K):
    slots = list(zip(lists[k * L:(k + 1) * L], lists[(K + k) * L:(K + k + 1) * L]))
    def first(n):
        return set(sorted(range(n), key=lambda j: -bias[k * S + j])[:keep])
    for i in range(S):
        want = first(i + 1) if kind == "exact" else {j for j in first(S) if j <= i}
        assert {j for j, until in slots if 0 <= j <= i < until} == want, (k, i)
PYTHON
done
# Axis bias reaches the tensors: in blocks of 64 keys, the biases of neighbours differ by 1e-6, between blocks by more.
union=${key/KIND/union}
"$attention_lists" "${union/bwd\?/"bwd?bias=blocks&"}" >blocks || fail 'no lists of blocks'
python3 -c 'import array
bias = array.array("f", open("blocks", "rb").read()[:4 * 90])
steps = [abs(b - a) for a, b in zip(bias, bias[1:])]
assert [i for i, s in enumerate(steps) if not s < 1e-5] == [63], steps' 2>"$dir/log" || fail 'other biases than those of blocks'
key=${key/KIND/causal} && key=${key/topk=16/topk=0}
expect 2 'has no lists' "$attention_lists" "${key/dynmask/dense_gqa}"

# ---- the peers' token ids equal the trainer's ----------------------------------------------------------------
# One process asks for all batches, as in a measurement, where the text is read once.
shapes=('1 128' '4 512' '3 2048' '1 128')
for shape in "${shapes[@]}"; do "$corpus_ids" $shape; done >want
PYTHONPATH=$peers python3 -c 'import common, sys
for shape in sys.argv[1:]:
    for part in common.batch(*map(int, shape.split())):
        for row in part:
            print(*row)' "${shapes[@]}" | cmp - want >"$dir/log" 2>&1 || fail "other ids than the trainer's"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
