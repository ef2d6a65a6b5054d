"""readme_tables.py - the generated tables of README.md and docs/: one function each, "" where its file is missing."""
import functools
import math
import os
import re
import statistics
import subprocess

from readme_dynmask import dynmask
from readme_findings import findings, judged_of
from readme_gate import gate
from readme_ranks import collectives, optimizers, ranks, shared_rows
from readme_results import (KERNEL_PEERS, ROOT, STEP, STEP_PEERS, Results, axes_of, fail, file_of, key_of, needs,
                            over, percent, plain, several, si, span, table)
from readme_roofline import sparse_roofline

# ---- kernels and steps ---------------------------------------------------------------------------------------


@needs("kernels.csv")
def kernels(_, r):
    rows = []
    for q in reversed(r.requirements("SPEED-")):
        axes = dict(q.axes)
        key = key_of("kernels/" + axes.pop("op"), axes)
        figure = "" if q.metric == "seconds" else q.figure(q.value)
        rows.append([q.what, f"`{axes['impl']}`", si(r.get(key, "kernel_time"), "s"), figure, q.text(), q.verdict()])
    copy, matmul = r.get("ceiling/copy", "copy_rate"), r.get("ceiling/matmul", "matmul_rate")
    return (f"{r.source()}; ceilings, medians of all sessions: copy {si(copy, 'B/s')}, "
            f"matrix product {si(matmul, 'FLOP/s')}.\n\n"
            + table(["kernel, shape", "implementation", "time", "figure", "required", ""], rows))


def step_cell(r, axes):
    """The faster of eager and graph: time, and memory where it is known."""
    key = r.find("throughput/step", "step_time", **{a: axes[a] for a in STEP})
    memory = r.get(key, "peak_memory")
    return "" if not key else si(r.get(key, "step_time"), "s") + (f", {si(memory, 'B')}" if memory else "")


@needs("throughput.csv")
def steps(s, r):
    peers, rows = s.peers(STEP_PEERS, "throughput/"), []
    for q in sorted(r.requirements("SPEED-STEP"), key=lambda q: q.bound):
        key = key_of("throughput/step", q.axes)
        time, memory = r.get(key, "step_time"), r.get(key, "peak_memory")
        rows.append([q.what, si(time, "s"), si(memory, "B"), q.text(), q.verdict(),
                     *(step_cell(p, q.axes) for p in peers.values())])
    shown = [i for i in range(len(peers)) if any(row[i - len(peers)] for row in rows)]  # the others have other cases
    rows = [row[:len(row) - len(peers)] + [row[i - len(peers)] for i in shown] for row in rows]
    beside = f"; peers: {rounds(peers, 'step_time', 'tuning=qlora')}, the faster of eager and graph" if peers else ""
    return r.source() + beside + ".\n\n" + table(
        ["model, batch", "step", "memory", "required", "", *(STEP_PEERS[list(peers)[i]] for i in shown)], rows)


def rounds(peers, metric, part):
    """The file of the peers, and how many rounds their figures are medians of."""
    counts = {n for p in peers.values() for (key, m), n in p.count.items() if m == metric and part in key}
    plural = "" if max(counts) == 1 else "s"
    return f"{file_of(next(iter(peers.values())))}, median of {span(counts, '{}')} round{plural}"


def shown_cases(r, name, metric, **want):
    """The steps that the tables show: batch 1 and 4, three lengths. The files hold more."""
    found = {tuple(axes[a] for a in STEP) for axes in r.axes(name, metric, **want)
             if axes["batch"] in ("1", "4") and axes["seq"] in ("128", "512", "2048")}
    return sorted(found, key=lambda c: (c[0], ["lora", "qlora", "full"].index(c[1]), int(c[2]), int(c[3])))


def variants(r, name, metric, case, clip):
    """A case's keys and figures: host-synchronous clip, eager, graph; None for what was not measured."""
    wanted = [{"mode": "eager", "clip": "sync"}, {"mode": "eager", "clip": clip}, {"mode": "graph", "clip": clip}]
    keys = [r.find(name, metric, **dict(zip(STEP, case)), **want) for want in wanted]
    return keys, [r.get(key, metric) for key in keys]


@needs("throughput.csv")
def throughput(_, r):
    rows = []
    for case in shown_cases(r, "throughput/step", "step_time", mode="graph"):
        (*_, graph_key), times = variants(r, "throughput/step", "step_time", case, "multi")
        of = functools.partial(r.get, graph_key)
        rows.append([*case, *(si(t, "s") for t in times), plain(over(*times[1:])),
                     plain(of("tokens_per_second"), "{:.0f}"), si(of("model_flops"), "FLOP/s"), percent(of("mfu")),
                     si(of("peak_memory"), "B")])
    return r.source() + ".\n\n" + table(
        [*STEP, "eager, host-synchronous clip", "eager", "graph", "eager/graph", "tokens/s", "model FLOPs", "MFU",
         "peak memory"], rows)


@needs("backward.csv")
def backward(_, r):
    rows = []
    for case in shown_cases(r, "backward/step", "backward_time", mode="graph", clip="fused"):
        (sync, eager, graph), times = variants(r, "backward/step", "backward_time", case, "fused")
        counts = [r.get(key, metric) for key, metric in (
            (sync, "host_syncs"), (eager, "kernel_launches"), (graph, "kernel_launches"), (graph, "break_even"))]
        rows.append([*case, *(si(t, "s") for t in times),
                     plain(over(times[1], times[2])), plain(over(times[0], times[2])),
                     *(plain(n, "{:.0f}") for n in counts), si(r.get(graph, "record_time"), "s")])
    return r.source() + ".\n\n" + table(
        [*STEP, "sync, eager", "fused, eager", "fused, graph", "graph gains", "graph and fused over sync",
         "host syncs, sync", "kernel launches, eager", "graph", "break-even, steps", "recording"], rows)


@needs("backward.csv")
def crossover(_, r):
    falls = [f"{axes_of(key)[1]['model']} {axes_of(key)[1]['tuning']} from {tokens:.0f} tokens on"
             for (key, metric), tokens in sorted(r.value.items()) if metric == "crossover"]
    return "The gain of the graph falls below 5 %: " + ", ".join(falls) + "." if falls else ""


# ---- attention -----------------------------------------------------------------------------------------------

LISTS = {"random": "random", "causal": "random, before the query", "v4": "window and groups"}


def attention_value(r, p, metric="kernel_time", **axes):
    """A figure of pass p with 64 heads of 512 in bf16, or None."""
    key = r.find(f"attention/{p}", metric, dtype="bf16", heads="64", qk="512", masked="0", **axes)
    return r.get(key, metric)


def both_passes(r, **axes):
    times = [attention_value(r, p, **axes) for p in ("fwd", "bwd")]
    return None if None in times else sum(times)


def lists_of(r, **want):
    """The kinds and lengths of key list that were measured, in order."""
    axes = r.axes("attention/fwd", "kernel_time", variant="sparse", heads="64", qk="512", **want)
    found = {(a["list"], a["topk"]) for a in axes}
    return sorted(found, key=lambda at: (list(LISTS).index(at[0]), int(at[1])))


def attention_row(r, peers, what, **axes):
    """Forward and backward of one kind of list, our deterministic backward pass, and the peers."""
    cells = [what]
    for p in ("fwd", "bwd"):
        cells += [si(attention_value(r, p, **axes), "s"), si(attention_value(r, p, "kernel_flops", **axes), "FLOP/s"),
                  percent(attention_value(r, p, "roofline_fraction", **axes))]
    cells.append(si(attention_value(r, "bwd", **{**axes, "variant": "deterministic"}), "s"))
    for peer, theirs in peers.items():
        times = [attention_value(theirs, p, **{**axes, "variant": peer}) for p in ("fwd", "bwd")]
        cells.append(" / ".join(si(t, "s") or "-" for t in times) if any(times) else "")
    return cells


@needs("attention.csv")
def attention(s, r):
    peers = s.peers(KERNEL_PEERS, "attention/")
    rows = [attention_row(r, peers, f"{topk}, {LISTS[kind]}", variant="sparse", list=kind, topk=topk, seq="4096")
            for kind, topk in lists_of(r, seq="4096", masked="0")]
    rows.append(attention_row(r, peers, "dense: every earlier token", variant="dense", topk="0", seq="4096"))
    ceilings = ", ".join(f"{what} {si(r.get('ceiling/' + name, metric), unit)}" for what, name, metric, unit in (
        ("copy", "copy", "copy_rate", "B/s"), ("matrix product", "matmul", "matmul_rate", "FLOP/s"),
        ("f32 sums in L2", "l2_reduce", "l2_reduce_rate", "B/s")))
    beside = f" Peers (forward / backward, same lists): {rounds(peers, 'kernel_time', 'seq=4096')}." if peers else ""
    head = ["keys of a query", "forward", "", "of roofline", "backward", "", "of roofline", "backward, deterministic"]
    judged = [[q.what, q.figure(q.value), q.text(), q.verdict()] for q in reversed(r.requirements("SPEED-"))]
    return (f"{r.source()}; ceilings, medians of all sessions: {ceilings}.{beside}\n\n"
            + table(head + [KERNEL_PEERS[p] for p in peers], rows) + "\n\n" + peer_text(s)
            + table(["requirement", "time", "required", ""], judged) + "\n\n" + losing(r))


def losing(r):
    """Where dense attention is the faster one."""
    found = []
    for kind, topk in lists_of(r):
        sparse_axes, slower = {"variant": "sparse", "list": kind, "topk": topk}, []
        for seq in sorted({a["seq"] for a in r.axes("attention/fwd", "kernel_time", **sparse_axes)}, key=int):
            dense, sparse = both_passes(r, variant="dense", topk="0", seq=seq), both_passes(r, **sparse_axes, seq=seq)
            slower += [seq] if dense and sparse and dense < sparse else []
        found += [f"{kind} lists of {topk} at {', '.join(slower)} tokens"] if slower else []
    text = ("Dense attention takes less time than sparse, forward and backward together, for " + "; ".join(found) + ".")
    return text if found else ""


def peer_text(s):
    words = {"fwd": "forward", "bwd": "backward"}
    ratios = s.peer_ratios()
    texts = [f"{KERNEL_PEERS[peer]} {words[p]} {span(ratios[peer, p])}" for peer, p in sorted(ratios)]
    return "A peer's time over ours, same round and lists: " + ", ".join(texts) + ".\n\n" if texts else ""


def peers(s):
    """Ours over every stored peer, case by case, with the spread over the rounds."""
    found, module = s.ours_over_peer()
    rows = []
    for side, key, rounds in found:
        ours, theirs = ([times[i] for times in rounds.values()] for i in (1, 2))
        ratios = [over(*pair) for pair in zip(ours, theirs)]
        variants = sorted({module.own_name(own) for own, _, _ in rounds.values()})
        rows.append([module.label(key), side, ", ".join(variants), si(statistics.median(ours), "s"),
                     si(statistics.median(theirs), "s"), f"{statistics.median(ratios):.3f}",
                     span(ratios, "{:.3f}") if len(ratios) > 1 else "", str(len(ratios))])
    return table(["case of the peer", "peer", "Plumb's variant", "Plumb", "peer", "ours over peer", "range over rounds",
                  "rounds"], rows)


@needs("v4_step.csv")
def v4_steps(_, r):
    rows = []
    for q in sorted(r.requirements("V4-STEP"), key=lambda q: (int(q.axes["seq"]), q.axes["mode"])):
        keys = [key_of("throughput/step", {**q.axes, "attention": a}) for a in ("dense", "sparse")]
        times, flops = ([r.get(key, metric) for key in keys] for metric in ("step_time", "model_flops"))
        cells = [text for t, f in zip(times, flops) for text in (si(t, "s"), si(f, "FLOP/s"))]
        rows.append([q.axes["seq"], q.axes["mode"], *cells, plain(over(*times)),
                     span(q.values, "{:.3f}"), f"{len(q.values) - q.failed} of {len(q.values)}"])
    return f"{file_of(r)}, medians over processes.\n\n" + table(
        ["tokens", "", "dense", "", "sparse", "", "dense/sparse", "in one process", "processes that met V4-STEP"],
        rows)


# ---- requirements, machines and the comparison rule ----------------------------------------------------------


def requirements(s):
    """Every requirement that the stored runs judged, and in how many of its cases it is met."""
    found = {}
    for q, _ in judged_of(s):
        found.setdefault(q.id, []).append(q)
    rows = [[f"`{i}`", qs[0].statement, f"{qs[0].metric} {qs[0].relation} {qs[0].bound:g}".replace("|", "\\|"),
             f"{sum(not q.failed for q in qs)} of {len(qs)}"] for i, qs in sorted(found.items())]
    return table(["requirement", "what it promises", "bound", "cases met"], rows)


def sample(s):
    """The first tables of `bench report` of a CPU's stored backward suite, without the notes."""
    stored = s.others("cpu-*/backward.csv")
    if not stored:
        return ""
    ran = subprocess.run([s.bench, "report", stored[0]], capture_output=True, text=True)
    if ran.returncode != 0:
        fail(ran.stderr.strip() or f"{s.bench}: exit code {ran.returncode}")
    parts = [part for part in ran.stdout.split("\n\n") if part.startswith(("backward_time: median", "ceiling"))]
    lines = re.sub(r" \[\d+\]", "", "\n".join(parts)).splitlines()
    return "\n".join(["```", *(line.rstrip() for line in lines if not line.startswith((" ", "range"))), "```"])


ENOUGH = 1 - 0.5**4  # the probability with which the range of five values contains their median


def inner(values):
    """The shortest symmetrical range of order statistics, [k-th least, k-th largest], that contains the median of what
    the values are drawn from with a probability of at least ENOUGH, and that probability. All values if they are few."""
    n, k, outside = len(values), 1, 2 * 0.5 ** len(values)
    while 2 * (k + 1) <= n and outside + 2 * math.comb(n, k) * 0.5**n <= 1 - ENOUGH:
        outside += 2 * math.comb(n, k) * 0.5**n
        k += 1
    return sorted(values)[k - 1:n - k + 1], 1 - outside


LEVELS = ["off", "nvtx", "attached", "ring", "activity", "graphs", "nodes", "sampled"]


def profile_cost(s):
    """The costs of recording, from every stored profile_cost*.csv: ranges, then steps by level. A file of several
    ranks also has the time of those that wait for rank 0, which records."""
    texts = []
    for path in s.others("*/profile_cost*.csv"):
        r = Results(path)
        n_ranks = re.search(r"_ranks(\d+)\.csv$", path)
        of_ranks = {"ranks": n_ranks[1]} if n_ranks else {}
        ranges = sorted(r.axes("profile/range", "range_time"), key=lambda a: (LEVELS.index(a["level"]), a.get("clock", "")))
        rows = [[a["level"], a.get("clock", ""), si(r.get(key_of("profile/range", a), "range_time"), "s"), "", ""]
                for a in ranges]
        steps = sorted(r.axes("profile/step", "step_time", **of_ranks),
                       key=lambda a: (a["model"], a["batch"], a["seq"], a["mode"], LEVELS.index(a["level"]),
                                      a.get("recorders", "")))
        for a in steps:
            key = key_of("profile/step", a)
            what = f"{a['model']} {a['tuning']}, {a['batch']} x {a['seq']} tokens, {a['mode']}"
            who = {"first": ", rank 0 records", "all": ", all ranks record"}.get(a.get("recorders"), "")
            for metric, ratio, of in (("step_time", "recorded_over_off", who),
                                      ("other_ranks_time", "others_over_off", who + "; the other ranks")):
                ratios = r.values.get((key, ratio), [])
                cells = [f"{statistics.median(ratios):.4f}", span(inner(ratios)[0], "{:.4f}")] if ratios else ["", ""]
                if r.get(key, metric):
                    rows.append([a["level"], what + of, si(r.get(key, metric), "s"), *cells])
        n = r.count[key_of("profile/step", steps[0]), "step_time"]
        kept, sure = inner(list(range(n)))
        nth = {0: "", 1: "second ", 2: "third "}.get((n - len(kept)) // 2, f"{(n - len(kept)) // 2 + 1}th ")
        texts.append(
            f"{file_of(r)}, {n_ranks[1] + ' ranks, ' if n_ranks else ''}median over {n} processes. The range in the last "
            f"column, from the {nth}least to the {nth}largest ratio, contains the median ratio with a "
            f"probability of {100 * sure:.1f} %.\n\n"
            + table(["level", "clock or step", "a range, or a step", "over level off", "range"], rows)
            + "".join(f"\n\nNo figure: {reason}." for reason in sorted(set(r.reasons.values()))))
    return "\n\n".join(texts)


def cpu(s):
    """The gain of a recorded list of calls on a CPU."""
    rows = []
    for path in s.others("cpu-*/backward.csv"):
        r = Results(path)
        for case in shown_cases(r, "backward/step", "backward_time", mode="graph", clip="fused"):
            _, times = variants(r, "backward/step", "backward_time", case, "fused")
            rows.append([file_of(r), *case, *(si(t, "s") for t in times), plain(over(times[1], times[2]))])
    return table(["file", *STEP, "sync, eager", "fused, eager", "fused, recorded", "eager/recorded"], rows)


def cpu_peers(s):
    """Phases of a step next to PyTorch's on a CPU, where a peers.csv is stored."""
    rows = []
    for path in s.others("cpu-*/peers.csv"):
        ours, theirs = Results(path, "-plumb"), Results(path, "-torch")
        for metric in ("forward_time", "backward_time", "clip_time", "optimizer_time", "step_time", "peak_memory"):
            for axes in theirs.axes("throughput/step", metric):
                want = {a: axes[a] for a in STEP}
                pair = [r.get(r.find("throughput/step", metric, **want), metric) for r in (ours, theirs)]
                cells = [si(value, "B" if metric == "peak_memory" else "s") for value in pair]
                rows.append([file_of(ours), " ".join(want.values()), metric, *cells, plain(over(*reversed(pair)))])
    return table(["file", "model, tuning, batch, seq", "metric", "Plumb", "PyTorch", "PyTorch/Plumb"], rows)


def validation(s):
    """What `scripts/validate` stored of each machine, evaluated by the rule of today."""
    rule, folders = s.validation()
    if not folders:
        return ""
    return rule.table(s.bench, folders) + "\n\n" + "\n".join(resampled(rule, s.bench, f) for f in folders)


def resampled(rule, bench, folder):
    """The rule on comparisons resampled from the processes of a machine's A/A sessions."""
    of = rule.simulate(bench, (rule.stored(folder, "aa"),))
    machine = os.path.basename(os.path.dirname(folder))
    alarms, found = of["resampled_alarms"] / of["resampled"], of["found"] / of["injected"]
    return (
        f"- `{machine}`: {of['recorded_undecided']:.0f} of the {of['recorded']:.0f} A/A comparisons ended INCONCLUSIVE."
        f" From their {of['processes']:.0f} processes {of['resampled']:.0f} comparisons were resampled (`--simulate`): "
        f"{of['resampled_alarms']:.0f} false alarms, {rule.percent(alarms)}, "
        f"below {rule.percent(of['resampled_max'])}. With one case slowed by 2 %, {rule.percent(found)} of "
        f"{of['injected']:.0f} are found, above {rule.percent(of['found_min'])}.")


def dependencies(_):
    setup = os.path.join(ROOT, "scripts/setup")
    return subprocess.run([setup, "--list"], check=True, capture_output=True, text=True).stdout


TABLES = {f.__name__: f for f in (
    findings, sample, kernels, steps, throughput, backward, crossover, attention, sparse_roofline, dynmask, peers,
    v4_steps, ranks, optimizers, shared_rows, collectives, requirements, cpu, cpu_peers, profile_cost, validation, gate,
    dependencies)}
