"""peer_ratios.py - ours_over_peer: Plumb's time / a peer's time of the same case in the same round. Below 1, Plumb takes
less time. Each round gives one ratio, so that what a round has in common, such as the host, cancels; the scatter of
the ratios over the rounds is their noise."""
import re
import statistics

import common

METRIC = "ours_over_peer"
TIMES = {"throughput": "step_time", "backward": "backward_time", "kernels": "kernel_time", "attention": "kernel_time",
         "comm": "time", "optimizer": "optimizer_time"}


def side_of(row):
    """(round, side) of a row: its run_id is STAMP-SIDE, and a round is a process of a stamp."""
    stamp, _, side = row["run_id"].partition("-")
    return (stamp, int(row["process"])), side


def collect(rows, metric):
    """{side: {key: {round: value}}}, and which direction is better."""
    found, better = {}, "lower"
    for r in rows:
        if r["metric"] != metric or r["status"] != "ok" or not r["value"]:
            continue
        number, side = side_of(r)
        found.setdefault(side, {}).setdefault(r["key"], {})[number] = float(r["value"])
        better = r["better"]
    return found, better


def partners(key, peer_keys, plumb, metric):
    """Plumb's keys that a peer's key is compared with."""
    suite, case, axes = common.parse_key(key)
    if suite == "kernels":
        same = [k for k in plumb if common.parse_key(k)[:2] == (suite, case)
                and all(common.parse_key(k)[2][a] == axes[a] for a in ("dtype", "shape"))]
        return sorted(same, key=lambda k: statistics.median(plumb[k].values()))[:1]  # Plumb's fastest
    if suite == "attention":
        own = common.ATTENTION_PEERS[axes["variant"]][0]
        return [k for k in [common.make_key(suite, case, {**axes, "variant": own})] if k in plumb]
    if suite == "optimizer" and metric == "peak_memory":
        return []  # Plumb's is that of a whole trainer with its activations, a peer's that of the matrices alone
    graph = common.make_key(suite, case, {**axes, "mode": "graph"})
    both = [key] + [graph] * (axes.get("mode") == "eager" and graph not in peer_keys and metric != "kernel_launches")
    return [k for k in dict.fromkeys(both) if k in plumb]


def label(key):
    suite, case, axes = common.parse_key(key)
    if suite in ("throughput", "backward"):
        several = [f"{a}={axes[a]}" for a in "ranks shard reduce recompute loss-chunk mlp-chunk".split() if a in axes]
        return " ".join([suite, axes["tuning"], axes["model"], f"B{axes['batch']}", f"S{axes['seq']}", axes["mode"],
                         *several])
    if suite == "optimizer":
        several = [f"{a}={axes[a]}" for a in ("ranks", "shard") if a in axes]
        return " ".join(["normuon", axes["iteration"], axes["model"], axes["dtype"], axes["mode"], *several])
    if suite == "comm":
        return f"{case} {axes['dtype']} {axes['bytes']} B, {axes['ranks']} ranks"
    if suite == "attention":
        return f"{case} {axes['list']} S{axes['seq']} H{axes['heads']} D{axes['qk']} W{axes['topk']}"
    return f"{case} {axes.get('dtype', '')} {axes.get('shape', '')} {axes.get('impl', '')}".strip()


def own_name(key):
    axes = common.parse_key(key)[2]
    return axes.get("mode") or axes.get("impl") or axes.get("variant") or ""


def by_size(key):
    """Orders keys with the numbers in them as numbers: 4096 before 16384."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", key)]


def ours_over_peer(rows):
    """[(side, the peer's key, {round: (our key, our time, the peer's time)})], sorted. A peer without graphs is
    compared with our graph, even where our eager step takes less time: choosing by time would favour us."""
    found = []
    for metric in dict.fromkeys(TIMES.values()):
        sides, _ = collect(rows, metric)
        plumb = sides.pop("plumb", {})
        for side, keys in sides.items():
            for key, theirs in keys.items():
                own = partners(key, keys, plumb, metric)[-1:]
                if TIMES.get(common.parse_key(key)[0]) != metric or not own:
                    continue
                both = {n: (own[0], plumb[own[0]][n], theirs[n]) for n in sorted(theirs) if n in plumb[own[0]]}
                if both:
                    found.append((side, key, both))
    return sorted(found, key=lambda f: (f[1].split("/")[0], f[0], by_size(f[1])))


def ratio_rows(rows):
    """Rows of the metric, in bench's columns, under the run and key of the peer."""
    by = {(side_of(r), r["key"], r["metric"]): r for r in rows}
    made = []
    for side, key, rounds in ours_over_peer(rows):
        for number, (own, ours, theirs) in rounds.items():
            like = by[(number, side), key, TIMES[common.parse_key(key)[0]]]
            made.append({**like, "metric": METRIC, "unit": "1", "better": "lower", "value": f"{ours / theirs:.9g}",
                         "samples": "0", "note": f"Plumb's {own_name(own)}: {ours:.4g} s over {theirs:.4g} s"})
    return made
