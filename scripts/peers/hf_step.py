#!/usr/bin/env python3
"""hf_step.py - QLoRA steps of Plumb's models by Hugging Face transformers, PEFT and bitsandbytes: rows of results.csv.

The model is that of transformers, eager, with PyTorch's scaled_dot_product_attention. Projections are bitsandbytes'
Linear4bit (NF4, blocks of 64, scales in f32). Adapters are PEFT's on the same targets; both norm gains of every layer
are trained as well, as in Plumb. PEFT keeps adapters and their products in f32, transformers keeps gains in the model's
dtype: both are the defaults that a user gets. No compilation, use_cache off. recompute=layer is transformers' gradient
checkpointing, which keeps the input of every layer.

usage: hf_step.py [--device cpu|cuda] [--out FILE.csv] KEY...
       KEY: a case of bench with clip=multi, mode=eager, tuning=qlora: throughput/step?... or backward/step?...
"""
import sys

import bitsandbytes as bnb
import peft
import torch
import transformers

import common
import step


def config(case):
    g = case.geometry
    scaled = {"rope_type": "llama3", "factor": g["factor"], **common.LLAMA3}
    rope = {"rope_type": "default"} if g["factor"] == 1 else scaled
    c = transformers.AutoConfig.for_model(
        g["family"].lower(), vocab_size=g["V"], hidden_size=g["D"], intermediate_size=g["I"],
        num_hidden_layers=case.layers, num_attention_heads=g["H"], num_key_value_heads=g["K"], head_dim=g["d"],
        rms_norm_eps=g["eps"], tie_word_embeddings=bool(g["tied"]), max_position_embeddings=g["max_pos"],
        rope_parameters={**rope, "rope_theta": g["theta"]}, use_cache=False)
    if bool(g["bias"]) != (g["family"] == "QWEN2"):
        raise NotImplementedError(f"{case.model}: transformers' {g['family']} has other biases")
    return c


def quantise(model, dtype, device):
    """Replaces the projections of every layer by Linear4bit, which quantises its weights when it is moved to a
    device."""
    for parent in list(model.model.layers.modules()):
        for name, old in list(parent.named_children()):
            if not isinstance(old, torch.nn.Linear):
                continue
            # On the meta device: otherwise the CPU would spend seconds on initial weights that are not used.
            new = bnb.nn.Linear4bit(old.in_features, old.out_features, bias=old.bias is not None, compute_dtype=dtype,
                                    compress_statistics=False, quant_type="nf4", device="meta")
            new.weight = bnb.nn.Params4bit(old.weight.data, requires_grad=False, blocksize=64,
                                           compress_statistics=False, quant_type="nf4")
            if old.bias is not None:
                new.bias = torch.nn.Parameter(old.bias.data, requires_grad=False)
            setattr(parent, name, new.to(device))


class Model:
    def __init__(self, case, device):
        if case.tuning != "qlora" or case.mode != "eager":
            raise NotImplementedError("this peer is QLoRA, eager")
        with torch.device(device):
            base = transformers.AutoModelForCausalLM.from_config(config(case), dtype=case.dtype,
                                                                 attn_implementation="sdpa")
        quantise(base, case.dtype, device)
        names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
        self.model = peft.get_peft_model(base.to(device), peft.LoraConfig(
            r=case.rank, lora_alpha=2 * case.rank, lora_dropout=0.0, task_type="CAUSAL_LM",
            target_modules=[names.get(t, t + "_proj") for t in case.targets], init_lora_weights=False))
        for name, p in self.model.named_parameters():
            if ".layers." in name and name.endswith("layernorm.weight"):
                p.requires_grad_(True)
        if case.recompute == "layer":
            base.gradient_checkpointing_enable({"use_reentrant": False})
            base.disable_input_require_grads()  # a gradient of the embedding, which only use_reentrant=True needs
        self.model.train()
        self.base, self.vocabulary = base, case.geometry["V"]
        self.params = list(self.model.parameters())

    def logits(self, ids):
        return self.model(input_ids=ids).logits

    def loss(self, logits, targets):
        """The loss of transformers; the targets are already shifted."""
        return self.base.loss_function(logits, None, self.vocabulary, shift_labels=targets)


def main(doc, build, also=""):
    transformers.logging.set_verbosity_error()
    return step.main(doc, build, f"transformers {transformers.__version__}, PEFT {peft.__version__}, "
                     f"bitsandbytes {bnb.__version__}, {also}PyTorch {torch.__version__}, fused AdamW")


if __name__ == "__main__":
    sys.exit(main(__doc__, Model))
