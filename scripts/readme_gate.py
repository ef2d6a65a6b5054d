"""readme_gate.py - the table of docs/gate.md and the totals for README.md, from baselines/*/gate_score.csv: what the
performance gate finds of real slowdowns, and how often harmless changes raise an alarm. scripts/gate-score measures."""
import os

import gate_score_rows
import mutant_records
from readme_results import fail, table

# (least size, what of these must be found): the aims for the slowdowns of a machine, by their measured size.
AIMS = {"cpu": ((0.05, 1.0), (0.02, 0.75)), "cuda": ((0.02, 1.0),)}
HARMLESS_COMPARISONS = {"cpu": 108, "cuda": 36}
CONFIDENCE = 0.95
LEAST_PAIRS = 7  # fewer find no change, however large: 2^-7 < 0.01 (bench/pairs/pair_rule.h)
COUNTS = ("counters", "instructions")  # the parts of the gate that need no statistics
PARTS = {"cpu": (*COUNTS, "pairs", "stored"), "cuda": ("counters", "pairs", "stored")}
PART_NAMES = {"stored": "stored sessions"}
OTHERS = ("improved", "same", "inconclusive")  # verdicts of a comparison that raised no alarm
# The answers on a slowdown, the least favourable first. Of several machines' answers the table has the first one.
FAVOUR = ("improved", "same", "inconclusive", "found", "failed")


# ---- Clopper-Pearson bounds --------------------------------------------------------------------------------------


def at_most(k, n, p):
    """The probability of at most k successes in n trials."""
    term, total = (1 - p) ** n, 0.0
    for i in range(k + 1):
        total += term
        term *= (n - i) / (i + 1) * p / (1 - p)
    return total


def upper(k, n):
    """The one-sided upper bound on the rate of k successes in n trials."""
    if k == n:
        return 1.0
    low, high = k / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(k, n, middle) > 1 - CONFIDENCE else (low, middle)
    return high


def lower(k, n):
    return 1 - upper(n - k, n)


# ---- one GPU, or all CPUs ----------------------------------------------------------------------------------------


def alarm(row):
    """Whether a comparison of a harmless change ended as that of a slowdown that is found."""
    return row["verdict"] == "found" or row["exit_code"] == "1"


class Change:
    """The rows of one slowdown or harmless change. record: None if it no longer exists."""

    def __init__(self, name, record, rows):
        self.name, self.record, self.device = name, record, rows[0]["device"]
        self.rows = sorted(rows, key=lambda r: FAVOUR.index(r["verdict"]))
        self.what = record.what if record else "The record no longer exists."
        self.size = next((float(r["change"]) for r in self.of("pairs") if r["change"]), None)

    def of(self, part):
        return [r for r in self.rows if r["part"] == part]

    def found(self, parts):
        """Whether one of these parts found it: on every machine that asked the part, as its cell says."""
        return any(rows and rows[0]["verdict"] == "found" for rows in map(self.of, parts))

    def cell(self, part):
        """The answer of one part of the gate."""
        rows = self.of(part)
        if not rows:
            if part == "instructions" and self.record and not self.record.counted():
                return "not counted"
            if part == "stored" and self.record and not self.record.gated_by_sessions(self.device):
                return "not compared"
            return "not measured"
        row = rows[0]
        detectable = f", would find {100 * float(row['detectable']):.1f} %" if row["detectable"] else ""
        size = f" ({100 * float(row['change']):+.1f} %)" if part == "instructions" and row["change"] else ""
        counts = part in COUNTS
        return {"found": "found" + size, "inconclusive": "INCONCLUSIVE" + detectable, "failed": "comparison failed",
                "improved": f"no: a counter fell{size}" if counts else "**called faster**",
                "same": "no" + size if counts else self.same()}[row["verdict"]]

    def same(self):
        """SAME is a miss, unless the measured change is below the minimum effect of `bench compare` (docs/gate.md)."""
        kernels = self.device == "cpu" and self.record and "kernels" in self.record.bench.split()
        small = self.size is not None and self.size < (0.02 if kernels else 0.01)
        return "SAME, below the minimum effect" if small else "**missed**: SAME"

    def compared(self):
        return [r for r in self.of("pairs") if r["verdict"] != "failed"]

    def judged(self):
        """The comparisons that could have raised an alarm."""
        return [r for r in self.compared()
                if alarm(r) or (int(r["pairs"]) >= LEAST_PAIRS and r["detectable"])]

    def alarms(self):
        return sum(map(alarm, self.judged()))

    def made(self, parts):
        """The rows of these parts, comparisons that failed left out."""
        return [r for r in self.rows if r["part"] in parts and r["verdict"] != "failed"]


class Scores:
    """The rows of one GPU, or of all CPUs. records: those of tests/slowdowns."""

    def __init__(self, rows, records):
        self.rows, self.device = rows, rows[0]["device"]
        self.machines = sorted({r["machine"] for r in rows})
        self.parts = PARTS[self.device]
        of_device = [r for r in records if (r.gpu_bench if self.device == "cuda" else r.bench)]
        self.total = {kind: sum(r.kind == kind for r in of_device) for kind in ("slowdown", "harmless")}
        by_name = {r.name: r for r in records}
        by = {}
        for row in self.rows:
            by.setdefault((row["kind"], row["name"]), []).append(row)
        changes = {at: Change(at[1], by_name.get(at[1]), rows) for at, rows in by.items()}
        self.slowdowns = sorted((c for (kind, _), c in changes.items() if kind == "slowdown"),
                                key=lambda c: -(c.size if c.size is not None else 9))
        self.harmless = sorted((c for (kind, _), c in changes.items() if kind == "harmless"), key=lambda c: c.name)

    def classes(self):
        """[(text, slowdowns, share that must be found or None)], by measured size."""
        out, below = [], float("inf")
        for least, share in AIMS[self.device]:
            text = f"of {100 * least:g} " + ("% and more" if below == float("inf") else f"to {100 * below:g} %")
            out.append((text, [c for c in self.slowdowns if c.size is not None and least <= c.size < below], share))
            below = least
        out.append((f"of less than {100 * below:g} %",
                    [c for c in self.slowdowns if c.size is not None and c.size < below], None))
        out.append(("of unknown size", [c for c in self.slowdowns if c.size is None], None))
        return [c for c in out if c[1] or c[2]]

    def complete(self):
        """Whether every record was compared by pairs."""
        return all(sum(bool(c.compared()) for c in changes) >= self.total[kind]
                   for kind, changes in (("slowdown", self.slowdowns), ("harmless", self.harmless)))

    def comparisons(self):
        return sum(len(c.judged()) for c in self.harmless)

    def alarms(self):
        return sum(c.alarms() for c in self.harmless)

    def commits(self):
        return ", ".join(f"`{c}`" for c in sorted({r["commit"] for r in self.rows}))


def load(stored):
    """The scores of all CPUs together, because no CPU has measured everything; then those of each GPU."""
    records, groups = mutant_records.load_speed(), {}
    try:
        for path in stored.others("*/gate_score.csv"):
            rows = gate_score_rows.read(path)
            if not rows:
                fail(f"{path} has no rows")
            device = rows[0]["device"]
            groups.setdefault("cpu" if device == "cpu" else rows[0]["machine"], []).extend(rows)
    except gate_score_rows.RowsError as error:
        fail(error)
    return [Scores(rows, records) for _, rows in sorted(groups.items())]


# ---- text --------------------------------------------------------------------------------------------------------


def found_text(changes, share, complete, parts):
    """How many of these slowdowns were found, and what the aim is. complete: no slowdown is left to be compared."""
    k, n = sum(c.found(parts) for c in changes), len(changes)
    if n == 0:
        return ["0 of 0", "", "all" if share == 1 else f"{100 * share:g} %", "nothing measured"]
    aim = "" if share is None else "all" if share == 1 else f"{100 * share:g} %"
    met = "" if share is None else "**not met**" if k < share * n else "met" if complete else "met so far"
    return [f"{k} of {n}", f"above {100 * lower(k, n):.0f} %", aim, met]


def totals(s):
    rows = [[f"slowdowns {text} found", *found_text(changes, share, s.complete(), s.parts)]
            for text, changes, share in s.classes()]
    n, k, aim = s.comparisons(), s.alarms(), HARMLESS_COMPARISONS[s.device]
    bound = f"below {100 * upper(min(k, n), n):.1f} %" if n else ""
    met = "**not met**" if k else "met" if n >= aim else f"{n} of {aim} comparisons made"
    rows.append(["alarms in comparisons of harmless changes", f"{k} of {n}", bound, f"none in {aim}", met])
    for name, parts in (("counts", COUNTS), ("stored sessions", ("stored",))):
        made = [r for c in s.harmless for r in c.made(parts)]
        k = sum(alarm(r) if name != "counts" else r["verdict"] == "found" for r in made)
        rows.append([f"alarms of {name} on harmless changes", f"{k} of {len(made)}", "", "none",
                     "**not met**" if k else "met" if made else "nothing measured"])
    return table(["", "result", "95 % bound", "aim", ""], rows)


def by_machine(s):
    """Counts what each of several machines has measured; "" for one machine."""
    if len(s.machines) == 1:
        return ""
    rows = []
    for machine in s.machines:
        mine = [r for r in s.rows if r["machine"] == machine]
        cells = []
        for kind in ("slowdown", "harmless"):
            counts = {part: sum(r["part"] == part and r["kind"] == kind for r in mine) for part in s.parts}
            cells.append(", ".join(f"{n} by {PART_NAMES.get(part, part)}" for part, n in counts.items() if n))
        rows.append([f"`{machine}`", *cells])
    return table(["machine", "comparisons of slowdowns", "comparisons of harmless changes"], rows)


def section(s):
    pairs = [sum(bool(c.compared()) for c in changes) for changes in (s.slowdowns, s.harmless)]
    measured = (f"Measured are {len(s.slowdowns)} of {s.total['slowdown']} slowdowns and {len(s.harmless)} of "
                f"{s.total['harmless']} harmless changes ({pairs[0]} and {pairs[1]} of them by pairs), "
                f"at {s.commits()}.")
    slow = [[c.what, "" if c.size is None else f"{100 * c.size:+.1f} %", *map(c.cell, s.parts)]
            for c in s.slowdowns]
    harmless = [[c.what, f"{len(c.judged())}", f"{c.alarms()}",
                 *(f"{sum(r['verdict'] == verdict for r in c.judged())}" for verdict in OTHERS),
                 f"{len(c.of('pairs')) - len(c.judged())}"] for c in s.harmless]
    parts = [f"## `{s.machines[0]}`" if s.device == "cuda" else "## On CPUs", measured, by_machine(s), totals(s),
             table(["slowdown", "time", *(PART_NAMES.get(part, part) for part in s.parts)], slow),
             table(["harmless change", "judged", "alarms", "IMPROVED", "SAME", "INCONCLUSIVE", "not judged"], harmless)]
    return "\n\n".join(part for part in parts if part)


def gate(stored):
    return "\n\n".join(map(section, load(stored)))


def gate_finding(stored):
    """A part of a sentence for the CPUs, and for each GPU, if every record was compared there; else ""."""
    texts = []
    for s in filter(Scores.complete, load(stored)):
        found = "; ".join(f"{sum(c.found(s.parts) for c in changes)} of {len(changes)} slowdowns {text} were found, "
                          f"{sum(c.found(('pairs',)) for c in changes)} of them by pairs of times"
                          for text, changes, share in s.classes() if share)
        judged = [r for c in s.harmless for r in c.judged()]
        n, k = len(judged), sum(map(alarm, judged))
        bound = f" (rate below {100 * upper(min(k, n), n):.1f} %)" if n else ""
        open_ = sum(r["verdict"] == "inconclusive" for r in judged)
        where = "GPU" if s.device == "cuda" else "a CPU" if len(s.machines) == 1 else f"{len(s.machines)} CPUs"
        texts.append(f"{where}: {found}; {k} of {n} comparisons of harmless changes raised an alarm{bound}, {open_} "
                     "were INCONCLUSIVE")
    return "; ".join(texts)
