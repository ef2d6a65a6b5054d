#!/bin/bash
# bisect_test.sh BENCH_FIXTURE - `git bisect run` with bench --bisect: commits that cannot be judged are skipped, and
# the first slow commit is found. Also the exit codes of a run in which several things fail at once.
fixture=$1
. "${0%/*}/../cli.sh"

# ---- the exit code of a run, and with --bisect -----------------------------------------------------------------------
mkdir -p slow && printf 'suite,metric,better,stored_limit,ceiling,gating\ntoy,kernel_rate,higher,0.1,,yes\n' >slow/gates.csv
expect 0 results "$fixture" --suite toy --mode fine --batch 1 --out base --no-compare step
# stored CASES: stores a baseline of these cases, with ten sessions that are a thousand times as fast.
stored() {
    expect 0 results "$fixture" --suite toy --mode "$1" --batch 1 --out "base-$1" --no-compare step
    expect 0 saved "$fixture" baseline save "base-$1" --baseline slow -m test
    sed -i -E 's/(kernel_rate,[^,]*,[^,]*),[^,]*,/\1,1e+12,/' slow/*/toy.csv
    ten_sessions slow/*/toy.csv baseline:
}
stored fine
cp -r slow same && sed -i 's/,1e+12,/,1e+09,/' same/*/toy.csv
number=0
run=(--suite toy --batch 1 --seed 5)
# codes MODES BASELINE CODE ARG...: checks the exit code of a run, and of the same run with --bisect.
codes() {
    local modes=$1 baseline=$2 code=$3 bisected=125
    shift 3
    [[ $code -gt 1 ]] || bisected=$code
    number=$((number + 1))
    expect "$code" '' "$fixture" "${run[@]}" --mode "$modes" --baseline "$baseline" --out "t$number" "$@" step
    expect "$bisected" '' "$fixture" "${run[@]}" --mode "$modes" --baseline "$baseline" --out "b$number" --bisect "$@" step
    [[ ! -e t$number ]] || [[ $(cut -d, -f4- "t$number/results.csv" | grep -vc kernel_time) -eq \
       $(cut -d, -f4- "b$number/results.csv" | grep -vc kernel_time) ]] || fail "b$number: --bisect changed what was measured"
}
codes fine same 0
codes fine,failed slow 4                              # a case that failed
codes fine,dawdle slow 4 --case-timeout 1 -n 1        # also a case that hung
codes fine,dawdle,crash slow 4 --case-timeout 1 -n 2  # also a process that crashed
codes fine,memory slow 125 -n 2                       # also out of memory
codes fine,lost,failed slow 125 -n 2                  # also a lost device
codes fine same 2 --processes 0
codes fine elsewhere 4 --require-baseline
# A commit that could not be judged is not a good commit: no baseline, too few processes, too few sessions, no row that
# gates, a regression that nothing has confirmed.
unjudged() { # CODE ARG...: exit code CODE without --bisect, 125 with it
    local code=$1
    shift
    number=$((number + 1))
    expect "$code" '' "$fixture" "${run[@]}" --mode fine --out "u$number" "$@" step
    expect 125 '' "$fixture" "${run[@]}" --mode fine --out "v$number" --bisect "$@" step
}
mkdir none few && cp slow/gates.csv few && printf 'suite,metric,better,stored_limit,ceiling,gating\ntoy,kernel_rate,higher,0.1,,no\n' >none/gates.csv
for folder in slow/*/; do
    mkdir "few/$(basename "$folder")" && grep -v 'baseline:1[1-9]' "$folder/toy.csv" >"few/$(basename "$folder")/toy.csv"
    cp -r "$folder" none
done
unjudged 0 --baseline few
unjudged 0 --baseline slow --no-confirm
unjudged 0 --baseline none
unjudged 0 --baseline elsewhere
unjudged 0 --baseline same -n 1
expect 0 '' "$fixture" "${run[@]}" --mode fine --out alone --bisect --no-compare step # no comparison was asked for
cp -r t1 half && sed -i 's/,1e+09,/,5e+08,/' half/results.csv
expect 0 SUSPECT "$fixture" compare base-fine half --gates slow/gates.csv
expect 125 SUSPECT "$fixture" compare --bisect base-fine half --gates slow/gates.csv
expect 0 results "$fixture" --suite toy --mode fine --batch 1,2 --out two --no-compare step # two rows
cp -r two mixed && sed -i '/batch=1&/s/,1e+09,/,5e+08,/' mixed/results.csv
expect 0 'same=0 suspect=2' "$fixture" compare two mixed --gates slow/gates.csv # with `all rows`
expect 125 'same=0 suspect=2' "$fixture" compare --bisect two mixed --gates slow/gates.csv
# One row is the same, another may be worse: without --bisect nothing has failed.
mkdir pair && cp slow/gates.csv pair
expect 0 saved "$fixture" baseline save two --baseline pair -m test
ten_sessions pair/*/toy.csv baseline:
expect 0 'same=1 suspect=2' "$fixture" compare mixed --baseline pair
expect 125 'same=1 suspect=2' "$fixture" compare --bisect mixed --baseline pair
codes dawdle,memory same 125 --case-timeout 1 -n 1
codes slow slow 125 --budget 1 --samples 1000 -n 1
expect 125 'has no option' "$fixture" compare --bisect --no-such-option
expect 125 'not confirmed' "$fixture" compare --bisect t1 --baseline slow
expect 1 REGRESSED "$fixture" compare --bisect t1 --baseline slow --confirmed b1
expect 125 nowhere "$fixture" compare --bisect t1 nowhere --gates slow/gates.csv

# ---- git bisect run ----------------------------------------------------------------------------------------------------
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t \
    GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
git init -q repo
# commit NUMBER MODES RATE: commits a program `bench` that measures cases of these modes at this rate.
commit() {
    printf '#!/bin/sh\n# commit %s\nout=$1\n"%s" --suite toy --mode %s --batch 1 --no-compare --out "$out" step || exit\nsed -i "s/,1e+09,/,%s,/" "$out/results.csv"\n' \
        "$1" "$fixture" "$2" "$3" >repo/bench
    chmod +x repo/bench
    git -C repo add bench && git -C repo commit -q -m "commit $1"
}
commit 1 fine 1e+09
git -C repo tag good
commit 2 fine 1.01e+09
commit 3 fine,failed 1e+09 # exit code 4: neither good nor bad
commit 4 fine 1e+09
commit 5 fine 5e+05        # the first slow commit
commit 6 fine,failed 5e+05
commit 7 fine 5e+05
commit 8 fine,failed 5e+05
commit 9 fine 5e+05
ten_sessions base/results.csv 20
cat >step <<STEP
#!/bin/sh
rm -rf "$dir/cand" "$dir/again"
./bench "$dir/cand" || exit 125                   # a commit that does not build or run is skipped
./bench "$dir/again" || exit 125
exec "$fixture" compare --bisect "$dir/base" "$dir/cand" --confirmed "$dir/again" --gates "$dir/slow/gates.csv"
STEP
chmod +x step
(cd repo && git bisect start HEAD good && git bisect run "$dir/step") >"$dir/log" 2>&1 || fail "git bisect run"
grep -q 'is the first bad commit' "$dir/log" || fail "git bisect found nothing"
[[ $(git -C repo log -1 --format=%s refs/bisect/bad) == 'commit 5' ]] || fail "git bisect found another commit"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
