#!/usr/bin/env python3
# check_change.py - checks the tables of `bench analyze NOW --against BEFORE --format csv`: the parts of a step add up
# to its change, every table is ranked by the absolute change, and each change is the difference of figures that `bench
# analyze` prints of either run alone.
# usage: check_change.py CHANGE.csv [NOW.csv BEFORE.csv], the latter of traces with equally many steps
#
# Exit code 1 when something differs.
import csv
import sys
from collections import defaultdict

PARTS = {"gpu": {"compute": "compute", "exposed_communication": "exposed communication", "memory": "memory",
                 "host_bound": "host-bound idle", "idle": "other idle"},
         "rank": {"compute": "compute", "exposed_communication": "exposed communication", "other": "other"}}


def rows(path):
    return list(csv.DictReader(open(path)))


def figures(table, division):
    """{(part of the CSV with changes, name): seconds per step} of one run."""
    traces = sum(r["part"] == "rank" and r["metric"] == "time" for r in table)
    out, host = defaultdict(float), {}
    for r in table:
        part, value = r["part"], float(r["value"])
        if part == division and r["metric"] in PARTS[division]:
            out["change_part", PARTS[division][r["metric"]]] += value / traces
        if part == division == "gpu" and r["metric"] == "host_bound":
            out["change_part", "other idle"] -= value / traces
        if part == "collective" and r["metric"] == "exposed":
            out["change_collective", r["name"]] += value / traces
        name = {"phase": "change_phase", "op": "change"}.get(part)
        if name and r["metric"] == "gpu_time":
            out[name, r["name"]] = value
        if name and r["metric"] == "host_time":
            host[name, r["name"]] = value
    return {**host, **out}


def main():
    change, bad = rows(sys.argv[1]), []
    found = {(r["part"], r["name"]): float(r["value"]) for r in change if r["part"].startswith("change")}
    step = found.pop(("change", "step"))
    total = sum(v for (part, _), v in found.items() if part == "change_part")
    if not abs(total - step) <= 1e-7 * max(abs(v) for v in found.values()) + 1e-12:
        bad.append(f"the parts add up to {total}, the step changed by {step}")
    for part in {p for p, _ in found}:
        values = [abs(v) for (p, _), v in found.items() if p == part]
        if values != sorted(values, reverse=True):
            bad.append(f"{part} is not ranked: {values}")
    if len(sys.argv) == 4:
        now, before = rows(sys.argv[2]), rows(sys.argv[3])
        gpus = [any(r["part"] == "gpu" for r in table) for table in (now, before)]
        division = "gpu" if all(gpus) else "rank"
        new, old = figures(now, division), figures(before, division)
        alike = gpus[0] == gpus[1]
        wanted = {k: new.get(k, 0) - old.get(k, 0) for k in {*new, *old} if alike or k[0] != "change_collective"}
        for key in {*wanted, *found}:
            most = max(new.get(key, 0), old.get(key, 0))
            if not abs(found.get(key, float("nan")) - wanted.get(key, float("nan"))) <= 1e-8 * most + 1e-12:
                bad.append(f"{' '.join(key)}: {found.get(key)}, want {wanted.get(key)}")
        if not {"change_part", "change_phase", "change"} <= {p for p, _ in found}:
            bad.append(f"only {sorted({p for p, _ in found})}")
    print("\n".join(bad))
    return 1 if bad else 0


sys.exit(main())
