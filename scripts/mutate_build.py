# mutate_build.py - the builds and test runs of scripts/mutate: the sandbox, the instrumented build, which test executes
# which line.
"""Everything is in build/mutate of the tree:

  base/    a copy of the tree and its build, without a mutant
  w0/ ...  copies of base/, one per worker, in which mutants are made
  here/    an empty folder. Inside the sandbox, every worker sees its own copy at this path: a copied build stays valid,
           and all workers use the same command lines
  map.json which lines each test executes
"""
import concurrent.futures
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "build", "mutate")
HERE = os.path.join(WORK, "here")
TREE = os.path.join(HERE, "tree")
BUILD = os.path.join(HERE, "build")
FOLDERS = ("os", "cli", "trainer", "train", "bench")  # their .c files are mutated and instrumented

# gcov writes its counts when a process exits. These hooks let only measuring runs write them, and also write them when
# a process ends with _exit.
HOOKS = """
#include <stdlib.h>
void __gcov_dump(void);
void __real___gcov_exit(void);
_Noreturn void __real__exit(int code);
void __wrap___gcov_exit(void);
_Noreturn void __wrap__exit(int code);
static int measuring(void) { return getenv("MUTATE_MEASURES") != NULL; }
void __wrap___gcov_exit(void)
{
    if (measuring()) __real___gcov_exit();
}
_Noreturn void __wrap__exit(int code)
{
    if (measuring()) __gcov_dump();
    __real__exit(code);
}
"""
# Compiles only the sources of FOLDERS with coverage: the kernels would become too slow. The fixed seed makes objects,
# and so programs, reproducible.
LAUNCHER = """#!/bin/sh
for last; do :; done
case $last in %s) exec "$@" -O1 --coverage "-frandom-seed=$last" ;; esac
exec "$@"
"""


def fail(text, code=2):
    print(f"mutate: {text}", file=sys.stderr)
    sys.exit(code)


# ---- the sandbox ---------------------------------------------------------------------------------------------


def sandbox(folder, tmp, writable, cwd):
    """The start of a command line that runs a program with `folder` at HERE and `tmp` at /tmp. A mutant may remove
    files, send signals and ask for all memory: in the sandbox everything else is read-only and other processes
    are invisible."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ["prlimit", f"--fsize={4 << 30}", f"--as={memory}", "--core=0",  # per process
            "bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--dev", "/dev",
            "--proc", "/proc", "--bind", tmp, "/tmp", "--ro-bind", ROOT, ROOT,
            "--bind" if writable else "--ro-bind", folder, HERE, "--chdir", cwd]


def empty(folder):
    if os.path.lexists(folder):
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
        shutil.rmtree(folder)
    os.makedirs(folder)


class Place:
    """A copy of the tree and its build, with a temporary folder. Each worker has its own copy; processes that only
    measure share the copy `base`."""

    def __init__(self, name, tmp=None):
        self.folder = os.path.join(WORK, name)
        self.tmp = os.path.join(WORK, (tmp or name) + ".tmp")
        self.running = None

    def stop(self):
        """Ends a run that another thread started. All processes of the sandbox end with its first one."""
        if self.running and self.running.poll() is None:
            self.running.kill()

    def run(self, command, seconds=None, *, writable=True, cwd=BUILD, env=None, keep=False):
        """Returns the exit code (None: timeout) and the output. keep: do not empty /tmp before the run."""
        if not keep:
            empty(self.tmp)
        # git must not take the copy for part of this repository.
        env = {**os.environ, "GIT_CEILING_DIRECTORIES": HERE, **(env or {})}
        with open(self.tmp + ".log", "w+b") as log:
            running = subprocess.Popen(sandbox(self.folder, self.tmp, writable, cwd) + command, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, cwd="/", env=env, start_new_session=True)
            self.running = running
            try:
                code = running.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self.stop()
                running.wait()
            log.seek(0)
            return code, log.read().decode(errors="replace")

    def ninja(self, *targets, jobs=1):
        return self.run(["ninja", "-j", str(jobs), *targets])


# ---- the build without a mutant ------------------------------------------------------------------------------


def copy_tree(to):
    """Copies the tracked files and those that git does not ignore, with their times, so that only changed files are
    rebuilt."""
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    shutil.rmtree(to, ignore_errors=True)
    for name in filter(None, names.stdout.decode().split("\0")):
        source, copy = os.path.join(ROOT, name), os.path.join(to, name)
        if os.path.lexists(source):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def write(path, text, mode=0o644):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


def build_base(jobs):
    base = Place("base")
    os.makedirs(os.path.join(base.folder, "build"), exist_ok=True)
    os.makedirs(HERE, exist_ok=True)
    copy_tree(os.path.join(base.folder, "tree"))
    launcher, hooks = os.path.join(HERE, "cc"), os.path.join(HERE, "hooks.o")
    write(os.path.join(base.folder, "cc"), LAUNCHER % "|".join(f"{TREE}/{f}/*.c" for f in FOLDERS), 0o755)
    write(os.path.join(base.folder, "hooks.c"), HOOKS)
    steps = [["cc", "-O2", "-c", os.path.join(HERE, "hooks.c"), "-o", hooks],
             ["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DPB_CUDA=OFF",
              "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -DNDEBUG", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-Wno-dev",
              f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}",
              f"-DCMAKE_EXE_LINKER_FLAGS=--coverage -Wl,--wrap=_exit,--wrap=__gcov_exit {hooks}"],
             ["ninja", "-j", str(jobs)]]
    for step in steps:
        code, text = base.run(step)
        if code != 0:
            fail("the tree does not build without a mutant:\n" + "\n".join(text.splitlines()[-15:]))
    return base


# ---- which test executes which line --------------------------------------------------------------------------


class Red(Exception):
    """A test fails without a mutant."""


class Test:
    """A test of ctest: command line, environment, folder, time limit."""

    def __init__(self, entry):
        of = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name, self.command = entry["name"], entry.get("command", [])
        self.env = dict(e.split("=", 1) for e in of.get("ENVIRONMENT", []))
        self.cwd = of.get("WORKING_DIRECTORY", BUILD)
        self.limit = of.get("TIMEOUT", 1500)
        self.skips = of.get("SKIP_RETURN_CODE", 0)
        self.prepares = "FIXTURES_SETUP" in of  # it prepares other tests, and is not run for mutants

    def programs(self):
        """The parts of its command line that the build makes, as ninja targets."""
        made = (c for c in self.command if c.startswith(BUILD + "/"))
        return [os.path.relpath(c, BUILD) for c in made if os.path.splitext(c)[1] in ("", ".1", ".so")]

    def run(self, place, seconds, **more):
        # Counts are written at every exit and before every exec: keep them out of the build.
        env = {**self.env, "GCOV_PREFIX": "/tmp/gcov", **more.pop("env", {})}
        return place.run(self.command, seconds, writable=self.prepares, cwd=self.cwd, env=env, **more)


def list_tests(base):
    code, text = base.run(["ctest", "--show-only=json-v1"])
    if code != 0:
        fail(f"ctest lists no tests: {text[-200:]}")
    tests = [Test(e) for e in json.loads(text)["tests"]]
    return [t for t in tests if t.command]


def inside(place, path):
    """The path outside the sandbox of a path inside."""
    return place.folder + path[len(HERE):]


def hash_of(paths):
    h = hashlib.sha256()
    for path in paths:
        if os.path.isfile(path):
            with open(path, "rb") as f:
                h.update(path.encode() + f.read())
    return h.hexdigest()


def hash_below(place, *tops):
    """A hash of all files in these folders of the tree."""
    tree = inside(place, TREE)
    paths = (os.path.join(folder, f) for top in tops for folder, _, files in os.walk(os.path.join(tree, top)) for f in files)
    return hash_of(sorted(p for p in paths if not os.path.basename(p).startswith("mutate")))


def key_of(test, place, data):
    """Identifies a measurement: it is repeated only when the test's programs, its script or its data have changed."""
    script = test.command[0].endswith(".sh")
    files = [inside(place, c) for c in test.command if c.startswith(HERE + "/")]
    shared = [inside(place, f"{TREE}/tests/cli.sh")] if script else []
    return hash_of(files + shared) + data["script" if script else "program"] + repr((test.command, test.env, test.cwd))


def lines_of(place):
    """Reads gcov's counts in /tmp/gcov: {file: [executed lines]}, {file: [lines of code]}."""
    counts = []
    for folder, _, files in os.walk(os.path.join(place.tmp, "gcov")):
        for f in files:
            if f.endswith(".gcda"):
                seen = folder[len(place.tmp):].replace("/gcov", "", 1)  # the folder of the object file
                os.symlink(f"{seen}/{f[:-5]}.gcno", f"{folder}/{f[:-5]}.gcno")
                counts.append(f"/tmp/gcov{seen}/{f}")
    executed, known = {}, {}
    if not counts:
        return executed, known
    code, text = place.run(["gcov", "--json-format", "--stdout", *counts], writable=False, keep=True)
    if code != 0:
        fail(f"gcov: exit code {code}: {text[-300:]}", 125)
    for line in filter(lambda l: l.startswith("{"), text.splitlines()):
        for f in json.loads(line)["files"]:
            if f["file"].startswith(TREE + "/") and f["file"].endswith(".c"):
                name = f["file"][len(TREE) + 1:]
                known.setdefault(name, set()).update(l["line_number"] for l in f["lines"])
                executed.setdefault(name, set()).update(l["line_number"] for l in f["lines"] if l["count"] > 0)
    return {f: sorted(v) for f, v in executed.items()}, {f: sorted(v) for f, v in known.items()}


def measure(test, place, key):
    """Runs a test once; returns its time and the lines that it executes. A test that fails is run a second time,
    because other work on the machine may have delayed it."""
    env = {"MUTATE_MEASURES": "1"}
    for _ in range(2):
        begin = time.monotonic()
        code, text = test.run(place, 5 * test.limit, env=env)
        seconds = time.monotonic() - begin
        if code in (0, test.skips):
            executed, known = lines_of(place) if code == 0 else ({}, {})
            return {"key": key, "seconds": round(seconds, 2), "executed": executed}, known
    raise Red(f"{test.name} fails without a mutant:\n" + "\n".join(text.splitlines()[-15:]))


def measure_all(base, jobs, say):
    """The map {"tests": {name: measurement}, "known": {file: lines of code}}. It is kept for later calls."""
    path = os.path.join(WORK, "map.json")
    stored = {"tests": {}, "known": {}}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            stored = json.load(f)
    tests = list_tests(base)
    data = {"program": hash_below(base, "tests/fixtures", "baselines")}
    data["script"] = data["program"] + hash_below(base, "scripts")
    for t in tests:
        if t.prepares and t.run(base, 5 * t.limit)[0] != 0:
            fail(f"{t.name} fails without a mutant; see {base.tmp}.log")
    tests = [t for t in tests if not t.prepares]
    keys = {t.name: key_of(t, base, data) for t in tests}
    todo = [t for t in tests if stored["tests"].get(t.name, {}).get("key") != keys[t.name]]
    if todo:
        say(f"measuring what {len(todo)} of {len(tests)} tests execute")
    free = queue.SimpleQueue()
    for i in range(jobs):
        free.put(Place("base", f"measure{i}"))

    def one(test):
        place = free.get()
        try:
            return test, *measure(test, place, keys[test.name])
        finally:
            free.put(place)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            for test, measured, known in pool.map(one, todo):
                stored["tests"][test.name] = measured
                stored["known"].update(known)
        except Red as red:
            pool.shutdown(cancel_futures=True)
            fail(red)
        finally:  # save what was measured, even after an error
            stored["tests"] = {t.name: stored["tests"][t.name] for t in tests if t.name in stored["tests"]}
            write(path, json.dumps(stored))
    return stored, {t.name: t for t in tests}
