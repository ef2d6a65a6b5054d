"""readme_ranks.py - the generated tables of several GPUs: steps, optimizers, attention over shared rows, collectives."""
import functools
import statistics

from readme_results import key_of, needs, over, plain, si, span, table

EXPOSED = "exposed_communication_time"


def of_ranks(r, name, metric, **want):
    """The axes of every case of several ranks with this name, metric and these axes."""
    numbers = sorted({a["ranks"] for a in r.all_axes(name, metric) if "ranks" in a}, key=int)
    return [axes for n in numbers for axes in r.axes(name, metric, ranks=n, **want)]


def torch_rounds(s, name):
    """{key: rounds} of PyTorch's cases of several ranks whose keys begin with `name`, and a phrase for the rounds."""
    pairs = {key: found for side, key, found in s.ours_over_peer()[0]
             if side == "torch" and key.startswith(name) and "ranks=" in key}
    counts = {len(found) for found in pairs.values()}
    if not counts:
        return pairs, "no peer"
    return pairs, f"`peers.csv`, median of {span(counts, '{}')} round{'' if max(counts) == 1 else 's'}"


def ratio_to_peer(pairs, key):
    """The time of a peer's case over ours in the same round, median over rounds, and the peer's time; "" without it."""
    rounds = pairs.get(key, {}).values()
    theirs = [theirs for _, _, theirs in rounds]
    return [plain(statistics.median(t / own for _, own, t in rounds)) if rounds else "",
            si(statistics.median(theirs), "s") if theirs else ""]


def verdict(bounds, key, metric):
    """The requirement on a metric of a case, and whether it is met; "" without one."""
    q = bounds.get((key, metric))
    return f"{q.text()}: {q.verdict()}" if q else ""


def bounds_of(r, name):
    """{(key, metric): requirement} of the cases with this name on several ranks."""
    return {(key_of(name, q.axes), q.metric): q for q in r.requirements("RANKS")}


@needs("throughput.csv")
def ranks(s, r):
    """Steps of several GPUs, next to PyTorch's DDP or FSDP2 in rounds of their own."""
    bounds = bounds_of(r, "throughput/step")
    pairs, beside = torch_rounds(s, "throughput/")
    rows = []
    cases = of_ranks(r, "throughput/step", "scaling_efficiency", mode="graph")
    for axes in sorted(cases, key=lambda a: (a["model"], int(a["seq"]), "reduce" in a, "shard" in a, int(a["ranks"]))):
        key = key_of("throughput/step", axes)
        of = functools.partial(r.get, key)
        shares = int(axes.get("cp", 1))
        alone = of("scaling_efficiency") * of("step_time") * shares
        batch = f"{axes['batch']} x {axes['seq']}" + (f", shared by {shares}" if shares > 1 else "")
        rows.append([f"{axes['model']} {axes['tuning']}, {batch}", axes["ranks"], axes.get("reduce", "f32"),
                     axes.get("shard", "none"), si(alone, "s"), si(of("step_time"), "s"), si(of(EXPOSED), "s"),
                     f"{of('scaling_efficiency'):.3f}", verdict(bounds, key, "efficiency"),
                     plain(of("sharded_over_replicated"), "{:.3f}"), verdict(bounds, key, "time over time"),
                     si(of("peak_memory"), "B"),
                     *ratio_to_peer(pairs, key_of("throughput/step", {**axes, "mode": "eager"}))])
    if not rows:
        return ""
    return (f"{r.source()}; graphs. The last two columns: {beside}, DDP and for `parameters` FSDP2.\n\n"
            + table(["batch of each GPU", "GPUs", "`--reduce`", "`--shard`", "step of one GPU", "of all",
                     "exposed communication", "efficiency", "required", "time over that of `--shard none`", "required",
                     "memory of a GPU", "PyTorch's time over Plumb's, both eager", "PyTorch, host-bound"], rows))


@needs("comm.csv")
def collectives(s, r):
    pairs, beside = torch_rounds(s, "comm/")
    rows = []
    for name in ("all_reduce", "reduce_scatter", "all_gather"):
        for axes in sorted(of_ranks(r, "comm/" + name, "time"),
                           key=lambda a: (int(a["ranks"]), int(a["bytes"]), a["dtype"])):
            key = key_of("comm/" + name, axes)
            rows.append([name, axes["ranks"], axes["dtype"], axes["bytes"], si(r.get(key, "time"), "s"),
                         si(r.get(key, "bus_bandwidth"), "B/s"), *ratio_to_peer(pairs, key)])
    if not rows:
        return ""
    return (f"{r.source()}; the last two columns: {beside}.\n\n"
            + table(["collective", "GPUs", "dtype", "bytes", "time", "bus bandwidth", "PyTorch's time over Plumb's",
                     "PyTorch"], rows))


# ---- optimizers ------------------------------------------------------------------------------------------------


def kind(axes):
    """The optimizer of a case, with its Newton-Schulz iteration or the format of its moments."""
    if axes["optimizer"] == "normuon":
        return f"NorMuon, {axes['iteration']}"
    return f"AdamW, {axes.get('moments', 'f32').replace('8bit', '8-bit')} moments"


def optimizer_order(a):
    return a["model"], a["optimizer"], kind(a), int(a.get("ranks", 1)), "shard" in a, a.get("guard", "")


def optimizer_row(r, name, axes):
    graph, eager = (key_of(name, {**axes, "mode": mode}) for mode in ("graph", "eager"))
    of = functools.partial(r.get, graph)
    whole = name.endswith("/step")
    part = "all parameters" if whole else "matrices alone"
    # The requirements of suite optimizer are of the matrices alone; a requirement's key does not name the case.
    judged = [] if whole else [q for q in r.requirements() if key_of(name, q.axes) == graph]
    return [f"{axes['model']}, {kind(axes)}", part, axes.get("guard", ""), axes.get("ranks", "1"),
            axes.get("shard", "none") if "ranks" in axes else "", si(r.get(eager, "optimizer_time"), "s"),
            si(of("optimizer_time"), "s"), si(of(EXPOSED), "s"), plain(of("optimizer_speedup")),
            plain(of("guard_over_off"), "{:.3f}"), si(of("peak_memory"), "B"),
            "; ".join(f"{q.text()}: {q.verdict()}" for q in judged)]


@needs("optimizer.csv")
def optimizers(_, r):
    """The optimizer phase on one GPU and on several."""
    rows = []
    for name in ("optimizer/step", "optimizer/matrices"):
        cases = [a for a in r.all_axes(name, "optimizer_time") if a["mode"] == "graph"]
        rows += [optimizer_row(r, name, axes) for axes in sorted(cases, key=optimizer_order)]
    return f"{r.source()}.\n\n" + table(
        ["model, optimizer", "what is timed", "guard", "GPUs", "`--shard`", "eager", "graph", "exposed communication",
         "speedup over one GPU", "guard on over off", "memory of a GPU", "required"], rows) if rows else ""


# ---- attention over rows that GPUs share -----------------------------------------------------------------------------


def share_of(ranks, efficiency):
    """The time of a rank over that of one GPU which has the whole row."""
    return over(1, efficiency and efficiency * ranks)


def shared_kind(axes):
    keys = f", {axes['topk']} keys of a query" if axes["topk"] != "0" else ""
    return axes["variant"] + keys


@needs("attention.csv")
def shared_rows(_, r):
    """Sparse and dense attention of a row that several GPUs share, against one GPU that has the whole row."""
    # The key of a requirement does not name the pass, but its id does: RANKS-CP-SPARSE-FWD.
    judged = {p: [q for q in r.requirements("RANKS") if q.id.endswith(p.upper())] for p in ("fwd", "bwd")}
    rows = []
    shape = {"heads": "64", "qk": "512", "dtype": "bf16"}
    cases = {key_of("", a): a for p in judged for a in of_ranks(r, "attention/" + p, "scaling_efficiency", **shape)}
    order = lambda a: (int(a["seq"]), a["variant"], int(a["topk"]), int(a["ranks"]), "slices" in a)
    for axes in sorted(cases.values(), key=order):
        cells = [shared_kind(axes), axes["seq"], axes["ranks"], axes.get("slices", "contiguous")]
        for p in ("fwd", "bwd"):
            key, share = key_of("attention/" + p, axes), functools.partial(share_of, int(axes["ranks"]))
            q = next((q for q in judged[p] if key_of("attention/" + p, q.axes) == key), None)
            cells += [si(r.get(key, "kernel_time"), "s"), plain(share(r.get(key, "scaling_efficiency")), "{:.3f}"),
                      f"at most {share(q.bound):.2f}: {q.verdict()}" if q else "", si(r.get(key, EXPOSED), "s")]
        imbalance = [r.get(key_of("attention/" + p, axes), "score_imbalance") for p in judged]
        cells.append(plain(next((x for x in imbalance if x is not None), None)))
        rows.append(cells)
    if not rows:
        return ""
    return (f"{r.source()}.\n\n"
            + table(["attention", "tokens", "GPUs", "slices", "forward", "over one GPU's time", "required",
                     "exposed communication", "backward", "over one GPU's time", "required",
                     "exposed communication", "scores of the busiest rank over the mean"], rows))
