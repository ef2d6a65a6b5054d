#!/bin/bash
# train_capture_test.sh TRAIN_POISONED BENCH - train --capture-nan: the line that names the matrix at fault, the capture, and
# its replay, in eager and graph mode and on two ranks.
train=$(realpath "$1") bench=$(realpath "$2") ranks=$3
. "${0%/*}/../cli.sh"
export PB_POISON=2
options=(--model tiny --tuning full --optimizer normuon --batch 1 --seq 32 --steps 3 --quiet)
line='train: step 2 skipped: an orthogonalised update is not finite (NaN guard): layers.1.o, first at row 0, column 0'

for mode in eager graph; do
    file=$mode/step2-rank0-layers.1.o.safetensors
    expect 0 "$line" "$train" "${options[@]}" --nan-guard --mode $mode --capture-nan $mode
    grep -qxF "train: step 2: captured in $file" log || fail "$mode: no line about the capture"
    [[ $(ls $mode) == "${file#*/}" ]] || fail "$mode: not one capture: $(ls $mode)"
    expect 0 'layer    1' "$bench" replay $file
    for want in 'step     2' 'rank     0' 'phase    optimizer' 'tensor   layers.1.o, rows 0 to'; do
        grep -qF "$want" log || fail "$mode: '$want' is not in the replay"
    done
    grep -qE '^1 +y .* same bits$' log || fail "$mode: the replay has other bits"
    grep -qE '^1 +y +\[1,[0-9]+\] +[a-z0-9]+ +[1-9]' log || fail "$mode: no NaN in the capture"
    expect 0 'agrees' "$bench" replay $file --impl ref
done
cmp -s eager/*.safetensors graph/*.safetensors || fail 'eager and graph wrote different captures'

# Without the option nothing is written, and the matrix is named all the same.
expect 0 "$line" "$train" "${options[@]}" --nan-guard
[[ $(ls) == $'eager\ngraph\nlog' ]] || fail "files without --capture-nan: $(ls)"
expect 0 'train: step 2 was not captured: capture: with tensor extra/' \
    "$train" "${options[@]}" --nan-guard --model smollm2-135m --layers 2 --seq 8 --capture-nan small --capture-limit 1
[[ -z $(ls small) ]] || fail "a capture larger than the limit: $(ls small)"
expect 2 'train: --capture-nan needs --nan-guard' "$train" "${options[@]}" --capture-nan none
expect 2 'train: log/x:' "$train" "${options[@]}" --nan-guard --capture-nan log/x
[[ ! -e none ]] || fail 'a folder in spite of wrong options'

if [[ $ranks == 2 ]]; then
    expect 0 "$line" "$train" "${options[@]}" --nan-guard --ranks 2 --capture-nan two
    for rank in 0 1; do
        expect 0 "rank     $rank" "$bench" replay two/step2-rank$rank-layers.1.o.safetensors
    done
fi
exit $((failures > 0))
