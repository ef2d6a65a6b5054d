#!/usr/bin/env python3
"""pretrained_perplexity.py - the comparisons of scripts/peers/check_pretrained, which runs it:
pretrained_perplexity.py TRAIN FOLDER CONVERSATIONS

transformers reads the GGUF file itself (gguf_file), with the dequantisation of the package gguf and its own inverse of
the permuted rows, so nothing but the file is shared."""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from gguf import GGUFReader
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
BOUND = 1e-3  # relative difference of perplexities
bad = 0


def report(what, good, detail):
    global bad
    bad += not good
    print(f"{what:28} {detail}  {'ok' if good else 'FAILED'}", flush=True)


def weights(folder, model):
    """Every tensor of the exported folder has the bits of transformers'."""
    want = model.state_dict()
    with safe_open(folder / "model.safetensors", "pt") as f:
        names = list(f.keys())
        other = [n for n in names if n not in want or not torch.equal(f.get_tensor(n), want[n])]
    missing = [n for n in want if n not in names and n != "lm_head.weight"]  # tied to the embedding
    report("weights", not other and not missing, f"{len(names)} tensors, {len(other) + len(missing)} different")


def shipped(most):
    """The first lines of the shipped text, one conversation each; most 0: all."""
    lines = (ROOT / "data/corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    return lines[:most] if most else lines


def ids(train, path, tokenizer, texts):
    """The ids of every line of every conversation, which `train tokenize` reads line by line."""
    lines = [line for text in texts for line in text.split("\n")]
    out = subprocess.run([train, "tokenize", "--tokenizer", path], input="\n".join(lines) + "\n", text=True,
                         capture_output=True, check=True).stdout.splitlines()
    got = [[int(i) for i in line.split()] for line in out]
    want = [tokenizer(line, add_special_tokens=False).input_ids for line in lines]
    report("ids", got == want, f"{len(lines)} lines, {sum(map(len, want))} tokens")


def ours(train, model, data):
    """Tokens and loss of `train eval` on the conversations, each cut nowhere and all tokens counted."""
    words = subprocess.run([train, "eval", "--model", model, "--tuning", "full", "--seq", "1024", "--batch", "1",
                            "--loss-mask-type", "all", "--long-ones", "refuse", "--quiet", "--data", data],
                           text=True, capture_output=True, check=True).stdout.split()
    return int(words[words.index("tokens") + 1]), float(words[words.index("loss") + 1])


def theirs(model, tokenizer, texts):
    tokens, loss = 0, 0.0
    with torch.no_grad():
        for text in texts:
            x = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids])
            logits = model(input_ids=x).logits[0, :-1].double()
            loss += torch.nn.functional.cross_entropy(logits, x[0, 1:], reduction="sum").item()
            tokens += x.shape[1] - 1
    return tokens, loss / tokens


def main():
    train, folder = sys.argv[1], Path(sys.argv[2])
    gguf = next(folder.glob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
    tokenizer.chat_template = GGUFReader(gguf).fields["tokenizer.chat_template"].contents()
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf.name, dtype=torch.float32)
    lines = shipped(int(sys.argv[3]))
    texts = [tokenizer.apply_chat_template(json.loads(line)["messages"], tokenize=False) for line in lines]
    weights(folder, model)
    ids(train, str(gguf), tokenizer, texts)
    n, loss = theirs(model, tokenizer, texts)
    print(f"{'transformers':28} {n} tokens, loss {loss:.6f}, perplexity {math.exp(loss):.6f}", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as data:
        data.writelines(lines)
        data.flush()
        for what, path in ("train eval, GGUF file", str(gguf)), ("train eval, folder", str(folder)):
            own_n, own = ours(train, path, data.name)
            relative = abs(math.expm1(own - loss))
            report(what, own_n == n and relative <= BOUND, f"{own_n} tokens, loss {own:.6f}, perplexity "
                   f"{math.exp(own):.6f}, relative difference {relative:.1e}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
