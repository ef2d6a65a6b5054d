#!/bin/bash
# train_profile_ranks_test.sh TRAIN_STRUCK BENCH RANKS - the traces of a few of many ranks, on one host whose processors they
# outnumber: all ranks run, one begins late, one is slow while ranks record, one is killed while they record. The ranks
# that record never keep the others from ending, and what they recorded can be read.
train=$1 bench=$2 ranks=$3
. "${0%/*}/../cli.sh"
. "$tests/train/ranks.sh"
export TMPDIR=$dir
last=$((ranks - 1)) middle=$((ranks / 2)) other=$((ranks / 4 + 1)) # `other` does not record
conversations
# Steps 7, 8 and 9 are recorded.
args=(--model tiny --layers 1 --seq 16 --bucket 16 --batch 1 --steps 12 --mode graph --quiet --data conversations.jsonl
    --ranks "$ranks" --profile-ranks auto --rank-timeout 40)

# Runs mpirun with a shell around each rank, which begins later on the rank LATE.
around_ranks train_struck <<'END'
#!/bin/bash
[[ ${LATE:-} != "$OMPI_COMM_WORLD_RANK" ]] || sleep 2
exec "$@"
END

recorded() { # recorded JOB: the ranks whose traces can be decompressed; bench analyze reads their JSON
    local file
    for file in "$1"/traces/*/rank*.json.gz; do
        gzip -t "$file" && zcat "$file" | grep -om1 '"rank": [0-9]*'
    done | sed 's/.* //' | sort -n | xargs
}
whole() { # whole JOB: everything was recorded, and every rank has said so
    [[ $(recorded "$1") == "0 $middle $last" ]] || fail "$1: traces of ranks $(recorded "$1")"
    [[ $(find "$1/ranks" -name 'rank*.json' | wc -l) -eq $ranks ]] || fail "$1: $(find "$1/ranks" | wc -l) files of ranks"
    [[ $(grep -c '"truncated": 0' "$1/manifest.json") -eq $ranks ]] || fail "$1: $(grep -c '"truncated": 0' "$1/manifest.json") ranks in the manifest"
    grep -q '"libraries": "[^"]*MPI[^"]*[0-9]' "$1/manifest.json" || fail "$1: no version of MPI: $(grep libraries "$1/manifest.json")"
    expect 0 "ranks 0,$middle,$last of $ranks" "$bench" analyze "$1"
}

expect 0 '' "$train" "${args[@]}" --profile-out plain
whole plain

LATE=$other expect 0 '' "$train" "${args[@]}" --profile-out late
whole late

# The replay of step 8 begins three seconds later on one rank, and every other rank waits for it in a collective.
PB_STRIKE="$middle 7 replay slow" expect 0 '' "$train" "${args[@]}" --profile-out slow
whole slow
"$bench" analyze slow --format csv >csv 2>log || fail "slow: $(cat log)"
slow=$(awk -F, '$1 == "rank" && $4 == "step" && $5 == "time" && $6 > 0.9 { print $2 }' csv | xargs)
[[ $slow == "0 $middle $last" ]] || fail "slow: the mean step of ranks '$slow' takes more than 0.9 s"

# A rank that does not record dies in the window. The others write what they have, and end with one exit code.
PB_STRIKE="$other 7 replay kill" expect 125 "rank $other on " "$train" "${args[@]}" --profile-out killed
[[ $(recorded killed) == "0 $middle $last" ]] || fail "killed: traces of ranks $(recorded killed)"
zcat killed/traces/*/rank0.json.gz | grep -q '"truncated":true' || fail 'killed: the trace does not say that it is truncated'
expect 4 "ranks 0,$middle,$last of $ranks" "$bench" analyze killed

exit $((failures > 0))
