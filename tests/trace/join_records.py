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
    """The names, the ranges (kind, begin, end, name) of each thread, of each node the op, whether a collective
    captured it, and the phase, the events, and the samples: (interval in ns, metrics with units, [(begin, values)])."""
    names, ranges, places, nodes, events, samples = [], defaultdict(list), [], {}, [], (0, [], [])
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
            phases = [names[int(part[i + 1])] for i in range(1, len(part), 5) if part[i] == "phase"]
            places.append((ops[-1] if ops else None, "collective" in part, phases[-1] if phases else None))
        elif word == "node":
            nodes[int(part[0])] = nodes.get(int(part[1])) if part[1] != "0" else places[int(part[2])]
        elif word == "sampled":
            texts = [names[int(i)] for i in part[6:]]
            samples = (1000 * int(part[1]), list(zip(texts[::2], texts[1::2])), [])
        elif word == "sample":
            samples[2].append((int(part[0]), [float(v) for v in part[2:]]))
        elif word in (*WORK, "call", "sync", "overhead"):
            events.append(Event(word, *map(int, part[:10])))
    return names, ranges, nodes, events, samples


def first_calls(events):
    """The host call of each correlation that began first."""
    calls = {}
    for e in events:
        if e.kind == "call" and e.correlation and (
                e.correlation not in calls or e.begin < calls[e.correlation].begin):
            calls[e.correlation] = e
    return calls


def around(ranges, call, kind):
    """The names of the ranges of this kind that enclose a call, the innermost first."""
    return [n for _, n in sorted((end - b, n) for k, b, end, n in ranges[call.thread]
                                 if k == kind and b <= call.begin <= end)]


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
    names, ranges, nodes, events, _ = read(path)
    steps = [(b, e) for thread in ranges.values() for kind, b, e, _ in thread if kind == "step"]
    calls = first_calls(events)
    out, spans = defaultdict(lambda: [0, 0]), defaultdict(list)
    for e in events:
        if e.kind not in WORK:
            continue
        nccl = re.match(r"(_Z\d+)?nccl", names[e.name])  # CUPTI gives mangled names
        (op, collective, _), call = nodes.get(e.node, (None, False, None)), calls.get(e.correlation)
        if not e.node and call:
            op = next(iter(around(ranges, call, "op")), None)
            collective = bool(around(ranges, call, "collective"))
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


def sampled(path):
    """{(row, metric): (value, unit)} of the table of sampled counters (bench/analyze/samples.h): a walk over all
    moments at which something begins or ends, in whole nanoseconds."""
    _, ranges, nodes, events, (interval, metrics, samples) = read(path)
    calls, edges, steps = first_calls(events), [], 0
    for thread in ranges.values():
        for kind, b, e, _ in thread:
            if kind == "step":
                edges += [(b, "step", 1), (e, "step", -1)]
                steps += 1
    for e in events:
        if e.kind not in WORK:
            continue
        phase, call = nodes.get(e.node, (None, False, None))[2], calls.get(e.correlation)
        if not e.node and call:
            phase = next(iter(around(ranges, call, "phase")), None)
        edges += [(e.begin, ("work", phase), 1), (e.begin + e.duration, ("work", phase), -1)]
    for i, (begin, _) in enumerate(samples):
        after = samples[i + 1][0] if i + 1 < len(samples) else float("inf")
        end = after if after - begin < 1.5 * interval else begin + interval
        edges += [(begin, ("sample", i), 1), (end, ("sample", i), -1)]
    time, weighted, weight = defaultdict(int), defaultdict(float), defaultdict(int)
    active, last = defaultdict(int), 0
    for at, what, change in sorted(edges, key=lambda edge: edge[0]):
        now = [k for k, n in active.items() if n]
        work = [k[1] or "no phase" for k in now if k[0] == "work"]
        for row in ["step", *(work or ["idle"])] if "step" in now and at > last else []:
            for i in (k[1] for k in now if k[0] == "sample"):
                time[row] += at - last
                for (metric, unit), v in zip(metrics, samples[i][1]):
                    if v == v:  # a metric that the sample lacks has no weight
                        weighted[row, metric, unit] += (at - last) * float(f"{v:.6g}")  # as traces are written
                        weight[row, metric, unit] += at - last
        active[what] += change
        last = at
    out = {(row, metric): (weighted[row, metric, unit] / w, unit) for (row, metric, unit), w in weight.items()}
    out.update({(row, "sampled_time"): (1e-9 * t / steps, "s") for row, t in time.items()})
    return out


def check_samples(path, rows):
    """Compares the rows of part `samples`. Returns how many differ."""
    found = {(r["name"], r["metric"]): (float(r["value"]), r["unit"]) for r in rows if r["part"] == "samples"}
    wanted, bad = sampled(path), 0
    for key in sorted({*wanted, *found}):
        # A row without sampled time may be left out, but has no other value.
        value, unit = wanted.get(key, (0, "s") if key[1] == "sampled_time" else (float("nan"), ""))
        got, of = found.get(key, (float("nan"), ""))
        if not abs(got - value) <= 1e-6 * abs(value) or unit != of:
            print(f"samples {' '.join(key)}: {got:.9g} {of}, want {value:.9g} {unit}")
            bad += 1
    return bad


def main():
    wanted, steps = sums(sys.argv[1])
    found, rows = {}, list(csv.DictReader(open(sys.argv[2])))
    for row in rows:
        found[row["part"], row["name"], row["metric"]] = float(row["value"]) * (1e9 if row["unit"] == "s" else 1)
    bad = check_samples(sys.argv[1], rows)
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
