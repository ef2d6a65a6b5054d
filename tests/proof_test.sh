#!/bin/bash
# proof_test.sh BENCH SOURCE - scripts/proof with launches that are played: when it stops, how it goes on, what it stores,
# and the table, which the real bench reads out of what was stored.
bench=$1 source=$2
. "${0%/*}/cli.sh"

# A bench whose comparisons take no time: 12 pairs of five cases, slower by 2 % when told to. PLAYED=code: it fails so.
cat >played <<PLAYED
#!/bin/bash
case " \$* " in *" --simulate "*) exec "$bench" "\$@" ;; esac
echo "\$*" >>"$dir/calls"
[[ -z \${PLAYED:-} ]] || exit \$PLAYED
[[ -z \${SLEEP:-} ]] || exec sleep \$SLEEP
shift=0 seed=0
while [[ \$# -gt 0 ]]; do
    case \$1 in --out) out=\$2 ;; --inject-slowdown) shift=0.02 ;; --seed) seed=\$2 ;; esac
    shift
done
for side in base cand; do
    mkdir -p "\$out/\$side"
    awk -v side=\$side -v by=\$shift -v seed=\$seed '
    function noise(a, b, c) { a = sin(a * 12.9898 + b * 78.233 + c * 37.719) * 43758.5453; return a - int(a) }
    BEGIN {
        print "bench_version,run_id,machine_id,launch,key,metric,unit,better,value,samples,status,note"
        for (l = 0; l < 12; l++) for (k = 0; k < 5; k++) {
            t = 0.001 * (1 + 0.002 * noise(l, k, seed + (side == "cand") / 2)) * (side == "cand" ? 1 + by : 1)
            printf "1,r-%s,m,%d,kernels/c?i=%d,kernel_time,s,lower,%.9g,11,ok,\n", side, l, k, t
            printf "1,r-%s,m,%d,kernels/c?i=%d,kernel_rate,B/s,higher,%.9g,0,ok,\n", side, l, k, 1 / t
        }
    }' >"\$out/\$side/results.csv"
done
exit \$([[ \$shift == 0 ]] && echo 0 || echo 1)
PLAYED
chmod +x played
proof() { python3 "$source/scripts/proof" "$@"; }
measure() { proof cpu --bench "$dir/played" --baselines b --out out --aa 12 --slow 7 "$@"; }

expect 0 '| `m` | 120 | 15 | 0 | 18.1 % | 10 | 10 | 0 | 74.1 % |' measure
[[ $(wc -l <calls) -eq 5 ]] || fail "not three sessions of one kind and two of the other"
[[ $(grep -c 'inject-slowdown 2%' calls) -eq 2 ]] || fail "not two sessions are slowed"
[[ $(grep -c -- '--gates out/gates.csv' calls) -eq 3 ]] || fail "other than the slowed sessions ask for more pairs"
grep -q '^kernels,kernel_time,.*,no$' out/gates.csv || fail "kernels gate, so they ask for more pairs"
sed -n 2p calls | grep -q inject-slowdown || fail "the second session is not a slowed one"
[[ $(grep -o 'seed [0-9]*' calls | sort -u | wc -l) -eq 5 ]] || fail "two sessions of one seed"
[[ $(ls b/m/proof | tr '\n' ' ') == 'aa-01 aa-02 aa-03 slow-01 slow-02 ' ]] || fail "other sessions are stored"
grep -q kernel_rate b/m/proof/aa-01/base/results.csv && fail "rows without samples are stored"
[[ $(wc -l <b/m/proof/aa-01/base/results.csv) -eq 61 ]] || fail "not 12 launches of five cases are stored"
expect 0 '| `m` | 120 | 15 | 0 |' proof table --bench "$bench" b/m/proof
expect 0 '| 10 | 10 |' measure
[[ $(wc -l <calls) -eq 5 ]] || fail "it measures again what is there"

# ---- a session that was cut short, the time, and failures ----------------------------------------------------------
rm out/aa-02/proof.json # as if it had been killed in it; the third is kept
rm -rf out/slow-02 calls
expect 0 '| `m` | 120 | 15 | 0 |' measure
[[ $(wc -l <calls) -eq 2 ]] || fail "not just what is missing was measured"
rm -rf out calls
SLEEP=60 expect 3 'the time is up: 0 of 12 A/A comparisons' measure --minutes 0.02
[[ -e b/m/proof/aa-01 ]] || fail "what was stored is gone"
PLAYED=125 expect 125 'exit code 125' measure
expect 2 'only `table` takes folders' proof cpu folder
expect 2 'nosuch: no such program' proof cpu --bench ./nosuch --out out2
# What is played is what the real one takes, with a suite that there is not.
read -ra args <calls
expect 2 "there is no suite 'nosuch'" "$bench" "${args[@]}" --suite nosuch --gates "$source/baselines/gates.csv"
expect 2 'invalid choice' proof gpu

# ---- the README's section ----------------------------------------------------------------------------------------------
mkdir b/machine
printf '# x\n<!-- table: proof -->\n<!-- end -->\n' >README.md
python3 "$source/scripts/readme" --bench "$bench" --readme README.md --machine b/machine >log 2>&1 || fail "readme"
grep -q '^| `m` | 120 | 15 | 0 |' README.md || fail "the README has no such table"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
