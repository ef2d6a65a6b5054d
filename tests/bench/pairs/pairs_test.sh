#!/bin/bash
# pairs_test.sh BENCH_FIXTURE - `bench compare` of two executables: every verdict and exit code, order and environment
# of the processes, processes that fail, kill -9 and --resume, --budget, and injected delays. The executables are
# scripts around the suite `paired`, whose times are simulated: nothing here depends on real time.
fixture=$1
. "${0%/*}/../../cli.sh"

mkdir baselines
gates() {
    printf 'suite,metric,better,stored_limit,ceiling,gating\npaired,kernel_time,lower,0.1,,yes\n%s' "$1" >baselines/gates.csv
}
gates ''

# side NAME SALT TEXT: makes an executable whose noise depends on --seed and SALT; TEXT runs before bench.
side() {
    cat >"$1" <<SCRIPT
#!/bin/bash
for ((i = 1; i <= \$#; i++)); do
    j=\$((i + 1))
    case \${!i} in --seed) seed=\${!j} ;; --out) out=\${!j} ;; esac
done
echo "$1 \$seed \${#BENCH_RANDOM_PADDING} \$*" >>"$dir/processes"
export FIXTURE_SEED=\$((seed * $2))
$3
exec "$fixture" "\$@"
SCRIPT
    chmod +x "$1"
}
side base 3 ''
side same 5 ''
side slow 5 'export FIXTURE_SPEED=1.03'
side fast 5 'export FIXTURE_SPEED=0.97'
options=(--suite paired --seed 7 --quiet)
# Without time slices, the simulated times do not depend on how many untimed calls fill a slice.
one_by_one=(--time-slice 0)
# compared EXIT TEXT OUT BASE CAND OPTION...: runs a comparison and checks exit code and text
compared() {
    local code=$1 text=$2 out=$3
    shift 3
    rm -f processes
    expect "$code" "$text" "$fixture" compare "${one_by_one[@]}" "$@" "${options[@]}" --out "$out"
}
lines() { tail -n +2 "$1/pairs.csv" | wc -l; }
pairs() { [[ $(lines "$1") -eq $2 ]] || fail "$1: $(lines "$1") lines of pairs.csv, not $2"; }

# ---- verdicts ------------------------------------------------------------------------------------------------
summary='bench: regressed=0 improved=0 same=3 inconclusive=0 missing=0 incomparable=0 failed=0 exit=0'
compared 0 "$summary" same1 ./base ./same
[[ $(tail -n 1 log) == "$summary" ]] || fail "same1: the summary is not the last line"
grep -q 'n=2 *kernel_time.* 12/12      SAME: 99 % interval .*; detectable 2\.' log || fail "same1: no line of n=2"
grep -q 'detectable change, found with probability 0.95: 2.0' log ||
    fail "same1: the note on the detectable change is missing"
pairs same1 12
grep -q 'minimum effect 1 % (kernel_time: 2 %)' log || fail "same1: the minimum effect of kernels of two builds is not 2 %"
expect 0 'detectable 1.0' "$fixture" compare same1 --min-effect 1%
compared 1 'regressed=3 improved=0 same=0' slow1 ./base ./slow
grep -q 'kernel_time.*+3.0 %.*REGRESSED: 99 % interval +2' log || fail "slow1: no REGRESSED line"
pairs slow1 12 # every row was decided at the first look
compared 0 'regressed=0 improved=3' fast1 ./base ./fast
compared 1 'regressed=3' swapped ./fast ./base

side noisy 5 'export FIXTURE_NOISE=0.05'
compared 0 'inconclusive=3' noisy1 ./base ./noisy
pairs noisy1 24
compared 3 'inconclusive=3' noisy2 ./base ./noisy --strict --pairs 4 --max-pairs 6
pairs noisy2 6
expect 0 'INCONCLUSIVE: ' "$fixture" compare noisy1 --explain
grep -q 'sign-flip test p=.*neither a change nor equivalence is shown.*pairs detect a worsening of' log ||
    fail "noisy1: the explanation of the verdict is missing"
grep -q 'INCONCLUSIVE: INCONCLUSIVE' log && fail "noisy1: the verdict is printed twice"
compared 0 'warning: 2 pairs cannot find a change, however large: the smallest p-value is 2^-2, and alpha 0.01 needs 7 pairs' \
    few ./base ./same --pairs 2 --max-pairs 2
grep -q 'inconclusive=3' log || fail "few: two pairs are judged"
pairs few 2
compared 1 'regressed=3' seven ./base ./slow --pairs 7 --max-pairs 7
grep -q 'cannot find' log && fail "seven: seven pairs and one look can find a change"
expect 0 '2 pairs of processes; both processes of a pair interleaved in time slices of 0.002 s' \
    "$fixture" compare ./base ./same --suite paired --pairs 2 --max-pairs 2 --dry-run --out dry
grep -q 'warning: 2 pairs cannot find a change' log && [[ ! -e dry ]] || fail "dry: no warning, or something was measured"

# ---- --must-find: a comparison that is too noisy to find the change does not pass -----------------------------------
expect 3 'note: 3 gating rows could hide a change of 4 % (--must-find): the exit code is at least 3' \
    "$fixture" compare noisy1 --must-find 4%
grep -q 'INCONCLUSIVE: .*, above --must-find 4 %' log || fail "noisy1: the rows do not name --must-find"
expect 0 'same=3' "$fixture" compare same1 --must-find 10%
expect 3 'same=3' "$fixture" compare same1 --must-find 2%
expect 1 'regressed=3' "$fixture" compare slow1 --must-find 0.1%
sed 's/yes/no/' baselines/gates.csv >none.csv
expect 3 'no row gates, so no change could be found' "$fixture" compare same1 --must-find 10% --gates none.csv
compared 3 'inconclusive=3' must1 ./base ./noisy --must-find 5% --pairs 7 --max-pairs 7
grep -q '"must_find": 0.05' must1/compare.json || fail "must1: compare.json does not record --must-find"

side lacks 5 'export FIXTURE_LACKS=1'
compared 4 'missing=3' lacks1 ./base ./lacks
pairs lacks1 1 # more pairs would not help
gates '' && sed 's/yes/no/' baselines/gates.csv >open.csv
compared 0 'NEW' new1 ./lacks ./base --gates open.csv
gates $'paired,backward_time,lower,0.1,,yes\n'
compared 4 'missing=1' demanded ./base ./same
grep -q 'backward_time.*MISSING: gates.csv requires this row' log ||
    fail "demanded: the row of the unmatched gate is missing"
gates $'paired,graph_over_eager,lower,0.1,,yes\n' # a ratio whose two cases are not both measured
compared 0 'missing=0' ratio1 ./base ./same
gates $'paired,tokens_per_second_per_rank,higher,0.15,,yes\n' # a metric that only several ranks have
compared 0 'missing=0' ranks1 ./base ./same
gates ''

# edit NAME FROM TO: makes an executable whose results.csv has FROM replaced by TO.
edit() { side "$1" 5 "'$fixture' \"\$@\"; code=\$?; sed -i 's/$2/$3/' \"\$out/results.csv\"; exit \$code"; }
edit version '^2,' '9,'
compared 4 'bench_version differs' version1 ./base ./version
pairs version1 1
edit machine ',cpu-[^,]*,' ',cpu-other-1c-00000000,'
compared 4 'machine_id differs' machine1 ./base ./machine
compared 0 'same=3' machine2 ./base ./machine --allow-mismatch
edit unit ',kernel_time,s,' ',kernel_time,ms,'
compared 4 'kernel_time is in s, not in ms' unit1 ./base ./unit

# ---- every process of the first pair was throttled: nothing was judged ---------------------------------------------
edit hot ',ok,' ',throttled,'
cp hot hotter
compared 3 'no row has a value: every process was throttled' hot1 ./hot ./hotter
expect 125 'no row has a value' "$fixture" compare hot1 --bisect

# ---- a program built before the renaming of bench_version 2 ------------------------------------------------------
# It knows only the old options, and writes the old names (bench/rows/renames.def).
side older 5 'for word; do case $word in --processes | --time-slice | --child-time-slice) exit 2 ;; esac; done
    '"'$fixture'"' "$@" || exit; sed -i "1s/,process,/,launch,/; s/^2,/1,/; s/,kernel_launches,/,launches,/; s/variant=/arm=/" \
        "$out/results.csv" "$out/samples.csv"; exit 0'
compared 0 'same=3' older1 ./older ./base --time-slice 0.004
[[ $(cut -d, -f1,4,6 older1/base/results.csv | sort -u) == "$(cut -d, -f1,4,6 older1/cand/results.csv | sort -u)" ]] ||
    fail "older1: the old names are not translated"
cmp -s <(cut -d, -f2-4 older1/base/samples.csv | sort -u) <(cut -d, -f2-4 older1/cand/samples.csv | sort -u) ||
    fail "older1: the old names of samples are not translated"
compared 1 'regressed=3' older2 ./older ./slow
expect 1 'regressed=3' "$fixture" compare ./older ./slow "${options[@]}" --time-slice 0 --out older3 --bisect

# ---- wrong results, and counters -------------------------------------------------------------------------------
# tell FOLDER SIDE METRIC VALUE [PROCESS OTHER]: adds rows of a metric without a direction; process PROCESS gets OTHER.
tell() {
    awk -F, -v OFS=, -v metric="$3" -v value="$4" -v process="${5:--}" -v other="${6:-}" '
        { print } $6 == "kernel_time" && /n=2/ { $5 = "backward/step?dtype=f32"; $6 = metric; $7 = 1; $8 = "none"
            $9 = $4 == process ? other : value; print }' "$1/$2/results.csv" >told && mv told "$1/$2/results.csv"
}
cp -r same1 right
tell right base loss 5.5; tell right cand loss 5.52
tell right base kernel_launches 692; tell right cand kernel_launches 692 3 693
expect 0 "$summary" "$fixture" compare right
grep -q '(INCONCLUSIVE): not exact: the processes of a side differ, 692 to 692 -> 692 to 693' log || fail "right: the counter is not named"
cp -r same1 more_calls
tell more_calls base kernel_launches 692; tell more_calls cand kernel_launches 693
expect 1 'REGRESSED: exact, 692 -> 693 (+1)' "$fixture" compare more_calls
grep -q 'regressed=1 .*same=3 .*exit=1' log || fail "more_calls: the other rows are not judged"
printf 'key,metric,from,to,reason,until\nbackward/*,kernel_launches,692,693,a better kernel,\n' >baselines/accepted.csv
expect 0 'note: accepted: kernel_launches of backward/step?dtype=f32, 692 -> 693: a better kernel' "$fixture" compare more_calls
rm baselines/accepted.csv
cp -r same1 loss && tell loss base loss 5.5 && tell loss cand loss 5.5 3 8.25
expect 4 "FAILED: the candidate's values are wrong: the value exceeds the relative bound 1e-2" "$fixture" compare loss
grep -q 'same=3 .*failed=1 exit=4' log || fail "loss: the other rows are not judged"
cp -r same1 gradient && tell gradient base gradient_error 1e-3 && tell gradient cand gradient_error 1e-3 7 1
expect 4 "FAILED: the candidate's values are wrong: the value exceeds the absolute bound 1e-2" "$fixture" compare gradient
for side in base cand; do
    cp -r same1 "zero-$side"
    awk -F, -v OFS=, '$6 == "kernel_time" && $4 == 3 && /n=2/ { $9 = 0 } 1' "same1/$side/results.csv" >"zero-$side/$side/results.csv"
done
expect 4 "FAILED: the candidate's values are wrong: a time that is not above zero" "$fixture" compare zero-cand
expect 4 'INCOMPARABLE: the sides cannot be compared: a time that is not above zero' "$fixture" compare zero-base

# ---- the value of a process: the median of the logarithms ----------------------------------------------------
side thrice 5 'export FIXTURE_OUTLIER=3'         # two of four samples: the median of logs is log sqrt(3)
side root 3 'export FIXTURE_SPEED=1.7320508'
compared 0 'same=3' logs ./root ./thrice --samples 4
side far 5 'export FIXTURE_OUTLIER=100'          # two of five
compared 0 'same=3' median ./base ./far

# ---- how the processes were started ----------------------------------------------------------------------------
compared 0 'same=2' order1 ./base ./same --samples 3 --n 1,2 --filter n= --threads 1 --case-timeout 90
mv processes order1.processes
[[ $(wc -l <order1.processes) -eq 24 ]] || fail "order1: not 24 processes"
tail -n +2 order1/pairs.csv | while IFS=, read -r _ _ order seed base_padding cand_padding _; do
    case $order in base-cand) printf 'base %s %s\nsame %s %s\n' "$seed" "$base_padding" "$seed" "$cand_padding" ;;
    cand-base) printf 'same %s %s\nbase %s %s\n' "$seed" "$cand_padding" "$seed" "$base_padding" ;; esac
done >wanted
diff <(cut -d' ' -f1-3 order1.processes) wanted >log || fail "order1: pairs.csv does not list the processes that ran"
[[ $(cut -d' ' -f3 wanted | sort -u | wc -l) -gt 20 ]] || fail "order1: paddings are not random"
[[ $(cut -d' ' -f2 wanted | sort -u | wc -l) -eq 12 ]] || fail "order1: several pairs have one order of cases"
order=$(tail -n +2 order1/pairs.csv | cut -d, -f3 | tr '\n' ' ')
for fixed in 'base-cand base-cand base-cand base-cand base-cand base-cand base-cand base-cand ' \
    'base-cand cand-base base-cand cand-base base-cand cand-base base-cand cand-base '; do
    [[ $order == *"$fixed"* ]] && fail "order1: the order is not random: $order"
done
[[ $order == *base-cand* && $order == *cand-base* ]] || fail "order1: one side is always first"
for word in '--suite paired' '--samples 3' '--axis n=1,2' '--filter n=' '--threads 1' '--case-timeout 90' '--ceilings no' \
    '--launches 1' --no-compare; do
    [[ $(grep -cF -e "$word" order1.processes) -eq 24 ]] || fail "order1: not every process had $word"
done
compared 0 'same=3' order2 ./base ./same
grep -qF -e --case-timeout processes && fail "order2: processes got --case-timeout, which the user did not give"
diff <(cut -d, -f1-6 order1/pairs.csv) <(cut -d, -f1-6 order2/pairs.csv) >log ||
    fail "the same seed gives another order"
grep -q '"seed": 7' order2/compare.json || fail "order2: the seed is not logged"
expect 0 'same=3' "$fixture" compare ./base ./same --suite paired --time-slice 0 --out order3
cmp -s <(cut -d, -f1-6 order2/pairs.csv) <(cut -d, -f1-6 order3/pairs.csv) && fail "order3: another seed, yet one order"
[[ $(tail -n +2 order2/base/results.csv | cut -d, -f4 | uniq | tr '\n' ' ') == '0 1 2 3 4 5 6 7 8 9 10 11 ' ]] ||
    fail "order2: the column process is not the pair's number"
grep -q '"xxh3_128": "[0-9a-f]\{32\}"' order2/compare.json || fail "order2: compare.json has no digests"
[[ $(grep -c '"argv"' order2/cand/run.json) -eq 13 ]] || fail "order2: run.json lacks processes" # 12, the first twice
grep -q '"truncated": false' order2/cand/run.json || fail "order2: run.json does not say that the run is complete"
expect 0 'paired' "$fixture" report order2/base
expect 0 'kernel_time' "$fixture" compare order2/base order2/cand --all

# ---- time slices: both processes at once; when one ends, the other continues -------------------------------------
expect 0 'same=3' "$fixture" compare ./base ./same "${options[@]}" --out slices0
[[ $(grep -c -- ' --child-turns 0\.002' processes) -eq 24 ]] || fail "slices0: processes are not interleaved by default"
compared 0 'same=3' slices1 ./base ./same --time-slice 0.004
[[ $(wc -l <processes) -eq 24 ]] || fail "slices1: not 24 processes"
grep -q '"time_slice": 0.00[34]' slices1/compare.json || fail "slices1: compare.json does not record the time slice"
tail -n +2 slices1/pairs.csv | cut -d, -f3,4 >orders
[[ $(wc -l <orders) -eq 12 ]] || fail "slices1: not 12 pairs"
while IFS=, read -r order seed; do
    for side in base same; do
        first=0
        [[ $order == base-cand && $side == base || $order == cand-base && $side == same ]] && first=1
        grep -qE "^$side $seed .* --child-turns 0\.004[0-9]*:[0-9]+:[0-9]+:$first$" processes || fail "slices1: $order, $side"
    done
done <orders
compared 0 'same=3' slices2 ./base ./same --time-slice 0
grep -qF -e --child-turns processes && fail "slices2: time slices of length 0 were used"
"$fixture" compare ./base ./same "${options[@]}" --time-slice 0.004 --out slices3 --budget 0.001 >log 2>&1
rm -f processes
expect 0 'same=3' "$fixture" compare --resume slices3 --quiet
[[ -s processes && $(grep -c -- ' --child-turns 0\.004' processes) -eq $(wc -l <processes) ]] ||
    fail "slices3: the resumed comparison does not use time slices"
expect 2 'keeps its --time-slice' "$fixture" compare --resume slices1 --time-slice 1
expect 2 'keeps its --impl and --prefer' "$fixture" compare --resume slices1 --prefer ref
side gone 5 '[[ -e gone.was ]] || { touch gone.was && kill -9 $$; }'
compared 0 'same=3' gone1 ./base ./gone --time-slice 0.002
[[ $(grep -c ,retried, gone1/pairs.csv) -eq 1 ]] || fail "gone1: the pair whose candidate was killed is not measured again"

# ---- ceilings: measured only on request; the order of cases is random in any case -------------------------------
keys() { awk -F, -v l=$1 '$4 == l && $6 == "kernel_rate" {print $5}' order2/$2/results.csv | tr '\n' ' '; }
for ((i = 0; i < 12; i++)); do
    [[ $(keys $i base) == "$(keys $i cand)" ]] || fail "order2: pair $i has two orders"
    keys $i base && echo
done | sort -u >orders
[[ $(wc -l <orders) -gt 1 ]] || fail "order2: one order of the cases for all pairs: $(cat orders)"
few=(--pairs 2 --max-pairs 2)
ceilings() { cut -d, -f5 "$1"/*/results.csv | grep ^ceiling | sort -u | tr '\n' ' '; }
[[ -z $(ceilings order2) ]] || fail "order2: ceilings were measured"
compared 0 'inconclusive=3' ceilings1 ./base ./same "${few[@]}" --ceilings yes
[[ $(ceilings ceilings1) == 'ceiling/copy ceiling/matmul ' ]] || fail "ceilings1: they were not measured"
grep -qF -e --ceilings processes && fail "ceilings1: programs that do not know the option cannot be compared"
compared 0 'inconclusive=3' ceilings2 ./base ./same "${few[@]}" --filter '*' --filter 'ceiling/m*'
[[ $(ceilings ceilings2) == 'ceiling/matmul ' ]] || fail "ceilings2: not what the filter names"

# ---- formats, explanations, judging again --------------------------------------------------------------------
expect 1 'REGRESSED: +3.' "$fixture" compare slow1 --explain
grep -q 'sign-flip test p=0.00024, 0.00049 jointly with 3 gating rows for 2 looks (alpha 0.01); .*large enough to matter (minimum effect 2 %)' log ||
    fail "slow1: the explanation of the verdict is missing"
expect 0 'SAME' "$fixture" compare slow1 --min-effect 10%
expect 2 'need a share' "$fixture" compare slow1 --min-effect 10x
before=$(cat slow1/*.* slow1/*/* | md5sum)
expect 1 '### bench: 3 REGRESSED (exit 1)' "$fixture" compare slow1 --format markdown
expect 1 '<failure' "$fixture" compare slow1 --format junit
expect 0 'inconclusive=3' "$fixture" compare few
[[ $(cat slow1/*.* slow1/*/* | md5sum) == "$before" ]] || fail "slow1: judging again changed the output"

# ---- processes that fail ----------------------------------------------------------------------------------------
# failing NAME WHEN HOW: makes an executable that ends by HOW in the processes whose number fulfils the condition WHEN.
failing() { side "$1" 5 "n=\$(grep -c '^$1 ' '$dir/processes'); if (($2)); then echo 'no luck today' >&2; $3; fi"; }
failing once 'n == 3' 'exit 4'
compared 0 'same=3' once1 ./base ./once
grep -q 'cand: .*/once: exit code 4: no luck today' log || fail "once1: the failure is not reported"
grep -q 'note: 1 attempt at a pair failed and was repeated' log ||
    fail "once1: the note on repeated attempts is missing"
pairs once1 13
[[ $(cut -d, -f1,2,11 once1/pairs.csv | sed -n 4,5p | tr '\n' ' ') == '2,0,retried 2,1,ok ' ]] ||
    fail "once1: pairs.csv does not mark the attempt"
failing killed 'n == 2' 'kill -9 $$'
compared 0 'exit code 137' killed1 ./base ./killed
failing always 1 'exit 125'
compared 125 'exit code 125: no luck today' always1 ./base ./always
pairs always1 4 # one attempt and three retries, then the comparison ends
grep -q 'failed' always1/pairs.csv || fail "always1: pairs.csv does not mark the attempt"
side wrong 5 "'$fixture' \"\$@\"; exit 4" # it fails, but has written its rows
compared 4 'process failed in 12 pairs, 1 of which was measured more than once; see cand.log' wrong1 ./base ./wrong
[[ $(lines wrong1) -eq 15 && $(grep -c ,kept, wrong1/pairs.csv) -eq 12 ]] || fail "wrong1: not three retries and 12 kept"
failing typo 1 'exit 2'
compared 2 'exit code 2' typo1 ./base ./typo
pairs typo1 1
printf '#!/nowhere\n' >cannot && chmod +x cannot
compared 125 'No such file' cannot1 ./base ./cannot
printf '#!/bin/sh\n' >silent && chmod +x silent
compared 125 'silent: it ended, but wrote no results' silent1 ./silent ./base
cp base denied && chmod -x denied
compared 125 'denied: Permission denied' denied1 ./base ./denied

# ---- kill -9 and --resume -------------------------------------------------------------------------------------
content() { # prints everything except run_id, times and lengths
    for s in base cand; do cut -d, -f1,3- "$1/$s/results.csv"; cut -d, -f2- "$1/$s/samples.csv"; done
    cut -d, -f1-6,9-11 "$1/pairs.csv"
}
side nap 5 'export FIXTURE_NAP=30'
compared 0 'same=3' whole ./base ./nap
cut=0
for at in 1 2 5 11; do
    rm -f processes
    setsid "$fixture" compare ./base ./nap "${options[@]}" --time-slice 0 --out k$at >log 2>&1 & pid=$!
    while kill -0 $pid 2>/dev/null && [[ ! -f k$at/pairs.csv || $(wc -l <k$at/pairs.csv) -lt $at ]]; do sleep 0.01; done
    sleep 0.0$at
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    cut=$((cut + ($(wc -l <k$at/pairs.csv) < 13)))
    printf '1,half a ro' >>k$at/base/results.csv
    printf '%s,0,base-' "$at" >>k$at/pairs.csv
    expect 0 'same=3' "$fixture" compare --resume k$at --quiet
    diff <(content whole) <(content k$at) >log ||
        fail "k$at: the files differ from those of an uninterrupted comparison"
    ls k$at | grep -q process && fail "k$at: processes were left behind"
done
[[ $cut -gt 0 ]] || fail "every comparison ended before it was killed"
before=$(cat k5/*.csv k5/*/*.csv | md5sum)
expect 0 'same=3' "$fixture" compare --resume k5 # the comparison is complete already
[[ $(cat k5/*.csv k5/*/*.csv | md5sum) == "$before" ]] || fail "k5: a complete comparison was changed"

setsid "$fixture" compare ./base ./nap "${options[@]}" --time-slice 0 --out signal >log 2>&1 & pid=$!
while [[ ! -f signal/pairs.csv || $(wc -l <signal/pairs.csv) -lt 3 ]]; do sleep 0.01; done
kill -TERM $pid
wait $pid
[[ $? -eq 125 ]] || fail "signal: exit code"
grep -q 'bench compare --resume signal continues' log || fail "signal: the message does not say how to continue"
expect 0 'same=3' "$fixture" compare --resume signal --quiet
diff <(content whole) <(content signal) >log ||
    fail "signal: the files differ from those of an uninterrupted comparison"

side long 5 'export FIXTURE_NAP=900'
compared 3 'bench compare --resume budget continues' budget ./base ./long --budget 4 --n 1 --pairs 12
grep -q 'note: the budget is used up after [1-9] pair' log ||
    fail "budget: the number of measured pairs is not reported"
grep -q 'note: not judged yet: [1-9] of 12 pairs are measured' log && grep -q 'INCONCLUSIVE: not judged yet: the first look is after 12 pairs' log ||
    fail "budget: fewer pairs than the first look are judged"
rm -f processes # without --pairs the budget decides how many pairs are planned, and one look may spend all of alpha
"$fixture" compare ./base ./long --suite paired --seed 7 --n 1 --budget 15 --out fitted --time-slice 0 >log 2>&1
code=$?
fit=$(sed -n 's/bench: \([0-9]*\) pairs fit into the budget: one look, after .*/\1/p' log)
[[ $fit -ge 2 && $fit -lt 24 && $(grep -c "\"pairs\": $fit,\|\"max_pairs\": $fit," fitted/compare.json) -eq 2 ]] ||
    fail "fitted: the plan does not follow from the budget"
if [[ $(lines fitted) -eq $fit ]]; then # on a busy machine the pairs after the first may have taken longer
    [[ $code -eq 0 ]] && ! grep -q 'not judged yet' log || fail "fitted: not judged, exit $code"
else
    [[ $code -eq 3 ]] && grep -q "not judged yet: [0-9]* of $fit pairs" log || fail "fitted: judged before its look, exit $code"
fi
compared 125 'the budget is used up after 0 pairs' nothing ./base ./long --budget 0.2
# A comparison without a complete pair replaces its files when it is resumed, and stays locked. The second command waits
# for the lock for ten seconds, during which other tests run.
rm -rf nothing/process-* # the first process of the resumed comparison makes it again
setsid "$fixture" compare --resume nothing --quiet >held.log 2>&1 & held=$!
while kill -0 $held 2>/dev/null && ! compgen -G 'nothing/process-*' >ls.log; do sleep 0.01; done
("$fixture" compare --resume nothing --quiet; echo "exit $?") >second.log 2>&1 & second=$!
# A comparison that cannot lock its folder removes none of the files in it. It waits as long.
mkdir taken
flock taken "$fixture" compare ./base ./same "${options[@]}" --out taken >taken.log 2>&1 & taken=$!
for ((i = 0; i < 300; i++)); do [[ ! -e taken/compare.json ]] || break; sleep 0.1; done # the folder was empty
mkdir taken/base && echo kept >taken/base/results.csv
expect 0 'of the budget' "$fixture" compare ./base ./same --suite paired --budget 10m --time-slice 0 --out time
grep -q 'bench: pair 3 of 12 (24 if rows are undecided then), about [0-9]* s left, 10 min of the budget' log ||
    fail "the time left is not reported"

# ---- comparing a program with itself, and with an injected delay ------------------------------------------------
expect 0 'same=3' "$fixture" compare --self "${options[@]}" --time-slice 0 --out self1
expect 0 'same=3' "$fixture" compare --self ./same "${options[@]}" --time-slice 0 --out self2
expect 1 'regressed=3' "$fixture" compare --self ./same "${options[@]}" --time-slice 0 --inject-slowdown 2% --out inject1
grep -q 'a delay of 2 % was injected into the candidate; 2.00 to 2.00 % was achieved' log ||
    fail "inject1: the achieved delay is not reported"
grep -q 'kernel_time.*+2.0 %' log || fail "inject1: the achieved delay is not 2 %"
grep -q slowdown inject1/base/results.csv && fail "inject1: the base was slowed down too"
[[ $(grep -c ',slowdown,1,none,0.02,' inject1/cand/results.csv) -eq 36 ]] || fail "inject1: rows of slowdown"
compared 1 'regressed=3' inject2 ./base ./same --inject-slowdown 0.03

wait $second
grep -q 'nothing: another process measures into it' second.log && grep -q 'exit 2' second.log ||
    fail "nothing: the folder was not locked: $(cat second.log)"
kill -TERM $held
wait $held
wait $taken
grep -q 'taken: another process measures into it' taken.log || fail "taken: the folder was not locked: $(cat taken.log)"
[[ -f taken/base/results.csv ]] || fail "taken: files of another process were removed"

# ---- refused commands -------------------------------------------------------------------------------------------
table "$fixture" <<'TABLE'
compare ./base order1 --suite paired      | 2 | compare needs two executables or two results: ./base is an executable, order1 is a recorded comparison
compare order1/base ./base                | 2 | order1/base is results, ./base is an executable
compare ./base --suite paired             | 2 | compare ./base: the second side is missing: CAND, or --self
compare ./base ./same                     | 2 | no suite is given: --suite NAME
compare order1/base order1/cand --suite x | 2 | --suite applies only to a comparison of executables
compare order1 --samples 3                | 2 | applies only to a comparison of executables
compare ./base ./same --suite paired --require-baseline | 2 | --require-baseline applies only to stored results
compare --self order1 --suite paired      | 2 | order1 is not an executable
compare ./base ./same --suite paired --pairs 30      | 2 | looks after 30
compare ./base ./same --suite paired --alpha 0       | 2 | alpha=0
compare ./base ./same --suite paired --out same1     | 2 | --out same1: the folder is not empty
compare --resume nowhere                  | 2 | nowhere/compare.json
compare --resume order1 ./base            | 2 | --resume takes no BASE and CAND
compare order1 --budget 3                 | 2 | --budget applies only to a comparison of executables
compare --resume order1 --samples 4       | 2 | a comparison that is resumed keeps its
compare --resume order1 --pairs 4         | 2 | keeps its --pairs
compare --resume order1 --ceilings yes    | 2 | keeps its --ceilings
compare --resume order1 --case-timeout 9  | 2 | keeps its --case-timeout
compare order1 --dry-run                  | 2 | --dry-run applies only to a comparison of executables
compare --resume order1 --must-find 4%    | 2 | keeps its --must-find
compare order1 --ceilings yes             | 2 | --ceilings applies only to a comparison of executables
help compare                              | 0 | --inject-slowdown
TABLE
# A refused --resume changes nothing: everything is checked before a file is truncated.
first=$(sed -n 2p order1/pairs.csv)
before=$(cat order1/base/* order1/cand/* | md5sum)
lines_are() { # lines_are TEXT LINE...: --resume must give this text when pairs.csv has these lines
    local text=$1
    cp -r order1 edited
    (head -n 1 order1/pairs.csv && shift && printf '%s\n' "$@") >edited/pairs.csv
    expect 2 "$text" "$fixture" compare --resume edited
    [[ $(cat edited/base/* edited/cand/* | md5sum) == "$before" ]] || fail "'$*' removed rows"
    rm -r edited
}
lines_are "edited/pairs.csv: '0,0" "${first/,ok,*/,ok,99999999999999999999,37,99,37}"
lines_are 'no line ends at byte 99' "${first/,ok,*/,ok,99,37,99,37}"
lines_are 'are complete' "${first/,ok,*/,ok,0,37,99,37}"
lines_are 'is not the expected line, attempt 0 of pair 1' "$first" "$first"
lines_are 'is not the expected line, attempt 0 of pair 1' "$first" "$(printf 'x%.0s' {1..600})"
lines_are 'base/run.json: it lists 12 runs, but pairs.csv has 1 pairs' "$first"
cp -r order1 edited && sed -i 2,\$d edited/pairs.csv # pairs.csv lost its lines, the runs still have their pairs
expect 2 'base/run.json: it lists 12 runs, but pairs.csv has 0 pairs' "$fixture" compare --resume edited
sed -i 's/"--suite"/"--child-dir"/' edited/compare.json
expect 2 "compare.json: options: run has no option '--child-dir'" "$fixture" compare --resume edited
sed -i 's/"--child-dir"/"--"/' edited/compare.json
expect 2 "compare.json: options: '--' is not an option" "$fixture" compare --resume edited
[[ $(cat edited/base/* edited/cand/* | md5sum) == "$before" ]] || fail "edited: a refused command removed rows"
rm -r edited
# A folder whose results.csv has other columns, here two in another order, which readers accept.
for s in base cand; do
    cp -r order1 edited
    sed -i '1s/commit,host$/host,commit/' edited/$s/results.csv
    cmp -s {order1,edited}/$s/results.csv && fail "the columns of the fixture are not changed"
    edited=$(cat edited/*/* edited/*.* | md5sum)
    expect 2 "edited/$s/results.csv: its columns are not those that this program writes" "$fixture" compare --resume edited
    [[ $(wc -l <log) -eq 1 ]] || fail "columns of $s: more than one line"
    [[ $(cat edited/*/* edited/*.* | md5sum) == "$edited" ]] || fail "columns of $s: a refused --resume changed the files"
    expect 0 '' "$fixture" compare edited # but it can be read
    rm -r edited
done
# A folder with other files is left as it is.
mkdir half half/cand && touch half/cand/samples.csv
expect 2 '--out half: the folder is not empty' "$fixture" compare ./base ./same "${options[@]}" --out half
[[ $(find half | sort | tr '\n' ' ') == 'half half/cand half/cand/samples.csv ' ]] ||
    fail "half: files were left: $(find half)"
# Recorded files that were edited.
cp -r same1 other && sed -i '2s/.*/nothing/' other/pairs.csv
expect 2 "other/pairs.csv: 'nothing" "$fixture" compare --resume other
cp -r same1 cut && sed -i '5s/.*/half a line/' cut/base/samples.csv
expect 2 'cut/base/samples.csv:5: a line must have six fields' "$fixture" compare cut
cp -r same1 more && tail -n 1 same1/base/samples.csv | sed 's/,paired/,nobody/' >>more/base/samples.csv
expect 0 'same=3' "$fixture" compare more # samples without a row are ignored
cp -r same1 twice && sed -n 2p same1/base/samples.csv >>twice/base/samples.csv
expect 2 'the samples of a row are not contiguous' "$fixture" compare twice
cp -r same1 none && rm none/cand/samples.csv
expect 2 'none/cand/samples.csv: No such file' "$fixture" compare none

mkdir -p tree/bin && cp same tree/bin/bench
compared 0 'same=3' tree1 ./base tree
echo >>tree/bin/bench
expect 2 'tree/bin/bench has changed since' "$fixture" compare --resume tree1

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
