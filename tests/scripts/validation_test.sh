#!/bin/bash
# validation_test.sh BENCH SOURCE - scripts/validate with simulated processes: when it stops, how it resumes, what it stores,
# and the table that the real bench computes from the stored data.
bench=$1 source=$2
. "${0%/*}/../cli.sh"

# A simulated bench whose comparisons take no time: 12 pairs of five cases, slower by 2 % on request. Environment:
# PLAYED=CODE        fail with this exit code
# CUT=SESSION:PAIRS  the budget ends that session after so many pairs
# LAST, OTHERS       noise of the last case, and of the others
# THIRD              seconds of the fourth case
# SLOW               use up the budget before the first pair
# OTHER              pretend to be another build
cat >played <<PLAYED
#!/bin/bash
case " \$* " in *" --simulate "*) exec "$bench" "\$@" ;; esac
echo "\$*" >>"$dir/calls"
[[ -z \${PLAYED:-} ]] || exit \$PLAYED
seed=0
while [[ \$# -gt 0 ]]; do
    case \$1 in --out | --resume) out=\$2 ;; --seed) seed=\$2 ;; --budget) budget=\$2 ;; esac
    [[ \$1 != --resume || -z \${OTHER:-} ]] || exit 2
    shift
done
[[ -z \${SLOW:-} ]] || { mkdir -p "\$out" && sleep \$budget && exit 125; }
shift=0 pairs=12 truncated=false
[[ \$out == *slow* ]] && shift=0.02
[[ \${CUT:-} == "\${out##*/}":* ]] && pairs=\${CUT#*:} truncated=\${TRUNCATED:-true}
mkdir -p "\$out"
for side in base cand; do
    mkdir -p "\$out/\$side"
    echo "{\"truncated\": \$truncated}" >"\$out/\$side/run.json"
    awk -v third=\${THIRD:-0.001} -v last=\${LAST:-0.002} -v others=\${OTHERS:-0.002} -v side=\$side -v by=\$shift -v seed=\$seed -v pairs=\$pairs '
    function noise(a, b, c) { a = sin(a * 12.9898 + b * 78.233 + c * 37.719) * 43758.5453; return a - int(a) }
    BEGIN {
        print "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note"
        for (l = 0; l < pairs; l++) for (k = 0; k < 5; k++) {
            e = noise(l, k, seed + (side == "cand") / 2) * (k == 4 ? last : others)
            t = (k == 3 ? third : 0.001) * (1 + e) * (side == "cand" ? 1 + by : 1)
            printf "1,r-%s,m,%d,kernels/c?i=%d,kernel_time,s,lower,%.7g,11,ok,\n", side, l, k, t
            printf "1,r-%s,m,%d,kernels/c?i=%d,kernel_rate,B/s,higher,%.9g,0,ok,\n", side, l, k, 1 / t
            if (by > 0 && side == "cand") # 1.9 to 2.2 %, and in one process much more
                printf "1,r-%s,m,%d,kernels/c?i=%d,slowdown,1,none,%.9g,0,ok,\n", side, l, k, l == 3 ? 0.5 : k == 0 ? 0.019 : k == 4 ? 0.022 : 0.02
        }
    }' >"\$out/\$side/results.csv"
done
{ echo pair,status; for ((i = 0; i < pairs; i++)); do echo \$i,ok; done; echo \$i,retried; } >"\$out/pairs.csv"
exit \$([[ \$shift == 0 ]] && echo 0 || echo 1)
PLAYED
chmod +x played
validate() { python3 "$source/scripts/validate" "$@"; }
measure() { validate cpu --bench "$dir/played" --baselines b --out out --aa 12 --slow 7 "$@"; }

expect 0 '| `m` | 120 | 5 | 5 | 15 | 0 | 18.1 % | 10 | 2 % (1.9 % to 2.2 %) | 10 | 0 | 74.1 % |' measure
[[ $(wc -l <calls) -eq 5 ]] || fail "not three sessions of one kind and two of the other"
[[ $(grep -c 'inject-slowdown 2%' calls) -eq 2 ]] || fail "not two sessions are slowed"
[[ $(grep -c -- '--gates out/gates.csv' calls) -eq 3 ]] || fail "other than the slowed sessions ask for more pairs"
[[ $(grep -c -- '--grid full --threads 1 --time-slice 0.002 --filter ' calls) -eq 5 ]] || fail "a session without turns"
sed -n 1p calls | grep -q -- '--filter kernels/linear_\*B1.S64.N192.\* ' || fail "A/A of other cases"
[[ $(grep inject-slowdown calls | grep -o 'filter kernels/c?i=[0-4]' | sort | uniq -c | awk '{ print $1 }' | tr '\n' ' ') == '2 2 2 2 2 ' ]] ||
    fail "slowed are other cases than those that are quiet"
grep -q '^kernels,kernel_time,.*,no$' out/gates.csv || fail "kernels gate, so they ask for more pairs"
sed -n 2p calls | grep -q inject-slowdown || fail "the second session is not a slowed one"
[[ $(grep -o 'seed [0-9]*' calls | sort -u | wc -l) -eq 5 ]] || fail "two sessions of one seed"
grep -q '^validate: stored b/m/validation, from out/aa-01 .* out/slow-02$' log || fail "the measured folders are not named"
[[ $(ls b/m/validation | tr '\n' ' ') == 'aa.csv slow.csv ' ]] || fail "other files are stored"
sessions() { tail -n +2 "b/m/validation/$1.csv" | cut -d, -f3 | sort | uniq -c | awk '{ printf "%s %s ", $1, $2 }'; }
[[ $(sessions aa) == '5 aa-01 5 aa-02 5 aa-03 ' && $(sessions slow) == '5 slow-01 5 slow-02 ' ]] ||
    fail "not a row for each session and case"
grep -q kernel_rate b/m/validation/aa.csv && fail "rows without samples are stored"
[[ $(cut -d, -f10 b/m/validation/slow.csv | sort -u | tr '\n' ' ') == '0.019 0.02 0.022 delay ' ]] ||
    fail "by how much was slowed is not stored"
[[ $(cut -d, -f10 b/m/validation/aa.csv | sort -u | tr '\n' ' ') == ' delay ' ]] || fail "a delay of an A/A session"
# Each figure follows from the ratios, and these are those of the folders: --simulate prints the same of both.
python3 - b/m/validation/aa.csv b/m/validation/slow.csv <<'CHECK' || fail "a stored figure is not that of its ratios"
import csv, statistics, sys
for row in (row for path in sys.argv[1:] for row in csv.DictReader(open(path))):
    x = [float(word) for word in row["ratios"].split()]
    assert len(x) == int(row["pairs"]) == 12 and row["quiet"] == "yes", row
    assert f"{statistics.median(x):.4g} {statistics.stdev(x):.4g}" == f"{row['change']} {row['scatter']}", row
    assert 0.0009 < float(row["seconds"]) < 0.0011, row
CHECK
simulate() { "$bench" compare --self --gates out/gates.csv --trials 50 --all --simulate "$@"; }
for kind in aa slow; do
    simulate out/$kind-0? >of-folders && simulate b/m/validation/$kind.csv >of-stored && cmp of-folders of-stored ||
        fail "the stored sessions give other figures than their folders"
done
expect 0 '| `m` | 120 | 5 | 5 | 15 | 0 |' validate table --bench "$bench" b/m/validation
expect 0 '| 10 | 2 % (1.9 % to 2.2 %) | 10 |' measure
[[ $(wc -l <calls) -eq 5 ]] || fail "it measures again what is there"

# Only cases that are repeatable and long enough are slowed; if no case is, that is reported.
rm -rf out calls
LAST=0.1 THIRD=0.000004 expect 0 '| `m` | 96 | 5 | 3 | 15 | 0 |' measure --slow 3
[[ $(grep -c ',no,' b/m/validation/aa.csv) -eq 6 ]] || fail "noisy and short cases are not stored as such"
[[ $(grep inject-slowdown calls | grep -o 'filter kernels/c?i=[0-4]' | tr -dc '0-4') == 012 ]] || fail "noisy cases are slowed, or short ones"
rm -rf out calls
LAST=0.1 OTHERS=0.1 expect 125 'this machine is not quiet enough for any case: none repeats to 0.5 %' measure
rm -rf out calls
expect 0 '| `m` | 48 | 5 | 5 | 5 | 0 |' measure --aa 5 --slow 5
LAST=0.1 expect 0 '| `m` | 96 | 5 | 4 | 10 | 0 |' measure --aa 10 --slow 10 # the same cases are slowed as before
[[ $(grep inject-slowdown calls | tail -n 1 | grep -o 'filter kernels/c?i=[0-4]' | tr -dc '0-4') == 01234 ]] || fail "another session slows other cases"
rm -rf out calls
expect 0 '| `m` | 120 | 5 | 5 | 15 | 0 |' measure --time-slice 0
grep -v -- "--resume" calls | grep -qv -- "--time-slice 0.0" && fail "time slices that were not asked for"

# ---- interrupted sessions, the time limit, and failures ------------------------------------------------------------
called() { [[ $(wc -l <calls) -eq $1 ]] || fail "$1 calls were expected: $(cat calls)"; }
rm -rf out/slow-02 b calls
CUT=slow-02:14 expect 0 'the time is up in slow-02, of which 14 pairs are there' measure # during its second look
called 1
grep -q '^| `m` | 124 | 5 | 5 | 15 | 0 | 18.1 % | 10 | 2 % (1.9 % to 2.2 %) | 10 |' log || fail "what there was of the second look does not count"
[[ $(grep -c ',slow-02,.*,kernel_time,14,' b/m/validation/slow.csv) -eq 5 ]] || fail "not 14 pairs of five cases are stored"
expect 0 '| `m` | 120 | 5 | 5 | 15 | 0 |' measure
called 2
sed -n 2p calls | grep -q '^compare --resume out/slow-02 --gates .*baselines/gates.csv --budget ' || fail "it does not go on with its session"
rm -rf out/slow-02 calls
CUT=slow-02:11 expect 3 'the time is up: 15 of 12 A/A comparisons, 5 of 7 slowed ones' measure
! grep -q slow-02 b/m/validation/slow.csv || fail "a session that had not come to its first look is stored"
expect 0 '| `m` | 120 | 5 | 5 | 15 | 0 |' measure
called 2
rm -rf out/aa-02 calls # a session with less than one pair
mkdir out/aa-02
expect 0 '| `m` | 120 | 5 | 5 | 15 | 0 |' measure
called 1
grep -q 'compare --self .*--out out/aa-02 .*--gates out/gates.csv' calls || fail "it does not begin its session"
rm -rf out/aa-02 calls
CUT=aa-02:3 expect 3 'the time is up in aa-02, of which 3 pairs are there' measure
OTHER=1 expect 0 'aa-02 begins anew' measure # it was built again
called 3
rm -rf out/slow-02
CUT=slow-02:1 TRUNCATED=false expect 125 'out/slow-02: nothing in it can be compared' measure
rm -rf out calls
SLOW=1 expect 3 'the time is up: 0 of 12 A/A comparisons' measure --minutes 0.02
called 1
[[ -s b/m/validation/aa.csv ]] || fail "what was stored is gone"
rm -rf out
PLAYED=125 expect 125 'exit code 125' measure
expect 2 'only `table` takes folders' validate cpu folder
expect 2 'folder/aa.csv: no such file' validate table folder
expect 2 'nosuch: no such program' validate cpu --bench ./nosuch --out out2
# The real bench must accept the arguments that the simulated one got; only the suite is unknown.
read -ra args <calls
expect 2 "there is no suite 'nosuch'" "$bench" "${args[@]}" --suite nosuch --gates "$source/baselines/gates.csv"
expect 2 'invalid choice' validate gpu

# ---- suite kernels without ceilings: shares of a ceiling are neither compared nor missing, unless they gate ----------
alone=(compare --self --suite kernels --filter 'kernels/rmsnorm_fwd?dtype=f32*' --pairs 2 --max-pairs 2 --samples 1
    --warmup 1 --threads 1)
floor() { # floor GATING: makes a gates.csv in which roofline_fraction gates (yes) or not (no)
    sed "s/^kernels,roofline_fraction,.*/kernels,roofline_fraction,higher,0.25,,$1/" "$source/baselines/gates.csv" >gates.csv
}
floor no
expect 0 ' missing=0 incomparable=0 failed=0 exit=0' "$bench" "${alone[@]}" --gates gates.csv --out alone --all
grep -q roofline_fraction log && fail "a share of ceilings that nobody measured is compared"
grep -q ',roofline_fraction,1,higher,,0,unsupported,this process has no ceilings' alone/base/results.csv || fail "no row says why"
floor pairs
expect 4 'MISSING: gates.csv requires this row' "$bench" "${alone[@]}" --gates gates.csv --out demanded
expect 0 ' missing=0 ' "$bench" "${alone[@]}" --gates gates.csv --out with --ceilings yes --min-time 0 --all
grep -q roofline_fraction log || fail "the share of ceilings that were measured is not compared"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
