#!/usr/bin/env python3
"""Golden logits of the trained models in assets/models, computed with the `transformers` package in float32.

    python -P tools/golden/docs_models.py

Run with the Python of the golden venv (tools/golden/requirements.txt). Writes tests/golden/docs/<model>.json
(prompt, token ids, stored positions) and <model>.f32 (float32 little-endian, [positions, vocabulary]).
"""
import json
import pathlib

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "docs"
PROMPT = """The package manager keeps a list of installed packages and their versions. To install a new package, run the
command as root:

    apt-get install package

If the package depends on other packages, they are installed too. def read(self, path): return open(path).read()
"""


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, count in (("docs-8m", 8), ("docs-1m", 3)):
        folder = ROOT / "assets" / "models" / name
        ids = [0] + Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROMPT, add_special_tokens=False).ids
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        positions = sorted({round(i * (len(ids) - 1) / (count - 1)) for i in range(count)})
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, positions].float().numpy().astype("<f4")
        (OUT / f"{name}.json").write_text(json.dumps({"prompt": PROMPT, "ids": ids, "positions": positions}) + "\n")
        (OUT / f"{name}.f32").write_bytes(logits.tobytes())
        print(name, len(ids), positions, transformers.__version__)


if __name__ == "__main__":
    main()
