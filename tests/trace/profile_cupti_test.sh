#!/bin/bash
# profile_cupti_test.sh PROGRAM LIBRARY GROUPS FEED - windows of a profiled process whose GPU's counters are sampled, with a
# fake library in place of CUPTI: the samples are in the trace, in the files of the rank and the job, and in the records;
# what cannot be sampled is said once, and the rest of the trace is written.
program=$1 library=$2 groups=$3 feed=$4
. "${0%/*}/../cli.sh"
export LD_LIBRARY_PATH=${library%/*}
profiled() { # profiled KIND CODE TEXT: into the folder KIND
    PB_FAKE_CUPTI=$1 expect "$2" "$3" "$program" "$1" "$groups/TIMELINE.txt"
}
trace() { zcat "$1/traces/$2/rank0.json.gz"; }
tracks() { trace "$1" "$2" | grep '"ph":"C"' | sed 's/,"pid".*//' | sort | uniq -c; }
figure() { trace "$1" "$2" | grep -o "\"$3\":[0-9]*" | sed 's/.*://'; } # figure FOLDER WINDOW KEY

profiled none 0 expected
expected=$(sed -n 's/^expected //p' log)
for window in step3-4 step6-7; do
    samples=$(figure none $window samples)
    # 40 ms of a busy machine have 39 whole intervals at least; the first sample is discarded.
    [[ $samples -ge 38 ]] || fail "$window: $samples samples"
    [[ $(tracks none $window | awk -v n="$samples" '$1 == n' | wc -l) -eq 8 ]] || fail "$window: $(tracks none $window)"
    [[ $(tracks none $window | grep -c '"name":"sm_busy (%)"$') -eq 1 ]] || fail "$window: no track sm_busy"
    # Event 6 has the value 600 and more in each millisecond, which is a rate per second.
    trace none $window | sed -n 's/.*"name":"pcie_read_rate (B\/s)".*"value":\(.*\)}}.*/\1/p' |
        awk '!($1 >= 599000 && $1 < 1700000) { exit 1 }' || fail "$window: a rate is none"
    [[ $(figure none $window samples_outside) == 0 && $(figure none $window sample_interval_us) == 1000 ]] || fail "$window: the tail"
    trace none $window | grep -q '"name":"ProfilerStep#' || fail "$window: no ranges"
done
bytes=$(trace none step3-4 | wc -c)
[[ $expected -gt $((bytes / 3)) && $expected -lt $((bytes * 3)) ]] || fail "expected $expected bytes, the trace has $bytes"
sum=$(($(figure none step3-4 samples) + $(figure none step6-7 samples)))
python3 - "$sum" <<'TEXT' || fail 'the files of the rank and the job'
import json, sys
windows = json.load(open("none/ranks/rank0.json"))["windows"]
assert [w["sampling"]["interval_us"] for w in windows] == [1000, 1000], windows
assert sum(w["sampling"]["samples"] for w in windows) == int(sys.argv[1]), windows
assert all(w["sampling"]["outside"] == 0 and w["sampling"]["overflows"] == 0 for w in windows), windows
assert all(0 < w["sampling"]["decode_cpu_s"] < 10 for w in windows), windows
recorded = json.load(open("none/manifest.json"))["recorded"][0]
assert recorded["samples"] == int(sys.argv[1]), recorded
assert recorded["samples_lost"] == sum(w["sampling"]["lost"] for w in windows), recorded
TEXT
# The records of the window give the same tracks.
expect 0 'steps 2' "$feed" none/records/step3-4-rank0.records.gz again
values() { trace "$1" step3-4 | grep '"ph":"C"'; }
cmp <(values none) <(values again) || fail 'the records give other samples'

# Another clock: said at the end, and nothing is drawn.
profiled clock 125 'device error: counters: none of '
[[ -z $(tracks clock step3-4) && $(figure clock step3-4 samples) == 0 ]] || fail 'samples of another clock are drawn'
[[ $(figure clock step3-4 samples_outside) -ge 38 ]] || fail 'samples of another clock are not counted'
# A group that cannot be sampled: the trace has no samples.
profiled passes 125 'not supported by this build or device: counters: group TIMELINE needs 99 passes on this GPU, and a sample has one'
trace passes step6-7 | grep -q '"name":"ProfilerStep#7"' || fail 'no trace without samples'
trace passes step6-7 | grep -q '"samples' && fail 'a trace without samples says that it has some'
grep -q sampling passes/ranks/rank0.json && fail 'the file of the rank says that it has samples'
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
