#!/bin/bash
# ci_compare_test.sh SOURCE - scripts/ci-compare in a small repository whose bench is a script: which commits it builds
# and compares, what it keeps, its exit codes and its summary. Also the CI recipes that call it.
source=$1
. "${0%/*}/../cli.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t \
    GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
unset PRESET WORK OUT

git init -q -b main repo
mkdir repo/scripts
cp "$source/scripts/ci-compare" repo/scripts/
printf '/build/\n' >repo/.gitignore
cat >repo/CMakePresets.json <<'JSON'
{"version": 6, "configurePresets": [{"name": "cpu", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}],
 "buildPresets": [{"name": "cpu", "configurePreset": "cpu"}]}
JSON
cat >repo/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(small NONE)
add_custom_target(bench ALL COMMAND sh -c "echo >>${CMAKE_SOURCE_DIR}/../built" COMMAND
  ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/bench.sh ${CMAKE_BINARY_DIR}/bin/bench)
CMAKE
# version TEXT CODE: makes a commit whose bench prints TEXT and whose comparison ends with this exit code.
version() {
    cat >repo/bench.sh <<BENCH
#!/bin/sh
# $1
case \$* in
*junit*) echo "<testsuites \$*/>" && exit $2 ;;
run*)
    for last; do :; done
    mkdir "\$last" && echo "$1: \$*" >"\$last/call"
    [ "$1" != uncounted ] || { echo 'install the package valgrind' >&2; exit 125; }
    exit 0
    ;;
*runs/base*runs/head*) echo "### counts of \$(cut -d: -f1 "\$2/call") and \$(cut -d: -f1 "\$3/call"): $COUNTED" && exit $2 ;;
esac
shift
echo "### bench: \$(sed -n 2p "\$1") against \$(sed -n 2p "\$2"), by $1 in \${PWD##*/}"
shift 2
echo "options: \$*"
for last; do :; done
mkdir "\$last" && touch "\$last/pairs.csv"
echo "a line on stderr" >&2
exit $2
BENCH
    chmod +x repo/bench.sh
    git -C repo add -A && git -C repo commit -qm "$1"
}
built() { wc -l <repo/build/ci-compare/built; }
out=repo/build/ci-compare/out
compare() { repo/scripts/ci-compare "$@"; }

version one 0
git -C repo branch topic
version two 0
git -C repo checkout -q topic
version three 1
expect 1 '# one against # three, by three in cpu-' compare main
[[ $(built) -eq 2 && -s $out/summary.md ]] || fail "not two builds, or no summary"
grep -q 'options: --suite backward --must-find 10% --threads 1 --format markdown --out' $out/summary.md || fail "no default options"
grep -q 'a line on stderr' $out/summary.md && fail "summary.md holds stderr"
grep -q 'a line on stderr' $out/log || fail "the log holds no stderr"
grep -q '<testsuites compare .*/out/runs --format junit/>' $out/junit.xml || fail "no junit.xml"
version four 0
expect 0 'options: --suite kernels --gates g.csv --filter swiglu --must-find 10% --threads 1 --format' compare main HEAD -- --suite kernels --gates g.csv --filter swiglu
[[ $(built) -eq 3 ]] || fail "the base was built again"
grep -q 'runs --gates g.csv --format junit' $out/junit.xml || fail "junit.xml is judged by other gates"
expect 0 'options: --must-find=5% --device cuda --format' compare main HEAD -- --must-find=5% --device cuda
expect 1 '# one against # three' compare main topic~1 # both are already built
[[ $(built) -eq 3 ]] || fail "what was built is built again"
echo >>repo/bench.sh
expect 0 'warning: uncommitted changes are not part of the comparison' compare main
git -C repo checkout -q bench.sh

# The cache is used in another clone, whose .git does not know its worktrees.
git clone -q repo other && git -C other checkout -q topic && git -C other branch -q main origin/main
mkdir -p other/build/ci-compare
base=cpu-$(git -C repo rev-parse topic~2)
cp -r "repo/build/ci-compare/$base" other/build/ci-compare/
expect 0 "$(git -C repo rev-parse topic~2): the earlier build is reused" other/scripts/ci-compare main
[[ $(wc -l <other/build/ci-compare/built) -eq 1 ]] || fail "other: the base was built again"
rm other/build/ci-compare/*/build/ready # as after an interrupted build
expect 0 'base' other/scripts/ci-compare main
[[ $(wc -l <other/build/ci-compare/built) -eq 3 ]] || fail "other: half a build was used"

# ---- counting instructions: one run of each program, and a comparison of the two --------------------------------------
git -C repo checkout -qb counts topic
COUNTED='42 equal' version six 0
expect 0 '### counts of one and six: 42 equal' compare main -- --suite kernels --instructions callgrind
grep -q '^one: run --suite kernels --instructions callgrind --processes 1 --no-compare --no-keep --quiet --out ' $out/runs/base/call ||
    fail "the base is not counted as asked for: $(cat $out/runs/base/call)"
grep -q '^six: run --suite kernels --instructions callgrind --processes 1 ' $out/runs/head/call || fail "the head is not counted"
grep -q '<testsuites compare .*/runs/base .*/runs/head --format junit/>' $out/junit.xml || fail "counts: no junit.xml"
COUNTED='1 worse' version seven 1
expect 1 '### counts of one and seven: 1 worse' compare main -- --instructions perf --gates g.csv
grep -q 'runs/head --gates g.csv --format junit' $out/junit.xml || fail "counts are judged by other gates"
COUNTED='note: 42 exact counters are not comparable' version eight 0
expect 3 'are not comparable' compare main -- --instructions=callgrind
version uncounted 0
expect 125 'Counting the instructions of the head, commit' compare main -- --instructions callgrind
grep -q 'exit code 125: install the package valgrind' $out/summary.md || fail "the reason is not in the summary"
git -C repo checkout -q topic

# ---- errors ----------------------------------------------------------------------------------------------------------
expect 2 'usage: scripts/ci-compare BASE_REF' compare
expect 2 'usage: scripts/ci-compare BASE_REF' compare main topic again
expect 2 'usage: scripts/ci-compare BASE_REF' compare --suite backward
expect 2 'usage: scripts/ci-compare BASE_REF' compare main --all
expect 2 "no commit 'nowhere' exists" compare nowhere
expect 2 "no commit 'nowhere' exists" compare main nowhere
expect 0 'HEAD contains topic already: nothing to compare' compare HEAD topic
[[ ! -e $out/junit.xml ]] || fail "an older junit.xml stayed"
git -C repo checkout -q --orphan alone && git -C repo commit -qm alone
expect 2 'have no common commit: if this is a shallow clone, fetch its whole history' compare main
git -C repo checkout -q topic
mkdir mine && echo kept >mine/file && echo kept >mine/log
OUT=$PWD/mine expect 2 'mine contains files that ci-compare did not make' compare main
[[ $(cat mine/file mine/log | sort -u) == kept && $(ls -A mine | wc -l) -eq 2 ]] || fail "OUT: another's folder was touched"
OUT=$PWD/mine/file expect 2 'is not a folder' compare main
ln -s mine link
OUT=$PWD/link expect 2 'did not make' compare main
mkdir -- '-e x' # an empty folder is accepted, and so is the script's own output of an earlier call, whatever its name
for again in 1 2; do
    OUT="$PWD/-e x" expect 0 'nothing to compare' compare HEAD topic
    [[ -s '-e x/summary.md' ]] || fail "OUT: no summary in an empty folder"
done
PRESET=../x expect 2 "PRESET '../x'" compare main
for code in 3 4 125; do
    version "exits $code" $code
    expect $code "by exits $code" compare main
done
sed -i 's/COMMAND sh/COMMAND false COMMAND sh/' repo/CMakeLists.txt && git -C repo commit -qam broken
expect 125 "The head, commit $(git -C repo rev-parse HEAD), does not build" compare main
grep -q '### bench: no comparison (exit code 125)' $out/summary.md || fail "a broken head leaves no summary"
git -C repo checkout -qb later && version fixed 0
expect 125 "The base, commit $(git -C repo rev-parse topic), does not build" compare topic

# ---- the recipes -----------------------------------------------------------------------------------------------------
if python3 -c 'import yaml' 2>/dev/null; then
    python3 - "$source" <<'PYTHON' || fail "recipes"
import re, sys, yaml
from pathlib import Path
source = Path(sys.argv[1])
options = set(re.findall(r"^OPT\((\w+),", (source / "bench/options/options.def").read_text(), re.M))
def steps(node):  # all scripts of a recipe, at any depth
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "script", "before_script"):
                yield value if isinstance(value, str) else "\n".join(value)
            else:
                yield from steps(value)
    elif isinstance(node, list):
        for value in node:
            yield from steps(value)
for path in (source / "recipes").glob("*.yml"):
    tree = yaml.safe_load(path.read_text())
    text = "\n".join(steps(tree))
    for program in re.findall(r"\b(scripts/[\w-]+)", text):
        assert (source / program).exists(), f"{path}: there is no {program}"
    for line in text.splitlines():
        if re.match(r"(build/bin/bench|scripts/ci-compare) ", line):
            for option in re.findall(r"--([a-z-]+)", line):
                assert option.replace("-", "_") in options, f"{path}: bench has no --{option}"
    assert "scripts/ci-compare" in text and "--require-baseline --gate requirements" in text, f"{path}: a gate is missing"
assert len(list((source / "recipes").glob("*.yml"))) == 2
github = yaml.safe_load((source / "recipes/github-actions.yml").read_text())
for job in github["jobs"].values():
    assert all(("uses" in step) != ("run" in step) for step in job["steps"]) and job["runs-on"]
gitlab = yaml.safe_load((source / "recipes/gitlab-ci.yml").read_text())
assert all("script" in job for name, job in gitlab.items() if name not in ("stages", "variables", "default", "workflow"))
PYTHON
fi
[[ $failures -eq 0 ]] && echo "all passed"
exit $((failures > 0))
