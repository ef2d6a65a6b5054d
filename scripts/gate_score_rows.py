# gate_score_rows.py - the results of scripts/gate-score: reads the tables of bench compare, and reads and writes the
# CSV format of build/gate-score/results.csv and baselines/*/gate_score.csv.
import csv
import os
import re
import statistics

COLUMNS = ("commit", "device", "machine", "kind", "name", "round", "part", "exit_code", "verdict", "change",
           "detectable", "pairs", "seconds", "rows")
TIMES = ("kernel_time", "backward_time", "step_time")
COUNTERS = ("kernel_launches", "graph_nodes", "host_syncs", "algorithm_searches", "allocations", "held_peak",
            "formula_flops")
INSTRUCTIONS = ("instructions",)
LINE = re.compile(r"^(\S.*?) {2,}(\w+) {2,}.*?\s\d+/\d+\s+([A-Z]+)\b(.*)$")


class RowsError(Exception):
    pass


# ---- one comparison ------------------------------------------------------------------------------------------------


def table_rows(text):
    """[(case, metric, verdict, explanation)] of a table that bench compare prints."""
    return [m.groups() for m in map(LINE.match, text.splitlines()) if m]


def verdict_of(text, metrics, code):
    """(verdict, rows that are REGRESSED, detectable change) of the rows with one of the metrics. verdict: found,
    improved, inconclusive, same, or failed."""
    rows = [r for r in table_rows(text) if r[1] in metrics]
    bad = ("REGRESSED", "FAILED") if metrics is COUNTERS else ("REGRESSED",)  # an allocation in a step is FAILED
    worse = sorted(f"{case}:{metric}" for case, metric, verdict, _ in rows if verdict in bad)
    words = {verdict for _, _, verdict, _ in rows}
    found = [re.search(r"detectable ([\d.]+) %", why) for _, _, _, why in rows]
    detectable = max((float(m[1]) / 100 for m in found if m), default=None)
    if worse:
        verdict = "found"
    elif metrics is INSTRUCTIONS and "REFERENCE" in words:
        verdict, worse = "failed", ["the numbers of instructions are not comparable"]
    elif "FAILED" in words or code in (2, 125) or (code == 4 and not words & {"SAME", "INCONCLUSIVE", "IMPROVED"}):
        verdict = "failed"
    else:
        verdict = "improved" if "IMPROVED" in words else "inconclusive" if "INCONCLUSIVE" in words else "same"
    return verdict, " ".join(worse).replace(",", ";"), "" if detectable is None else f"{detectable:.4f}"


def values(results, metrics=TIMES):
    """{(process, key): value of the case's metric} of one results.csv, without control cases, and the machine that
    measured it."""
    out, machine = {}, ""
    with open(results, encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            machine = row["machine_id"]
            if re.search(r"[?&]control=", row["key"]):
                continue
            if row["metric"] in metrics and row["status"] == "ok" and row["value"]:
                out[row["process"], row["key"]] = float(row["value"])
    return out, machine


def change_of(base, cand):
    """(change, pairs) of the case that changed most: the median over the pairs of candidate/base - 1. Empty if no case
    has values on both sides."""
    by_key = {}
    for at in base.keys() & cand.keys():
        by_key.setdefault(at[1], []).append(cand[at] / base[at] - 1)
    if not by_key:
        return "", ""
    key = max(by_key, key=lambda k: abs(statistics.median(by_key[k])))
    return f"{statistics.median(by_key[key]):.4f}", len(by_key[key])


def counted_change(text):
    """candidate/base - 1 of the case whose number of instructions changed most, by the table that bench compare prints.
    Empty: all numbers count as equal, and the table has none of them."""
    shown = [why for _, metric, _, why in table_rows(text) if metric in INSTRUCTIONS]
    numbers = [re.search(r"exact, (\d+) -> (\d+)", why) for why in shown]
    changes = [int(m[2]) / int(m[1]) - 1 for m in numbers if m and int(m[1])]
    return f"{max(changes, key=abs):.4f}" if changes else ""


# ---- the CSV -------------------------------------------------------------------------------------------------------


def key_of(row):
    return row["device"], row["machine"], row["kind"], row["name"], int(row["round"]), row["part"]


def read(path):
    """The rows of one file; [] if it does not exist. Raises RowsError for a file of other columns."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as f:
        reader = csv.DictReader(f)
        rows = list(reader)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise RowsError(f"{path} has other columns than {','.join(COLUMNS)}")
    for row in rows:
        if None in row or None in row.values() or not row["round"].isdigit():
            raise RowsError(f"{path} has an incomplete row: {row.get('name')}")
    return rows


def write(path, rows):
    """Replaces a file; a reader sees the old or the new one, never a part."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8", newline="") as f:
        out = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    os.replace(path + ".new", path)


def merged(old, new):
    """The rows of both, sorted; a new row replaces the old one of the same comparison."""
    by_key = {key_of(row): row for row in [*old, *new]}
    return [by_key[key] for key in sorted(by_key)]
