#!/bin/bash
# upgrade_test.sh BENCH SOURCE - scripts/upgrade-results: writes the names that bench reads into a file of bench_version 1,
# and leaves alone what has them, what is no table of bench, and the files of other tools.
. "${0%/*}/../cli.sh"
bench=$1 source=$2
upgrade() { python3 "$source/scripts/upgrade-results" "$@"; }

cat >old.csv <<'CSV'
bench_version,run_id,machine_id,launch,key,metric,unit,better,value,samples,status,note
1,r,m,0,ceiling/launch,launch_time,s,lower,2e-06,5,ok,"launches, waits"
1,r,m,1,ceiling/launch,launch_time,s,lower,2e-06,5,ok,
1,r,m,2,ceiling/launch,launch_time,s,lower,2e-06,5,ok,
1,r,m,0,attention/fwd?arm=dense&list=causal&seq=7,floor_share,1,higher,0.5,0,ok,
1,r,m,0,attention/fwd?arm=dense&list=causal&seq=7,launches,1,none,3,0,ok,
1,r,m,0,attention/fwd?arm=dense&list=causal&seq=7,waits,1,none,0,0,ok,
1,r,m,0,contract/BAR-SHARE?op=x,contract,1,none,0.9,0,pass,
nvbench,r,m,0,a/b?arm=1,waits,1,none,1,0,ok,
CSV
cp old.csv new.csv
upgrade new.csv || fail "upgrade new.csv"
cat >want.csv <<'CSV'
bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note
2,r,m,0,ceiling/kernel_launch,kernel_launch_time,s,lower,2e-06,5,ok,"launches, waits"
2,r,m,1,ceiling/kernel_launch,kernel_launch_time,s,lower,2e-06,5,ok,
2,r,m,2,ceiling/kernel_launch,kernel_launch_time,s,lower,2e-06,5,ok,
2,r,m,0,attention/fwd?list=causal&seq=7&variant=dense,roofline_fraction,1,higher,0.5,0,ok,
2,r,m,0,attention/fwd?list=causal&seq=7&variant=dense,kernel_launches,1,none,3,0,ok,
2,r,m,0,attention/fwd?list=causal&seq=7&variant=dense,host_syncs,1,none,0,0,ok,
2,r,m,0,requirement/SPEED-ROOFLINE?op=x,requirement,1,none,0.9,0,pass,
nvbench,r,m,0,a/b?arm=1,waits,1,none,1,0,ok,
CSV
diff want.csv new.csv || fail "the names differ"
# bench reads both files as the same rows
for file in old new; do expect 0 "" "$bench" export $file.csv --to gbench --out $file.json; done
diff old.json new.json || fail "bench reads the two files differently"
cp new.csv again.csv && upgrade again.csv || fail "upgrade again.csv"
cmp new.csv again.csv || fail "a file of version 2 was changed"

printf 'run_id,launch,key,metric,index,value\nr,0,a/b?arm=x,launches,0,1\n' >samples.csv
printf 'suite,metric,better,stored_limit,ceiling,gating\nkernels,floor_share,higher,0.25,,no\n' >gates.csv
printf 'bench_version,session,key,metric,pairs,ratios\n1,aa-01,a/b?arm=x,floor_share,2,0.1 -0.2\n' >pairs.csv
upgrade samples.csv gates.csv pairs.csv || fail "upgrade samples.csv gates.csv pairs.csv"
[[ $(tail -n 1 samples.csv) == 'r,0,a/b?variant=x,kernel_launches,0,1' ]] || fail "samples.csv: $(cat samples.csv)"
[[ $(tail -n 1 gates.csv) == 'kernels,roofline_fraction,higher,0.25,,no' ]] || fail "gates.csv: $(cat gates.csv)"
[[ $(tail -n 1 pairs.csv) == '2,aa-01,a/b?variant=x,roofline_fraction,2,0.1 -0.2' ]] || fail "pairs.csv: $(cat pairs.csv)"

echo 'no,table' >foreign.csv && cp foreign.csv was.csv
expect 2 'foreign.csv: not a results.csv' upgrade foreign.csv
cmp foreign.csv was.csv || fail "a foreign file was changed"
expect 2 'nosuch.csv' upgrade nosuch.csv
expect 2 'usage' upgrade

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
