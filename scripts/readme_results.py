"""readme_results.py - stored results for scripts/readme: medians and requirements of a CSV, and figures as text."""
import csv
import functools
import glob
import importlib.machinery
import math
import os
import re
import statistics
import sys
import types

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEP = ("model", "tuning", "batch", "seq")
STEP_PEERS = {"plumb": "Plumb, same rounds", "torch": "PyTorch, NF4 of bitsandbytes",
              "torch-graph": "the same as a CUDA graph", "hf": "Hugging Face + PEFT + bitsandbytes",
              "liger": "the same with Liger kernels", "compile": "the same with torch.compile"}
KERNEL_PEERS = {"tilelang": "tilelang", "cudnn": "cuDNN", "flashmla": "FlashMLA"}


def fail(text, code=2):
    print("readme: " + text, file=sys.stderr)
    sys.exit(code)


def axes_of(key):
    """suite/name?a=1&b=2 -> "suite/name", {"a": "1", "b": "2"}"""
    name, _, rest = key.partition("?")
    return name, dict(word.split("=", 1) for word in rest.split("&") if word)


def key_of(name, axes):
    return name + "?" + "&".join(f"{a}={axes[a]}" for a in sorted(axes))


def has(axes, want):
    """Whether a case has the wanted axes. Cases of several ranks are found only where `ranks` is wanted."""
    return want.items() <= axes.items() and ("ranks" in axes) == ("ranks" in want)


@functools.cache
def present_bounds(root):
    """The bounds of bench/derived/requirements.def in this folder: id -> (relation, bound). Without the file: none."""
    try:
        with open(os.path.join(root, "bench/derived/requirements.def"), encoding="utf-8") as f:
            text = f.read()
    except FileNotFoundError:
        return {}
    found = re.findall(r'REQUIREMENT(?:_ON_CASES)?\("([^"]+)",(?:\s*"[^"]*")+,\s*"[^"]*",\s*"([<>]=?)",'
                       r'\s*([-+*/().\de ]+),', text)
    return {name: (relation, float(eval(bound, {"__builtins__": {}}))) for name, relation, bound in found}


class Requirement:
    """The rows of one requirement, from the newest session; it is met when no process failed it, so a requirement
    whose median is within the bound may have failed. bench writes the note as `statement: metric relation bound; how`.
    If the bound has changed since, the stored values are judged by the present one."""
    root = ROOT  # the folder with the present bounds

    def __init__(self, key, rows):
        newest = max(row["run_id"] for row in rows)
        self.run = newest.removeprefix("baseline:")
        if newest.startswith("baseline:"):
            rows = [row for row in rows if row["run_id"] == newest]
        self.name, self.axes = axes_of(key)
        self.id = self.name.partition("/")[2]
        self.values = [float(row["value"]) for row in rows]
        self.value = statistics.median(self.values)
        self.failed = sum(row["status"] == "fail" for row in rows)
        m = re.fullmatch(r"(.*): ([^:;]+) ([<>]=?) ([-+.\de]+); (.*)", rows[0]["note"])
        if not m:
            raise ValueError(f"{key}: the note is not `statement: metric relation bound; how`")
        self.statement, self.metric, self.relation, self.bound, self.how = m[1], m[2], m[3], float(m[4]), m[5]
        self.what = self.how.rpartition(": ")[0]
        relation, bound = present_bounds(Requirement.root).get(self.id, (self.relation, self.bound))
        if relation == self.relation and not math.isclose(bound, self.bound):
            self.bound = bound
            self.failed = sum(not (row <= bound if relation == "<=" else row >= bound) for row in self.values)

    def figure(self, value):
        if self.metric == "share of the copy's rate":
            return f"{100 * value:.1f} % of copy"
        unit = "FLOP/s" if self.metric.startswith("FLOP/s") else {"seconds": "s"}.get(self.metric)
        return si(value, unit) if unit else f"{value:g}"

    def text(self):
        return ("at most " if self.relation == "<=" else "at least ") + self.figure(self.bound)

    def verdict(self):
        if not self.failed:
            return "met"
        met = self.value >= self.bound if self.relation.startswith(">") else self.value <= self.bound
        return "**failed**" + (" in a process" if met else "")  # the value is the median of the processes


class Results:
    """A results CSV or a stored baseline: for each key and metric the median over processes and sessions."""

    def __init__(self, path, side=""):
        """side: only runs whose id ends so (the sides of peers.csv)"""
        self.path, values, self.judged, self.reasons = path, {}, {}, {}
        with open(path, newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        if any(None in row.values() for row in rows):
            raise ValueError(f"{path}: a row has too few cells")
        rows = [row for row in rows if row["run_id"].endswith(side)]
        for row in rows:
            if row["status"] in ("pass", "fail"):
                self.judged.setdefault(row["key"], []).append(row)
            elif row["status"] == "unsupported":
                self.reasons[row["key"]] = row["note"]
            elif row["status"] == "ok" and row["value"]:
                values.setdefault((row["key"], row["metric"]), []).append(float(row["value"]))
        self.values = values  # [(key, metric)]: of the processes or sessions, in the order of the file
        self.value = {at: statistics.median(v) for at, v in values.items()}
        self.count = {at: len(v) for at, v in values.items()}
        stored = [row for row in rows if row["run_id"].startswith("baseline:")]
        self.is_stored = bool(stored)
        self.shown = set()  # the figures that get() returned since the last source(), without ceilings
        self.processes = min([int(row["process"]) for row in stored] or self.count.values(), default=0)

    def get(self, key, metric):
        if (key, metric) in self.value and not key.startswith("ceiling/"):
            self.shown.add((key, metric))
        return self.value.get((key, metric))

    def find(self, name, metric, best=min, **want):
        """The key with these axes whose figure is the best one, or None."""
        found = [(value, key) for (key, m), value in self.value.items()
                 if m == metric and key.startswith(name + "?") and has(axes_of(key)[1], want)]
        return best(found)[1] if found else None

    def all_axes(self, name, metric):
        """The axes of every key with this name and metric, whatever the number of ranks."""
        keys = sorted(key for key, m in self.value if m == metric and key.startswith(name + "?"))
        return [axes_of(key)[1] for key in keys]

    def axes(self, name, metric, **want):
        """The axes of every key with this name, metric and these axes."""
        return [axes for axes in self.all_axes(name, metric) if has(axes, want)]

    def requirements(self, prefix=""):
        return [Requirement(key, rows) for key, rows in self.judged.items() if key.startswith("requirement/" + prefix)]

    def source(self):
        """The file, and the number of sessions and processes whose median the table shows. Call it after the rows are
        made: it counts what get() returned since the last call."""
        counts, self.shown = {self.count[at] for at in self.shown} or {1}, set()
        sessions = f"{span(counts, '{}')} sessions of " if self.is_stored and max(counts) > 1 else ""
        return f"{file_of(self)}, median of {sessions}{several(self.processes, 'process')}"


def read(machine, name):
    path = os.path.join(machine, name)
    return Results(path) if os.path.exists(path) else None


def needs(name):
    """A table or finding that is made from one file, which it gets as its second argument; "" without the file."""
    def wrap(make):
        @functools.wraps(make)
        def made(stored):
            results = stored.read(name)
            if results:
                results.shown.clear()
            return make(stored, results) if results else ""
        return made
    return wrap


class Stored:
    """The stored results of a machine, and of the other machines in baselines/. Each file is read once."""

    def __init__(self, machine, bench):
        self.machine, self.bench = machine, bench
        self.read = functools.lru_cache(None)(lambda name: read(machine, name))
        self.validation = functools.lru_cache(None)(self.evaluate)

    def peers(self, names, prefix):
        """The sides of peers.csv that have rows of `prefix`."""
        path = os.path.join(self.machine, "peers.csv")
        sides = {name: Results(path, "-" + name) for name in names} if os.path.exists(path) else {}
        return {name: r for name, r in sides.items() if any(key.startswith(prefix) for key, _ in r.value)}

    def others(self, pattern):
        """Files of all machines next to this one."""
        return sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(self.machine)), pattern)))

    def evaluate(self):
        """The module scripts/validate, with the folders of every machine whose validation is stored."""
        rule = types.ModuleType("validation")
        rule.__file__ = os.path.join(ROOT, "scripts/validate")
        importlib.machinery.SourceFileLoader("validation", rule.__file__).exec_module(rule)
        rule.simulate = functools.lru_cache(None)(lambda bench, files, f=rule.simulate: f(bench, files))
        return rule, self.others("*/validation")

    def ours_over_peer(self):
        """The ratios that scripts/peers/peer_ratios.py computes from the machine's peers.csv, and the module."""
        path = os.path.join(self.machine, "peers.csv")
        if not os.path.exists(path):
            return [], None
        sys.path.insert(0, os.path.join(ROOT, "scripts/peers"))
        import peer_ratios
        with open(path, newline="", encoding="utf-8") as f:
            return peer_ratios.ours_over_peer(list(csv.DictReader(f))), peer_ratios

    def peer_ratios(self):
        """{(peer, pass): a peer's times over ours, each of the same round and lists}"""
        ratios = {}
        for side, key, rounds in self.ours_over_peer()[0]:
            name, axes = axes_of(key)
            if side in KERNEL_PEERS and name.startswith("attention/") and axes.get("variant") == side:
                of = ratios.setdefault((side, name.partition("/")[2]), [])
                of += [theirs / ours for _, ours, theirs in rounds.values()]
        return ratios


# ---- figures as text -----------------------------------------------------------------------------------------


def si(value, unit):
    """Three digits, with a prefix: 6.3e-3, "s" -> 6.30 ms"""
    if value is None:
        return ""
    power = math.floor(math.log10(abs(value) * 1.0005) / 3) if value else 0
    power = max(-3, min(power, 4))  # n to T
    value /= 1000**power
    digits = max(0, 2 - math.floor(math.log10(abs(value) * 1.0005))) if value else 2
    return f"{value:.{digits}f} {['n', 'u', 'm', '', 'k', 'M', 'G', 'T'][power + 3]}{unit}"


def plain(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def percent(value):
    return plain(value and 100 * value, "{:.0f} %")


def over(a, b):
    return None if a is None or not b else a / b


def span(values, form="{:.2f}"):
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def several(n, what):
    return f"{n} {what}" + ("" if n == 1 else "es" if what.endswith("s") else "s")


def file_of(results):
    inside = results.path.startswith(ROOT + "/baselines")
    return "`" + (os.path.relpath(results.path, ROOT) if inside else os.path.basename(results.path)) + "`"


def table(head, rows):
    """Markdown; "" without rows"""
    if not rows:
        return ""
    lines = ["| " + " | ".join(row) + " |" for row in [head, *rows]]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)
