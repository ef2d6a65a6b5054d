#!/bin/bash
# project_cli_test.sh BENCH SOURCE - bench project as a user runs it: every projected figure is labelled, a wrong model
# is not projected, and wrong options and files are one line. BENCH is bench with quick suites (bench_fixture).
bench=$(realpath "$1") source=$(realpath "$2")
. "${0%/*}/../../cli.sh"
cp "$source"/tests/fixtures/project/*.csv .

# The step and the collectives of 3 ranks, which the fixtures do not measure.
expect 0 'projected step' "$bench" project --ranks 3,8 collectives.csv steps.csv
grep -q '^projected collectives (no figure below was measured)$' log || fail "the collectives are not labelled"
grep -q '^projected steps (no figure below was measured): throughput/step?' log || fail "the steps are not labelled"
for title in 'projected time of 25 MiB' 'projected wait' 'projected tokens/s per rank' 'projected efficiency'; do
    grep -q "$title" log || fail "no column '$title'"
done
grep -qE '^all_reduce\?dtype=f32 +one host +20\.. us .* good$' log || fail "the fit of all_reduce is not shown"

# In the CSV a figure has a number of ranks exactly if it is projected.
expect 0 '' "$bench" project --ranks 3,8 --format csv --out out.csv collectives.csv steps.csv
awk -F, 'NR > 1 && ($1 == "projected") != ($4 != "")' out.csv | grep -q . && fail "a figure with a wrong label"
[[ $(grep -c ^projected, out.csv) -eq 20 ]] || fail "not 20 projected figures"

# Imported results of nccl-tests are collectives too; those of one place are selected.
for ranks in 2 4 8; do
    for size in 65536 1048576 16777216 67108864; do
        awk -v n=$ranks -v s=$size 'BEGIN { for (p = 0; p < 2; p++) {
            printf "1,r,m,0,nccl-tests/all_reduce?place=%s&ranks=%d&redop=sum", p ? "out" : "in", n
            printf "&root=-1&size=%d&type=float,time,s,lower,%.9g,5,ok,\n", s,
                1e-5 * 2 * (n - 1) + 2 * (n - 1) / n * s / 1e10
        } }'
    done
done | cat <(head -n 1 steps.csv) - >nccl.csv
expect 0 ' 10.0 us  10.0 GB/s ' "$bench" project --ranks 8 --filter place=out nccl.csv
expect 2 'can be the reduction of throughput/step' "$bench" project --ranks 8 --allow-mismatch nccl.csv steps.csv
expect 2 'rows of two machines, m and simulated' "$bench" project --ranks 8 nccl.csv steps.csv
# These collectives are faster than those that the steps waited for, which the kept-out number of ranks shows.
expect 3 'kept-out points differ' "$bench" project --ranks 8 --allow-mismatch -f place=out -f throughput nccl.csv \
    steps.csv

# A collective of one rank, one that is not ok, and a step without backward_time are left out, and that is said.
{
    cat collectives.csv
    echo '2,a,simulated,0,comm/all_reduce?bytes=4096&dtype=f32&ranks=1,time,s,lower,1e-6,10,ok,'
    echo '2,a,simulated,0,comm/all_reduce?bytes=999&dtype=f32&ranks=2,time,s,lower,,0,failed,no memory'
    echo '2,a,simulated,0,throughput/step?mode=graph&model=tiny,step_time,s,lower,1e-3,10,ok,'
} >more.csv
expect 0 'note: 3 measured times are left out' "$bench" project --ranks 8 more.csv

# With steps of one and two ranks, the two ranks check the model. Steps of one rank leave none to check it with.
grep -v 'ranks=[48]&' steps.csv >two.csv
expect 0 'contention: no other step of several ranks was measured' "$bench" project --ranks 8 collectives.csv two.csv
grep -qE '^2 .* kept out$' log || fail "the step of two ranks is not kept out"
grep -v 'ranks=[248]&' steps.csv >one.csv
expect 3 'too few points to keep some out' "$bench" project --ranks 8 collectives.csv one.csv
expect 0 'projected all the same' "$bench" project --ranks 8 --unchecked collectives.csv one.csv
# The step of one rank is also that of the steps which reduce in bf16.
sed -n '1p; s/ranks=2&/&reduce=bf16\&/p' two.csv >bf16.csv
sed 's/dtype=f32/dtype=bf16/' collectives.csv >all_bf16.csv
expect 0 '&reduce=bf16' "$bench" project --ranks 8 collectives.csv all_bf16.csv two.csv bf16.csv
expect 3 'kept-out points differ by up to' "$bench" project --ranks 8 protocol.csv
grep -q '^projected' log && fail "a wrong model is projected"
awk -F'[=&]' 'NR == 1 || $2 <= 1048576' collectives.csv >small.csv
expect 0 'measured up to 1048576 bytes, projected for 26214400' "$bench" project --ranks 8 small.csv

# Kernels next to hidden collectives are slower in the step of two ranks, and in those that are projected.
for seq in 128 256; do
    for ranks in 1 2; do
        key="throughput/step?batch=2&clip=multi&dtype=f32&layers=0&mode=eager&model=smollm2-135m&rank=16&ranks=$ranks"
        key+="&seq=$seq&targets=q+v&tuning=full"
        echo "2,r,simulated,0,$key,step_time,s,lower,$ranks.2,10,ok,"
        echo "2,r,simulated,0,$key,backward_time,s,lower,1,10,ok,"
    done
done | cat <(head -n 1 steps.csv) - >slow.csv
expect 0 '' "$bench" project --ranks 4 --format csv --out slow_out.csv --unchecked collectives.csv slow.csv
awk -F, '$2 ~ /seq=256/ && ($1 == "projected" || $6 == "compute_time") { v[$6] = $8 }
    END { d = v["step_time"] - v["compute_time"] - v["wait_time"] - v["contention_time"]
        exit !(v["contention_time"] > 0.1 && d * d < 1e-12) }' slow_out.csv ||
    fail "a projected step is not compute, wait and contention: $(cat slow_out.csv)"

grep -v 'ranks=1&' steps.csv >no_one.csv
grep -E 'bench_version|bytes=4096&.*ranks=2,' collectives.csv >one_size.csv
sed 's/ranks=2/ranks=x/' collectives.csv >letter.csv
sed 's/model=tiny/model=large/' steps.csv >model.csv
sed '/ranks=4&/s/&layers/\&hosts=3&/' steps.csv >odd.csv
table "$bench" project <<'TABLE'
collectives.csv                                             | 2 | need --ranks N1,N2
--ranks 8                                                   | 2 | name the runs
--ranks 8 --ranks 16 collectives.csv                        | 2 | --ranks is given twice
--rank 8 collectives.csv                                    | 2 | did you mean '--ranks'?
--ranks 8 none.csv                                          | 2 | none.csv: No such file or directory
--ranks 8 steps.csv                                         | 2 | no collectives: need suite comm
--ranks 0 collectives.csv                                   | 2 | need whole numbers from 2
--ranks 8,x collectives.csv                                 | 2 | need whole numbers from 2
--ranks 99999999999 collectives.csv                         | 2 | need whole numbers from 2
--ranks 64 collectives.csv                                  | 2 | no network was measured; give --network
--ranks 20 --network alpha=1e-6,bandwidth=1e9 collectives.csv | 2 | not a multiple of the 8 ranks of a host
--ranks 16 --host-ranks 16 collectives.csv                  | 0 | projected
--ranks 16 --host-ranks 4 collectives.csv                   | 2 | was measured with 8 ranks on one host
--ranks 64 --network alpha=1e-6 collectives.csv             | 2 | need alpha=SECONDS,bandwidth=BYTES/S
--ranks 64 --network alpha=1,bandwidth=0 collectives.csv    | 2 | need alpha=SECONDS,bandwidth=BYTES/S
--ranks 64 --network alpha=-1,bandwidth=1 collectives.csv   | 2 | need alpha=SECONDS,bandwidth=BYTES/S
--ranks 64 --network alpha=nan,bandwidth=1 collectives.csv  | 2 | need alpha=SECONDS,bandwidth=BYTES/S
--ranks 64 --network alpha=1,bandwidth=1,alpha=2 collectives.csv | 2 | need alpha=SECONDS,bandwidth=BYTES/S
--ranks 8 collectives.csv collectives.csv                   | 2 | two of the runs measured comm/
--ranks 8 collectives.csv no_one.csv                        | 2 | no step of one rank was measured
--ranks 8 one_size.csv                                      | 2 | cannot tell latency from bandwidth
--ranks 8 letter.csv                                        | 2 | ranks
--ranks 8 collectives.csv model.csv                         | 2 | large
--ranks 8 collectives.csv odd.csv                           | 2 | 4 ranks on 3 hosts
--ranks 8 --format markdown collectives.csv                 | 2 | bench project writes only text|csv
--ranks 8 --samples 3 collectives.csv                       | 2 | --samples
TABLE

# A refused call leaves the file that it should write as it was.
echo before >kept.csv
expect 2 'no network' "$bench" project --ranks 64 --out kept.csv collectives.csv
[[ $(cat kept.csv) == before ]] || fail "a refused call changed its output file"

exit $((failures > 0))
