#!/usr/bin/env python3
"""attention_peers.py - public sparse-MLA kernels measured next to `bench --suite attention`: rows of results.csv.

A peer is measured with everything that a training step needs (zeroing, delta, conversion, the sink's gradient), on the
key lists of the case (written by the program attention_lists next to bench). Its result is first compared with the
formula in double precision: o and dq of 16 queries, dkv of 4 rows. A wrong result gets no time. Timing is that of
bench.

tilelang  forward, backward; PATH: a checkout of the public miles repository, or the folder with its two kernel files
cudnn     backward; PATH: a folder with the unpacked wheels nvidia-cudnn-frontend and nvidia-cutlass-dsl (with its
          -libs-base, -libs-core and -libs-cu13); apache-tvm-ffi, which compiles its calls, must be in the interpreter
flashmla  forward; PATH: a checkout of FlashMLA, whose kernel is built by nvcc on first use ($CUDACXX; CUTLASS headers
          in csrc/cutlass/include, or $PB_CUTLASS), or a library that an earlier use built

usage: attention_peers.py --peer NAME --path PATH [--device cuda] [--out FILE.csv] KEY...
       attention_peers.py --peer flashmla --path PATH --build FILE.so     builds the library and ends; needs no GPU
       KEY: attention/bwd?variant=sparse&... of bench; the rows' keys say variant=PEER
"""
import ctypes
import math
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import common

TOLERANCE = {"o": 4e-3, "dq": 4e-3, "dkv": 6e-3}
MILES = "miles_plugins/models/deepseek_v4/ops/kernel"
FLASHMLA = "csrc/sm90/prefill/sparse/instantiations/phase1_k512.cu"


# ---- checking --path ---------------------------------------------------------------------------------------

def check_path(peer, path):
    """Returns what the peer is loaded from; ends the program with one line when it is missing."""
    path = common.given_path(peer, path, WHERE[peer])
    if peer == "tilelang":
        files = ["tilelang_sparse_mla_fwd.py", "tilelang_sparse_mla_bwd.py"]
        return common.holding(path, (MILES, files), ("", files))
    if peer == "cudnn":
        return common.holding(path, ("", ["cudnn/deepseek_sparse_attention", "nvidia_cutlass_dsl/dsl_packages"]))
    return path if str(path).endswith(".so") else common.holding(path, ("", [FLASHMLA]))


WHERE = {
    "tilelang": "a checkout of the public miles repository",
    "cudnn": "a folder with nvidia-cudnn-frontend and nvidia-cutlass-dsl unpacked",
    "flashmla": "a checkout of FlashMLA, or the library that was built of it",
}


# ---- FlashMLA's library ------------------------------------------------------------------------------------

WRAP = """#include "csrc/params.h"
#include "csrc/sm90/prefill/sparse/phase1.h"
extern "C" void pb_peer_forward(int s, int s_kv, int h, int d, int v, int topk, float scale, void *q, void *kv, void *idx,
                                void *sink, void *o, void *most, void *lse, int sms, void *stream)
{
    SparseAttnFwdParams p{};
    p.s_q = s, p.s_kv = s_kv, p.h_q = h, p.h_kv = 1, p.d_qk = d, p.d_v = v, p.topk = topk;
    p.sm_scale = scale, p.sm_scale_div_log2 = scale * 1.44269504f;
    p.q = (cutlass::bfloat16_t *)q, p.kv = (cutlass::bfloat16_t *)kv, p.indices = (int *)idx;
    p.attn_sink = (float *)sink, p.topk_length = nullptr;
    p.stride_q_s_q = h * d, p.stride_q_h_q = d, p.stride_kv_s_kv = p.stride_kv_h_kv = d;
    p.stride_indices_s_q = p.stride_indices_h_kv = topk;
    p.out = (cutlass::bfloat16_t *)o, p.max_logits = (float *)most, p.lse = (float *)lse;
    p.num_sm = sms, p.stream = (cudaStream_t)stream;
    sm90::fwd::run_fwd_phase1_kernel<TEMPLATE>(p);
}
"""


def build(checkout, out):
    """Builds FlashMLA's kernel for rows of 512 with a C entry point, with the instantiation's own template
    arguments."""
    cutlass = Path(os.environ.get("PB_CUTLASS") or checkout / "csrc/cutlass/include")
    nvcc = os.environ.get("CUDACXX", "nvcc")
    if not (cutlass / "cutlass/cutlass.h").exists():
        common.die(f"{cutlass}: no CUTLASS headers there; PB_CUTLASS names their folder")
    source = (checkout / FLASHMLA).read_text()
    found = re.search(r"run_fwd_phase1_kernel<([^>]*)>", source)
    if not found:
        common.die(f"{checkout / FLASHMLA}: no instantiation of run_fwd_phase1_kernel")
    wrap = Path(str(out) + ".cu")
    wrap.write_text(WRAP.replace("TEMPLATE", found[1]))
    includes = [f"-I{d}" for d in (checkout, checkout / "csrc", checkout / "csrc/sm90", checkout / "csrc/kerutils/include",
                                   cutlass, cutlass.parent / "tools/util/include")]
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", "-O3", "-std=c++20", "-DNDEBUG", "--expt-relaxed-constexpr",
               "--expt-extended-lambda", "--use_fast_math", "-gencode", "arch=compute_90a,code=sm_90a", *includes,
               str(wrap), str(checkout / FLASHMLA), "-o", str(out), "-lcuda"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        common.die(f"{nvcc}: {error.strerror}; CUDACXX names another")
    wrap.unlink()
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line] or ["nvcc failed"]
        common.die(f"FlashMLA does not build: {lines[0]}")


def flashmla_library(path):
    if str(path).endswith(".so"):
        return ctypes.CDLL(str(path))
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plumb" / "peers"
    home.mkdir(parents=True, exist_ok=True)
    out = home / "flashmla.so"
    if not out.exists() or out.stat().st_mtime < (path / FLASHMLA).stat().st_mtime:
        build(path, out)
    return ctypes.CDLL(str(out))


# ---- a case ------------------------------------------------------------------------------------------------

class Case:
    """Sizes, key lists and tensors of a case, distributed as in bench: uniform values of variance 1, the gradient in
    [-1,1)."""

    def __init__(self, key):
        import torch
        _, self.name, axes = common.parse_key(key)
        self.S, self.H, self.D, self.W = (int(axes[a]) for a in ("seq", "heads", "qk", "topk"))
        self.V, self.S_kv = min(self.D, 512), self.S + (self.S // 4 if axes["list"] == "v4" else 0)
        self.list, self.backward, self.scale = axes["list"], self.name == "bwd", self.D**-0.5
        if axes["dtype"] != "bf16":
            raise NotImplementedError("the public kernels take bf16")
        self.idx = lists(key).cuda().view(self.S, self.W)
        torch.manual_seed(7)

        def uniform(*shape, half):
            return ((torch.rand(*shape, device="cuda") * 2 - 1) * half).bfloat16()
        self.q = uniform(self.S, self.H, self.D, half=math.sqrt(3))
        self.kv = uniform(self.S_kv, self.D, half=math.sqrt(3))
        self.do = uniform(self.S, self.H, self.V, half=1.0)
        self.sink = torch.rand(self.H, device="cuda") * 2 - 1
        self.valid, self.listed = int((self.idx >= 0).sum()), self.idx.numel()

    def softmax(self, rows, q, dtype):
        """For queries `rows`: their keys, the softmax weights, and lse without and with the sink."""
        import torch
        i = self.idx[rows].long()
        keys = self.kv[i.clamp(min=0)].to(dtype)
        scores = torch.einsum("shd,skd->shk", q.to(dtype), keys) * self.scale
        scores = scores.masked_fill((i < 0)[:, None, :], -math.inf)
        alone = torch.logsumexp(scores, -1)
        z = torch.logaddexp(alone, self.sink.to(dtype)[None])
        return keys, (scores - z[..., None]).exp(), alone, z

    def forward(self):
        """Returns o in bf16 and both lse in f32; works on a few queries at a time."""
        import torch
        o = torch.empty(self.S, self.H, self.V, dtype=torch.bfloat16, device="cuda")
        alone, z = (torch.empty(self.S, self.H, device="cuda") for _ in range(2))
        step = max(1, (1 << 25) // (self.W * self.D))
        for at in range(0, self.S, step):
            rows = slice(at, at + step)
            keys, p, alone[rows], z[rows] = self.softmax(rows, self.q[rows], torch.float32)
            o[rows] = torch.einsum("shk,skd->shd", p, keys[..., :self.V]).bfloat16()
        return o, alone, z

    def queries(self):
        return sampled_queries(self.S).cuda()

    def want_o(self):
        import torch
        rows = self.queries()
        keys, p, _, _ = self.softmax(rows, self.q[rows], torch.float64)
        return rows, torch.einsum("shk,skd->shd", p, keys[..., :self.V])

    def gradients(self, rows, o):
        """Returns ds [s,h,k] in double precision, with the keys and the weights."""
        import torch
        keys, p, _, _ = self.softmax(rows, self.q[rows], torch.float64)
        do = self.do[rows].double()
        delta = (do * o[rows].double()).sum(-1)
        ds = p * (torch.einsum("shd,skd->shk", do, keys[..., :self.V]) - delta[..., None]) * self.scale
        return keys, p, ds, do

    def want_dq(self, o):
        import torch
        rows = self.queries()
        keys, _, ds, _ = self.gradients(rows, o)
        return rows, torch.einsum("shk,skd->shd", ds, keys)

    def want_dkv(self, o):
        """Returns 4 listed rows and their dkv: the sum over all queries that list them."""
        import torch
        picked = self.idx[self.idx >= 0][:: max(1, self.valid // 4)][:4].long()
        want = torch.zeros(len(picked), self.D, dtype=torch.float64, device="cuda")
        for k, row in enumerate(picked):
            users = (self.idx == row).any(1).nonzero()[:, 0]
            step = max(1, (1 << 24) // (self.W * self.D))
            for at in range(0, len(users), step):
                rows = users[at:at + step]
                _, p, ds, do = self.gradients(rows, o)
                here = (self.idx[rows] == row).double()
                want[k] += torch.einsum("shk,sk,shd->d", ds, here, self.q[rows].double())
                want[k, :self.V] += torch.einsum("shk,sk,shd->d", p, here, do)
        return picked, want

    def wanted(self, o):
        return {"dq": lambda: self.want_dq(o), "dkv": lambda: self.want_dkv(o)} if self.backward else {"o": self.want_o}


def sampled_queries(S):
    """The queries that are compared with the formula: the first, the last and 14 others."""
    import torch
    g = torch.Generator().manual_seed(11)
    return torch.cat([torch.tensor([0, S - 1]), torch.randint(S, (14,), generator=g)])


def lists(key):
    """Returns the key lists of a case, from the program attention_lists next to bench."""
    import torch
    bench = Path(os.environ.get("PB_BENCH", str(common.ROOT / "build/bin/bench")))
    program = bench.resolve().parent / "attention_lists"
    try:
        done = subprocess.run([str(program), key], capture_output=True)
    except OSError as error:
        common.die(f"{program}: {error.strerror}; it is built with bench")
    if done.returncode:
        common.die(done.stderr.decode().strip(), done.returncode)
    return torch.frombuffer(bytearray(done.stdout), dtype=torch.int32)


# ---- the peers: each returns a call, and the function that checks its results -------------------------------

def tilelang_peer(case, folder):
    sys.path.insert(0, str(folder))
    import tilelang_sparse_mla_bwd as bwd
    import tilelang_sparse_mla_fwd as fwd
    if case.D != 512:
        raise NotImplementedError("this peer takes rows of 512")
    q, kv, do, idx = (t[None].contiguous() for t in (case.q, case.kv, case.do, case.idx))
    if not case.backward:
        return lambda: {"o": fwd.sparse_mqa_fwd_interface(q, kv, case.sink, idx, sm_scale=case.scale)[0][0]}, None
    o, lse = fwd.sparse_mqa_fwd_interface(q, kv, case.sink, idx, sm_scale=case.scale)

    def call():
        dq, dkv, _ = bwd.sparse_mqa_bwd_interface(q, kv, case.sink, o, do, idx, lse, sm_scale=case.scale)
        return {"dq": dq[0], "dkv": dkv[0]}
    return call, o[0]


def cudnn_peer(case, folder):
    for part in ("nvidia_cutlass_dsl/dsl_packages", ""):
        sys.path.insert(0, str(folder / part))
    from cudnn.deepseek_sparse_attention.sparse_attention_backward import api
    if not case.backward:
        raise NotImplementedError("this peer has no forward pass for sm_90")
    idx, more = case.idx, {}
    if case.valid < idx.numel():  # it takes list lengths: move the masked entries to the end
        idx = idx.gather(1, (idx < 0).int().argsort(dim=1, stable=True))
        more = {"topk_length": (idx >= 0).sum(1).int()}
    idx = idx.clamp(min=0).contiguous()
    o, alone, _ = case.forward()

    def call():
        r = api.sparse_attention_backward_wrapper(case.q, case.kv, o, case.do, alone, case.sink, idx,
                                                  softmax_scale=case.scale, **more)
        return {"dq": r["dq"], "dkv": r["dkv"]}
    return call, o


def flashmla_peer(case, path):
    import torch
    if case.backward:
        raise NotImplementedError("this peer has no backward pass")
    if case.D != 512 or case.H % 64 or case.W % 128:
        raise NotImplementedError("this peer takes rows of 512, heads by 64 and lists by 128")
    library, where = flashmla_library(path), ctypes.c_void_p
    o = torch.empty_like(case.q)
    most, lse = (torch.empty(case.S, case.H, device="cuda") for _ in range(2))
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    tensors = [where(t.data_ptr()) for t in (case.q, case.kv, case.idx, case.sink, o, most, lse)]
    sizes = (case.S, case.S_kv, case.H, case.D, case.V, case.W, ctypes.c_float(case.scale))

    def call():
        library.pb_peer_forward(*sizes, *tensors, sms, where(torch.cuda.current_stream().cuda_stream))
        return {"o": o}
    return call, None


PEERS = {"tilelang": tilelang_peer, "cudnn": cudnn_peer, "flashmla": flashmla_peer}


# ---- measuring ---------------------------------------------------------------------------------------------

def errors(got, wanted):
    """{output: relative L2 error of its sampled elements}; NaN when any element of the output is not finite."""
    found = {}
    for name, want in wanted.items():
        sample, right = want()
        apart = float((got[name][sample].detach().double() - right).norm() / right.norm())
        found[name] = apart if bool(got[name].isfinite().all()) else math.nan
    return found


def is_right(found, tolerance, key, rows):
    """Writes the row of the largest error. Returns whether all are within their tolerances."""
    worst = max(found, key=lambda k: math.inf if math.isnan(found[k]) else found[k])
    wrong = [k for k in found if not found[k] <= tolerance[k]]
    if wrong:
        note = f"{wrong[0]} differs from the formula, tolerance {tolerance[wrong[0]]}"
        rows.emit(key, "error", found[wrong[0]], 0, "wrong", note)
    else:
        rows.emit(key, "error", found[worst], note=f"{worst}, sampled")
    return not wrong


def emit_times(case, seconds, key, rows):
    """Writes the time of a pass and its FLOP/s, counted as in bench/suites/attention_case.h."""
    per_pair = case.H * (6.0 * case.D + 4.0 * case.V if case.backward else 2.0 * (case.D + case.V))
    time = statistics.median(seconds)
    rows.emit(key, "kernel_time", time, len(seconds))
    if case.valid:
        rows.emit(key, "kernel_flops", case.valid * per_pair / time)
    rows.emit(key, "listed_flops", case.listed * per_pair / time)


def measure(peer, source, key, out, rows):
    import torch
    from torch_kernels import Clock
    case = Case(key)
    call, o = PEERS[peer](case, source)
    found = errors(call(), case.wanted(o))
    torch.cuda.synchronize()
    if is_right(found, TOLERANCE, out, rows):
        emit_times(case, Clock("cuda").samples(call), out, rows)


def cases_of(o):
    """(key of the rows, Plumb's key) of every case; ends the program when the peer does not compute one of them."""
    own, found = common.ATTENTION_PEERS[o.peer][0], []
    for key in o.keys:
        suite, name, axes = common.parse_key(key)
        if suite != "attention" or axes.get("variant") != own:
            common.die(f"{key}: want attention/fwd?variant={own}&... or bwd", 2)
        found.append((common.make_key("attention", name, {**axes, "variant": o.peer}), key))
    return found


def options():
    def more(p):
        p.add_argument("--peer", required=True, choices=list(PEERS))
        p.add_argument("--path", help="what it is loaded from")
        p.add_argument("--build", metavar="FILE.so", help="flashmla: build its library here and end")
    return common.peer_options(__doc__, more, needs_keys="--build" not in sys.argv)


def main():
    o = options()
    source = check_path(o.peer, o.path)
    if o.build:
        if o.peer != "flashmla" or str(source).endswith(".so"):
            common.die("--build goes with --peer flashmla and a checkout of it", 2)
        build(source, Path(o.build))
        return 0
    if o.device != "cuda":
        common.die("the public kernels need --device cuda", 2)
    return common.peer_main(o, cases_of(o), o.peer, lambda key, out, rows: measure(o.peer, source, key, out, rows))


if __name__ == "__main__":
    sys.exit(main())
