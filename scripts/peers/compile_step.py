#!/usr/bin/env python3
"""compile_step.py - the QLoRA steps of hf_step.py, model and loss compiled by torch.compile: rows of results.csv.

The optimizer and the clip are those of hf_step.py. A case that cannot be compiled has a row with the reason. With
recompute=layer, the compiled code may keep more than the input of every layer: peak_memory shows how much.

usage: compile_step.py [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: a case of bench as in hf_step.py
"""
import sys

import torch

import hf_step


class Model(hf_step.Model):
    def __init__(self, case, device):
        super().__init__(case, device)
        torch.compiler.reset()
        # Every shape has its own code, so that no value depends on the order of the cases.
        self.model = torch.compile(self.model, dynamic=False)
        self.compiled_loss = torch.compile(super().loss, dynamic=False)

    def loss(self, logits, targets):
        return self.compiled_loss(logits, targets)


if __name__ == "__main__":
    sys.exit(hf_step.main(__doc__, Model, "torch.compile, "))
