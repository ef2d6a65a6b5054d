# gate_score_build.py - builds the programs that scripts/gate-score compares: the unchanged one and one for each
# record.
"""The unchanged tree is built once, in the folder base/build, from the copy base/tree. All paths in its build.ninja are
then made relative, so that a copy of base/ in any other folder is also a complete build. A variant is such a copy with
the record's edits: ninja compiles only what depends on them. Variants are built in parallel."""
import concurrent.futures
import hashlib
import os
import shutil
import subprocess

import mutant_records as records

SOURCES = (".c", ".h", ".cu", ".cuh", ".def", ".cmake", ".mut", ".allow", "CMakeLists.txt")


class BuildError(Exception):
    pass


def digest():
    """Identifies the sources and records that the programs are built from."""
    h = hashlib.sha256()
    for path in sorted(records.tree_files()):
        if path.endswith(SOURCES):
            with open(os.path.join(records.ROOT, path), "rb") as f:
                h.update(path.encode() + b"\0" + f.read())
    return h.hexdigest()[:12]


def copy_tree(to):
    shutil.rmtree(to, ignore_errors=True)
    for path in records.tree_files():
        os.makedirs(os.path.dirname(os.path.join(to, path)), exist_ok=True)
        shutil.copy2(os.path.join(records.ROOT, path), os.path.join(to, path), follow_symlinks=False)


def make_relative(folder):
    """Replaces the absolute paths in build.ninja, so that the folder can be copied."""
    path = os.path.join(folder, "build", "build.ninja")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = text.replace(os.path.join(folder, "tree"), "../tree").replace(os.path.join(folder, "build"), ".")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class Programs:
    """The programs for one device, below build/gate-score/DEVICE. jobs: compilers at a time."""

    def __init__(self, device, jobs, say):
        self.device, self.jobs, self.say = device, jobs, say
        self.work = os.path.join(records.ROOT, "build", "gate-score", device)
        self.base, self.bin = os.path.join(self.work, "base"), os.path.join(self.work, "bin")

    def program(self, name):
        return os.path.join(self.bin, name, "bench")

    def run(self, log, *command, cwd=None):
        """Runs a command; its output is appended to LOG.log. The tree is configured as if it were no repository:
        otherwise a new commit in the repository would configure every variant again."""
        environment = dict(os.environ, GIT_CEILING_DIRECTORIES=self.work, CCACHE_NOHASHDIR="1")
        path = os.path.join(self.work, log + ".log")
        with open(path, "a", encoding="utf-8") as f:
            code = subprocess.run(command, cwd=cwd, stdout=f, stderr=subprocess.STDOUT, env=environment).returncode
        if code:
            raise BuildError(f"'{' '.join(command[:2])}' ended with exit code {code}; see {path}")

    def configure(self, log, folder):
        launcher = "ccache" if shutil.which("ccache") else ""
        launchers = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("C", "CUDA")]
        cuda = ["-DPB_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=90a"] if self.device == "cuda" else ["-DPB_CUDA=OFF"]
        self.run(log, "cmake", "-S", os.path.join(folder, "tree"), "-B", os.path.join(folder, "build"), "-G", "Ninja",
                 "-DCMAKE_BUILD_TYPE=RelWithDebInfo", *launchers, *cuda)

    def make(self, log, folder, jobs):
        self.run(log, "cmake", "--build", ".", "-t", "bench", "-j", str(jobs), cwd=os.path.join(folder, "build"))

    def keep(self, name, folder):
        """Keeps the executable; an interrupted copy leaves none."""
        os.makedirs(os.path.join(self.bin, name), exist_ok=True)
        shutil.copy2(os.path.join(folder, "build", "bin", "bench"), self.program(name) + ".new")
        os.replace(self.program(name) + ".new", self.program(name))

    def build_unchanged(self):
        shutil.rmtree(os.path.join(self.base, "build"), ignore_errors=True)
        copy_tree(os.path.join(self.base, "tree"))
        self.configure("unchanged", self.base)
        make_relative(self.base)
        self.make("unchanged", self.base, self.jobs)
        self.keep("unchanged", self.base)

    def build_variant(self, record, edited, jobs):
        """Builds one record. edited: {path: text} of the files that it changes."""
        if record.folder == "same":
            self.keep(record.name, self.base)
            return
        folder = os.path.join(self.work, record.folder or "variant-" + record.name)
        shutil.rmtree(folder, ignore_errors=True)
        again = record.folder or any(os.path.basename(path) == "CMakeLists.txt" for path in edited)
        if again:
            copy_tree(os.path.join(folder, "tree"))
        else:
            shutil.copytree(self.base, folder, symlinks=True)
        for path, text in edited.items():
            with open(os.path.join(folder, "tree", path), "w", encoding="utf-8", newline="") as f:
                f.write(text)
        if again:
            self.configure(record.name, folder)
        self.make(record.name, folder, jobs)
        self.keep(record.name, folder)
        shutil.rmtree(folder, ignore_errors=True)

    def build(self, found, tree):
        """Builds what is not built yet of these sources; returns {name of a record that does not build: reason}."""
        stamp, mark = os.path.join(self.bin, "sources"), digest()
        if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read() != mark:
            shutil.rmtree(self.bin, ignore_errors=True)
            os.makedirs(self.bin)
            with open(stamp, "w", encoding="utf-8") as f:
                f.write(mark)
        if not os.path.exists(self.program("unchanged")):
            self.say("building the unchanged program")
            self.build_unchanged()
        todo, broken = [r for r in found if not os.path.exists(self.program(r.name))], {}
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            each = max(1, self.jobs // max(1, len(todo)))
            running = {pool.submit(self.build_variant, r, tree.applied(r), each): r.name for r in todo}
            for done in concurrent.futures.as_completed(running):
                if isinstance(done.exception(), (BuildError, OSError)):
                    broken[running[done]] = str(done.exception())
                else:
                    done.result()
                    self.say(f"built {running[done]}")
        return broken
