#!/bin/bash
# mutate_test.sh SOURCE - scripts/mutate on a small project: every verdict, each for a line that must get it, the counts
# in the table, --resume, --survivors and --check, and refused arguments.
source=$1
. "${0%/*}/../cli.sh"
bwrap --ro-bind / / --proc /proc --dev /dev --unshare-pid true 2>/dev/null || {
    echo 'skipped: bwrap may not make a sandbox here'
    exit 77
}

# Each marked line has one site.
mkdir -p toy/scripts toy/os toy/tests/mutations && cp "$source"/scripts/mutate* toy/scripts && cd toy && git init -q
cat >os/toy.c <<'C'
int toy_sum(int a, int b);
int toy_less(int a, int b);
int toy_long(const int *from, const int *to);
int toy_loop(int n);
int toy_sum(int a, int b)
{
    int dead = a * b; /* the same machine code */
    (void)dead;
    return a + b; /* killed */
}
int toy_less(int a, int b)
{
    return a < b; /* survives: no test has a == b */
}
int toy_long(const int *from, const int *to)
{
    const char *text = "a + b < 3"; /* nothing to change */
    (void)text;
    return (int)(to - from); /* to + from is no C */
}
int toy_loop(int n)
{
    return n - n; /* no test executes it */
}
C
cat >test.c <<'C'
int toy_sum(int a, int b);
int toy_less(int a, int b);
int toy_long(const int *from, const int *to);
int main(void)
{
    const int line[2] = {0};
    return toy_sum(1, 2) == 3 && toy_less(1, 2) && !toy_less(2, 1) && toy_long(line, line + 1) == 1 ? 0 : 1;
}
C
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(toy LANGUAGES C)
enable_testing()
add_executable(toy_test test.c os/toy.c)
add_test(NAME toy_test COMMAND toy_test)
CMAKE

mutate() { scripts/mutate --jobs 1 "$@"; }
verdict_of() { # verdict_of LINE_TEXT: the verdict in results.csv on the mutant of that line
    grep -F ",$1" build/mutate/results.csv | sed -E 's/.*(killed|survived|not-compiled|equivalent|not-run),([^,]*),.*/\1 \2/'
}
judged() { # judged LINE_TEXT VERDICT: the mutant of that line must have this verdict
    [[ $(verdict_of "$1") == "$2" ]] || fail "'$1' is '$(verdict_of "$1")', want '$2'"
}

expect 0 'os/toy.c:9: arithmetic' mutate --list
[[ $(grep -c '^os/toy.c:' "$dir/log") = 5 ]] || fail "--list names other places"
expect 1 '| all | 5 | 1 | 2 | 1 | 1 | 0 | 1 | 33.3% | 6.1% to 79.2% |' mutate
judged 'return a + b;' 'killed toy_test'
judged 'return a < b;' 'survived 1 of 1 tests'
judged 'return n - n;' 'survived no test executes the line'
judged 'return (int)(to - from);' 'not-compiled '
judged 'int dead = a * b;' 'equivalent the same machine code'

# A test is added, and one survivor is listed as equivalent.
cat >tests/mutations/equivalent.csv <<'CSV'
file,function,operator,before,after,reason
toy.c,toy_loop,arithmetic,return n - n; /* another comment */,return n + n;,nobody calls it
CSV
mutate --check || fail "--check of what is there"
mkdir os/deep && cp os/toy.c os/deep
expect 1 'toy.c, toy_loop is in os/deep/toy.c and os/toy.c' mutate --check
rm os/toy.c
mutate --check || fail "--check of a file that was moved"
mv os/deep/toy.c os/toy.c
sed -i 's/!toy_less(2, 1)/& \&\& !toy_less(1, 1)/' test.c
expect 0 '| all | 5 | 2 | 0 | 1 | 2 | 0 | 0 | 100.0% | 34.2% to 100.0% |' mutate --survivors
judged 'return a < b;' 'killed toy_test'
judged 'return n - n;' 'equivalent nobody calls it'
sed -i 's/n - n/n - 1/' os/toy.c
expect 1 'toy.c, toy_loop no longer has this site' mutate --check

expect 3 '| os | 5 | 0 | 0 | 0 | 0 | 5 | 0 | - |' mutate --budget 0 --seed 2
expect 1 'survived' mutate --resume
expect 2 'no source matches none/*' mutate --only 'none/*'
expect 2 "'soon' is not a time" mutate --budget soon
sed -i 's/== 3/== 4/' test.c
expect 2 'toy_test fails without a mutant' mutate

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
