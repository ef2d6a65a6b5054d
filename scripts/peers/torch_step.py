#!/usr/bin/env python3
"""torch_step.py - lean PyTorch training steps of Plumb's models, eager or as one CUDA graph: rows of results.csv.

The peer is written as a careful user of PyTorch would: separate projections, rms_norm, scaled_dot_product_attention,
cross_entropy over f32 logits, a global clip, fused AdamW. tuning=full trains everything: weights, gradients and moments
are f32, and a step in bf16 casts the weights before each product. tuning=lora keeps the projections in the model's dtype,
tuning=qlora in bitsandbytes' NF4 (dequantised before each product, forward and backward); both train f32 adapters and
both norm gains of every layer, as Plumb does. The backward pass recomputes nothing except the dequantised weights and,
with recompute=layer, each layer from its input.

usage: torch_step.py [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: a case of bench with clip=multi, tuning=full, lora or qlora: throughput/step?... or backward/step?...
"""
import functools
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import common
import step


class Nf4Product(torch.autograd.Function):
    """y = x W^T + bias with a frozen W in NF4, which is dequantised for each use and not kept."""

    @staticmethod
    def forward(ctx, x, codes, state, bias):
        from bitsandbytes.functional import dequantize_4bit
        ctx.codes, ctx.state = codes, state
        return F.linear(x, dequantize_4bit(codes, state), bias)

    @staticmethod
    def backward(ctx, dy):
        from bitsandbytes.functional import dequantize_4bit
        return dy @ dequantize_4bit(ctx.codes, ctx.state), None, None, None


class Trained(nn.Linear):
    """A trained product whose f32 weights are cast to the dtype of its input."""

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Adapted(nn.Module):
    """A frozen product, in NF4 or in the model's dtype, plus a trained adapter of this rank (0: no adapter), scaled by
    alpha/rank = 2."""

    def __init__(self, width, out, bias, rank, case, device):
        super().__init__()
        w = torch.randn(out, width, dtype=case.dtype, device=device) * 0.02
        self.nf4, self.weight = case.tuning == "qlora", None
        if self.nf4:
            from bitsandbytes.functional import quantize_4bit
            self.codes, self.state = quantize_4bit(w, blocksize=64, quant_type="nf4")
        else:
            self.weight = nn.Parameter(w, requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(out, dtype=case.dtype, device=device), requires_grad=False) if bias else None
        self.a = nn.Parameter(torch.randn(rank, width, device=device) * 0.02) if rank else None
        self.b = nn.Parameter(torch.randn(out, rank, device=device) * 0.02) if rank else None

    def forward(self, x):
        y = Nf4Product.apply(x, self.codes, self.state, self.bias) if self.nf4 else F.linear(x, self.weight, self.bias)
        if self.a is None:
            return y
        return y + F.linear(2.0 * F.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype))


class Block(nn.Module):
    def __init__(self, g, linear, gain):
        super().__init__()
        D, d, bias = g["D"], g["d"], bool(g["bias"])
        self.d, self.eps, self.grouped = d, g["eps"], g["H"] != g["K"]
        self.n1, self.n2 = gain(D), gain(D)
        self.q, self.k = linear(D, g["H"] * d, bias, "q"), linear(D, g["K"] * d, bias, "k")
        self.v, self.o = linear(D, g["K"] * d, bias, "v"), linear(g["H"] * d, D, False, "o")
        self.gate, self.up = linear(D, g["I"], False, "gate"), linear(D, g["I"], False, "up")
        self.down = linear(g["I"], D, False, "down")
        self.nq, self.nk = (gain(d), gain(d)) if g["qk_norm"] else (None, None)

    def norm(self, x, gain):
        return F.rms_norm(x, gain.shape, gain.to(x.dtype), self.eps)

    def forward(self, x, rope):
        B, S, _ = x.shape
        h = self.norm(x, self.n1)
        q, k, v = (m(h).view(B, S, -1, self.d).transpose(1, 2) for m in (self.q, self.k, self.v))
        if self.nq is not None:
            q, k = self.norm(q, self.nq), self.norm(k, self.nk)
        a = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=self.grouped)
        x = x + self.o(a.transpose(1, 2).reshape(B, S, -1))
        h = self.norm(x, self.n2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, case, device):
        super().__init__()
        g, full = case.geometry, case.tuning == "full"
        kept = torch.float32 if full else case.dtype

        def gain(n, trained=True):
            return nn.Parameter(torch.ones(n, device=device), requires_grad=trained)

        def linear(width, out, bias, name):
            if full:
                return Trained(width, out, bias=bias, device=device)
            return Adapted(width, out, bias, case.rank if name in case.targets else 0, case, device)

        self.g, self.ropes, self.dtype, self.again = g, {}, case.dtype, case.recompute == "layer"
        self.embed = nn.Embedding(g["V"], g["D"], dtype=kept, device=device)
        self.blocks = nn.ModuleList(Block(g, linear, gain) for _ in range(case.layers))
        self.gain = gain(g["D"], full)
        self.head = self.embed if g["tied"] else nn.Linear(g["D"], g["V"], False, device=device, dtype=kept)
        for table in {self.embed, self.head}:
            table.weight.requires_grad_(full)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        self.params = list(self.parameters())

    def rope(self, S):
        """The rotation at positions 0..S-1; its tables are computed once per length."""
        if S not in self.ropes:
            device, g = self.embed.weight.device, self.g
            each = torch.tensor(common.rope_frequencies(g), dtype=torch.float64, device=device)
            angle = torch.arange(S, device=device)[:, None] * each[None]
            self.ropes[S] = angle.cos().to(self.dtype), angle.sin().to(self.dtype)
        cos, sin = self.ropes[S]

        def rotate(x):
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return rotate

    def logits(self, ids):
        x, rope = self.embed(ids).to(self.dtype), self.rope(ids.shape[1])
        # No random numbers are drawn, and a CUDA graph cannot record that their state is saved.
        again = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        for block in self.blocks:
            x = again(block, x, rope) if self.again else block(x, rope)
        x = F.rms_norm(x, self.gain.shape, self.gain.to(x.dtype), self.g["eps"])
        return F.linear(x, self.head.weight.to(x.dtype))

    forward = logits  # by which DDP and FSDP call the model

    def loss(self, logits, targets):
        return F.cross_entropy(logits.view(-1, self.g["V"]).float(), targets.view(-1))


if __name__ == "__main__":
    sys.exit(step.main(__doc__, Model, f"PyTorch {torch.__version__}, fused AdamW"))
