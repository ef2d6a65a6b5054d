#!/usr/bin/env python3
"""A PyTorch eager training step of one of Plumb's models on the CPU: one launch, as rows of results.csv.

The model comes from trainer/model.def, the columns from bench/columns.def, units from bench/metrics.def: there is no
second table. The peer is what a careful user of PyTorch writes: separate Linear layers, rms_norm,
scaled_dot_product_attention, cross_entropy, clip_grad_norm_ over all parameters, fused AdamW, gradients set to None.
Phases end where the Python call returns, which on the CPU is when the work is done.

usage: torch_step.py --model smollm2-135m [--batch 1] [--seq 256] [--threads 2] [--steps N] [--out results.csv]
"""
import argparse
import csv
import re
import resource
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHASES = ["forward_time", "loss_time", "backward_time", "clip_time", "optimizer_time"]


def def_lines(path, macro):
    """The arguments of every line MACRO(...) of a .def file, strings without their quotes."""
    for line in (ROOT / path).read_text().splitlines():
        m = re.match(macro + r"\((.*)\)\s*$", line)
        if m:
            fields = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,\s]+)', m.group(1))
            yield [a or b for a, b in fields]


def geometry(name):
    keys = "name family V D L H K d I eps theta tied bias qk_norm max_pos".split()
    all_names = []
    for fields in def_lines("trainer/model.def", "GEOMETRY"):
        all_names.append(fields[0])
        if fields[0] == name:
            g = dict(zip(keys, fields))
            for k in keys[2:]:
                g[k] = float(g[k].rstrip("f")) if k in ("eps", "theta") else int(g[k])
            return g
    sys.exit(f"torch_step: --model {name} is not one of {', '.join(all_names)}")


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", default="smollm2-135m")
    p.add_argument("--tuning", default="full", choices=["full"])
    p.add_argument("--dtype", default="f32", choices=["f32"])
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--layers", type=int, default=0, help="only the first so many; 0: all")
    p.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch chooses")
    p.add_argument("--steps", type=int, default=0, help="timed steps; 0: as bench, 5 to 40 until 1.5 s are full")
    p.add_argument("--warmup", type=int, default=2, help="untimed steps, at least 1: AdamW's state is made in the first")
    p.add_argument("--key", help="key of the rows (that of bench's case, to be joined with it)")
    p.add_argument("--run-id", default="peer-torch")
    p.add_argument("--machine-id", default="unknown")
    p.add_argument("--launch", type=int, default=0)
    p.add_argument("--out", help="CSV to append to (a new one gets a header); left out: standard output")
    o = p.parse_args()
    if o.warmup < 1 or o.batch < 1 or o.seq < 1:
        p.error("--warmup, --batch and --seq are at least 1")
    o.key = o.key or (f"throughput/step?batch={o.batch}&clip=multi&dtype={o.dtype}&layers={o.layers}&mode=eager"
                      f"&model={o.model}&rank=16&seq={o.seq}&targets=q+v&tuning={o.tuning}")
    return o


def build(g, o):
    """The model as a torch module, and its forward pass from ids [B,S] to logits [B,S,V]."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    H, K, d, eps = g["H"], g["K"], g["d"], g["eps"]
    angle = torch.arange(o.seq)[:, None] * (g["theta"] ** (-torch.arange(0, d, 2).double() / d))[None]
    cos, sin = angle.cos().float(), angle.sin().float()

    def rope(x):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def gain(n):
        return nn.Parameter(torch.ones(n))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            D, I, bias = g["D"], g["I"], bool(g["bias"])
            self.n1, self.n2 = gain(D), gain(D)
            self.q, self.k = nn.Linear(D, H * d, bias=bias), nn.Linear(D, K * d, bias=bias)
            self.v, self.o = nn.Linear(D, K * d, bias=bias), nn.Linear(H * d, D, bias=False)
            self.gate, self.up = nn.Linear(D, I, bias=False), nn.Linear(D, I, bias=False)
            self.down = nn.Linear(I, D, bias=False)
            self.nq, self.nk = (gain(d), gain(d)) if g["qk_norm"] else (None, None)

        def forward(self, x):
            B, S, D = x.shape
            h = F.rms_norm(x, (D,), self.n1, eps)
            q, k, v = (m(h).view(B, S, -1, d).transpose(1, 2) for m in (self.q, self.k, self.v))
            if self.nq is not None:
                q, k = F.rms_norm(q, (d,), self.nq, eps), F.rms_norm(k, (d,), self.nk, eps)
            a = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=H != K)
            x = x + self.o(a.transpose(1, 2).reshape(B, S, H * d))
            h = F.rms_norm(x, (D,), self.n2, eps)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(g["V"], g["D"])
            self.blocks = nn.ModuleList(Block() for _ in range(o.layers or g["L"]))
            self.norm = gain(g["D"])
            self.head = self.embed if g["tied"] else nn.Linear(g["D"], g["V"], bias=False)
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids):
            x = self.embed(ids)
            for b in self.blocks:
                x = b(x)
            return F.linear(F.rms_norm(x, (g["D"],), self.norm, eps), self.head.weight)

    return Model()


def measure(g, o):
    """Seconds of every phase of every timed step, and the last loss."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(42)
    if o.threads:
        torch.set_num_threads(o.threads)
    model = build(g, o)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    ids = torch.randint(0, g["V"], (o.batch, o.seq + 1))
    ids, targets = ids[:, :-1], ids[:, 1:].reshape(-1)

    def step():
        at = [time.perf_counter()]
        mark = lambda: at.append(time.perf_counter())  # noqa: E731
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids)
        mark()
        loss = F.cross_entropy(logits.view(-1, g["V"]), targets)
        mark()
        del logits
        loss.backward()
        mark()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        mark()
        optimizer.step()
        mark()
        return [b - a for a, b in zip(at, at[1:])], loss.item()

    for _ in range(o.warmup):
        step()
    samples = []
    while len(samples) < (o.steps or 40) and (o.steps or len(samples) < 5 or sum(map(sum, samples)) < 1.5):
        phases, loss = step()
        samples.append(phases)
    return samples, loss, torch.__version__, torch.get_num_threads()


def main():
    o = options()
    g = geometry(o.model)
    samples, loss, version, threads = measure(g, o)
    step = statistics.median(map(sum, samples))
    note = f"PyTorch {version} eager, {threads} threads, fused AdamW"
    values = [(m, statistics.median(s[i] for s in samples), len(samples)) for i, m in enumerate(PHASES)]
    values += [("step_time", step, len(samples)), ("loss", loss, 0), ("tokens_per_second", o.batch * o.seq / step, 0),
               ("peak_memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0, 0)]

    columns = [c[1] for c in def_lines("bench/columns.def", "COL")]
    metrics = {m[0]: m for m in def_lines("bench/metrics.def", "METRIC")}
    bench_version = re.search(r'PB_BENCH_VERSION "(.*)"', (ROOT / "bench/bench.h").read_text()).group(1)
    out = open(o.out, "a", newline="") if o.out else sys.stdout
    writer = csv.DictWriter(out, columns, lineterminator="\n", extrasaction="raise")
    if not o.out or out.tell() == 0:
        writer.writeheader()
    for metric, value, n in values:
        row = dict(bench_version=bench_version, run_id=o.run_id, machine_id=o.machine_id, launch=o.launch, key=o.key,
                   metric=metric, unit=metrics[metric][1], better=metrics[metric][2], value=repr(value), samples=n,
                   status="ok", note=note)
        writer.writerow({c: row.get(c, "") for c in columns})


if __name__ == "__main__":
    main()
