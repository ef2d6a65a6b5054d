#!/bin/bash
# mutants_test.sh SOURCE - scripts/mutants on a small project of its own: what a record is found by, which errors it names,
# each verdict, and what --changed, --budget and --into do.
source=$1
. "${0%/*}/../cli.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t \
    GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t

mkdir -p toy/scripts toy/os toy/tests/mutations && cp "$source"/scripts/mutant* toy/scripts && cd toy && git init -q
printf '/build/\n' >.gitignore
cat >os/toy.c <<'C'
#include "toy.h"
int toy_sum(int a, int b)
{
    int sum = a; /* the first */
    sum += b;    /* the second */
    return sum;
}
int toy_sign(int a)
{
    if (a < 0) return -1;
    return 0;
}
int toy_difference(int a, int b)
{
    int sum = a; /* as in toy_sum */
    sum -= b;
    return sum;
}
C
printf '#define TOY_LIMIT(n) \\\n    ((n) + 1)\nint toy_sum(int a, int b);\nint toy_sign(int a);\n' >os/toy.h
cat >test.c <<'C'
#include "toy.h"
int main(void)
{
    return toy_sum(1, 2) == 3 && toy_sign(-5) == -1 && TOY_LIMIT(2) == 3 ? 0 : 1;
}
C
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(toy LANGUAGES C)
enable_testing()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
file(GLOB sources *.c os/*.c moved/deep/*.c)
add_executable(toy_test ${sources})
target_include_directories(toy_test PRIVATE os moved/deep)
add_test(NAME toy_test COMMAND toy_test)
CMAKE
cat >tests/mutations/toy.mut <<'MUT'
# toy.mut - breaks the toy.

mutation: limit-off-by-one
breaks: the limit is the number itself
test: ^toy_test$
gpu-test: toy_gpu
in: toy.h TOY_LIMIT
- ((n) + 1)
+ ((n) + 0)

mutation: sum-forgets-second
breaks: the second number is not added
test: ^toy_test$
in: toy.c toy_sum
- int sum = a; /* of the record */
- sum += b;
+ int sum = a;
+ sum += 0 * b;

mutation: zero-is-negative
breaks: zero has the sign of negative numbers
test: ^toy_test$
in: toy.c toy_sign
- if (a < 0) return -1;
+ if (a <= 0) return -1;
MUT
git add -A && git commit -qm first

record() { # record FILE_AND_FUNCTION OLD_LINE: the one record of extra.mut
    printf 'mutation: extra\nbreaks: something\ntest: ^toy_test$\nin: %s\n- %s\n+ gone\n' "$1" "$2" >tests/mutations/extra.mut
}
error() { # error FILE_AND_FUNCTION OLD_LINE TEXT: such a record is an error that names its line
    record "$1" "$2"
    expect 2 "tests/mutations/extra.mut:5: $3" scripts/mutants --check
    rm tests/mutations/extra.mut
}

# Verdicts.
expect 1 '3 mutations, 1 survived' scripts/mutants
expect 0 'RED      by ^toy_test$' scripts/mutants sum-forgets
expect 1 'zero-is-negative             SURVIVED by ^toy_test$' scripts/mutants zero
expect 2 'no record matches nothing' scripts/mutants nothing
[[ -z $(git status --porcelain) ]] || fail "the working tree changed"

# Errors.
error 'toy.c toy_sum' 'sum -= b;' "'sum -= b;' occurs 0 times in os/toy.c, toy_sum, not once"
error 'toy.c' 'int sum = a;' "'int sum = a;' occurs 2 times in os/toy.c, not once"
error 'toy.c toy_product' 'sum += b;' 'os/toy.c has no function toy_product'
error 'toys.c' 'sum += b;' 'toys.c names 0 files'
error 'toy.c toy_sum' '/* the second */' 'the edit has no old line'
printf 'mutation: limit-off-by-one\n' >tests/mutations/twice.mut
expect 2 'twice.mut:1: the name limit-off-by-one is already used at tests/mutations/toy.mut:3' scripts/mutants --check
rm tests/mutations/twice.mut
printf 'mutation: empty\n' >tests/mutations/extra.mut
expect 2 "extra.mut:1: empty needs a 'breaks:' line" scripts/mutants --check
printf 'mutation: empty\nbreak: it\n' >tests/mutations/extra.mut
expect 2 "extra.mut:2: 'break: it' is not a line of a record" scripts/mutants --check
record 'toy.c toy_sum' 'sum += b;'
expect 2 'extra does not compile' scripts/mutants extra
sed -i 's/toy_test/other_test/' tests/mutations/extra.mut
expect 2 "no test matches '^other_test\$'" scripts/mutants extra
rm tests/mutations/extra.mut
sed -i 's/== 3 ?/== 4 ?/' test.c
expect 2 "'^toy_test\$' fails without any mutation" scripts/mutants sum-forgets
git checkout -q test.c

# A record still applies after a move, with another comment, and in another layout.
mkdir -p moved/deep && git mv os/toy.c os/toy.h moved/deep
expect 0 '3 records apply' scripts/mutants --check
git commit -qam moved
mkdir other && sed 's/sum += b/sum += 2 * b/' moved/deep/toy.c >other/toy.c
expect 0 '1 records apply' scripts/mutants --check sum-forgets
expect 2 'toy.c names 2 files, 2 of them with the old lines; need exactly one' scripts/mutants --check zero
sed -i 's,in: toy.c toy_sign,in: moved/toy.c toy_sign,' tests/mutations/toy.mut
expect 0 '3 records apply' scripts/mutants --check
rm -r other && git checkout -q .
expect 0 '0 mutations' scripts/mutants --changed HEAD~1
sed -i 's,/\* the first \*/,/* what is\n    added to */,; s/sum += b;/sum\n        +=b;/' moved/deep/toy.c
expect 0 'RED ' scripts/mutants --changed HEAD sum-forgets
expect 0 '0 mutations' scripts/mutants --changed HEAD limit
expect 0 '2 mutations, 0 survived' scripts/mutants limit sum-forgets
expect 0 '0 mutations, 0 survived, 2 not run' scripts/mutants --budget 0s limit sum-forgets
sed -i 's/the limit is/this limit is/' tests/mutations/toy.mut
expect 0 '1 mutations, 0 survived' scripts/mutants --changed HEAD limit
git checkout -q .

# A copy of the tree for scripts/gpu-mutants.
expect 0 'limit-off-by-one toy_gpu' scripts/mutants --gpu
mkdir build/copy && cp -r moved build/copy
expect 0 'moved/deep/toy.h' scripts/mutants --into build/copy limit-off-by-one
[[ $(diff moved/deep/toy.h build/copy/moved/deep/toy.h) == $'2c2\n<     ((n) + 1)\n---\n>     ((n) + 0)' ]] ||
    fail "--into changes $(diff moved/deep/toy.h build/copy/moved/deep/toy.h)"

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
