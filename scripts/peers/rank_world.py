"""rank_world.py - peers of several ranks: one process for each rank of this host, and what the ranks tell each other.

A script calls run_job() with a function of its own, which every rank calls with its World and the options.
"""
import datetime
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing

import common

PATIENCE = 120.0  # seconds that a rank waits for the others; a step of one rank takes less


class World:
    """This rank among the ranks of the job. What the ranks tell each other goes through Gloo, next to the GPUs."""

    def __init__(self, rank, ranks, device, patience):
        limit = datetime.timedelta(seconds=patience)
        self.rank, self.ranks, self.device = rank, ranks, device
        self.own = device if device == "cpu" else f"cuda:{rank}"
        gloo = device == "cpu" or ranks == 1  # one rank has no collectives, and needs no NCCL
        self.backend = "Gloo" if gloo else "NCCL " + ".".join(map(str, torch.cuda.nccl.version()))
        if device != "cpu":
            torch.cuda.set_device(rank)
        dist.init_process_group("gloo" if gloo else "nccl", rank=rank, world_size=ranks, timeout=limit,
                                device_id=None if gloo else torch.device(self.own))
        self.control = dist.new_group(backend="gloo", timeout=limit)

    def meet(self):
        dist.barrier(self.control)

    def most(self, figures):
        """The largest of every figure over the ranks."""
        t = torch.tensor(figures, dtype=torch.float64)
        dist.all_reduce(t, dist.ReduceOp.MAX, self.control)
        return t.tolist()

    def worst_error(self, error):
        """The error of the first rank that has one, or None. Every rank calls this after work that may fail on some."""
        errors = [None] * self.ranks
        dist.all_gather_object(errors, error and f"{type(error).__name__}: {error}", self.control)
        return next((f"rank {r}: {e}" for r, e in enumerate(errors) if e), None)


class NoRows:
    """Rows of the ranks that write none."""
    note, bad = "", 0

    def emit(self, *_, **__):
        pass

    outcome = emit


def rows_of(world, o, note):
    """The rows of this rank: rank 0 writes them, with the note."""
    return common.Rows(o.out, note) if world.rank == 0 else NoRows()


def release(device):
    import gc
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def one(world, rows, measure, case):
    """Measures a case; an error of any rank is its row. A rank that waits for one that failed ends with the job."""
    failed = None
    try:
        measure(case)
    except Exception as error:  # any error of a library: the other cases can still be measured
        failed = error
    release(world.device)
    if why := world.worst_error(failed):
        rows.outcome(case.key, NotImplementedError(why) if "NotImplementedError" in why or "ModuleNotFoundError" in why
                     else RuntimeError(why))


def number_of_ranks(keys, least):
    """The number of ranks of the keys, which must all have the same, of at least `least`."""
    numbers = {common.parse_key(k)[2].get("ranks", "1") for k in keys}
    if len(numbers) > 1 or not all(n.isdigit() and int(n) >= least for n in numbers):
        common.die(f"keys with ranks={', '.join(sorted(numbers))}: all need the same number, {least} or more", 2)
    return int(numbers.pop())


def run_rank(rank, o, ranks, patience, work, ended):
    """One process; appends its number of cases without a value to `ended`."""
    if o.threads:
        torch.set_num_threads(o.threads)
    world = World(rank, ranks, o.device, patience)
    ended.put(work(world, o))
    world.meet()
    dist.destroy_process_group()


def run_job(o, ranks, work, patience=PATIENCE):
    """Starts the ranks. Each calls work(world, o), a function at the top of a module, which returns the number of cases
    without a value. Returns the exit code."""
    if o.device == "cuda" and torch.cuda.device_count() < ranks:
        common.die(f"{torch.cuda.device_count()} GPUs for {ranks} ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    ended = torch.multiprocessing.get_context("spawn").SimpleQueue()
    try:
        torch.multiprocessing.spawn(run_rank, (o, ranks, patience, work, ended), ranks)
    except (torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException) as error:
        common.die(f"a rank failed: {str(error).strip().splitlines()[-1]}")
    return common.FAILED if sum(ended.get() for _ in range(ranks)) else 0
