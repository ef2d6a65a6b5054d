#!/usr/bin/env python3
# join_records.py - joins the records of a profiling window (trace/records.h) by rules of its own, and compares the sums with
# what `bench analyze --format csv` printed for the trace that trace/chrome.c wrote of the same records.
# usage: join_records.py FILE.records.gz CSV
#
# Work on a GPU belongs to the innermost op around the host call of its correlation, or, of a replayed graph, to the op in
# which its node, or the original of its node, was captured. Only work that begins inside a step counts. Exit code 1 when a
# sum differs.
import csv
import gzip
import re
import sys
from collections import defaultdict, namedtuple

WORK = ("kernel", "copy", "set")
Event = namedtuple("Event", "kind begin duration name device context stream correlation thread bytes node")


def read(path):
    """The names, the ranges (kind, begin, end, name) of each thread, the op of each node and whether a collective
    captured it, and the events."""
    names, ranges, places, nodes, events = [], defaultdict(list), [], {}, []
    for text in gzip.open(path, "rt"):
        word, _, rest = text.rstrip("\n").partition(" ")
        part = rest.split(" ")
        if word == "name":
            names.append(rest)
        elif word == "thread":
            thread = int(part[0])
        elif word == "range":
            ranges[thread].append((part[0], int(part[1]), int(part[1]) + int(part[2]), names[int(part[3])]))
        elif word == "place":
            ops = [names[int(part[i + 1])] for i in range(1, len(part), 5) if part[i] == "op"]
            places.append((ops[-1] if ops else None, "collective" in part))
        elif word == "node":
            nodes[int(part[0])] = nodes.get(int(part[1])) if part[1] != "0" else places[int(part[2])]
        elif word in (*WORK, "call", "sync", "overhead"):
            events.append(Event(word, *map(int, part[:10])))
    return names, ranges, nodes, events


def length(spans, steps):
    """The time inside the steps in which at least one span runs."""
    edges = sorted([(b, 0, 1) for b, _ in spans] + [(e, 0, -1) for _, e in spans] +
                   [(b, 1, 1) for b, _ in steps] + [(e, 1, -1) for _, e in steps])
    total, last, depth = 0, 0, [0, 0]
    for at, which, change in edges:
        if depth[0] and depth[1]:
            total += at - last
        depth[which] += change
        last = at
    return total


def sums(path):
    """{(part, name, metric): (sum over the steps, values added)}, in nanoseconds and counts, and the number of steps."""
    names, ranges, nodes, events = read(path)
    steps = [(b, e) for thread in ranges.values() for kind, b, e, _ in thread if kind == "step"]
    calls = {}
    for e in events:
        if e.kind == "call" and e.correlation and (
                e.correlation not in calls or e.begin < calls[e.correlation].begin):
            calls[e.correlation] = e
    out, spans = defaultdict(lambda: [0, 0]), defaultdict(list)
    for e in events:
        if e.kind not in WORK:
            continue
        nccl = re.match(r"(_Z\d+)?nccl", names[e.name])  # CUPTI gives mangled names
        (op, collective), call = nodes.get(e.node, (None, False)), calls.get(e.correlation)
        if not e.node and call:
            around = [(end - b, k, n) for k, b, end, n in ranges[call.thread] if b <= call.begin <= end]
            ops = [(size, n) for size, k, n in around if k == "op"]
            op, collective = min(ops)[1] if ops else None, any(k == "collective" for _, k, _ in around)
        moves = nccl or e.kind == "copy" and collective  # copy engines make the copies of a collective
        what = "nccl" if moves else "memory" if e.kind != "kernel" else "compute"
        spans[what].append((e.begin, e.begin + e.duration))
        if not any(b <= e.begin < end for b, end in steps):
            continue
        if op:
            for metric, value in (("gpu_time", e.duration), ("kernels", 1)):
                out["op", op, metric][0] += value
                out["op", op, metric][1] += 1
        out["gpu", "step", "kernels"][0] += e.kind == "kernel"
        out["gpu", "step", "unjoined_kernels"][0] += e.kind == "kernel" and not op
    everything = spans["compute"] + spans["nccl"] + spans["memory"]
    n = len(everything)
    compute, nccl = length(spans["compute"], steps), length(spans["nccl"], steps)
    both, busy = length(spans["compute"] + spans["nccl"], steps), length(everything, steps)
    out["gpu", "step", "compute"] = [compute, n]
    out["gpu", "step", "exposed_communication"] = [both - compute, n]
    out["gpu", "step", "hidden_communication"] = [nccl - both + compute, n]
    out["gpu", "step", "memory"] = [busy - both, n]
    out["gpu", "step", "idle"] = [sum(e - b for b, e in steps) - busy, n]
    return out, len(steps)


def main():
    wanted, steps = sums(sys.argv[1])
    found = {}
    for row in csv.DictReader(open(sys.argv[2])):
        found[row["part"], row["name"], row["metric"]] = float(row["value"]) * (1e9 if row["unit"] == "s" else 1)
    bad = 0
    for key, (value, added) in sorted(wanted.items()):
        got = found.get(key, float("nan")) * steps
        # The reader of traces has times in doubles, which are exact to a nanosecond.
        if not abs(got - value) <= 1e-8 * abs(value) + added:
            print(f"{' '.join(key)}: {got:.9g}, want {value}")
            bad += 1
    extra = {k[1] for k in found if k[0] == "op" and k[2] == "gpu_time"} - {k[1] for k in wanted if k[0] == "op"}
    for op in sorted(extra):
        print(f"op {op}: GPU time, want none")
    if not steps or not any(k[0] == "op" for k in wanted):
        print("the records have no step or no op with work")
        bad += 1
    return 1 if bad or extra else 0


sys.exit(main())
