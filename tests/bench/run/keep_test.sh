#!/bin/bash
# keep_test.sh BENCH_FIXTURE - the sessions that `bench run` keeps: where, of which runs, and what a user sees of them.
fixture=$1
. "${0%/*}/../../cli.sh"
export PB_STATE=$dir/kept PB_MACHINE=lab
mkdir baselines
printf 'suite,metric,better,stored_limit,ceiling,gating\ntoy,kernel_time,lower,1,,yes\n' >baselines/gates.csv
toy=(--suite toy --batch 1 --mode fine step)
sessions() { cut -d, -f2 kept/*/*/toy.csv | grep -c .; } # rows of all kept sessions, and the header

expect 0 'kept as a session: ' "$fixture" "${toy[@]}" --out a
file=$(echo kept/cpu-*/lab/toy.csv)
[[ -s $file && $(tail -n 1 "$file") == baseline:* || $(cut -d, -f2 "$file" | tail -n 1) == baseline:* ]] || fail "a: $file holds no session"
tail -n +2 "$file" | grep -qv ',lab/' && fail 'a: a row names another host'
before=$(sessions)
for none in '--samples 2' '--min-time 0.01' '--warmup 2' '--threads 1' '--no-keep' '-n 2' '--mode fine,failed'; do
    read -r -a words <<<"$none"
    expect "$([[ $none == *failed ]] && echo 4 || echo 0)" '' "$fixture" "${toy[@]}" "${words[@]}" --out "not${none// /}"
    grep -q '^kept as' "$dir/log" && fail "$none: kept"
    [[ $(sessions) -eq $before ]] || fail "$none: changed the kept sessions"
done
grep -q 'warning: the run is not kept as a session: .* is failed' "$dir/log" || fail 'a failed run: it does not say why it is not kept'
sleep 1.1 # run_ids have a resolution of one second
expect 0 'note: 1 of the sessions was kept' "$fixture" "${toy[@]}" --out b
expect 0 'note: 1 of the sessions was kept' "$fixture" compare b # not b itself
expect 0 'NO-BASELINE' env PB_MACHINE=box "$fixture" "${toy[@]}" --out c # another machine
expect 0 ', host lab, toy: 2 sessions' "$fixture" baseline show
grep -q '^kept: cpu-.*, host box, toy: ' "$dir/log" || fail 'baseline show lacks a host'
expect 2 'no baseline of nothing' "$fixture" baseline show nothing
# A build whose times are not those of a normal one: its runs are not kept, and not stored on request.
before=$(sessions)
slow_build() { # slow_build HOW FLAGS: runs of a program with these flags are refused as built HOW
    local refusal="cannot become a session: it was measured by a program built $1"
    rm -rf slow
    FIXTURE_FLAGS=$2 expect 0 "warning: the run is not kept as a session: slow/results.csv: $refusal" \
        "$fixture" "${toy[@]}" --out slow
    [[ $(grep -c "warning: the run" "$dir/log") -eq 1 ]] || fail "$2: more than one line of warning"
    for how in save 'update -m why'; do # the program that stores may be another one
        # shellcheck disable=SC2086 # several words
        expect 2 "slow/results.csv: $refusal" "$fixture" baseline $how slow --baseline stored --gates baselines/gates.csv
        [[ $(wc -l <"$dir/log") -eq 1 ]] || fail "$2: baseline $how: more than one line"
    done
    [[ $(sessions) -eq $before && -z $(find stored -name '*.csv' 2>/dev/null) ]] || fail "$2: stored"
}
slow_build 'with sanitizers' '-O2 -g -fsanitize=address,undefined'
slow_build 'with coverage counters' '-O2 --coverage'
slow_build 'without optimisation' ''
slow_build 'without optimisation' '-O2 -g -O0'
FIXTURE_FLAGS='-O2 -fsanitize=address' expect 0 '' env PB_STATE= "$fixture" "${toy[@]}" --out nowhere
grep -q 'not kept' "$dir/log" && fail 'PB_STATE= keeps nothing, and still warns'
for flags in '-O0 -g -O3' -Os; do
    FIXTURE_FLAGS=$flags expect 0 'kept as a session: ' env PB_STATE="$dir/other" "$fixture" "${toy[@]}" --out "fast$flags"
done
expect 0 saved "$fixture" baseline save fast-Os --baseline stored --gates baselines/gates.csv
touch file
expect 0 'bench: warning: the run is not kept as a session: ' env PB_STATE="$dir/file" "$fixture" "${toy[@]}" --out d
[[ $(grep -c "warning: the run" "$dir/log") -eq 1 ]] || fail 'd: more than one line of warning'
expect 0 '' env -u PB_STATE XDG_STATE_HOME="$dir/xdg" "$fixture" "${toy[@]}" --out e
[[ -s $(echo xdg/plumb/cpu-*/lab/toy.csv) ]] || fail 'e: not kept in XDG_STATE_HOME'
exit "$failures"
