"""Peak memory of a model with 1.2 billion weights: read from a folder, stored in 8 or 4 bits, loaded, generating.

python -m benchmarks.quality.large_model [--tokens 32]

The weights are random, in the shape of Llama 3.2 1B, and are written in bfloat16, one file for each layer (2.5 GB in a
temporary folder). Each command is a process of its own; its memory is what the system reports at its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.record import record
from ensue.data.tokenizers.protocol import END
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, save_tokenizer

V, D, LAYERS, INNER, HEADS, KV_HEADS = 128256, 2048, 16, 8192, 32, 8
TEXT = "The rain fell and the students opened their books while the clock ran on."


def write_folder(folder: Path) -> None:
    """Write the folder as a Hugging Face model of several files."""
    draw, names = torch.Generator().manual_seed(0), {}
    shapes = {"self_attn.q_proj": (D, D), "self_attn.o_proj": (D, D), "mlp.gate_proj": (INNER, D)}
    shapes |= {f"self_attn.{one}_proj": (KV_HEADS * D // HEADS, D) for one in "kv"}
    shapes |= {"mlp.up_proj": (INNER, D), "mlp.down_proj": (D, INNER)}

    def save(number: int, tensors: dict[str, torch.Tensor]) -> None:
        name = f"model-{number:05}-of-{LAYERS + 1:05}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        names.update(dict.fromkeys(tensors, name))

    def random(*shape: int) -> torch.Tensor:
        return (0.02 * torch.randn(shape, generator=draw)).bfloat16()

    ones = torch.ones(D, dtype=torch.bfloat16)
    save(1, {"model.embed_tokens.weight": random(V, D), "model.norm.weight": ones})
    for layer in range(LAYERS):
        own = {f"model.layers.{layer}.{name}.weight": random(*shape) for name, shape in shapes.items()}
        norms = ("input_layernorm", "post_attention_layernorm")
        save(layer + 2, own | {f"model.layers.{layer}.{name}.weight": ones.clone() for name in norms})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    scaling = {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 8192}
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": V,
        "hidden_size": D,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {**scaling, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_tokenizer(fit_tokenizer_to_parts("bpe", [(TEXT * 9, True, True)], vocabulary=300), folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))


def run(*words: str) -> dict[str, float]:
    """Run a command of ensue; its peak memory in GB (10⁹ bytes) and its seconds."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "ensue", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"ensue {' '.join(words)} failed")
    return {"gb": round(usage.ru_maxrss * 1024 / 1e9, 3), "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    """Measure both forms of storage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32, help="tokens to generate")
    parser.add_argument("--write", type=Path, help="only write the folder")
    given = parser.parse_args()
    if given.write:
        write_folder(given.write)
        return
    figures: dict[str, object] = {"weights": 1_235_814_400}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "hub"
        folder.mkdir()
        # a process of its own: the memory of a new process is reported with that of the one that starts it
        subprocess.run([sys.executable, "-m", "benchmarks.quality.large_model", "--write", str(folder)], check=True)
        for storage in ("int8", "int4"):
            out = Path(name) / storage
            figures[f"{storage}_convert"] = run("convert", str(folder), "--out", str(out), "--weights", storage)
            figures[f"{storage}_file_gb"] = round((out / "model.safetensors").stat().st_size / 1e9, 3)
            run("generate", str(out), "--max-tokens", "2")  # compiles kernels
            generate = ("generate", str(out), "--prompt", TEXT, "--max-tokens", str(given.tokens))
            figures[f"{storage}_generate"] = run(*generate)
    record("large_model", figures)


if __name__ == "__main__":
    main()
