#!/bin/bash
# controls_suites_test.sh BENCH [ranks] - control cases of every suite, on tiny cases: each run has them, their rows are
# complete, and except for these the run has the rows that it has without: no ratio, requirement or conclusion twice. With
# `ranks`, also on two ranks.
bench=$1
. "${0%/*}/../../cli.sh"

# rows FILE: key and metric of its rows, a control case's marked by its axis.
rows() { tail -n +2 "$1/results.csv" | cut -d, -f5,6 | sort; }

# suite NAME COPIES METRIC ARGUMENT...: measures the suite with and without controls. There must be so many copies, each
# with the metric, a regular expression.
suite() {
    local name=$1 copies=$2 metric=$3 run=(--samples 2 --min-time 0 -n 1 --ceilings no --no-compare --no-keep --seed 3)
    shift 3
    rm -rf with without
    PB_CONTROLS='' expect 0 results timeout -k 1 120 "$bench" run --suite "$name" "${run[@]}" "$@" --out with
    if [[ $copies -gt 0 ]]; then
        grep -q "^$copies control cases\? .* measured once more in each process" log || fail "$name does not name its controls"
    else
        grep -q "^no control cases: no case of this run measures a time" log || fail "$name does not say why it has no controls"
    fi
    expect 0 results timeout -k 1 120 "$bench" run --suite "$name" "${run[@]}" "$@" --out without
    grep -q 'control case' log && fail "$name: PB_CONTROLS=no does not switch the controls off"
    [[ $(rows with | grep -cE "^$name/.*control=second.*,$metric\$") -eq $copies ]] || fail "$name: not $copies copies: $(rows with | grep control)"
    [[ $(rows with | uniq -d | wc -l) -eq 0 ]] || fail "$name: rows that are there twice: $(rows with | uniq -d)"
    diff <(rows with | grep -v 'control=') <(rows without) >log || fail "$name: other rows than without controls"
    rows with | grep 'control=' | grep -q '_over_\|requirement' && fail "$name: a control has a ratio or a requirement: $(rows with | grep control)"
}

tiny=(--model tiny --batch 1)
suite self 2 '(row|compare)_time' row compare
suite load 2 load_time "${tiny[@]}" --seq 16
suite throughput 2 step_time "${tiny[@]}" --seq 16 --mode eager,graph --tuning lora
suite throughput 1 step_time "${tiny[@]}" --seq 16 --tuning full
suite backward 2 backward_time "${tiny[@]}" --seq 16
suite optimizer 2 optimizer_time "${tiny[@]}" --seq 16 --optimizer adamw --mode eager,graph
suite profile 2 range_time range
suite profile 2 step_time step --layers 1 --seq 8 --mode eager --level off,ring
suite kernels 2 kernel_time rmsnorm_fwd --shape 'B1.S256.G1.D576.*' --dtype f32,bf16
suite attention 1 kernel_time bwd --dtype f32 --heads 8 --list causal --qk 64 --seq 64 --topk 0 --variant dense_gqa
suite convergence 0 last_loss "${tiny[@]}" --steps 20 --tuning full
if [[ $2 == ranks ]]; then
    suite throughput 2 step_time "${tiny[@]}" --seq 16 --tuning full --ranks 2 --shard none,parameters
    suite comm 1 time all_reduce --ranks 2 --bytes 1024 --dtype f32
    suite optimizer 1 optimizer_time "${tiny[@]}" --seq 16 --tuning full --optimizer adamw --moments f32 --mode eager --ranks 2
    suite profile 2 step_time step --ranks 2 --layers 1 --seq 8 --mode eager
    suite attention 1 kernel_time fwd --ranks 2 --cp 2 --seq 128 --dtype f32 --masked 0 --variant dense --list causal \
        --topk 0 --slices zigzag
fi
exit $((failures > 0))
