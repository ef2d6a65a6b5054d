#!/usr/bin/env python3
"""optimizer_peers.py - the NorMuon of microsoft/dion measured next to `bench --suite optimizer`, case matrices: rows of
results.csv.

dion         dion.NorMuon with its defaults: its functions are compiled by torch.compile
dion_triton  the same with use_triton=True: its Triton kernels for symmetric products, which need a GPU

PATH is a checkout of microsoft/dion; none of its code is in this repository. A model's matrices are those of its
layers, each a parameter of its own, as modules of PyTorch have them: q, k, v, o, gate, up and down. Weights, gradients
and momentum are f32; dion orthogonalises in bf16, whatever the dtype of Plumb's case. The settings are those of Plumb.

Before a case is timed, the first steps of fresh state are compared with the formula in double precision: the change of
one matrix of each shape. A wrong result gets no time. mode=eager is a call of step(); mode=graph is dion's own
CudaGraphOptimizer, which replays the step as one CUDA graph. With ranks=N, one process for each GPU, dion divides the
matrices over the ranks and gathers what they orthogonalised; every rank has the same gradients, and the time is that of
the slowest rank. On a CPU the ranks use Gloo, and torch.compile needs a C++ compiler.

usage: optimizer_peers.py --peer NAME --path PATH [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: optimizer/matrices?... of bench, with the same number of ranks in all keys
"""
import math
import re
import subprocess
import sys

import attention_peers
import common

WHERE = {"dion": "a checkout of microsoft/dion"}  # what --path NAME=PATH names
PEERS = ("dion", "dion_triton")                   # both are loaded from --path dion=PATH
AXES = set("batch clip dtype guard iteration layers mode model optimizer rank ranks seq targets tuning".split())
# pb_train_defaults() of trainer/step/trainer.c. Both have as defaults: the factor spectral for the learning rate, no
# Nesterov momentum, epsilon 1e-8, no cautious weight decay.
SETTINGS = {"lr": 1e-4, "mu": 0.95, "muon_beta2": 0.95, "weight_decay": 0.01}
ITERATIONS = {"quintic": ("quintic", 1.0), "polar_express": ("polar", 1.02)}  # name in factors.h, factor of the norm
TOLERANCE = 0.1   # dion orthogonalises in bf16: see normuon.h for its distance from float64
WARM = 3          # eager steps before a graph is captured
PATIENCE = 300.0  # seconds that a rank waits for the others, which may still compile


def check_path(path):
    """Returns the folder that is imported; ends the program with one line when it is missing."""
    return common.holding(common.given_path("dion", path, WHERE["dion"]), ("", ["dion/normuon.py"]))


def measures(key, device):
    """Whether dion computes what a case of Plumb's does."""
    suite, name, axes = common.parse_key(key)
    modes = ["eager", "graph"] if device == "cuda" else ["eager"]
    same = {"tuning": "full", "optimizer": "normuon", "guard": "off"}
    return ((suite, name) == ("optimizer", "matrices") and set(axes) <= AXES
            and all(axes.get(axis) == value for axis, value in same.items())
            and axes.get("iteration") in ITERATIONS and axes.get("mode") in modes)


class Case:
    """A case, and the shapes of its matrices."""

    def __init__(self, key, device):
        if not measures(key, device):
            common.die(f"{key}: want optimizer/matrices?guard=off&iteration=quintic or polar_express&mode=eager (on a "
                       "GPU also graph)&optimizer=normuon&tuning=full&... without shard", 2)
        axes = common.parse_key(key)[2]
        g = common.geometry(axes["model"])
        heads, kv = g["H"] * g["d"], g["K"] * g["d"]
        self.key, self.iteration, self.mode = key, axes["iteration"], axes["mode"]
        self.shapes = (int(axes["layers"]) or g["L"]) * [
            ("q", heads, g["D"]), ("k", kv, g["D"]), ("v", kv, g["D"]), ("o", g["D"], heads),
            ("gate", g["I"], g["D"]), ("up", g["I"], g["D"]), ("down", g["D"], g["I"])]

    def group(self):
        return 0


# ---- the formula in double precision: kernels/normuon/normuon.h, kernels/newton_schulz/newton_schulz.h -------------

def factors(name):
    """The factors a, b, c of the five steps of an iteration, from the table of Plumb's kernels."""
    text = (common.ROOT / "kernels/newton_schulz/factors.h").read_text()
    numbers = re.search(rf"\b{name}\[5\] = \{{(.*?)\}};", text, re.S)[1]
    found = [float(n) for n in re.findall(r"-?\d+\.\d+", numbers)]
    return list(zip(*[iter(found)] * 3, strict=True))


def orthogonal(x, iteration):
    name, safety = ITERATIONS[iteration]
    x = x / (safety * x.norm() + 1e-8)
    wide = x if x.shape[0] <= x.shape[1] else x.T
    for a, b, c in factors(name):
        s = wide @ wide.T
        wide = a * wide + (b * s + c * s @ s) @ wide
    return wide if x.shape[0] <= x.shape[1] else wide.T


def formula(w, grad, iteration, steps):
    """The change of the weights by the first steps, whose gradients are the same. The momentum of every step is a
    multiple of the gradient, and the second moments are a multiple of those of the first step: so all updates are that
    of the first step."""
    w, lr = w.double(), SETTINGS["lr"]
    u = orthogonal(grad.double(), iteration)
    v = (1 - SETTINGS["muon_beta2"]) * u.square().mean(1, keepdim=True)
    h = u / (v.sqrt() + 1e-8)
    update = math.sqrt(w.shape[0] / w.shape[1]) * h * (u.norm() / max(float(h.norm()), 1e-8))
    after = w
    for _ in range(steps):
        after = after * (1 - lr * SETTINGS["weight_decay"]) - lr * update
    return after - w


# ---- measuring -------------------------------------------------------------------------------------------------------

class Matrices:
    """The matrices of a case with their gradients, the same on every rank, and dion's optimizer for them."""

    def __init__(self, case, world, triton):
        import torch
        from dion import NorMuon
        if triton and world.device == "cpu":
            raise NotImplementedError("its Triton kernels need a GPU")
        torch._dynamo.reset()  # every case compiles anew, and PyTorch limits how often a function is
        torch._dynamo.config.cache_size_limit = 100  # as dion's train.py has it: each shape is compiled once
        draw = torch.Generator(world.own).manual_seed(7)
        self.case, self.params = case, []
        for _, rows, cols in case.shapes:
            w, grad = (torch.randn(rows, cols, device=world.own, generator=draw) for _ in range(2))
            self.params.append(torch.nn.Parameter(w * 0.02))
            # With rows of one size, all rows of the update would have one norm, and a step that does not scale its rows
            # would pass the check.
            self.params[-1].grad = grad / (1 + torch.arange(rows, device=world.own) % 5)[:, None]
        mesh = torch.distributed.group.WORLD if world.ranks > 1 else None
        self.optimizer = NorMuon(self.params, distributed_mesh=mesh, use_triton=triton,
                                 use_polar_express=case.iteration == "polar_express", **SETTINGS)
        if case.mode == "graph":
            from dion.cuda_graph import CudaGraphOptimizer
            self.optimizer = CudaGraphOptimizer(self.optimizer, warmup_steps=WARM)
        self.step = self.optimizer.step

    def errors(self):
        """Takes the first steps; with a graph, the last but one captures it and the last replays it. Returns the
        relative L2 error of the change of the first matrix of each shape, infinite where it is not finite."""
        first = {}
        for (name, *shape), p in zip(self.case.shapes, self.params):
            first.setdefault(tuple(shape), (name, p, p.detach().clone()))
        steps = WARM + 2 if self.case.mode == "graph" else 1
        for _ in range(steps):
            self.step()
        found = {}
        for name, p, before in first.values():
            want = formula(before, p.grad, self.case.iteration, steps)
            error = float((p.detach().double() - before.double() - want).norm() / want.norm())
            found[name] = error if math.isfinite(error) else math.inf
        return found

    def close(self):
        """A graph that contains collectives must be gone before the ranks leave their group."""
        if self.case.mode == "graph":
            self.optimizer.release()


def measure(case, world, rows, triton):
    matrices = Matrices(case, world, triton)
    try:
        time_of(matrices, world, rows)
    finally:
        matrices.close()


def time_of(matrices, world, rows):
    found, key = matrices.errors(), matrices.case.key
    found = dict(zip(found, world.most(list(found.values()))))
    if not attention_peers.is_right(found, dict.fromkeys(found, TOLERANCE), key, rows):
        return
    memory = common.Memory(world.device)
    memory.reset()

    def call(mark):
        mark()
        matrices.step()
        mark()
    seconds, _ = common.sample(world.device, call, before=world.meet, agree=world.most)
    rows.emit(key, "optimizer_time", common.median_of(seconds, 0), len(seconds))
    # On a CPU it would be that of the process, with PyTorch and its compiler; of a graph it lacks the graph's own memory.
    if world.device != "cpu" and matrices.case.mode == "eager":
        peak, = world.most([memory.peak()])
        rows.emit(key, "peak_memory", peak, note=f"of the matrices and a step of NorMuon alone; {rows.note}")


def commit_of(path):
    """The commit of a checkout, with -dirty if files were changed, or that it is none: `path` may be a copy inside
    another repository."""
    def git(*words):
        done = subprocess.run(["git", "-C", str(path), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None
    top = git("rev-parse", "--show-prefix") == ""
    return top and git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or "(no git checkout)"


def measure_all(world, o):
    """The work of a rank: measures all cases, and returns the number of those without a value."""
    import torch
    from rank_world import one, rows_of
    sys.path.insert(0, str(o.path))
    triton = o.peer == "dion_triton"
    note = f"PyTorch {torch.__version__}, dion {commit_of(o.path)}, use_triton={triton}, f32, orthogonalised in bf16"
    rows = rows_of(world, o, note if world.ranks == 1 else f"{note}, {world.backend}")
    cases = [Case(key, o.device) for key in o.keys]
    for case in common.shuffled(o.seed, cases, lambda case: case.group()):
        one(world, rows, lambda case: measure(case, world, rows, triton), case)
    return rows.bad


def main():
    def more(p):
        p.add_argument("--peer", required=True, choices=PEERS)
        p.add_argument("--path", help=WHERE["dion"])
    o = common.peer_options(__doc__, more)
    o.path = check_path(o.path)
    for key in o.keys:
        Case(key, o.device)
    from rank_world import number_of_ranks, run_job
    return run_job(o, number_of_ranks(o.keys, 1), measure_all, PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
