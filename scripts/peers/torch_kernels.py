#!/usr/bin/env python3
"""torch_kernels.py - kernels of PyTorch and bitsandbytes measured next to `bench --suite kernels`: rows of results.csv.

Timing is that of bench: device time between events, L2 overwritten before every call with a buffer of twice its size,
calls enqueued while the device is kept busy, so that the host's time is never measured. Each kernel is first compared
with the formula in double precision on a small shape: a wrong result gets no time.

usage: torch_kernels.py [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: kernels/OP?dtype=bf16&shape=B2.S4096.H64.K8.D128.c1.p0.n0, or ceiling/copy. The rows' keys say impl=PEER;
       an op that no peer has gives no row.
"""
import math
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import common

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = {"f32": 1e-5, "bf16": 2e-2}


def dims_of(shape):
    if not re.fullmatch(r"([A-Za-z]\d+)(\.[A-Za-z]\d+)*", shape):
        common.die(f"shape {shape}: want letters with numbers, as B2.S4096", 2)
    return {part[0]: int(part[1:]) for part in shape.split(".")}


def normal(*shape, dtype, device, grad=False):
    return torch.randn(*shape, dtype=dtype, device=device).requires_grad_(grad)


# ---- the peers: each returns a call, and the function for its expected results in double precision --------

def nf4(n, dtype, device, _):
    from bitsandbytes import functional as bnb
    w = normal(n["S"], n["D"], dtype=dtype, device=device)
    codes, state = bnb.quantize_4bit(w, blocksize=n["b"], quant_type="nf4", compress_statistics=bool(n["q"]))

    def want():
        level = state.code.double()[torch.stack((codes.view(-1) >> 4, codes.view(-1) & 15), 1).long().view(-1)]
        absmax = state.absmax
        if state.nested:
            absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
        return [(level * absmax.double().repeat_interleave(n["b"])[:level.numel()]).view(w.shape)]
    return lambda: [bnb.dequantize_4bit(codes, state)], want


def sdpa(q, k, v, backend, causal, gqa=True):
    """scaled_dot_product_attention by one backend and no other."""
    try:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)
    except RuntimeError as error:
        if "No available kernel" in str(error) or "No viable backend" in str(error):
            raise NotImplementedError(f"PyTorch has no {backend.name} for this call") from None
        raise


def attention(n, dtype, device, backend, backward=False):
    if n["p"] or n["n"]:
        raise NotImplementedError("this peer attends over whole rows")
    # requires_grad makes the forward pass store its log-sum-exp, as Plumb's does.
    q = normal(n["B"], n["H"], n["S"], n["D"], dtype=dtype, device=device, grad=True)
    k, v = (normal(n["B"], n["K"], n["S"], n["D"], dtype=dtype, device=device, grad=True) for _ in "kv")
    do = normal(*q.shape, dtype=dtype, device=device)

    def forward():
        return sdpa(q, k, v, backend, bool(n["c"]), n["H"] != n["K"])

    def want():
        Q, K, V = (t.detach().double().requires_grad_() for t in (q, k, v))
        group = n["H"] // n["K"]
        scores = Q @ K.repeat_interleave(group, 1).mT / math.sqrt(n["D"])
        if n["c"]:
            hidden = torch.ones(n["S"], n["S"], dtype=torch.bool, device=device).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        o = scores.softmax(-1) @ V.repeat_interleave(group, 1)
        return torch.autograd.grad(o, (Q, K, V), do.double()) if backward else [o]
    if not backward:
        return lambda: [forward()], want
    o = forward()
    return lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True), want


def attention_backward(n, dtype, device, backend):
    return attention(n, dtype, device, backend, backward=True)


def adamw(n, dtype, device, _):
    if n["N"] != 1 or n["b"] or n["g"] or n["c"]:
        raise NotImplementedError("this peer steps one f32 tensor, without a clip")
    p = normal(n["S"], n["D"], dtype=dtype, device=device)
    p.grad, before = normal(n["S"], n["D"], dtype=dtype, device=device), p.clone() if p.numel() < 1 << 20 else None
    lr, b1, b2, eps, decay = 0.01, 0.9, 0.95, 1e-8, 0.1
    optimizer = torch.optim.AdamW([p], lr=lr, betas=(b1, b2), eps=eps, weight_decay=decay, fused=True)

    def call():
        optimizer.step()
        return [p]

    def want():
        g, start = p.grad.double(), before.double()  # first step: m/(1-b1) = g, v/(1-b2) = g^2
        return [start - lr * (decay * start + g / (g.abs() + eps))]
    return call, want


def cross_entropy(n, dtype, device, wide):
    logits = normal(n["B"] * n["S"], n["V"], dtype=dtype, device=device, grad=True)
    targets = torch.randint(0, n["V"], (logits.shape[0],), device=device)

    def loss(x):
        return F.cross_entropy(x, targets)

    def want():
        x = logits.detach().double().requires_grad_()
        return torch.autograd.grad(loss(x), x)
    return lambda: torch.autograd.grad(loss(logits.float() if wide else logits), logits), want


SDPA = [("torch_cudnn", SDPBackend.CUDNN_ATTENTION), ("torch_flash", SDPBackend.FLASH_ATTENTION)]
# op: the function, a small shape for the comparison, and (name of the peer, argument of the function)
PEERS = {
    "nf4_dequantize": (nf4, "S64.D192", [("bitsandbytes", None)]),
    "attention_fwd": (attention, "B2.S256.H8.K2", SDPA),
    "attention_bwd": (attention_backward, "B2.S256.H8.K2", SDPA),
    "adamw_step": (adamw, "S40.D64", [("torch_fused", None)]),
    "xent_bwd": (cross_entropy, "B2.S16.V1000", [("torch", False), ("torch_f32", True)]),
}


# ---- timing -----------------------------------------------------------------------------------------------------

class Clock:
    """Times as DEVICE_USUAL of bench/suites/suite_kernels.c on a GPU; with the wall clock on a CPU, where caches are not
    flushed."""

    def __init__(self, device):
        self.gpu = device == "cuda"
        if self.gpu:
            l2 = torch.cuda.get_device_properties(0).L2_cache_size
            self.buffer = torch.empty(2 * l2, dtype=torch.uint8, device=device)

    def batch(self, call):
        """Returns the seconds of each of up to 16 calls."""
        if not self.gpu:
            start = time.perf_counter()
            call()
            return [time.perf_counter() - start]
        marks = []
        torch.cuda._sleep(20_000_000)  # about 10 ms; meanwhile the host enqueues the calls
        for _ in range(16):
            self.buffer.zero_()
            marks.append(common.Marks("cuda"))
            marks[-1].mark()
            call()
            marks[-1].mark()
        return [m.seconds()[0] for m in marks]

    def samples(self, call):
        for _ in range(2):
            call()
        seconds, least = [], 0.05 if self.gpu else 0.2
        while len(seconds) < 1024 and (len(seconds) < 20 or sum(seconds) < least):
            seconds += self.batch(call)
        return seconds


def relative_error(got, want):
    apart = sum(float((a.detach().double() - b.detach()).norm()) ** 2 for a, b in zip(got, want))
    return math.sqrt(apart / sum(float(b.detach().norm()) ** 2 for b in want))


def measure(case, key, rows, clock, device):
    op, dtype, shape, name, make, small, extra = case
    if op == "copy":
        return copy(key, rows, clock, device)
    dims = dims_of(shape)
    torch.manual_seed(7)
    call, want = make({**dims, **dims_of(small)}, DTYPES[dtype], device, extra)
    error = relative_error(call(), want())
    if not error <= TOLERANCE[dtype]:
        note = f"{name} differs from the formula, tolerance {TOLERANCE[dtype]}"
        return rows.emit(key, "error", error, 0, "wrong", note)
    rows.emit(key, "error", error)
    call, _ = make(dims, DTYPES[dtype], device, extra)
    seconds = clock.samples(call)
    rows.emit(key, "kernel_time", statistics.median(seconds), len(seconds))


def copy(key, rows, clock, device):
    """Measures the copy ceiling: 1 GiB (CPU: 256 MiB) is read, and as much is written."""
    source = torch.ones(1 << (28 if device == "cuda" else 26), dtype=torch.float32, device=device)
    into = torch.empty_like(source)
    seconds = clock.samples(lambda: into.copy_(source))
    rows.emit(key, "copy_rate", 2 * source.numel() * 4 / statistics.median(seconds), len(seconds))


def cases_of(key):
    """(key of the rows, case) of every peer for one case of bench."""
    suite, op, axes = common.parse_key(key)
    if (suite, op) == ("ceiling", "copy"):
        return [(key, ("copy", "", "", "torch", None, None, None))]
    if suite != "kernels" or set(axes) - {"impl"} != {"dtype", "shape"} or axes["dtype"] not in DTYPES:
        common.die(f"{key}: want kernels/OP?dtype=f32|bf16&shape=...", 2)
    make, small, peers = PEERS.get(op, (None, "", []))
    return [(common.make_key(suite, op, {**axes, "impl": name}),
             (op, axes["dtype"], axes["shape"], name, make, small, extra)) for name, extra in peers]


def main():
    o = common.peer_options(__doc__)
    cases = [case for key in o.keys for case in cases_of(key)]
    if not cases:
        common.die(f"none of these ops has a peer; {', '.join(PEERS)} have", 2)
    clock = []  # created after the check for a GPU

    def measured(case, key, rows):
        clock[:] = clock or [Clock(o.device)]
        measure(case, key, rows, clock[0], o.device)
    return common.peer_main(o, cases, f"PyTorch {torch.__version__}", measured)


if __name__ == "__main__":
    sys.exit(main())
