#!/usr/bin/env python3
"""liger_step.py - the QLoRA steps of hf_step.py with Liger kernels: rows of results.csv.

Liger replaces RMSNorm, SwiGLU and RoPE of the transformers model by Triton kernels, and the head with its loss by one
function that computes the logits of some tokens at a time, with their gradient: the loss phase has that part of the
backward pass, and therefore suite backward has no such peer. On a CPU there are no kernels, which the rows say.

usage: liger_step.py [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: a case of bench as in hf_step.py: throughput/step?...
"""
import importlib.metadata
import sys

import liger_kernel.transformers
from liger_kernel.transformers.model.loss_utils import LigerForCausalLMLoss

import hf_step


class Model(hf_step.Model):
    def __init__(self, case, device):
        if case.suite != "throughput":
            raise NotImplementedError("the loss phase of this peer has a part of the backward pass")
        if device == "cpu":
            raise NotImplementedError("Liger's kernels need a GPU")
        super().__init__(case, device)
        family = case.geometry["family"].lower()
        getattr(liger_kernel.transformers, f"apply_liger_kernel_to_{family}")(model=self.base)

    def logits(self, ids):
        """The input of the head. This and loss() are what Liger's forward() of the whole model does."""
        return self.base.model(input_ids=ids).last_hidden_state

    def loss(self, hidden, targets):
        return LigerForCausalLMLoss(hidden, self.base.lm_head.weight, None, self.base.config.hidden_size,
                                    shift_labels=targets)


if __name__ == "__main__":
    sys.exit(hf_step.main(__doc__, Model, f"Liger {importlib.metadata.version('liger-kernel')}, "))
