"""readme_tables.py - the sections of the README that scripts/readme makes of what is stored: results read, figures in words,
and each table."""
import csv
import glob
import importlib.machinery
import math
import os
import re
import statistics
import subprocess
import sys
import types

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def fail(text, code=2):
    sys.exit(print("readme: " + text, file=sys.stderr) or code)


# ---- what is stored ------------------------------------------------------------------------------------------


def axes_of(key):
    """suite/name?a=1&b=2 -> "suite/name", {"a": "1", "b": "2"}"""
    name, _, rest = key.partition("?")
    return name, dict(word.split("=", 1) for word in rest.split("&") if word)


class Results:
    """A results CSV or a stored baseline: the median over launches of every key and metric; where several sessions are
    stored, over them, and the newest one's verdict on a contract."""

    def __init__(self, path, run_suffix=None):
        self.path, self.value, self.status, values, stored, session = path, {}, {}, {}, [], {}
        self.said = {}  # what each launch made of a contract
        with open(path, newline="", encoding="utf-8") as f:
            for row in csv.DictReader(f):
                if run_suffix and not row["run_id"].endswith(run_suffix):
                    continue
                of_baseline = row["run_id"].startswith("baseline:")
                if row["status"] in ("pass", "fail"):
                    self.said.setdefault(row["key"], []).append((float(row["value"] or "nan"), row["status"]))
                    if of_baseline and row["run_id"] < session.get(row["key"], ""):
                        continue
                    newer = of_baseline and row["run_id"] > session.get(row["key"], "")
                    worst = "fail" in (row["status"], None if newer else self.status.get(row["key"]))
                    self.status[row["key"]] = "fail" if worst else "pass"
                    session[row["key"]] = row["run_id"]
                elif row["status"] == "ok" and row["value"]:
                    values.setdefault((row["key"], row["metric"]), []).append(float(row["value"]))
                    if of_baseline:
                        stored.append(int(row["launch"]))
        self.value = {at: statistics.median(v) for at, v in values.items()}
        self.count = {at: len(v) for at, v in values.items()}
        self.sessions = max([len(v) for v in values.values()] or [0]) if stored else 1
        self.launches = min(stored or [len(v) for v in values.values()] or [0])

    def get(self, key, metric):
        return self.value.get((key, metric))

    def find(self, name, metric, best=min, **want):
        """The key with these axes whose figure is the best one, or None."""
        found = [
            (value, key)
            for (key, m), value in self.value.items()
            if m == metric and axes_of(key)[0] == name and want.items() <= axes_of(key)[1].items()
        ]
        return best(found)[1] if found else None


def read(machine, name):
    path = os.path.join(machine, name)
    return Results(path) if os.path.exists(path) else None


def bars(suite):
    """Of bars.def and contracts.def: (case, what, contract, metric, best, relation, bound)."""
    text = {}
    for name in ("bars", "contracts"):
        with open(os.path.join(ROOT, "bench", name + ".def"), encoding="utf-8") as f:
            text[name] = f.read()
    bounds = {
        m[1]: (m[2], float(m[3]))
        for m in re.finditer(r'CONTRACT\("([^"]+)",\s*"[^"]+",\s*"[^"]+", "([<>=]+)", ([-+.\de]+),', text["contracts"])
    }
    lines = re.findall(r'BAR\("([^"]+)",\s*"([^"]+)", "([^"]+)", (\w+), (\w+), \w+\)', text["bars"])
    if len(lines) != len(re.findall(r"^BAR\(", text["bars"], re.M)):
        fail("bench/derived/bars.def has a line that is no BAR(case, what, contract, metric, best, where)")
    best = {"lowest": min, "highest": max}
    return [(c, w, i, m, best[b], *bounds[i]) for c, w, i, m, b in lines if c.startswith(suite + "/")]


# ---- figures in words ----------------------------------------------------------------------------------------


def si(value, unit):
    """Three digits, with a prefix: 6.3e-3, "s" -> 6.30 ms"""
    if value is None:
        return ""
    prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")]
    for scale, prefix in prefixes:
        if abs(value) >= scale * 0.9995 or prefix == "n":
            v = value / scale
            return f"{v:.{max(0, 2 - int(math.floor(math.log10(abs(v) * 1.0005))) if v else 0)}f} {prefix}{unit}"
    return f"0 {unit}"


def plain(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def over(a, b):
    return None if a is None or not b else a / b


def show(metric, value):
    if value is None:
        return ""
    if metric == "floor_share":
        return f"{100 * value:.1f} % of copy"
    return si(value, {"kernel_flops": "FLOP/s", "kernel_time": "s", "step_time": "s"}[metric])


def verdict(results, bar, key, value):
    """What the run itself concluded; of a file without that, what its figure says."""
    _, _, contract, _, _, relation, bound = bar
    name, axes = axes_of(key)
    if name.startswith("kernels/"):
        axes["op"] = name.split("/")[1]
    said = results.status.get(f"contract/{contract}?" + "&".join(f"{a}={axes[a]}" for a in sorted(axes)))
    holds = said == "pass" if said else value <= bound if relation == "<=" else value >= bound
    return "met" if holds else "**missed**"


def bar_text(metric, relation, bound):
    return ("at most " if relation == "<=" else "at least ") + show(metric, bound)


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [head, *rows]]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def file_of(results):
    return "`" + (os.path.relpath(results.path, ROOT) if results.path.startswith(ROOT) else os.path.basename(results.path)) + "`"


def several(n, what):
    return f"{n} {what}" + ("" if n == 1 else "es" if what.endswith("h") else "s")


def source(results):
    sessions = f"{results.sessions} sessions of " if results.sessions > 1 else ""
    return f"{file_of(results)}, median of {sessions}{several(results.launches, 'launch')}"


def rounds(peers, metric, wanted):
    """How many rounds stand behind the figures of peers whose key is wanted."""
    counts = sorted({n for p in peers for (key, m), n in p.count.items() if m == metric and wanted(key)})
    most = several(counts[-1], "round")
    return f"{file_of(peers[0])}, median of " + (most if counts[0] == counts[-1] else f"{counts[0]} to {most}")


def figure_path(machine, figure):
    return os.path.join(machine, figure + ".svg")


# ---- sections: each gives its text, or "" where there is nothing to show; folder: the README's ---------------


def kernels(machine, _):
    r = read(machine, "kernels.csv")
    if not r:
        return ""
    rows = []
    for bar in bars("kernels"):
        case, what, _, metric, best, relation, bound = bar
        name, axes = axes_of(case)
        key = r.find(name, metric, best, **axes)
        if not key:
            rows.append([what, "not measured", "", bar_text(metric, relation, bound), ""])
            continue
        value, time = r.get(key, metric), r.get(key, "kernel_time")
        figure = "" if metric == "kernel_time" else show(metric, value)
        rows.append([what, si(time, "s"), figure, bar_text(metric, relation, bound), verdict(r, bar, key, value)])
    copy, matmul = r.get("ceiling/copy", "copy_rate"), r.get("ceiling/matmul", "matmul_rate")
    return (
        "#### Kernels\n"
        f"bf16 where nothing else is said, cold second-level cache, device time ({source(r)}; in the same run: copy "
        f"{si(copy, 'B/s')}, matrix product {si(matmul, 'FLOP/s')}).\n\n"
        + table(["kernel, shape", "time", "figure", "bar", ""], rows)
    )


PEERS = {
    "plumb": "Plumb, same session",
    "hf": "Hugging Face + PEFT + bitsandbytes",
    "torch": "PyTorch by hand, NF4 of bitsandbytes",
    "torch-graph": "the same as one CUDA graph",
}
KERNEL_PEERS = {"tilelang": "tilelang", "cudnn": "cuDNN", "flashmla": "FlashMLA"}


def peers_of(machine):
    """The run_id suffixes of peers.csv in the order of PEERS, each with its rows."""
    path = os.path.join(machine, "peers.csv")
    if not os.path.exists(path):
        return {}
    with open(path, newline="", encoding="utf-8") as f:
        ids = {row["run_id"] for row in csv.DictReader(f)}
    known = sorted(PEERS, key=len, reverse=True)  # torch-graph before graph
    found = {next((k for k in known if i.endswith("-" + k)), i.rpartition("-")[2]) for i in ids} - set(KERNEL_PEERS)
    order = [k for k in PEERS if k in found] + sorted(found - set(PEERS))
    return {k: Results(path, run_suffix="-" + k) for k in order}


def step_cell(r, name, axes):
    """A step beside the bar: its time, and its memory where that is known. The fastest way counts."""
    key = r.find(name, "step_time", **{a: axes[a] for a in ("model", "tuning", "batch", "seq")})
    memory = r.get(key, "peak_memory") if key else None
    return "" if not key else si(r.get(key, "step_time"), "s") + (f", {si(memory, 'B')}" if memory else "")


def steps(machine, _):
    r, peers = read(machine, "throughput.csv"), peers_of(machine)
    r = r or peers.pop("plumb", None)  # where no run of its own is stored, Plumb's rows of the rounds with the peers
    if not r:
        return ""
    rows = []
    for bar in bars("throughput"):
        case, what, _, metric, best, relation, bound = bar
        name, axes = axes_of(case)
        key = r.find(name, metric, best, **axes)
        value, memory = r.get(key, metric), r.get(key, "peak_memory")
        said = verdict(r, bar, key, value) if key else ""
        mine = [what, si(value, "s") or "not measured", si(memory, "B"), bar_text(metric, relation, bound), said]
        rows.append(mine + [step_cell(p, name, axes) for p in peers.values()])
    shown = {tuple(axes_of(bar[0])[1][a] for a in ("model", "tuning", "batch", "seq")) for bar in bars("throughput")}
    beside = (" Beside it peers that train the same parameters in the same way (`scripts/peers`), the faster of eager and graph ("
              + rounds(list(peers.values()), "step_time", lambda key: tuple(
                  axes_of(key)[1].get(a) for a in ("model", "tuning", "batch", "seq")) in shown) + ").") if peers else ""
    return (
        "#### QLoRA steps\n"
        "A whole step as one CUDA graph: NF4 base, r16 on q and v, AdamW, clip, no recomputation, real text; device "
        f"time and peak memory ({source(r)}).{beside}\n\n"
        + table(["model, batch", "step", "memory", "bar", ""] + [PEERS.get(p, p) for p in peers], rows)
    )


def cases(r, metric, **want):
    """(model, tuning, batch, seq) of the cases with the metric, in order."""
    names = ("model", "tuning", "batch", "seq")
    found = {
        tuple(axes_of(key)[1].get(n, "") for n in names)
        for key, m in r.value
        if m == metric and want.items() <= axes_of(key)[1].items()
    }
    return sorted(found, key=lambda c: (c[0], ["lora", "qlora", "full"].index(c[1]), int(c[2]), int(c[3])))


HEADLINE = {"batch": ("1", "4"), "seq": ("128", "512", "2048")}  # of more, the rest is in the file


def headline(r, metric, **want):
    return [c for c in cases(r, metric, **want) if c[2] in HEADLINE["batch"] and c[3] in HEADLINE["seq"]]


def arm(r, name, metric, case, **more):
    model, tuning, batch, seq = case
    return r.find(name, metric, model=model, tuning=tuning, batch=batch, seq=seq, **more)


def arms(r, name, metric, case, wanted):
    """The keys of a case's arms, and their figures; None for what was not measured."""
    keys = [arm(r, name, metric, case, **axes) for axes in wanted]
    return keys, [r.get(k, metric) if k else None for k in keys]


def throughput(machine, _):
    r = read(machine, "throughput.csv")
    if not r:
        return ""
    rows = []
    for case in headline(r, "step_time", mode="graph"):
        (*_, g), (sync, eager, graph) = arms(r, "throughput/step", "step_time", case, [
            {"mode": "eager", "clip": "sync"}, {"mode": "eager", "clip": "multi"}, {"mode": "graph", "clip": "multi"}])
        rows.append([*case, si(sync, "s"), si(eager, "s"), si(graph, "s"), plain(over(eager, graph)),
                     plain(r.get(g, "tokens_per_second"), "{:.0f}"), si(r.get(g, "model_flops"), "FLOP/s"),
                     plain(over(r.get(g, "mfu"), 0.01), "{:.0f} %"), si(r.get(g, "peak_memory"), "B")])
    head = ["model", "tuning", "batch", "seq", "eager, clip that waits", "eager", "graph", "eager/graph", "tokens/s",
            "model FLOPs", "MFU", "peak memory"]
    return (
        "#### Whole steps\n"
        f"bf16, r16 on q and v, AdamW, clip ({source(r)}); from tokens/s on of the graphed step. Model FLOPs are those "
        "that the step needs, MFU is their share of the matrix product measured in the same run.\n\n"
        + table(head, rows)
    )


def backward(machine, _):
    r = read(machine, "backward.csv")
    if not r:
        return ""
    name, metric, rows = "backward/step", "backward_time", []
    for case in headline(r, metric, mode="graph", clip="fused"):
        keys, (sync, eager, graph) = arms(r, name, metric, case, [
            {"mode": "eager", "clip": "sync"}, {"mode": "eager", "clip": "fused"}, {"mode": "graph", "clip": "fused"}])
        counts = [plain(r.get(k, m), "{:.0f}") if k else "" for k, m in
                  ((keys[0], "waits"), (keys[1], "launches"), (keys[2], "launches"))]
        rows.append([*case, si(sync, "s"), si(eager, "s"), si(graph, "s"), plain(over(eager, graph)),
                     plain(over(sync, graph)), *counts, plain(r.get(keys[2], "break_even"), "{:.0f}"),
                     si(r.get(keys[2], "record_time"), "s")])
    head = ["model", "tuning", "batch", "seq", "sync eager", "fused eager", "fused graph", "what the graph buys",
            "graph and fused over sync", "waits, sync", "launches, eager", "graph", "break-even, steps", "recording"]
    return (
        "#### What a CUDA graph buys in the backward pass\n"
        f"Backward pass and clip, bf16, real text, device time ({source(r)}). *Sync* is the clip that reads each "
        "gradient's sum on the host, *fused* the one that never waits; break-even: steps after which recording has "
        "paid for itself.\n\n"
        + table(head, rows)
    )


def crossover(machine, folder):
    r = read(machine, "backward.csv")
    if not r:
        return ""
    lines = []
    for (key, metric), tokens in sorted(r.value.items()):
        if metric == "crossover":
            axes = axes_of(key)[1]
            lines.append(f"{axes.get('model')} {axes.get('tuning')} from {tokens:.0f} tokens on")
    falls = " The gain falls below 5 %: " + ", ".join(lines) + "." if lines else ""
    picture = os.path.relpath(figure_path(machine, "crossover"), folder)
    return f"![eager over graphed time of the backward pass, against the tokens of a step]({picture})\n\n" \
           f"Eager over graphed time, by tokens of a step.{falls}"


def attention_time(r, passes, metric="kernel_time", **axes):
    """Of 64 heads of 512 in bf16: the passes' times together, or one pass's other figure; None where one is missing."""
    keys = [r.find(f"attention/{p}", metric, dtype="bf16", heads="64", qk="512", masked="0", **axes) for p in passes]
    return None if None in keys else sum(r.get(k, metric) for k in keys)


def losing(r):
    """The lengths at which dense attention takes less time, forward and backward together, list by list."""
    found = []
    for kind, topk in sorted({(a["list"], a["topk"]) for k, m in r.value if k.startswith("attention/fwd") for _, a in
                              [axes_of(k)] if a["arm"] == "sparse"}, key=lambda at: (at[0], int(at[1]))):
        both = []
        for seq in sorted({axes_of(k)[1]["seq"] for k, m in r.value if k.startswith("attention/")}, key=int):
            sparse = attention_time(r, ("fwd", "bwd"), arm="sparse", list=kind, topk=topk, seq=seq)
            dense = attention_time(r, ("fwd", "bwd"), arm="dense", topk="0", seq=seq)
            both += [seq] if sparse and dense and dense < sparse else []
        found += [f"{kind} lists of {topk} at {', '.join(both)}"] if both else []
    return found


def attention_row(r, peers, of, **axes):
    """Forward and backward of a kind of list at 4096 tokens, with the ordered backward pass and the peers'."""
    cells = [of]
    for p in ("fwd", "bwd"):
        time = attention_time(r, (p,), **axes)
        flops, share = (attention_time(r, (p,), m, **axes) for m in ("kernel_flops", "floor_share"))
        cells += [si(time, "s"), si(flops, "FLOP/s"), plain(over(share, 0.01), "{:.0f} %")]
    ordered = attention_time(r, ("bwd",), **{**axes, "arm": "deterministic"}) if axes["arm"] == "sparse" else None
    cells.append(si(ordered, "s"))
    for peer, theirs in peers.items():
        times = [attention_time(theirs, (p,), **{**axes, "arm": peer}) for p in ("fwd", "bwd")]
        cells.append(" / ".join(si(t, "s") or "-" for t in times) if any(times) else "")
    return cells


def against_peers(path):
    """Of each peer and pass the least and the largest ratio of its time to ours, both of one round and of the same lists."""
    times = {}
    with open(path, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            name, axes = axes_of(row["key"])
            if name.startswith("attention/") and row["metric"] == "kernel_time" and row["status"] == "ok":
                stem, _, side = row["run_id"].rpartition("-")
                of = (stem, row["launch"], name, *(v for a, v in sorted(axes.items()) if a != "arm"))
                times.setdefault(of, {})[axes["arm"] if side == "plumb" else side] = float(row["value"])
    texts = []
    for peer, called in KERNEL_PEERS.items():
        for p, word in (("fwd", "forward"), ("bwd", "backward")):
            ratios = [t[peer] / t["sparse"] for of, t in times.items()
                      if of[2] == f"attention/{p}" and peer in t and "sparse" in t]
            if ratios:
                texts.append(f"{called} {word} {min(ratios):.2f} to {max(ratios):.2f}")
    return "A peer's time over ours, of the same round and lists: " + ", ".join(texts) + ".\n\n" if texts else ""


def v4_steps(machine):
    """Whole steps of the layers of DeepSeek-V4-Flash with dense and with sparse attention, by length and mode."""
    r = read(machine, "v4_step.csv")
    if not r:
        return ""
    name, model, rows = "throughput/step", "v4-flash-layer", []
    found = {tuple(axes_of(k)[1].get(a) for a in ("seq", "mode")) for k, _ in r.value if f"model={model}&" in k}
    for seq, mode in sorted(found, key=lambda at: (int(at[0]), at[1])):
        arms_of = {"model": model, "seq": seq, "mode": mode}
        keys = [r.find(name, "step_time", **arms_of, attention=a) for a in ("dense", "sparse")]
        said = r.said.get((keys[1] or "").replace(name, "contract/V4-STEP", 1))
        if None in keys or not said:
            continue
        times, flops = [[r.get(k, m) for k in keys] for m in ("step_time", "model_flops")]
        cells = [w for t, f in zip(times, flops) for w in (si(t, "s"), si(f, "FLOP/s"))]
        ratios, failed = [v for v, _ in said], sum(status == "fail" for _, status in said)
        rows.append([seq, mode, *cells, plain(over(*times)), f"{min(ratios):.3f} to {max(ratios):.3f}",
                     f"{len(said) - failed} of {len(said)}"])
    head = ["tokens", "", "dense", "", "sparse", "", "dense/sparse", "of one launch", "launches in which sparse took no longer"]
    return (
        "\n\nA whole step of `v4-flash-layer`, full tuning, batch 1 (" + file_of(r) + ", medians of launches): one layer of each "
        "kind (ratios 0, 4 and 128) with the attention of DeepSeek-V4-Flash in its real dimensions, a dense MLP as wide as the "
        "experts that a token passes, and a vocabulary of 272. The arms differ in the layer of ratio 4 alone: dense attends to "
        "every compressed row, sparse to the 512 that its indexer picks, whose work is in the time. FLOP/s are those that the "
        "step needs.\n\n" + table(head, rows)
    )


def attention(machine, folder):
    r = read(machine, "attention.csv")
    if not r:
        return ""
    path = os.path.join(machine, "peers.csv")
    peers = {k: Results(path, run_suffix="-" + k) for k in KERNEL_PEERS} if os.path.exists(path) else {}
    peers = {k: p for k, p in peers.items() if any(key.startswith("attention/") for key, _ in p.value)}
    names = {"random": "random", "causal": "of the rows before", "v4": "window and groups"}
    lists = sorted({(a["list"], a["topk"]) for k, _ in r.value if k.startswith("attention/") for _, a in [axes_of(k)]
                    if (a["arm"], a["seq"], a["heads"], a["qk"], a["masked"]) == ("sparse", "4096", "64", "512", "0")},
                   key=lambda at: (list(names).index(at[0]), int(at[1])))
    rows = [attention_row(r, peers, f"{topk}, {names[kind]}", arm="sparse", list=kind, topk=topk, seq="4096")
            for kind, topk in lists]
    rows.append(attention_row(r, peers, "dense: every row before", arm="dense", topk="0", seq="4096"))
    judged = []
    for bar in bars("attention"):
        case, what, _, metric, best, relation, bound = bar
        name, axes = axes_of(case)
        key = r.find(name, metric, best, **axes)
        value = r.get(key, metric) if key else None
        said = verdict(r, bar, key, value) if key else "not measured"
        judged.append([what, si(value, "s"), bar_text(metric, relation, bound), said])
    ceilings = ", ".join(f"{what} {si(r.get('ceiling/' + case, metric), unit)}" for what, case, metric, unit in (
        ("copy", "copy", "copy_rate", "B/s"), ("matrix product", "matmul", "matmul_rate", "FLOP/s"),
        ("f32 sums in the second-level cache", "l2_reduce", "l2_reduce_rate", "B/s")))
    worse = losing(r)
    picture = os.path.relpath(figure_path(machine, "attention"), folder)
    head = ["rows a query lists", "forward", "", "of floor", "backward", "", "of floor", "backward, same bits every run"]
    beside = (" Peers: forward / backward, on the same lists (" + rounds(
        list(peers.values()), "kernel_time", lambda key: axes_of(key)[1].get("seq") == "4096") + ").") if peers else ""
    runs = "in the same run" if r.sessions == 1 else "in the same runs"
    return (
        "#### Sparse attention\n"
        f"4096 queries, 64 heads of 512, bf16, the whole pass as a step pays for it, cold second-level cache, device time "
        f"({source(r)}; {runs}: {ceilings}). FLOP/s are of the rows that are not masked; the floor is the largest "
        f"of the times that these ceilings leave.{beside}\n\n"
        + table(head + [KERNEL_PEERS[p] for p in peers], rows) + "\n\n"
        + (against_peers(path) if peers else "")
        + table(["bar", "time", "", ""], judged) + "\n\n"
        + f"![seconds of attention, forward and backward, against the length of a sequence]({picture})\n\n"
        + ("Dense attention takes less time than sparse, forward and backward together: " + "; ".join(worse) + " tokens."
           if worse else "Sparse attention takes less time than dense at every length and list that was measured.")
        + v4_steps(machine)
    )


def dependencies(*_):
    setup = os.path.join(ROOT, "scripts/setup")
    return subprocess.run([setup, "--list"], check=True, capture_output=True, text=True).stdout


def redrawn(rule, bench, folder):
    """What the rule would say of comparisons drawn anew from the launches of a machine's A/A sessions."""
    of = rule.simulate(bench, rule.sessions(folder, "aa"))
    return (
        f"- `{os.path.basename(os.path.dirname(folder))}`: {of['recorded_undecided']:.0f} of the {of['recorded']:.0f} A/A "
        f"comparisons ended as too noisy to say. From their {of['launches']:.0f} launches "
        f"{of['resampled']:.0f} comparisons were drawn anew (`--simulate`): {of['resampled_alarms']:.0f} false alarms, "
        f"{rule.percent(of['resampled_alarms'] / of['resampled'])}, below {rule.percent(of['resampled_max'])}; with one case "
        f"2 % slower {rule.percent(of['found'] / of['injected'])} of {of['injected']:.0f} are found, above "
        f"{rule.percent(of['found_min'])}."
    )


def proof(machine, _, bench):
    """What `scripts/proof` stored of any machine, once more through the rule."""
    folders = sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(machine)), "*", "proof")))
    if not folders:
        return ""
    rule = types.ModuleType("proof")
    rule.__file__ = os.path.join(ROOT, "scripts/proof")
    importlib.machinery.SourceFileLoader("proof", rule.__file__).exec_module(rule)
    bench = os.path.abspath(bench)
    return rule.table(bench, folders) + "\n\n" + "\n".join(redrawn(rule, bench, f) for f in folders)


SECTIONS = {f.__name__: f for f in (kernels, steps, throughput, backward, crossover, attention, dependencies, proof)}
