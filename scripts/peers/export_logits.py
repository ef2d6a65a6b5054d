#!/usr/bin/env python3
"""export_logits.py - the comparisons of scripts/peers/check_export, which runs it: export_logits.py HF_EXPORT FOLDER"""
import subprocess
import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

MODELS = ["tiny", "tiny-qwen3", "tiny-llama"]
BOUND = 1e-5  # relative L2 error of f32 logits


class Checks:
    def __init__(self, program):
        self.program, self.bad = program, 0

    def ours(self, folder, adapter, out):
        """Computes ids and logits with the trainer."""
        subprocess.run([self.program, "logits", folder, *([adapter] if adapter else []), out], check=True)
        return load_file(out)

    def same(self, what, model, want, bound=BOUND):
        """Compares a torch model with the trainer's logits for the same ids."""
        with torch.no_grad():
            got = model(input_ids=want["ids"].long()).logits.double().reshape(want["logits"].shape)
        ref = want["logits"].double()
        rel = ((got - ref).norm() / ref.norm()).item()
        good = rel <= bound  # false for NaN
        self.bad += not good
        print(f"{what:64} relL2 {rel:.2e}  bound {bound:.0e}  {'ok' if good else 'FAILED'}", flush=True)

    def equal(self, what, good):
        self.bad += not good
        print(f"{what:64} {'ok' if good else 'FAILED'}", flush=True)


def load(folder, dtype=torch.float32):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True,
                                                       attn_implementation="eager")
    odd = {k: v for k, v in info.items() if v}
    if odd:
        sys.exit(f"export_logits: {folder}: transformers reports {odd}")
    return model.eval()


def written_by_plumb(c, model, dtype, root):
    root.mkdir(parents=True)
    subprocess.run([c.program, "write", model, dtype, root], check=True)
    full = c.ours(root / "full", None, root / "full.safetensors")
    c.same(f"{model} {dtype}: full, one file, in transformers", load(root / "full"), full)
    c.same(f"{model} {dtype}: full, many files, in transformers", load(root / "cut"), full)
    auto = AutoModelForCausalLM.from_pretrained(root / "full")
    c.equal(f"{model} {dtype}: the dtype transformers selects by default: {auto.dtype}",
            auto.dtype == {"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
    adapted = PeftModel.from_pretrained(load(root / "full"), root / "adapter").eval()
    if dtype == "f32":
        lora, qlora = load_file(root / "lora.safetensors"), load_file(root / "qlora.safetensors")
    else:  # the trainer also computes in f32, so that only the files are compared
        lora, qlora = (c.ours(root / "full", root / "adapter", root / "l32.safetensors"),
                       c.ours(root / "dense", None, root / "d32.safetensors"))
    c.same(f"{model} {dtype}: adapter, in peft on transformers", adapted, lora)
    c.same(f"{model} {dtype}: adapter merged by peft", adapted.merge_and_unload(), lora)
    merged = lora if dtype == "f32" else c.ours(root / "merged", None, root / "m32.safetensors")
    c.same(f"{model} {dtype}: adapter merged by plumb, in transformers", load(root / "merged"), merged)
    c.same(f"{model} {dtype}: NF4 base made dense and merged, in transformers", load(root / "dense"), qlora)


def written_by_peft(c, model, root, saved, targets):
    """An adapter written by peft on a base written by Plumb: both are loaded into the trainer."""
    torch.manual_seed(3)
    config = LoraConfig(r=5, lora_alpha=7, target_modules=targets, task_type="CAUSAL_LM", modules_to_save=saved)
    adapted = get_peft_model(load(root / "full"), config).eval()
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                p.add_(0.2 * torch.randn(p.shape))
    folder = root / f"peft{len(targets)}"
    adapted.save_pretrained(folder)
    c.same(f"{model}: adapter of peft on {len(targets)} targets{' and norms' if saved else ''}, in plumb", adapted,
           c.ours(root / "full", folder, root / "p.safetensors"))


def main():
    c, root = Checks(sys.argv[1]), Path(sys.argv[2])
    for model in MODELS:
        written_by_plumb(c, model, "f32", root / model)
        written_by_plumb(c, model, "bf16", root / f"{model}-bf16")
        written_by_peft(c, model, root / model, None, ["q_proj", "v_proj"])
        written_by_peft(c, model, root / model, ["input_layernorm", "post_attention_layernorm"],
                        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    for family in ["qwen2", "qwen3", "llama"]:  # these have rotary scaling and biases on o
        fixture = Path(__file__).resolve().parents[2] / "tests/fixtures/hf" / family
        subprocess.run([c.program, "copy", fixture, root / f"copy-{family}"], check=True)
        c.same(f"copy of the fixture {family}, in transformers", load(root / f"copy-{family}"),
               c.ours(fixture, None, root / "f.safetensors"))
    print(f"{c.bad} failed" if c.bad else "all agree")
    return 1 if c.bad else 0


if __name__ == "__main__":
    sys.exit(main())
