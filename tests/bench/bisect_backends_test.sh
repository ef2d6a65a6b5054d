#!/bin/bash
# bisect_backends_test.sh BENCH - bench bisect-backends: what it prints and its exit codes. divergence_test tests faults.
bench=$1
. "${0%/*}/../cli.sh"

expect 0 'backward/step?batch=1&clip=fused&dtype=f32&layers=0&mode=eager&model=tiny&rank=16&seq=16&targets=q+v&tuning=lora' \
    "$bench" bisect-backends --model tiny --tuning lora --seq 16 --batch 1 --prefer ref
[[ $(wc -l <log) == 2 ]] || fail 'more than a key and a verdict'
grep -qE '^no op differs: 60 tensors are within their bounds; closest to its bound: .*, [1-9][0-9.]*e-[0-9]* of [15]e-0[0-9]$' \
    <("$bench" bisect-backends --model tiny --tuning lora --seq 16 --batch 1 --prefer ref) || fail 'no verdict'
"$bench" bisect-backends --model tiny --tuning lora --seq 16 --batch 1 --prefer ref --all >all || fail '--all fails'
for line in 'layers.0.h  *embedding_fwd ' 'layers.1.o  *attention_fwd ' 'layers.1.act  *swiglu_fwd ' 'logits  *linear_fwd ' 'layers.0.qkv  *linear_fwd.lora_fwd.rope_fwd ' 'logits.gradient  *xent_bwd ' \
    'layers.0.lora_a.q.gradient  *backward '; do
    grep -qE "^  $line.* of .*  agrees$" all || fail "no line $line: $(head -5 all)"
done
[[ $(grep -c ' agrees$' all) == 60 ]] || fail 'not every tensor has a line'

table "$bench" <<'T'
bisect-backends --model tiny                   | 2 | both sides would be the CPU's: use --device cuda, or --prefer NAME
bisect-backends --prefer refs --model tiny     | 2 | --prefer refs: no op has an implementation of this name on cpu
bisect-backends --prefer ref --mode graph --model tiny | 2 | no case has mode=eager and clip=fused
bisect-backends --prefer ref --model nothing   | 2 | nothing
bisect-backends tiny --prefer ref              | 2 | bisect-backends takes no argument; the model is --model
bisect_backends --model tiny                   | 2 | 'bisect_backends' is not a command; did you mean 'bisect-backends'?
bisect-backends --processes 3                  | 2 | bisect-backends has no option '--processes'
T
exit $((failures > 0))
