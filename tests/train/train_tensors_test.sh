#!/bin/bash
# train_tensors_test.sh TRAIN_POISONED BENCH - train --capture-tensors: which steps, layers and tensors it writes, what the
# statistics say of a NaN, and that a replayed graph gives the same files.
train=$(realpath "$1") bench=$(realpath "$2")
. "${0%/*}/../cli.sh"
export PB_POISON=3
options=(--model tiny --tuning full --optimizer normuon --nan-guard --batch 2 --seq 32 --steps 5 --quiet
    --profile-ranks 0 --profile-steps 2:0:0:1:2)

for mode in eager graph; do
    expect 0 'train: step 3 skipped' "$train" "${options[@]}" --mode $mode --profile-out $mode \
        --capture-tensors '^layers\.1\.(qkv|o\.gradient)$|^hf$'
    [[ $(echo "$mode"/tensors/*) == $(printf "$mode/tensors/%s " step{3,4}-rank0{-layer1.safetensors,-rest.safetensors,.csv} |
        sed 's/ $//') ]] || fail "$mode: other files: $(ls $mode/tensors)"
done
diff -r eager/tensors graph/tensors >log || fail 'eager and graph wrote different tensors'

# Step 3 began with a NaN in row 0, column 5 of this momentum; step 4 began with the value that was there.
row=$(grep '^layers.1.o.momentum,' eager/tensors/step3-rank0.csv)
[[ $row == layers.1.o.momentum,1,f32,64,192,*,1,0,0,5,,,,, ]] || fail "step 3: $row"
row=$(grep '^layers.1.o.momentum,' eager/tensors/step4-rank0.csv)
[[ $row == layers.1.o.momentum,1,f32,64,192,*,0,0,,,,,,, ]] || fail "step 4: $row"
[[ $(grep -cE ',[1-9][0-9]*,0,[0-9]+,[0-9]+,[a-z0-9_+]*,[0-9]*,[0-9]*,[0-9]*,[0-9]*$' eager/tensors/step3-rank0.csv) == 1 ]] || fail 'more tensors with NaN'
[[ $(head -n 1 eager/tensors/step3-rank0.csv) == tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,inf,first_row,first_col,ops,batch_row,token,head,micro_batch ]] ||
    fail 'another header'
file=eager/tensors/step3-rank0-layer1.safetensors
for name in extra/layers.1.qkv extra/layers.1.o.gradient '"step":"3"' '"layer":"1"'; do
    head -c 1000 $file | grep -qF "$name" || fail "$file has no $name"
done
head -c 1000 $file | grep -qF layers.1.h && fail "$file has a tensor that does not match"
expect 2 "bench: $file: it has tensors, but no call to run again" "$bench" replay $file

# A tensor without a finite element has no minimum, maximum and root mean square.
expect 1 'step 2 skipped: the loss is not finite' env -u PB_POISON "$train" --model tiny --tuning full --batch 1 --seq 32 \
    --steps 2 --lr 1e38 --clip none --warmup 0 --profile-ranks 0 --profile-steps 1:0:0:1 --profile-out lost --capture-tensors hf
grep -qx 'hf,,f32,32,64,,,,0,2048,0,0,0,swiglu_fwd+linear_fwd+addnorm_fwd,0,0,,0' lost/tensors/step2-rank0.csv || fail "hf: $(grep ^hf lost/tensors/*.csv)"

# Micro-batches and gradients of activations: the captured step is eager in both modes, and the losses do not change. Only
# rank 0 captures, and both ranks run the step eagerly.
several=(--model tiny --tuning full --batch 2 --seq 32 --steps 4 --accumulate 2 --ranks 2 --quiet --deterministic)
expect 0 '' env -u PB_POISON "$train" "${several[@]}" --mode graph --log plain.csv
for mode in eager graph; do
    expect 0 '' env -u PB_POISON "$train" "${several[@]}" --mode $mode --log $mode.csv --profile-ranks 0 --profile-steps 2:0:0:1:1 \
        --profile-out grad-$mode --capture-tensors '^layers\.1\.(qkv|grad_qkv|o\.gradient)$' --capture-gradients
    cmp <(cut -d, -f1-5 plain.csv) <(cut -d, -f1-5 $mode.csv) || fail "$mode: the capture changes the losses"
    [[ $(cd grad-$mode/tensors && echo *) == "step3-rank0-layer1.safetensors step3-rank0-micro0-layer1.safetensors \
step3-rank0-micro1-layer1.safetensors step3-rank0.csv" ]] || fail "$mode: other files: $(ls grad-$mode/tensors)"
done
diff -r grad-eager/tensors grad-graph/tensors >log || fail 'gradients of activations: eager and graph wrote different tensors'
launches() { awk -F, -v n="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "kernel_launches") c = i } NR == n + 1 { print $c }' "$1"; }
[[ $(launches graph.csv 3) -gt $(launches graph.csv 4) ]] || fail "step 3 was replayed: $(launches graph.csv 3) launches"
table=grad-graph/tensors/step3-rank0.csv
for name in layers.1.qkv layers.1.grad_qkv layers.0.grad_h grad_nf logits; do
    [[ $(grep "^$name," $table | sed 's/.*,//' | tr '\n' ' ') == '0 1 ' ]] || fail "$name: not a row for each micro-batch"
    [[ $(grep "^$name," $table | cut -d, -f6-8 | sort -u | wc -l) == 2 ]] || fail "$name: both micro-batches have the same values"
done
[[ $(grep -c '^layers.1.o.gradient,.*,$' $table) == 1 ]] || fail 'not one row of a parameter'
head -c 1000 grad-graph/tensors/step3-rank0-micro1-layer1.safetensors | grep -qF extra/layers.1.grad_qkv || fail 'no grad_qkv'
# With --recompute, activations that are computed again are captured in every layer, in both modes, with and without
# gradients; they are those of a step that kept them.
for run in none layer graph grad; do
    expect 0 '' env -u PB_POISON "$train" --model tiny --tuning full --batch 1 --seq 32 --steps 1 --quiet --profile-ranks 0 \
        --profile-steps 0:0:0:1 --profile-out again-$run --capture-tensors 'layers\.[01]\.(qkv|gu)$' \
        --recompute "$([[ $run == none ]] && echo none || echo layer)" --mode "$([[ $run == graph ]] && echo graph || echo eager)" \
        $([[ $run == grad ]] && echo --capture-gradients)
    for layer in 0 1; do
        cmp again-{none,$run}/tensors/step1-rank0-layer$layer.safetensors || fail "$run: other activations of layer $layer"
    done
    [[ $run == grad ]] || diff <(sort again-none/tensors/step1-rank0.csv) <(sort again-$run/tensors/step1-rank0.csv) >log ||
        fail "$run: another table"
done
grep -q grad_qkv again-grad/tensors/step1-rank0.csv || fail 'no gradients'
rm -r again-*
expect 2 'train: --capture-gradients needs --capture-tensors' "$train" --steps 1 --quiet --capture-gradients
expect 2 'train: --capture-tensors needs --profile-ranks' "$train" --steps 1 --quiet --capture-tensors h
expect 2 'train: --capture-tensors: pattern: missing closing parenthesis' "$train" "${options[@]}" --capture-tensors '(' --profile-out x
touch trigger
expect 2 'train: --capture-tensors needs a schedule' \
    "$train" "${options[@]}" --capture-tensors h --profile-on-demand trigger --profile-out y
expect 0 'train: the tensors of step 3 were not captured: capture: with tensor' "$train" "${options[@]}" --model smollm2-135m \
    --layers 1 --capture-limit 1 --capture-tensors weight --profile-out z --profile-steps 2:0:0:1:1 --steps 3

# bench analyze nan: the place of the first NaN; what is not known because the step before was not captured.
place='layer 1, layers.1.o.momentum, matrix row 0, column 5: the first value that is not finite (1 NaN, 0 infinite of 12288)'
expect 0 "step 3, rank 0, $place" "$bench" analyze nan eager
expect 0 'step 2 of rank 0 was not captured, so the fault may be older: run again with --profile-steps 1:0:0:2:1' \
    "$bench" analyze nan eager
expect 0 'step 2, rank 0, embed.weight, matrix row 0, column 0: the first' "$bench" analyze nan lost
expect 0 '' env PB_POISON_RANK=1 "$train" "${options[@]}" --ranks 2 --profile-ranks all --profile-steps 0:0:0:4:1 --profile-out two \
    --capture-tensors '^none$'
mkdir -p 'loaded[1]/tensors'
{
    echo tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,inf,first_row,first_col,ops,batch_row,token,head,micro_batch
    echo layers.0.qkv,0,f32,32,128,0,1,1,0,9,0,2,3,linear_fwd,0,2,,0
    echo layers.0.qkv.weight,0,f32,128,64,0,1,1,0,1,0,7,4,,,,,
} >'loaded[1]/tensors/step1-rank0.csv'
expect 0 'step 1, rank 0, layer 0, layers.0.qkv.weight, matrix row 7, column 4: the first' "$bench" analyze nan 'loaded[1]'
expect 0 'step 1 began with this weight' "$bench" analyze nan 'loaded[1]'
mkdir -p mask/tensors
{
    head -n 1 'loaded[1]/tensors/step1-rank0.csv'
    echo layers.1.qkv,1,f32,64,128,0,1,1,0,0,0,,,linear_fwd+rope_fwd,,,,0
    echo layers.1.o,1,f32,64,192,0,1,1,0,32,0,37,70,attention_fwd,1,5,2,0
    echo hf,,f32,64,64,0,1,1,0,64,0,37,0,addnorm_fwd,1,5,,0
} >mask/tensors/step1-rank0.csv
expect 0 'step 1, rank 0, layer 1, op attention_fwd, layers.1.o, batch row 1, token 5, head 2, row 37, column 70: the first' \
    "$bench" analyze nan mask
# The first micro-batch comes first, its activations before the gradients of activations, also of those of an earlier layer,
# these in the order of the file, and gradients of parameters last.
mkdir -p micro/tensors
{
    head -n 1 'loaded[1]/tensors/step1-rank0.csv'
    echo layers.0.grad_o,0,f32,64,192,0,1,1,0,32,0,5,70,linear_dx,0,5,1,1
    echo layers.0.grad_qkv,0,f32,64,192,0,1,1,0,32,0,5,70,attention_bwd,0,5,1,1
    echo layers.1.n1,1,f32,64,64,0,1,1,0,9,0,3,0,rmsnorm_fwd,0,3,,1
    echo layers.1.h,1,f32,64,64,0,1,1,0,0,0,,,addnorm_fwd,,,,2
    echo hf,,f32,64,64,0,1,1,0,64,0,0,0,addnorm_fwd,0,0,,2
    echo embed.gradient,,f32,272,64,0,1,1,0,64,0,0,0,,,,,
} >micro/tensors/step1-rank0.csv
expect 0 'step 1, rank 0, micro-batch 1, layer 1, op rmsnorm_fwd, layers.1.n1, batch row 0, token 3, row 3, column 0: the first' \
    "$bench" analyze nan micro
sed -i s/0,9,0,3,0,rmsnorm/0,0,0,,,rmsnorm/ micro/tensors/step1-rank0.csv
expect 0 'step 1, rank 0, micro-batch 1, layer 0, op linear_dx, layers.0.grad_o, batch row 0, token 5, head 1, row 5, column 70: the first' \
    "$bench" analyze nan micro
sed -i s/32,0,5,70,/0,0,,,/ micro/tensors/step1-rank0.csv
expect 0 'step 1, rank 0, micro-batch 2, op addnorm_fwd, hf, batch row 0, token 0, row 0, column 0: the first' "$bench" analyze nan micro
sed -i s/64,0,0,0,addnorm/0,0,,,addnorm/ micro/tensors/step1-rank0.csv
expect 0 'step 1, rank 0, embed.gradient, matrix row 0, column 0: the first' "$bench" analyze nan micro
# Activations that were computed again are listed from the last layer to the first.
mkdir -p again/tensors
{
    head -n 1 'loaded[1]/tensors/step1-rank0.csv'
    echo layers.1.h,1,f32,64,64,0,1,1,0,9,0,3,0,addnorm_fwd,0,3,,0
    echo layers.0.n1,0,f32,64,64,0,1,1,0,9,0,4,0,rmsnorm_fwd,0,4,,0
    echo layers.0.qkv,0,f32,64,128,0,1,1,0,9,0,4,0,linear_fwd,0,4,,0
    echo hf,,f32,64,64,0,1,1,0,64,0,0,0,addnorm_fwd,0,0,,0
} >again/tensors/step1-rank0.csv
expect 0 'step 1, rank 0, layer 0, op rmsnorm_fwd, layers.0.n1, batch row 0, token 4, row 4' "$bench" analyze nan again
"$bench" analyze nan two >log 2>&1
[[ $(cat log) == "step 3, rank 1, $place" ]] || fail "two ranks: $(cat log)"
cp two/tensors/step3-rank1.csv two/tensors/step3-rank0.csv
expect 0 'also on rank 1: row 0, column 5' "$bench" analyze nan two
cp two/tensors/step3-rank1.csv two/tensors/step4-rank1.csv
expect 0 'step 3, rank 0, layer 1' "$bench" analyze nan two
rm two/tensors/step3-* two/tensors/step4-*
expect 0 'all values of the captured steps are finite' "$bench" analyze nan two
echo 'h,0,f32,1,1' >>two/tensors/step2-rank0.csv
expect 2 'step2-rank0.csv: not a table of train --capture-tensors' "$bench" analyze nan two
expect 2 'none: no statistics of tensors; run again with train --profile-ranks all --capture-tensors' "$bench" analyze nan none
expect 2 'analyze nan: it has no options' "$bench" analyze nan two --format csv
exit $((failures > 0))
