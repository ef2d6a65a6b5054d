#!/bin/bash
# prose_test.sh SOURCE - scripts/check-prose: it finds words of the glossary's last table in comments and documents and
# prints file and line; it ignores code, strings and `backquotes`; clean files pass.
source=$1
. "${0%/*}/../cli.sh"
prose() { "$source/scripts/check-prose" "$@"; }
clean() { # clean PROGRAM...: must pass without output
    "$@" >log 2>&1 || fail "$*: exit code $?"
    [[ ! -s log ]] || fail "$*: $(cat log)"
}

# ---- comments of each kind of file -----------------------------------------------------------------------------------
printf 'int a;\n/* The tensor engine moves it. */\n' >old.c
expect 1 'old.c:2: tensor engine -> TMA' prose old.c
printf '/* Loaded by the tensor\n * engine. */\nint a; /* nobody reads it */\n' >two.cu
expect 1 'two.cu:1: tensor engine -> TMA' prose two.cu
grep -q '^two.cu:3: nobody -> ' log || fail "two.cu: the second finding is missing"
printf 'X(a) /* one multiprocessor */\n' >table.def
expect 1 'table.def:1: multiprocessor -> SM' prose table.def
printf '/* Of the whole warp. */\n' >fragment.h
expect 1 "fragment.h:1: a comment that begins with 'Of'" prose fragment.h
printf '#!/bin/bash\necho a\n# It gives a sign of\n# life.\nrun # goes on afterwards\n' >script
expect 1 'script:3: sign of life -> heartbeat' prose script
grep -q '^script:5: goes on -> ' log || fail "script: a comment after code is not checked"
printf '"""One launch\n\nbehind the other."""\nx = 1  # there is none\n' >module.py
expect 1 'module.py:3: behind -> after' prose module.py
grep -q '^module.py:4: there is none -> ' log || fail "module.py: a comment is not checked"
printf '# Title\n\nStanding blocks.\n' >text.md
expect 1 'text.md:3: Standing blocks -> persistent' prose text.md

# ---- code, strings and words that are right --------------------------------------------------------------------------
printf 'const char *behind = "the tensor engine /* nobody */"; /* It is `behind`. */\nint nobody;\n' >code.c
printf '#!/bin/bash\nbehind=1\necho "a # nobody" %s\n' "'# nobody'" >shell
printf 'behind = "nobody"\nprint("# nobody")\n' >code.py
printf 'Text with `behind`.\n\n```\nnobody\n```\n' >code.md
printf '/* A block of text, one kernel launch, the bar of a plot; it stands for x and places a mark. */\n' >right.c
clean prose code.c shell code.py code.md right.c
expect 1 old.c prose code.c old.c
expect 2 'missing.c: ' prose missing.c

# ---- without arguments: the tracked files, but not the glossary, fixtures and baselines ------------------------------
mkdir -p tree/{scripts,docs,tests/fixtures,baselines} && cp "$source/scripts/check-prose" tree/scripts
cp code.c tree && cp old.c tree/tests/fixtures
cp text.md tree/docs/glossary.md && cp text.md tree/baselines/README.md
git init -q tree && git -C tree add . && cp old.c tree/untracked.c
clean tree/scripts/check-prose
cp old.c tree/kernel.c && git -C tree add kernel.c
expect 1 'kernel.c:2: tensor engine -> TMA' tree/scripts/check-prose
[[ $(wc -l <log) -eq 1 ]] || fail "other files are checked: $(cat log)"

# ---- scripts/check-paths: files that a document or a comment names ---------------------------------------------------
cp "$source/scripts/check-paths" tree/scripts
mkdir tree/lib
printf '/* a.c - see lib/b.h, b.h, suite_NAME.c and a->b.c; not lib/gone.h or gone.c. */\nint x; // gone.h\n' >tree/lib/a.c
echo >tree/lib/b.h
printf 'See `lib/a.c`, `lib/{a.c,b.h}`, `lib/*.h`, `build/x`, `lib/<name>`, [x](../lib/a.c).\n' >tree/docs/good.md
printf '\n`lib/none.c` and [y](gone.md)\n' >tree/docs/bad.md
git -C tree add .
expect 1 'docs/bad.md:2: lib/none.c' tree/scripts/check-paths
grep -q 'docs/bad.md:2: gone.md' log && grep -q 'lib/a.c:1: lib/gone.h' log && grep -q 'lib/a.c:1: gone.c' log ||
    fail "a missing file is not named: $(cat log)"
[[ $(wc -l <log) -eq 5 ]] || fail "existing files are named: $(cat log)"
clean tree/scripts/check-paths lib/b.h docs/good.md

[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
