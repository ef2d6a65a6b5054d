#!/bin/bash
# train_launch_test.sh TRAIN_STRUCK WHERE - rank 1 of three is killed, stopped, fails, or (in a replay) hangs: while a step
# is recorded or replayed, in the middle of a checkpoint, or in an evaluation (WHERE; strike_train.c). Each time one line
# names the rank and where it was, all others end in time with one exit code, no process is left, and the run resumes from
# its last checkpoint with the losses of an undisturbed run.
# PB_TEST_BACKEND (environment): cpu or cuda [cpu]; PB_TEST_RANKS: the number of ranks, 2 or more [3]; PB_TEST_MODEL: a
# model, with options [tiny]. With PB_NCCL_WINDOWS=1 the runs are not deterministic, so losses may differ
# by 1 %, and the model needs gradients of 1 MiB and more: PB_TEST_MODEL='smollm2-135m --layers 2 --tuning full'.
train=$1 where=$2
device=${PB_TEST_BACKEND:-cpu} ranks=${PB_TEST_RANKS:-3}
. "${0%/*}/../cli.sh"
. "$tests/train/ranks.sh"
export TMPDIR=$dir

# Runs mpirun with a shell around each rank that notes the rank's exit code.
around_ranks train_struck <<'END'
#!/bin/bash
"$@"
code=$?
echo $code >"$TMPDIR/code$OMPI_COMM_WORLD_RANK"
exit $code
END

conversations
read -ra model <<<"${PB_TEST_MODEL:-tiny}"
exact=(--deterministic) closed='graphs close '
if [[ ${PB_NCCL_WINDOWS:-0} != 0 ]]; then
    exact=()                    # ordered sums are not made in windows
    closed='(graphs close )?'   # aborting a sum in windows may not return; then ranks end after 10 s without closing
fi
args=(--model "${model[@]}" --batch 1 --seq 48 --bucket 48 "${exact[@]}" --quiet --data conversations.jsonl --eval-split 0.4
    --eval-interval 2 --steps 5 --mode graph --save-interval 1 --device "$device")
others=() # the ranks that are not struck
for ((r = 0; r < ranks; r++)); do [[ $r == 1 ]] || others+=("$r"); done
results() { cut -d, -f1-5,11,12 "$1"; } # the columns that do not depend on the machine
same_results() { # same_results A B: equal, or if not deterministic, numbers within 1 %
    [[ ${#exact[@]} -eq 0 ]] || { cmp <(results "$1") <(results "$2"); return; }
    paste -d, <(results "$1") <(results "$2") | awk -F, '{
        for (i = 1; i <= NF / 2; i++) {
            j = i + NF / 2
            numbers = ($i $j) ~ /^[-+.0-9e]+$/ # not NaN, which awk takes for equal to any number
            if (!($i "" == $j "" || numbers && ($i - $j) ^ 2 <= 1e-4 * $i ^ 2)) exit 1
        }
    }'
}

none_left() {
    local i
    for ((i = 0; i < 50; i++)); do
        grep -lzs "TMPDIR=$dir" /proc/[0-9]*/environ 2>/dev/null | sed 's|/environ|/comm|' |
            xargs -r grep -lxE 'train_struck|mpirun|orted' >left 2>/dev/null
        [[ -s left ]] || return
        sleep 0.1
    done
    fail "$1: left running: $(cat left)"
}

case $where in # the step that is struck, the last checkpoint, and what the line says of the place of the rank
recording) step=1 last=1 phase='phase (forward|loss|backward)' ;;
replay) step=3 last=3 phase='phase replay(, collective [a-z_]+ [0-9]+)?' ;;
checkpoint) step=3 last=3 phase='phase checkpoint' ;;
evaluation) step=3 last=3 phase='phase evaluation' ;;
esac

expect 0 '' "$train" "${args[@]}" --accumulate "$ranks" --save whole --log whole.csv
hows=(kill stop fail)
[[ $where != replay ]] || hows+=(hang)
for how in "${hows[@]}"; do
    rm -rf ck code? events? rest.csv
    PB_STRIKE="1 $step $where $how" expect 125 '' "$train" "${args[@]}" --ranks "$ranks" --rank-timeout 2 --save ck \
        --log rest.csv
    none_left "$how"
    place="rank 1 on [^ ]+ \([^)]+\), step $step, ${phase}"
    case $how in
    kill) line="^train: $place died: .*; the job ends" ;;
    stop) line="^train: $place is silent: .*; the job ends" ;;
    hang) line="^train: $place hangs: .*; the job ends" ;;
    fail) line="rank 1( on [^:]+)?: .*struck while in $where" ;;
    esac
    grep -qE -- "$line" log || fail "$how: no line names the rank"
    [[ $how != fail && $(grep -c 'the job ends' log) -ne 1 ]] && fail "$how: not one rank is named"
    for r in "${others[@]}"; do [[ $(cat "code$r") == 125 ]] || fail "$how: rank $r ended with $(cat "code$r")"; done
    # Only a rank that waits in a collective, and not for the set-up connection, is sure to hear of the loss there.
    [[ $where == replay && $how != fail ]] && for r in "${others[@]}"; do
        [[ $(cat "events$r") =~ ^(abort )+$closed$ ]] || fail "$how: rank $r: events $(cat "events$r")"
    done
    [[ $how == kill && $(cat code1) -ne 137 ]] && fail "kill: rank 1 ended with $(cat code1)"
    [[ $(cat ck/latest_checkpointed_iteration.txt) == "$last" ]] || fail "$how: the last checkpoint is $(cat ck/latest*)"
    expect 0 '' "$train" "${args[@]}" --accumulate "$ranks" --save ck --resume latest --log rest.csv
    ! grep -q 'not used' log || fail "$how: the last checkpoint is damaged"
    same_results whole.csv rest.csv || fail "$how: the resumed run has other losses"
done

if [[ $where == replay ]]; then # a normal end
    rm -rf ck events?
    expect 0 '' "$train" "${args[@]}" --ranks "$ranks" --rank-timeout 30 --save ck
    for r in 1 "${others[@]}"; do
        [[ $(cat "events$r") == 'graphs close ' ]] || fail "normal end: rank $r: events $(cat "events$r")"
    done
fi

((failures == 0)) || exit 1
