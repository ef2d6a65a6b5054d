"""readme_dynmask.py - the generated table of dynamic-mask attention next to dense grouped-query attention."""
from readme_results import file_of, key_of, needs, over, plain, several, si, table

DENSE = {"list": "causal", "topk": "0", "variant": "dense_gqa"}


def required(axes):
    """The least that dense time over dynamic-mask time must be, forward and backward, or None."""
    share = int(axes["topk"]) / int(axes["seq"])
    if share >= 1:
        return 1 / 1.1
    return 1.0 if int(axes["seq"]) >= 8192 and share <= {"union": 1 / 4, "exact": 1 / 8}[axes["list"]] else None


def verdict(ratios, least):
    if least is None or None in ratios:
        return ""
    return f"at least {least:.2f}: " + ("met" if min(ratios) >= least else "**failed**")


def times(r, axes, p):
    """The case's time and that of dense attention, of pass p."""
    dense = {a: v for a, v in axes.items() if a != "bias"} | DENSE
    return [r.get(key_of(f"attention/{p}", of), "kernel_time") for of in (axes, dense)]


def dense_over(r, axes):
    """The time of dense attention over the case's, forward and backward."""
    return [over(dense, time) for time, dense in (times(r, axes, p) for p in ("fwd", "bwd"))]


def dynmask_row(r, axes):
    cells, ratios = [], dense_over(r, axes)
    for p, ratio in zip(("fwd", "bwd"), ratios):
        time, dense = times(r, axes, p)
        selection = [si(r.get(key_of("attention/fwd", axes), "selection_time"), "s")] if p == "fwd" else []
        cells += [si(time, "s"), *selection, si(dense, "s"), plain(ratio)]
    what = f"{axes['list']}, {axes['bias']}" if "bias" in axes else axes["list"]
    share = 100 * int(axes["topk"]) / int(axes["seq"])
    return [axes["qk"], axes["seq"], f"{axes['topk']} ({share:g} %)", what, *cells, verdict(ratios, required(axes))]


@needs("dynmask.csv")
def dynmask(_, r):
    cases = r.axes("attention/fwd", "kernel_time", variant="dynmask")
    cases.sort(key=lambda a: (int(a["qk"]), a["list"], int(a["seq"]), int(a["topk"]), a.get("bias", "")))
    rows = [dynmask_row(r, axes) for axes in cases]
    count = min((n for (_, metric), n in r.count.items() if metric == "kernel_time"), default=0)
    return (f"{file_of(r)}, median of {several(count, 'process')}.\n\n" + table(
        ["head size", "tokens", "kept keys", "list", "forward", "of it selection", "dense", "dense / dynamic mask",
         "backward", "dense", "dense / dynamic mask", "required"], rows))
