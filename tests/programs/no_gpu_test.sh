#!/bin/bash
# no_gpu_test.sh BENCH TRAIN FAKE - a machine without a driver, with an old driver, and without a GPU. They are
# simulated with the library FAKE (a libcuda.so.1) and with an empty library. Exit code 125, one line, and no folder of
# results.
bench=$1 train=$2 fake=$3
. "${0%/*}/../cli.sh"
mkdir drivers && printf 'int nothing;\n' | "${CC:-cc}" -shared -x c -o drivers/libcuda.so.1 - || fail 'no compiler'

# refused LIBRARIES KIND TEXT PROGRAM ARG...: the program must be refused with this text
refused() {
    local libraries=$1 kind=$2 text=$3
    shift 3
    expect 125 "$text" env PB_FAKE_CUDA="$kind" LD_LIBRARY_PATH="$libraries" "$@"
    [[ $(wc -l <log) -eq 1 ]] || fail "not one line: ${*##*/}"
}
for what in "$dir/drivers|x|no usable GPU: no NVIDIA driver is installed" \
    "${fake%/*}|old|the driver is too old: it runs CUDA up to 11.4, this program needs " \
    "${fake%/*}|none|no usable GPU: no CUDA-capable device is detected"; do
    IFS='|' read -r libraries kind text <<<"$what"
    refused "$libraries" "$kind" "bench: cuda: $text" "$bench" --suite ceiling --device cuda --out o
    refused "$libraries" "$kind" "train: cuda: $text" "$train" --device cuda --steps 1 --save s --save-interval 1 --log l.csv
    refused "$libraries" "$kind" "train: cuda: $text" "$train" eval --device cuda --dump-logits logits
done
[[ -z $(ls | grep -vx 'drivers\|log') ]] || fail "something was written: $(ls)"
expect 0 'step      1/1' env PB_FAKE_CUDA=old LD_LIBRARY_PATH="${fake%/*}" "$train" --steps 1 # the CPU needs no driver

[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
