#!/usr/bin/env python3
"""gqa_peers.py - public grouped-query attention measured next to `bench --suite attention`: rows of results.csv.

sdpa_cudnn  variant dense_gqa: scaled_dot_product_attention of PyTorch, its cuDNN backend alone
sdpa_flash  variant dense_gqa: the same, its FlashAttention backend alone
flex        variant dynmask: PyTorch's flex_attention, compiled, with a block mask; on a CPU it is not compiled
dmattn      variant dynmask, list=union: triton_dmattn_func of the package flash-sparse-attn, kernels in Triton

Biases and kept keys are those of Plumb's case (written by the program attention_lists next to bench); queries, keys and
values have its distribution and its layout, [S,H,D]. A result is first compared with the formula in double precision:
o and dq of 16 queries, dk, dv and dbias of 4 keys. A wrong result gets no time. Timing is that of bench.

kernel_time is attention alone, and of a backward pass all gradients, dbias too. The forward rows of flex and dmattn
give what Plumb's forward pass contains and theirs does not: selection_time (list=union: the top-k of the biases, in the
form that the peer reads) and mask_time (flex: the block mask).

usage: gqa_peers.py --peer NAME [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: attention/bwd?variant=dynmask&... of bench; the rows' keys say variant=PEER
"""
import importlib.util
import math
import statistics
import sys
from pathlib import Path

import attention_peers
import common

GROUP = 4  # query heads of a kv head: PB_GQA_GROUP of bench/suites/attention_case.h
GRADIENTS = ("dq", "dk", "dv", "dbias")
# bf16: some peers round dk and dv of every query head before they add them, and dmattn the scaled queries or keys
TOLERANCE = {"bf16": {"o": 6e-3, **dict.fromkeys(GRADIENTS, 1.5e-2)}, "f32": dict.fromkeys(("o", *GRADIENTS), 1e-5)}


# ---- a case ------------------------------------------------------------------------------------------------

class Case:
    """Sizes, kept keys and tensors of a case. Query i attends to key j of kv head h if j <= i < until[h,j]."""

    def __init__(self, key, device):
        import torch
        _, self.name, axes = common.parse_key(key)
        self.S, self.H, self.D, self.W = (int(axes[a]) for a in ("seq", "heads", "qk", "topk"))
        self.K, self.V, self.scale, self.device = self.H // GROUP, self.D, self.D**-0.5, device
        self.backward, self.list, self.type = self.name == "bwd", axes["list"], axes["dtype"]
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[self.type]
        # On a GPU the forward pass stores its log-sum-exp, as Plumb's does. On a CPU flex_attention refuses to.
        self.grad = self.backward or device == "cuda"
        torch.manual_seed(7)

        def uniform(heads, half):
            values = (torch.rand(1, self.S, heads, self.D, device=device) * 2 - 1) * half
            return values.to(dtype).transpose(1, 2).requires_grad_(self.grad)
        self.q = uniform(self.H, math.sqrt(3))
        self.k, self.v = (uniform(self.K, math.sqrt(3)) for _ in "kv")
        self.do = uniform(self.H, 1.0).detach()
        self.bias, self.until = None, torch.full((self.K, self.S), self.S, dtype=torch.int32, device=device)
        if axes["variant"] == "dynmask":
            self.read_lists(attention_peers.lists(key).to(device))
        else:
            self.valid = self.listed = self.S * (self.S + 1) / 2

    def read_lists(self, words):
        import torch
        n = self.K * self.S
        self.bias = words[:n].view(torch.float32).view(1, self.K, self.S).clone().requires_grad_(self.grad)
        self.idx, until = words[n:].view(2, self.K, -1).long()
        self.until.zero_().scatter_add_(1, self.idx.clamp(min=0), until.int())  # an unused slot adds 0
        used = self.idx >= 0
        self.valid = float((until - self.idx)[used].sum()) / self.K
        self.listed = float(used.sum()) / self.K * self.S

    # ---- the formula in double precision ----

    def attend(self, kv, rows):
        """Returns the weights [g,n,S] and o [g,n,D] of queries `rows` and the query heads of a kv head."""
        import torch
        heads = slice(kv * GROUP, (kv + 1) * GROUP)
        k, v = (t[0, kv].detach().double() for t in (self.k, self.v))
        scores = self.q[0, heads, rows].detach().double() @ k.T * self.scale
        if self.bias is not None:
            scores += self.bias[0, kv].detach().double()
        at = torch.arange(self.S, device=self.device)
        seen = (at <= rows[:, None]) & (rows[:, None] < self.until[kv])
        p = scores.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0)  # a query without keys gives 0
        return p, p @ v

    def gradients(self, kv, rows):
        """Returns the gradient of the scores, the weights, and the gradient of o, as attend()."""
        p, o = self.attend(kv, rows)
        do = self.do[0, kv * GROUP:(kv + 1) * GROUP, rows].double()
        dp = do @ self.v[0, kv].detach().double().T
        return p * (dp - (do * o).sum(-1, keepdim=True)), p, do

    def of_queries(self, of_head):
        """The sampled queries, and what of_head(kv, queries) gives for them, [n,H,D]."""
        import torch
        rows = attention_peers.sampled_queries(self.S).to(self.device)
        return rows, torch.cat([of_head(kv, rows) for kv in range(self.K)]).transpose(0, 1)

    def want_o(self):
        return self.of_queries(lambda kv, rows: self.attend(kv, rows)[1])

    def want_dq(self):
        return self.of_queries(
            lambda kv, rows: self.gradients(kv, rows)[0] @ self.k[0, kv].detach().double() * self.scale)

    def of_keys(self):
        """Four kept keys (kv heads, keys), and their dk, dv and dbias."""
        import torch
        heads, keys, want = [], [], []
        for t in range(4):
            kept = self.until[t % self.K].nonzero()[:, 0]
            heads.append(t % self.K)
            keys.append(int(kept[len(kept) * t // 4]))
            want.append(self.of_key(heads[-1], keys[-1]))
        return (torch.tensor(heads, device=self.device), torch.tensor(keys, device=self.device)), [
            torch.stack(w) for w in zip(*want)]

    def of_key(self, kv, j):
        import torch
        dk, dv = (torch.zeros(self.D, dtype=torch.float64, device=self.device) for _ in "kv")
        dbias, step = torch.zeros((), dtype=torch.float64, device=self.device), max(1, (1 << 24) // self.S)
        for first in range(j, self.S, step):
            rows = torch.arange(first, min(first + step, self.S), device=self.device)
            ds, p, do = self.gradients(kv, rows)
            q = self.q[0, kv * GROUP:(kv + 1) * GROUP, rows].detach().double()
            dk += torch.einsum("gn,gnd->d", ds[..., j], q) * self.scale
            dv += torch.einsum("gn,gnd->d", p[..., j], do)
            dbias += ds[..., j].sum()
        return dk, dv, dbias

    def wanted(self):
        if not self.backward:
            return {"o": self.want_o}
        sample, sums = self.of_keys()
        names = GRADIENTS[1:3 if self.bias is None else 4]
        return {"dq": self.want_dq, **{n: lambda w=w: (sample, w) for n, w in zip(names, sums)}}


# ---- the peers: each returns the forward pass, and steps whose time is measured apart ------------------------

def sdpa_peer(backend):
    def peer(case):
        from torch.nn.attention import SDPBackend
        from torch_kernels import sdpa
        return lambda: sdpa(case.q, case.k, case.v, getattr(SDPBackend, backend), causal=True), {}
    return peer


def top(bias, case):
    """The indices of the keys that list=union keeps, selected by PyTorch."""
    return bias.topk(min(case.W, case.S), sorted=False).indices


def flex_peer(case):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    compiled = (lambda f: torch.compile(f, dynamic=False)) if case.device == "cuda" else (lambda f: f)
    torch._dynamo.reset()  # every case compiles anew, and PyTorch limits how often a function is
    torch._functorch.config.donated_buffer = False  # the backward pass is called several times
    create, attend, union = compiled(create_block_mask), compiled(flex_attention), case.list == "union"
    kept, until, bias = case.until > 0, case.until, case.bias

    def is_kept(b, h, i, j):
        return (j <= i) & kept[h // GROUP, j]

    def is_kept_until(b, h, i, j):
        return (j <= i) & (i < until[h // GROUP, j])

    def add_bias(score, b, h, i, j):
        return score + bias[b, h // GROUP, j]

    def block_mask():
        return create(is_kept if union else is_kept_until, 1, case.H, case.S, case.S, device=case.device)

    def select():
        return torch.zeros_like(kept).scatter_(1, top(bias.detach(), case)[0], True)
    apart = {"mask": block_mask, "selection": select} if union else {"mask": block_mask}
    if union and not bool((select() == kept).all()):
        raise ValueError("top-k selects other keys than Plumb's case has")
    blocks = block_mask()
    more = {"score_mod": add_bias, "block_mask": blocks, "enable_gqa": True}
    return lambda: attend(case.q, case.k, case.v, **more), apart


def dmattn_function(case):
    """triton_dmattn_func of flash-sparse-attn. Its file is loaded alone: the package itself imports triton_kernels,
    which these kernels do not need. Of two kernels the package's function for the grid fails (one takes no argument,
    one returns nothing, in versions 2.0.0 to 2.0.6): here they get their grids."""
    package = importlib.util.find_spec("flash_sparse_attn")
    path = package and Path(package.origin).parent / "deprecated/flash_dmattn_triton.py"
    if not path or not path.exists():
        raise NotImplementedError("flash-sparse-attn is not installed, or has no flash_dmattn_triton.py")
    spec = importlib.util.spec_from_file_location("flash_dmattn_triton", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._fwd_preprocess = OnGrid(module._fwd_preprocess, (case.K,))
    module._bwd_preprocess_do_o_dot = OnGrid(module._bwd_preprocess_do_o_dot, (-(-case.S // 64), case.H))
    return module.triton_dmattn_func


class OnGrid:
    """A Triton kernel that is launched on one grid, whatever the caller gives."""

    def __init__(self, kernel, grid):
        self.launch = kernel[grid]

    def __getitem__(self, _):
        return self.launch


def dmattn_peer(case):
    import torch
    if case.list != "union" or case.type != "bf16" or case.D > 128:
        raise NotImplementedError("this peer takes list=union, bf16 and heads of at most 128")
    attend, idx, exact = dmattn_function(case), case.idx[None], case.bias.detach()
    case.bias = exact.bfloat16().requires_grad_(case.grad)  # it takes bf16; the formula gets the same biases
    # It gives NaN to a query without keys, and NaN to all gradients. Such queries come first; their o is set to 0.
    first = case.idx[:, 0].repeat_interleave(GROUP)
    empty = int(first.max())
    alone = (torch.arange(empty, device=case.device) < first[:, None])[None, :, :, None]

    def forward():
        o = attend(case.q, case.k, case.v, case.bias, idx, True, case.scale)
        o.data[:, :, :empty].masked_fill_(alone, 0)  # .data: this is the memory that the backward pass reads
        return o
    return forward, {"selection": lambda: top(exact, case).sort().values}


PEERS = {"sdpa_cudnn": sdpa_peer("CUDNN_ATTENTION"), "sdpa_flash": sdpa_peer("FLASH_ATTENTION"), "flex": flex_peer,
         "dmattn": dmattn_peer}


# ---- measuring ---------------------------------------------------------------------------------------------

def call_of(case, forward):
    """The call that is timed. It returns o and dq as [S,H,D], dk and dv as [K,S,D], dbias as [K,S]."""
    import torch
    if not case.backward:
        return lambda: {"o": forward()[0].transpose(0, 1)}
    inputs = [t for t in (case.q, case.k, case.v, case.bias) if t is not None]
    o = forward()
    do = torch.empty_like(o).copy_(case.do)  # in the layout of o

    def call():
        dq, *keys = torch.autograd.grad(o, inputs, do, retain_graph=True)
        return {"dq": dq[0].transpose(0, 1), **{n: t[0] for n, t in zip(GRADIENTS[1:], keys)}}
    return call


def measure(o, key, out, rows):
    from torch_kernels import Clock
    case, clock = Case(key, o.device), Clock(o.device)
    forward, apart = PEERS[o.peer](case)
    call = call_of(case, forward)
    found = attention_peers.errors(call(), case.wanted())
    if not attention_peers.is_right(found, TOLERANCE[case.type], out, rows):
        return
    attention_peers.emit_times(case, clock.samples(call), out, rows)
    times = {} if case.backward else {what: clock.samples(step) for what, step in apart.items()}
    if "selection" in times:
        rows.emit(out, "selection_time", statistics.median(times["selection"]), len(times["selection"]))
    if "mask" in times:
        rows.emit(out, "mask_time", statistics.median(times["mask"]), len(times["mask"]))


def main():
    o = common.peer_options(__doc__, lambda p: p.add_argument("--peer", required=True, choices=list(PEERS)))
    return common.peer_main(o, attention_peers.cases_of(o), o.peer, lambda key, out, rows: measure(o, key, out, rows))


if __name__ == "__main__":
    sys.exit(main())
