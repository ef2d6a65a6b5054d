"""common.py - shared by all peers: Plumb's tables and keys, the corpus as token ids, timing, rows.

A peer is a script that takes keys of bench (suite/case?axis=value&...), measures each in one process and appends rows
of results.csv. Models are read from trainer/model/model.def, columns from bench/rows/columns.def, units from bench/rows/metrics.def, so
that no table exists twice. Only functions that need torch import it.
"""
import argparse
import csv
import functools
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HARNESS = 125  # exit code: failure of the harness or the machine, as in bench
FAILED = 4     # exit code: a case has no value

# peer of suite attention: the variant of Plumb that computes the same, and the passes that the peer has
ATTENTION_PEERS = {
    "tilelang": ("sparse", ("fwd", "bwd")),
    "cudnn": ("sparse", ("bwd",)),
    "flashmla": ("sparse", ("fwd",)),
    "sdpa_cudnn": ("dense_gqa", ("fwd", "bwd")),
    "sdpa_flash": ("dense_gqa", ("fwd", "bwd")),
    "flex": ("dynmask", ("fwd", "bwd")),
    "dmattn": ("dynmask", ("fwd", "bwd")),
}


def die(text, code=HARNESS):
    print(f"peers: {text}", file=sys.stderr)
    sys.exit(code)


# ---- Plumb's tables and keys ---------------------------------------------------------------------------

def def_lines(path, macro):
    """The arguments of every MACRO(...) in a .def file, strings without quotes."""
    for m in re.finditer(rf"^{macro}\((.*?)\)\s*$", (ROOT / path).read_text(), re.M | re.S):
        fields = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,\s]+)', m.group(1))
        yield [a or b for a, b in fields]


# The fields of a model's line in model.def, by macro
GEOMETRIES = {"GEOMETRY": "name family V D L H K d I eps theta tied bias qk_norm max_pos",
              "GEOMETRY_LLAMA3": "name V D L H K d I eps theta tied factor max_pos"}
# Constants that GEOMETRY_LLAMA3 of trainer/model/geometry.c adds to the factor, in the words of transformers
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def geometry(name):
    """The geometry of a model; `factor` is that of scaled RoPE, 1 without scaling."""
    lines = [(fields, keys) for macro, keys in GEOMETRIES.items()
             for fields in def_lines("trainer/model/model.def", macro)]
    for fields, keys in lines:
        if fields[0] == name:
            g = {"family": "LLAMA", "bias": "0", "qk_norm": "0", "factor": "1", **dict(zip(keys.split(), fields))}
            for k in g.keys() - {"name", "family"}:
                g[k] = float(g[k].rstrip("f")) if k in ("eps", "theta", "factor") else int(g[k])
            return g
    die(f"model {name} is not one of {', '.join(fields[0] for fields, _ in lines)}", 2)


def rope_frequencies(g):
    """Radians per position of every pair of elements of a head. Scaled as in Llama 3.1, a pair that turns less than
    low_freq_factor times in the original context turns `factor` times slower, one that turns more than high_freq_factor
    times is unchanged, and between them is a linear transition."""
    low, high, length = LLAMA3.values()

    def scaled(f):
        unchanged = min(max((length * f / (2 * math.pi) - low) / (high - low), 0.0), 1.0)
        return f * (unchanged + (1 - unchanged) / g["factor"])
    found = [g["theta"] ** (-2 * i / g["d"]) for i in range(g["d"] // 2)]
    return found if g["factor"] == 1 else [scaled(f) for f in found]


def parse_key(key):
    """'suite/case?axis=value&...' as (suite, case, {axis: value})."""
    m = re.fullmatch(r"([a-z0-9_]+)/([a-z0-9_]+)(?:\?([^?\s]*))?", key)
    if not m or any("=" not in a for a in (m.group(3) or "x=").split("&")):
        die(f"'{key}' is no key of bench: suite/case?axis=value&...", 2)
    axes = dict(a.split("=", 1) for a in m.group(3).split("&")) if m.group(3) else {}
    return m.group(1), m.group(2), axes


def make_key(suite, case, axes):
    return f"{suite}/{case}" + ("?" + "&".join(f"{a}={axes[a]}" for a in sorted(axes)) if axes else "")


# ---- the corpus, in batches as bench/suites/train_batch.c makes them -----------------------------------------------

def uniform(seed, i):
    """pb_uniform of kernels/engine/bind.c: a number in [0,1) from a seed and an index."""
    word = (1 << 64) - 1
    x = (seed * 0xd1342543de82ef95 + i + 0x9e3779b97f4a7c15) & word
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & word
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & word
    return ((x ^ (x >> 31)) >> 11) * 2.0**-53


def conversation(messages):
    """Byte tokens of a conversation, and which are loss tokens: the text of an assistant, with the token that ends
    it."""
    start, end, ids, counted = 256, 257, [], []
    for m in messages:
        head, text = f"{m['role']}\n".encode(), m["content"].encode()
        ids += [start, *head, *text, end, *b"\n"]
        counted += [0] * (1 + len(head)) + [int(m["role"] == "assistant")] * (len(text) + 1) + [0]
    return ids, counted


@functools.lru_cache(maxsize=1)
def corpus(seed):
    """All tokens in the seed's order, and which are loss tokens. Cached, because all cases of a process use the same
    seed."""
    folder = Path(os.environ.get("PB_DATA") or ROOT / "data")
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    samples = [conversation(json.loads(line)["messages"]) for line in lines]
    order = list(range(len(samples)))
    for i in range(len(order), 1, -1):
        k = int(uniform(seed, i) * i)
        order[k], order[i - 1] = order[i - 1], order[k]
    return [t for i in order for t in samples[i][0]], [c for i in order for c in samples[i][1]]


def batch(B, S, seed=42):
    """Batch 0 of bench's training cases: ids [B][S], and targets [B][S], -100 where the position is not a loss
    token."""
    ids, counted = corpus(seed)
    windows = [w for w in range((len(ids) - 1) // S) if 4 * sum(counted[w * S + 1:(w + 1) * S + 1]) >= S]
    if not windows:
        die(f"the corpus has no window of {S} tokens with enough text to learn from", 2)
    rows = [windows[b % len(windows)] * S for b in range(B)]
    return ([ids[at:at + S] for at in rows],
            [[t if c else -100 for t, c in zip(ids[at + 1:at + S + 1], counted[at + 1:at + S + 1])] for at in rows])


# ---- timing ------------------------------------------------------------------------------------------------

class Marks:
    """Records points in time: CUDA events in the stream, or readings of the clock on a CPU, where a call has ended
    on return."""

    def __init__(self, device):
        self.gpu, self.at = device != "cpu", []

    def mark(self):
        if self.gpu:
            import torch
            self.at.append(torch.cuda.Event(enable_timing=True))
            self.at[-1].record()
        else:
            self.at.append(time.perf_counter())

    def seconds(self):
        """Seconds between neighbouring points; on a GPU, synchronises with the last one."""
        pairs = list(zip(self.at, self.at[1:]))
        if not self.gpu:
            return [b - a for a, b in pairs]
        self.at[-1].synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in pairs]


def sample(device, call, fill=None, before=lambda: None, agree=lambda seconds: seconds):
    """Samples as bench's training suites: 5 to 40 samples, until they fill `fill` seconds [1.5 on a CPU, 0.4 on a GPU].
    `call` is given a function that records a point. Returns the seconds between the points of every sample, and the
    host's seconds of every call. With several ranks, `before` lets them begin each sample together, and `agree` makes
    one list of seconds of theirs, so that all take the same number of samples."""
    seconds, host = [], []
    fill = fill or (1.5 if device == "cpu" else 0.4)
    while len(seconds) < 40 and (len(seconds) < 5 or sum(map(sum, seconds)) < fill):
        before()
        marks, start = Marks(device), time.perf_counter()
        call(marks.mark)
        host.append(time.perf_counter() - start)
        seconds.append(agree(marks.seconds()))
    return seconds, host


class Memory:
    """Peak memory since reset(): resident bytes of the process (CPU), or bytes handed out by the allocator (GPU)."""

    def __init__(self, device):
        self.gpu = device != "cpu"

    def reset(self):
        if self.gpu:
            import torch
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")

    def peak(self):
        if self.gpu:
            import torch
            return float(torch.cuda.max_memory_allocated())
        return 1024.0 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text()).group(1))


# ---- rows ------------------------------------------------------------------------------------------------------

class Rows:
    """Appends rows of results.csv; scripts/peers/run fills in run_id, machine_id, host and process."""

    def __init__(self, path, note):
        self.columns = [c[1] for c in def_lines("bench/rows/columns.def", "COL")]
        self.metrics = {m[0]: m for m in def_lines("bench/rows/metrics.def", "METRIC")}
        self.version = re.search(r'PB_BENCH_VERSION "(.*)"', (ROOT / "bench/rows/row.h").read_text()).group(1)
        self.note, self.bad, self.path = note, 0, path
        if not path:
            self.write_header(sys.stdout)
        elif not Path(path).exists():
            with open(path, "w", newline="") as f:
                self.write_header(f)

    def write_header(self, file):
        csv.DictWriter(file, self.columns, lineterminator="\n").writeheader()

    def emit(self, key, metric, value, samples=0, status="ok", note=None):
        finite = value is not None and math.isfinite(value)
        if status == "ok" and not finite:
            status, note = "wrong", f"{metric} is not finite"
        self.bad += status in ("failed", "wrong")
        row = dict(bench_version=self.version, run_id="peer", machine_id="unknown", process=0, key=key, metric=metric,
                   unit=self.metrics[metric][1], better=self.metrics[metric][2], value=f"{value:.9g}" if finite else "",
                   samples=samples, status=status, note=self.note if note is None else note, commit="", host="")
        file = open(self.path, "a", newline="") if self.path else sys.stdout
        csv.DictWriter(file, self.columns, lineterminator="\n").writerow({c: row[c] for c in self.columns})
        file.flush()
        if self.path:
            file.close()

    def outcome(self, key, error):
        """Writes the row of a case that has no value."""
        text = " ".join(f"{type(error).__name__}: {error}".split())[:240]
        unsupported = isinstance(error, NotImplementedError)
        self.emit(key, "outcome", None, 0, "unsupported" if unsupported else "failed", text)
        print(f"peers: {key}: {text}", file=sys.stderr)


# ---- a peer's main -------------------------------------------------------------------------------------------

def peer_options(doc, more=None, needs_keys=True):
    """Parses the options that every peer has; `more` adds the peer's own."""
    p = argparse.ArgumentParser(description=doc.splitlines()[0])
    p.add_argument("keys", nargs="+" if needs_keys else "*", metavar="KEY",
                   help="case of bench to measure: suite/case?axis=value&...")
    if more:
        more(p)
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch chooses")
    p.add_argument("--seed", type=int, default=0, help="order of the cases")
    p.add_argument("--out", help="CSV to append to (a new one gets a header); left out: standard output")
    return p.parse_args()


def shuffled(seed, cases, group):
    """The cases in the seed's order: the groups in random order, and in each group its cases."""
    order = random.Random(seed)
    groups = sorted({group(c) for c in cases})
    order.shuffle(groups)
    for g in groups:
        members = [c for c in cases if group(c) == g]
        yield from order.sample(members, len(members))


def peer_main(o, cases, note, measure, group=lambda case: 0):
    """Measures each (key, case). The order of the groups and of the cases in a group is drawn from o.seed. A case
    that raises an error gets a row with the reason, and the next case is measured. Returns the exit code."""
    import gc
    import torch
    if o.threads:
        torch.set_num_threads(o.threads)
    if o.device == "cuda" and not torch.cuda.is_available():
        die("PyTorch finds no GPU")
    rows = Rows(o.out, note)
    for key, case in shuffled(o.seed, cases, lambda pair: group(pair[1])):
        try:
            measure(case, key, rows)
        except Exception as error:  # any error of a library: the other cases can still be measured
            rows.outcome(key, error)
        gc.collect()
        if o.device == "cuda":
            torch.cuda.empty_cache()
    return FAILED if rows.bad else 0


def median_of(samples, i):
    return statistics.median(s[i] for s in samples)


# ---- peers that are loaded from --path ---------------------------------------------------------------------------

def given_path(name, path, what):
    """Returns the path of --path; ends the program with one line that says what is wanted when it is not there."""
    if not path:
        die(f"--path {name}=PATH is missing: {what}", 2)
    if not Path(path).exists():
        die(f"{path} is not there: {what}")
    return Path(path)


def holding(path, *parts):
    """Returns the first folder path/part that contains the given files; ends the program when none does."""
    for folder, files in parts:
        if all((Path(path) / folder / f).exists() for f in files):
            return Path(path) / folder
    wanted = " or ".join("/".join(p for p in (folder, files[0]) if p) for folder, files in parts)
    die(f"{path}: want {wanted} in it")


# ---- interpreters ----------------------------------------------------------------------------------------------

def peer_python(folder, packages):
    """Returns PB_PEER_PYTHON, or an interpreter with the packages in a virtual environment outside the repository."""
    if os.environ.get("PB_PEER_PYTHON"):
        return os.environ["PB_PEER_PYTHON"]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plumb" / folder
    python, done = home / "bin/python", home / "installed"
    if not done.exists() or done.read_text().split() != packages:
        print(f"peers: installing {' '.join(packages)} into {home}", file=sys.stderr)
        if subprocess.run([sys.executable, "-m", "venv", str(home)]).returncode:
            die("no virtual environment; apt-get install python3-venv")
        if subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages]).returncode:
            die(f"{packages} could not be installed into {home}; PB_PEER_PYTHON names an interpreter that has them")
        done.write_text("\n".join(packages))
    return str(python)


def need_packages(python, names):
    """Ends the program when the interpreter lacks a package."""
    find = "import importlib.util as u, sys; print(' '.join(n for n in sys.argv[1:] if not u.find_spec(n)))"
    try:
        found = subprocess.run([python, "-c", find, *names], capture_output=True, text=True)
    except OSError as error:
        die(f"{python}: {error.strerror}")
    if found.returncode:
        die(f"{python}: {(found.stderr.strip() or 'it does not run').splitlines()[-1]}")
    if found.stdout.split():
        die(f"{python} lacks {', '.join(found.stdout.split())}; pip install them, or name their folder in PYTHONPATH")
