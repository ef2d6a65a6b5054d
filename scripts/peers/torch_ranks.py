#!/usr/bin/env python3
"""torch_ranks.py - PyTorch's training steps and collectives on several ranks of one host: rows of results.csv.

The model is that of torch_step.py, eager. Steps: shard=none is DistributedDataParallel, whose gradients travel in f32,
or with reduce=bf16 through its hook bf16_compress; shard=parameters is FSDP2 (fully_shard of every layer), whose weights
travel in the dtype of the step and whose gradients in that of reduce. Rank 0 alone measures the same step without
either, while the other ranks wait: one_rank_step_time, and the rows of the key without ranks.

Collectives: torch.distributed with NCCL, on a CPU with Gloo, by the definitions of nccl-tests as in bench/suites/
suite_comm.c: a sample is 20 calls between two events, after one small all-reduce that lets the ranks begin together.
Every element is compared with the exact result first. All times are those of the slowest rank.

usage: torch_ranks.py [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: a case of bench with ranks=N, the same N for all: throughput/step?...&mode=eager... or comm/all_reduce?...
"""
import statistics
import sys

import torch
import torch.distributed as dist

import common
import step
import torch_step
from rank_world import number_of_ranks, one, release, rows_of, run_job

CALLS = 20  # calls in a sample of a collective
BYTES = {"f32": 4, "bf16": 2}


# ---- steps -----------------------------------------------------------------------------------------------------------

class RankStep(step.Step):
    """A step whose model is called through its wrapper, and whose gradients are reduced by hooks of backward()."""

    def __init__(self, module, model, case, device):
        super().__init__(model, case, device)
        self.module = module

    def forward(self):
        for p in self.params:
            p.grad = None
        self.out = self.module(self.ids)

    def backward(self):
        self.value.backward()
        self.value = self.value.detach()

    def warm_up(self, device):
        """Three steps: after the first, DDP arranges its buckets anew."""
        for _ in range(3):
            self.run()
        if device != "cpu":
            torch.cuda.synchronize()


def replicated(model, case, world):
    """The model in DistributedDataParallel."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    module = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=None if world.device == "cpu" else [world.rank], gradient_as_bucket_view=True)
    if case.reduce == "bf16":
        module.register_comm_hook(None, bf16_compress_hook)
    return module


def sharded(model, case, world):
    """The model with its parameters sharded by FSDP2, layer by layer; the rest is one more group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    mesh = init_device_mesh(world.device, (world.ranks,))
    policy = MixedPrecisionPolicy(param_dtype=case.dtype, reduce_dtype=step.DTYPES[case.reduce])
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    module = fully_shard(model, mesh=mesh, mp_policy=policy)
    model.params = list(model.parameters())
    return module


class Case(step.Case):
    """A case of suite throughput with several ranks."""
    AXES = step.Case.AXES | {"accumulate", "ranks", "reduce", "shard"}

    def __init__(self, key):
        super().__init__(key)
        axes = common.parse_key(key)[2]
        self.shard, self.reduce = axes.get("shard", "none"), axes.get("reduce", "f32")
        if self.suite != "throughput" or self.mode != "eager" or self.shard not in ("none", "parameters") or \
                self.reduce not in step.DTYPES or axes.get("accumulate", "1") != "1":
            common.die(f"{key}: this peer has throughput, mode=eager, shard=none or parameters, accumulate=1", 2)
        alone = {a: v for a, v in axes.items() if a not in ("ranks", "shard", "reduce")}
        self.key, self.one_key = key, common.make_key("throughput", "step", alone)

    def note(self):
        return "FSDP2" if self.shard == "parameters" else "DDP"

    def group(self):
        return 0, self.one_key


class Steps:
    """Measures the steps of all cases of a process."""

    def __init__(self, world, rows):
        self.world, self.rows, self.memory, self.alone = world, rows, common.Memory(world.device), {}

    def build(self, case):
        torch.manual_seed(42)
        return torch_step.Model(case, self.world.own)

    def samples(self, one, before=lambda: None, agree=lambda seconds: seconds):
        """Returns seconds of the phases of every sample, the peak of memory, and the loss."""
        self.memory.reset()
        one.warm_up(self.world.device)

        def call(mark):
            mark()
            one.run(mark=mark)
        seconds, _ = common.sample(self.world.device, call, before=before, agree=agree)
        return seconds, self.memory.peak(), float(one.value)

    def figures(self, case, key, note, found, ranks):
        """Emits what one rank and several have in common; returns the step's time."""
        seconds, peak, loss = found
        n, total = len(seconds), statistics.median(map(sum, seconds))

        def emit(metric, value, samples=0):
            self.rows.emit(key, metric, value, samples, note=f"{note}, {self.rows.note}")
        for i, phase in enumerate(step.PHASES):
            emit(f"{phase}_time", common.median_of(seconds, i), n)
        emit("step_time", total, n)
        emit("tokens_per_second", ranks * case.B * case.S / total)
        emit("loss", loss)
        emit("peak_memory", peak)
        return total, emit

    def measure_alone(self, case):
        """Rank 0 alone, once for all cases that have the same step."""
        if case.one_key in self.alone:
            return
        found = self.samples(step.Step(self.build(case), case, self.world.own))
        self.alone[case.one_key], _ = self.figures(case, case.one_key, "one rank", found, 1)

    def measure(self, case):
        world, failed = self.world, None
        if world.rank == 0:
            try:
                self.measure_alone(case)
            except Exception as error:  # any error of a library: the other ranks must not wait
                failed = error
        release(world.device)
        if why := world.worst_error(failed):
            raise RuntimeError(why)
        model = self.build(case)
        module = (sharded if case.shard == "parameters" else replicated)(model, case, world)
        found = self.samples(RankStep(module, model, case, world.own), world.meet, world.most)
        peak, loss = world.most([found[1], found[2]])
        if world.rank == 0:
            total, emit = self.figures(case, case.key, case.note(), (found[0], peak, loss), world.ranks)
            emit("tokens_per_second_per_rank", case.B * case.S / total)
            emit("one_rank_step_time", self.alone[case.one_key])
            emit("scaling_efficiency", self.alone[case.one_key] / total)


# ---- collectives -----------------------------------------------------------------------------------------------------

class Collective:
    """A case of suite comm."""

    def __init__(self, key):
        _, self.name, axes = common.parse_key(key)
        self.key, self.dtype = key, axes.get("dtype")
        if self.name not in ("all_reduce", "reduce_scatter", "all_gather") or self.dtype not in BYTES or \
                not axes.get("bytes", "").isdigit():
            common.die(f"{key}: this peer has all_reduce, reduce_scatter, all_gather of f32 or bf16", 2)
        self.bytes = int(axes["bytes"])

    def group(self):
        return 1, ""

    def plan(self, world):
        """Buffers: x and y, as suite comm has them; a rest that does not divide by the ranks is left out."""
        n, dtype = world.ranks, step.DTYPES[self.dtype]
        self.count = self.bytes // BYTES[self.dtype] // (1 if self.name == "all_reduce" else n)
        if not self.count:
            raise NotImplementedError(f"{self.bytes} bytes are less than one element for each rank")
        larger = self.count * (1 if self.name == "all_reduce" else n)
        self.moved = larger * BYTES[self.dtype]
        room = {"sent": self.count if self.name == "all_gather" else larger,
                "got": self.count if self.name == "reduce_scatter" else larger}
        self.x = (torch.arange(room["sent"], device=world.own) % 7 + world.rank).to(dtype)
        self.y = torch.empty(room["got"], dtype=dtype, device=world.own)

    def call(self):
        if self.name == "all_reduce":  # torch.distributed has it in place only
            dist.all_reduce(self.y)
        elif self.name == "reduce_scatter":
            dist.reduce_scatter_tensor(self.y, self.x)
        else:
            dist.all_gather_into_tensor(self.y, self.x)

    def fill(self):
        """Writes the output's buffer: the input of a reduction in place, otherwise what no collective gives."""
        if self.name == "all_reduce":
            self.y.copy_(self.x)
        else:
            self.y.fill_(float("nan"))

    def wrong(self, world):
        """Elements of this rank that differ from the exact result. The inputs are whole numbers, exact in bf16."""
        n, r = world.ranks, world.rank
        at = torch.arange(self.y.numel(), device=world.own)
        if self.name == "all_gather":
            want = at % self.count % 7 + at // self.count
        else:
            want = n * ((at + (r * self.count if self.name == "reduce_scatter" else 0)) % 7) + n * (n - 1) // 2
        return int((~(self.y == want.to(self.y.dtype))).sum())


class Collectives:
    def __init__(self, world, rows):
        self.world, self.rows = world, rows
        self.aligned = torch.zeros(1, device=world.own)

    def measure(self, case):
        world = self.world
        case.plan(world)
        case.fill()
        case.call()
        wrong = case.wrong(world)
        bad = torch.tensor([float(wrong)], dtype=torch.float64)
        dist.all_reduce(bad, group=world.control)
        if world.rank == 0:
            self.rows.emit(case.key, "wrong_count", float(bad), 0, "wrong" if bad else "ok")
        if bad:
            return

        def call(mark):
            case.fill()
            dist.all_reduce(self.aligned)
            mark()
            for _ in range(CALLS):
                case.call()
            mark()
        call(lambda: None)
        seconds, _ = common.sample(world.device, call, 0.2, world.meet, world.most)
        if world.rank == 0:
            self.emit(case, statistics.median(s[0] for s in seconds) / CALLS, len(seconds))

    def emit(self, case, time, n):
        ranks, rate = self.world.ranks, case.moved / time
        self.rows.emit(case.key, "time", time, n)
        self.rows.emit(case.key, "algorithm_bandwidth", rate)
        if ranks > 1:
            self.rows.emit(case.key, "bus_bandwidth", rate * (ranks - 1) / ranks * (1 + (case.name == "all_reduce")))


# ---- the ranks -------------------------------------------------------------------------------------------------------

def measure_all(world, o):
    """The work of a rank: measures all cases, and returns the number of those without a value."""
    rows = rows_of(world, o, f"PyTorch {torch.__version__}, {world.backend}")
    suites = {Case: Steps(world, rows).measure, Collective: Collectives(world, rows).measure}
    for case in common.shuffled(o.seed, cases_of(o.keys), lambda case: case.group()):
        one(world, rows, suites[type(case)], case)
    return rows.bad


def cases_of(keys):
    return [Collective(k) if k.startswith("comm/") else Case(k) for k in keys]


def main():
    o = common.peer_options(__doc__)
    ranks = number_of_ranks(o.keys, 2)
    cases_of(o.keys)
    return run_job(o, ranks, measure_all)


if __name__ == "__main__":
    sys.exit(main())
