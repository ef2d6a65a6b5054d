#!/bin/bash
# affected_test.sh SOURCE - scripts/affected, in a small tree: a changed header, source, file of CMake or of EVERYTHING
# gives the sources that it can change; what is not known counts as affected, or is an error.
source=$1
. "${0%/*}/../cli.sh"
mkdir -p tree/scripts tree/sub && cd tree || exit 1
cp "$source/scripts/affected" scripts/
printf '#define A 1\n' >a.h
printf '#include "a.h"\n' >b.h
printf '#include "b.h"\nint one(void) { return A; }\n' >one.c
printf 'int two(void) { return 2; }\n' >two.c
printf 'int three(void) { return 3; }\n' >sub/three.c
printf 'cmake_minimum_required(VERSION 3.25)\nproject(t C)\nadd_library(t one.c two.c)\nadd_subdirectory(sub)\n' >CMakeLists.txt
printf 'add_library(u three.c ../two.c)\n' >sub/CMakeLists.txt
printf '/build/\n' >.gitignore
printf 'Checks: -*\n' >.clang-tidy
git init -q . && git add -A && git -c user.name=t -c user.email=t@localhost commit -qm first
cmake -G Ninja -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$dir/log" 2>&1 && cmake --build build >>"$dir/log" 2>&1 ||
    fail 'the tree does not build'
mkdir build/lint && cp build/compile_commands.json build/lint/

affects() { # affects SOURCES WHAT: the affected sources, in the order of the alphabet; then the tree is as before
    local got
    got=$(scripts/affected build HEAD 2>"$dir/log") || fail "$2: exit code $?"
    got=$(sed "s|^$PWD/||" <<<"$got" | sort | tr '\n' ' ')
    [[ $got == "$1${1:+ }" || (-z $1 && $got == ' ') ]] || fail "$2: '$got' instead of '$1'"
    git checkout -q . && git clean -qfd
}
all='one.c sub/three.c two.c'
affects '' 'no change'
echo >>a.h && affects 'one.c' 'a header that a header includes'
rm a.h && affects 'one.c' 'a removed header'
echo >>sub/three.c && affects 'sub/three.c' 'a source'
echo >>sub/CMakeLists.txt && affects 'sub/three.c two.c' 'flags of a folder, whose target has a source of another folder'
echo >>CMakeLists.txt && affects "$all" 'flags of the tree'
echo 'target_compile_definitions(u PUBLIC A)' >>sub/CMakeLists.txt && affects "$all" 'flags for targets of other folders'
mkdir cmake && echo >cmake/new.cmake && affects "$all" 'a new file of cmake/'
echo >>.clang-tidy && affects "$all" 'the checks'
echo >>scripts/affected && affects "$all" 'the script'
git mv b.h c.h && sed -i 's/b\.h/c.h/' one.c && affects 'one.c' 'a renamed header'
git reset -q --hard
echo >two.txt && affects '' 'a file that is no source'
echo >>a.h && git -c user.name=t -c user.email=t@localhost commit -qam second
expect 0 one.c scripts/affected build HEAD~1
expect 0 '' scripts/affected build HEAD
[[ ! -s $dir/log ]] || fail "what HEAD~1 affects is printed for HEAD"
touch -d '1 hour' build/CMakeFiles/t.dir/two.c.o && affects 'two.c' 'an object that is newer than its record'
expect 2 nosuch scripts/affected build nosuch
rm build/.ninja_deps
expect 2 'no record of a compiled object' scripts/affected build HEAD
expect 2 'compile_commands.json' scripts/affected nowhere HEAD
expect 2 'usage' scripts/affected build

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
