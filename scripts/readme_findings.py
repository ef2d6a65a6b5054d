"""readme_findings.py - the README's first table: what the stored results say, one row for each question."""
import os
import re
import statistics

from readme_dynmask import dense_over, required
from readme_gate import gate_finding
from readme_results import KERNEL_PEERS, STEP, Results, axes_of, needs, over, several, span

SUITES = ("backward", "throughput", "kernels", "attention", "v4_step", "optimizer", "profile_cost", "profile_cost_bars")


def ratios(r, name, metric, above, below):
    """{case: figure with the axes `above` over that with `below`}, for every case that has both."""
    out = {}
    for axes in r.axes(name, metric, **below):
        top = r.find(name, metric, **{**axes, **above})
        if top:
            bottom = r.find(name, metric, **axes)
            out[tuple(axes[a] for a in STEP)] = over(r.get(top, metric), r.get(bottom, metric))
    return out


@needs("backward.csv")
def graph(_, r):
    gain = ratios(r, "backward/step", "backward_time", {"mode": "eager"}, {"mode": "graph", "clip": "fused"})
    falls = [f"{tokens:.0f} tokens a step ({axes_of(key)[1]['model']} {axes_of(key)[1]['tuning']})"
             for (key, metric), tokens in sorted(r.value.items()) if metric == "crossover"]
    end = "; the gain falls below 5 % from " + " and ".join(falls) if falls else ""
    return f"{span(gain.values())} times as fast as eager in {len(gain)} cases{end}"


@needs("backward.csv")
def clip(_, r):
    gain = ratios(r, "backward/step", "backward_time", {"clip": "sync"}, {"mode": "eager", "clip": "fused"})
    text = f"{span(gain.values() or [1])} times as fast as a clip that reads every norm on the host, both eager"
    return text if gain else ""


QLORA = {"torch": "PyTorch with bitsandbytes, in its faster mode,",
         "hf": "Hugging Face + PEFT, eager and mostly bound by the host,", "liger": "the same with Liger kernels",
         "compile": "the same with torch.compile"}


def qlora(s):
    """A peer's step over ours, as peers.md pairs them: a peer in its faster mode, and a peer without graphs with our graph."""
    steps = {}  # (side, shape): [(the peer's time, its time over ours, its key, our key)]
    for side, key, rounds in s.ours_over_peer()[0]:
        name, axes = axes_of(key)
        if side in QLORA and name == "throughput/step" and axes["tuning"] == "qlora" and "ranks" not in axes:
            own = next(iter(rounds.values()))[0]
            ratio = statistics.median(theirs / ours for _, ours, theirs in rounds.values())
            time = statistics.median(theirs for *_, theirs in rounds.values())
            shape = tuple(v for a, v in sorted(axes.items()) if a != "mode")
            steps.setdefault((side, shape), []).append((time, ratio, key, own))
    texts = []
    for side, name in QLORA.items():
        best = [min(modes) for (of, _), modes in steps.items() if of == side]
        theirs, ours = (s.peers((who,), "throughput/").get(who) for who in (side, "plumb"))
        memory = [over(theirs.get(key, "peak_memory"), ours.get(own, "peak_memory")) for _, _, key, own in best]
        memory = [share for share in memory if share]
        if memory:
            texts.append(f"{name} takes {span([ratio for _, ratio, *_ in best], '{:.1f}')} times our time and "
                         f"{span(memory, '{:.1f}')} times our memory ({several(len(best), 'shape')})")
    return "; ".join(texts)


def sparse(s):
    found = s.peer_ratios()
    texts = [f"{KERNEL_PEERS[peer]} {'forward' if p == 'fwd' else 'backward'} {span(found[peer, p])}"
             for peer, p in sorted(found)]
    return "a peer's time over ours: " + ", ".join(texts) if texts else ""


@needs("dynmask.csv")
def dynamic_mask(_, r):
    kinds = {"union": "`union` with at most 25 % of the keys", "exact": "`exact` with at most 12.5 % of the keys",
             "all": "all keys kept"}
    found, met = {kind: [] for kind in kinds}, []
    for axes in r.axes("attention/fwd", "kernel_time", variant="dynmask"):
        least, ratios = required(axes), dense_over(r, axes)
        if least is not None and None not in ratios:
            found["all" if int(axes["topk"]) >= int(axes["seq"]) else axes["list"]] += ratios
            met.append(min(ratios) >= least)
    texts = [f"{span(found[kind])} times ({what})" for kind, what in kinds.items() if found[kind]]
    return (f"dense attention takes {', '.join(texts)} as long, forward or backward; {sum(met)} of {len(met)} cases are "
            "as fast as required" if texts else "")


@needs("v4_step.csv")
def v4_step(_, r):
    judged = [q for q in r.requirements("V4-STEP") if q.axes["mode"] == "graph"]
    texts = [f"{span(q.values)} (rows of {q.axes['seq']} tokens)" for q in sorted(judged, key=lambda q: int(q.axes["seq"]))]
    return "dense takes " + ", ".join(texts) + " times as long as sparse (three layers)" if texts else ""


def cpu(s):
    texts = []
    for path in s.others("cpu-*/peers.csv"):
        ours, theirs = Results(path, "-plumb"), Results(path, "-torch")
        for axes in theirs.axes("throughput/step", "step_time"):
            times = [r.get(r.find("throughput/step", "step_time", **{a: axes[a] for a in STEP}), "step_time")
                     for r in (theirs, ours)]
            texts += [f"PyTorch eager takes {over(*times):.2f} times our step"] if None not in times else []
    for path in s.others("cpu-*/backward.csv"):
        eager, graphed = {"mode": "eager"}, {"mode": "graph", "clip": "fused"}
        gain = ratios(Results(path), "backward/step", "backward_time", eager, graphed)
        texts += [f"a recorded list of calls is {span(gain.values())} times as fast as eager"] if gain else []
    return "; ".join(texts)


def rule(s):
    """The totals of docs/gate.md; until there are any, those of the validation by injected delays."""
    return gate_finding(s) or injected(s)


def rule_page(s):
    return "gate.md" if gate_finding(s) else "statistics.md"


def injected(s):
    module, folders = s.validation()
    texts = []
    for folder in folders:
        aa, slow = (module.simulate(s.bench, (module.stored(folder, kind),)) for kind in ("aa", "slow"))
        where = "CPU" if "/cpu-" in folder else "GPU"
        texts.append(f"{where}: of {aa['recorded']:.0f} cases compared with themselves {aa['recorded_alarms']:.0f} were "
                     f"called changed and {aa['recorded_undecided']:.0f} INCONCLUSIVE; of {slow['recorded']:.0f} "
                     f"injected slowdowns of 2 % {slow['recorded_alarms']:.0f} were found")
    return "; ".join(texts)


def judged_value(q, worst):
    """The median and the worst process of a run; the stored value of a session, which is its median. If that meets the
    bound, the value of the process that failed, where its note has one."""
    if len(q.values) > 1:
        return f"median {q.value:.4g}, worst of {len(q.values)} processes {worst:.4g}"
    noted = q.how.rpartition(": ")[2]
    meets = worst >= q.bound if q.relation.startswith(">") else worst <= q.bound
    return noted if meets and re.fullmatch(r"[\d.e+-]+", noted) else f"{worst:.4g}"


def ratio_of(q):
    """The metric of a requirement; of a ratio also what is divided, which its statement says in parentheses."""
    sides = re.search(r"\(([^()]* over [^()]*)\)$", q.statement)
    return q.metric + (f" ({sides[1]})" if sides and " over " in q.metric else "")


def judged_of(s):
    """Each requirement that the stored runs judged, and its file. Where two files of suite profile have the same case, the
    newer one counts."""
    results = [r for r in map(s.read, (name + ".csv" for name in SUITES)) if r]
    found = {}
    for r in results:
        file = os.path.basename(r.path)
        for q in r.requirements():
            at = ("profile" if file.startswith("profile_cost") else file, q.id, tuple(sorted(q.axes.items())))
            if at not in found or found[at][0].run < q.run:
                found[at] = (q, file)
    return list(found.values())


def failed(s):
    """The requirements that failed: id, the value of each case, and the bound. The page has what each promises."""
    judged = judged_of(s)
    cases = {}
    for q, source in judged:
        if q.failed:
            case = " ".join(q.axes[a] for a in ("op", "model", "tuning", "mode", "clock") if a in q.axes)
            batch = f"{q.axes['batch']} x " if "batch" in q.axes else ""
            case += f"{', ' if case else ''}{batch}{q.axes['seq']} tokens" if "seq" in q.axes else ""
            worst = (min if q.relation.startswith(">") else max)(q.values)
            if source == "v4_step.csv":  # other runs of cases that a stored session has too
                case += ", " * bool(case) + source
            cases.setdefault(q.id, (q, []))[1].append(f"{judged_value(q, worst)}" + (f" ({case})" if case else ""))
    texts = [f"`{q.id}` requires {ratio_of(q)} {q.relation} {q.bound:g}, measured {' and '.join(values)}"
             for q, values in cases.values()]
    if texts:
        return f"**{sum(len(v) for _, v in cases.values())} of {len(judged)} cases failed** (newest stored runs): " + "; ".join(texts)
    return f"all {len(judged)} are met" if judged else ""


ROWS = (
    ("What does a CUDA graph gain in the backward pass?", graph, "results-h200.md"),
    ("What does a clip without host syncs gain?", clip, "results-h200.md"),
    ("How fast is a QLoRA step next to its peers?", qlora, "results-h200.md"),
    ("How fast is sparse attention next to its peers?", sparse, "attention.md"),
    ("What does sparse attention gain in a whole step?", v4_step, "attention.md"),
    ("What does dynamic-mask attention gain?", dynamic_mask, "attention.md#dynamic-mask-attention"),
    ("And on a CPU?", cpu, "results-cpu.md"),
    ("How often is the comparison rule wrong?", rule, rule_page),
    ("Which requirements are not met?", failed, "results-h200.md"),
)


def findings(s):
    rows = [(question, text(s), page(s) if callable(page) else page) for question, text, page in ROWS]
    lines = [f"| {question} | {text} | [more](docs/{page}) |" for question, text, page in rows if text]
    return "\n".join(["| question | finding | |", "|---|---|---|", *lines]) if lines else ""
