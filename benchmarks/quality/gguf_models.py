"""GGUF files against transformers and llama.cpp: logits, greedy texts, bits per byte and tokens.

LLAMA_CPP=…/site-packages python -m benchmarks.quality.gguf_models --file MODEL.gguf [--texts 3] [--only model,tokens]
LLAMA_CPP=…/site-packages python -m benchmarks.quality.gguf_models --run RUN --only written

``model`` compares a file with transformers' model of the same weights, decoded by the package gguf; ``tokens`` compares
token ids with llama.cpp's. ``written`` writes a run, and a small model that is trained here, as GGUF and as a Hugging
Face folder, and compares greedy texts with those of llama.cpp and transformers from these. $LLAMA_CPP names the folder
with llama-cpp-python, unless it is installed here. Each part is a line of results.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

import ensue
from benchmarks.record import record
from ensue.exchange.gguf.file import GGUFFile, read_gguf
from ensue.verbs.convert import convert

ROOT = Path(__file__).resolve().parents[2]
TEXT, LENGTH = ROOT / "README.md", 4000
"""The text that is scored, and how many characters of it."""
PROMPTS = ("The history of the steam engine begins", "Once upon a time, in a small village,", "def fibonacci(n):\n")
TOKENS = 100
LAST = 64
"""Positions of a text whose logits are compared, the last ones."""
CHUNK = 128
"""Positions whose logits are in memory at once."""
ODD_TEXTS = (
    *("", " ", "  ", "\n" * 50, "a" * 200, "=" * 77 + "-" * 91 + "hahahaha" * 9, " 123456789 3.14159e-10\t\t\tx"),
    *("naïve café 𝔹 🎈👩‍👩‍👧 日本語テキスト ﷽ \x01 \u200b é", "<bos> <eos><unk><table><tr>x</tr><start_of_turn>user"),
)
END_NAME = "</s>"
"""Gemma's tag of HTML, which its file calls user-defined, and which llama.cpp makes a control token by its name."""
GEMMA = {"norm": "sandwich-rms", "feed": "geglu", "embed_scale": math.sqrt(128), "head_width": 64}
GEMMAS = ("gemma2", "gemma3")
SMALL: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama 3.1": {"rope_scaling": "llama3:factor=8:original=8192:low=1:high=4", "rope_base": 5e4},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "head_width": 64},
    "gemma2": {**GEMMA, "attention": "local:span=24,full", "attention_cap": 50.0, "logit_cap": 30.0},
    "gemma3": {**GEMMA, "qk_norm": True, "attention": "local:span=24:base=10000*2,full", "rope_base": 1e6},
}
"""Settings of the small models that are trained here."""
STEMS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma2": "Gemma2", "gemma3": "Gemma3"}


def their_config(file: GGUFFile) -> Any:
    """transformers' settings of a file."""
    name = file.text("general.architecture")

    def value(key: str, default: Any = None) -> Any:
        return file.values.get(f"{name}.{key}", default)

    heads, hidden = value("attention.head_count"), value("embedding_length")
    settings = {
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden,
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("attention.head_count_kv", heads),
        "head_dim": value("attention.key_length", hidden // heads),
        "max_position_embeddings": value("context_length"),
        "rope_theta": value("rope.freq_base", 10000.0),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    if name == "gemma3":
        every, layers = value("attention.sliding_window_pattern", 6), settings["num_hidden_layers"]
        kinds = ["full_attention" if one % every == every - 1 else "sliding_attention" for one in range(layers)]
        settings |= {"sliding_window": value("attention.sliding_window"), "layer_types": kinds}
        settings |= {"rope_local_base_freq": 10000.0}
    if name == "gemma2":
        settings |= {"sliding_window": value("attention.sliding_window")}
        settings |= {key: value(key) for key in ("attn_logit_softcapping", "final_logit_softcapping")}
    if name in GEMMAS:
        settings |= {"query_pre_attn_scalar": settings["head_dim"]}
    config = getattr(transformers, f"{STEMS[name]}TextConfig" if name == "gemma3" else f"{STEMS[name]}Config")
    return config(**settings)


def their_model(path: Path) -> Any:
    """transformers' model with the weights of a file."""
    file = read_gguf(path)
    name, config = file.text("general.architecture"), their_config(file)
    model = getattr(transformers, f"{STEMS[name]}ForCausalLM")(config).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[name.upper()], config.num_hidden_layers)
    weights = {one.name: one for one in gguf.GGUFReader(path).tensors}
    state = {}
    for theirs, own in model.state_dict().items():
        key = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            key = "token_embd.weight"
        assert key is not None, theirs
        data = np.array(gguf.quants.dequantize(weights[key].data, weights[key].tensor_type), dtype=np.float32)
        weight = torch.from_numpy(data).reshape(own.shape)
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for projection, count in heads.items():
            if name == "llama" and projection in theirs:  # neighbours are turned in the file
                weight = weight.view(count, -1, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)
        state[theirs] = weight - 1 if name in GEMMAS and theirs.endswith("norm.weight") else weight
    model.load_state_dict(state)
    return model


def greedy(model: Any, prompt: list[int], ours: bool, count: int = TOKENS) -> list[int]:
    """The most probable token, again and again."""
    found: list[int] = []
    state, tokens = None, torch.tensor([prompt])
    for _ in range(count):
        if ours:
            output = model(tokens, state, want=("last",))
            state = output.state
        else:
            output = model(tokens, past_key_values=state, use_cache=True, logits_to_keep=1)
            state = output.past_key_values
        found.append(int(output.logits[0, -1].argmax()))
        tokens = torch.tensor([found[-1:]])
    return found


def logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The logits of hidden states, in ours or in transformers' model."""
    if hasattr(model, "lm_head"):
        found, cap = model.lm_head(hidden), getattr(model.config, "final_logit_softcapping", None)
        return found if cap is None else cap * torch.tanh(found / cap)
    ours: torch.Tensor = model.logits(hidden)
    return ours


def nats(model: Any, hidden: torch.Tensor, wanted: torch.Tensor) -> float:
    """−log P of tokens, by the hidden states before them, some positions at a time."""
    pieces = zip(hidden.split(CHUNK), wanted.split(CHUNK))
    return sum(float(torch.nn.functional.cross_entropy(logits(model, h), w, reduction="sum")) for h, w in pieces)


def compare_model(path: Path, folder: Path, texts: int) -> dict[str, Any]:
    """A file as a run against transformers: logits, bits per byte, and greedy texts."""
    run, theirs = ensue.load(convert(path, out=folder / "run")), their_model(path)
    text = TEXT.read_text(encoding="utf-8")[:LENGTH]
    ids = [run.tokenizer.begin, *run.tokenizer.encode(text).tolist()]
    tokens = torch.tensor([ids])
    mine = run.model(tokens, want=("hidden",)).hidden[0]
    other = theirs.model(tokens).last_hidden_state[0]
    ours, wanted = logits(run.model, mine[-LAST:]), logits(theirs, other[-LAST:])
    size = len(text.encode()) * math.log(2)
    bits = [nats(model, hidden[:-1], tokens[0, 1:]) / size for model, hidden in ((run.model, mine), (theirs, other))]
    same = 0
    for prompt in PROMPTS[:texts]:
        given = [run.tokenizer.begin, *run.tokenizer.encode(prompt).tolist()]
        same += greedy(run.model, given, True) == greedy(theirs, given, False)
    return {
        "file": path.name,
        "text": f"{TEXT.name}, {LENGTH} characters",
        "architecture": read_gguf(path).text("general.architecture"),
        "tokens": len(ids) - 1,
        "largest_difference_of_logits": float((ours - wanted).abs().max()),
        "largest_logit": float(wanted.abs().max()),
        "same_most_probable_tokens": float((ours.argmax(-1) == wanted.argmax(-1)).double().mean()),
        "bits_per_byte": {"ensue": round(bits[0], 5), "transformers": round(bits[1], 5)},
        f"same_greedy_texts_of_{TOKENS}": f"{same} of {texts}",
    }


def llama_cpp(path: Path, **how: Any) -> Any:
    """A model of llama.cpp."""
    if "LLAMA_CPP" in os.environ and os.environ["LLAMA_CPP"] not in sys.path:
        sys.path.append(os.environ["LLAMA_CPP"])
    from llama_cpp import Llama

    return Llama(str(path), verbose=False, **how)


def compare_tokens(path: Path, folder: Path) -> dict[str, Any]:
    """The tokens of a file's tokenizer against llama.cpp's: texts of this repository, odd ones and random ones."""
    tokenizer = ensue.load(convert(path, out=folder / "tokens")).tokenizer
    theirs, chance = llama_cpp(path, vocab_only=True), random.Random(0)
    files = [TEXT, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src/ensue/models").glob("*.py"))]
    texts = [file.read_text(encoding="utf-8") for file in files]
    letters = "ab =-\n\t<>étü日🎈xX0 "
    texts += [*ODD_TEXTS, *("".join(chance.choices(letters, k=chance.randint(1, 120))) for _ in range(500))]
    wrong, count, special, named = 0, 0, 0, 0
    for text in texts:
        ids = tokenizer.encode(text).tolist()
        wanted = theirs.tokenize(text.encode(), add_bos=False, special=False)
        wrong, count = wrong + (ids != wanted), count + len(wanted)
        named += ids != wanted and END_NAME in text
        special += not set(tokenizer.named.values()).isdisjoint(ids)
        assert tokenizer.decode(ids) == text
    begins = theirs.tokenize(b"a", add_bos=True, special=False)[0] == tokenizer.begin
    figures = {"texts": len(texts), "tokens": count, "texts_with_other_tokens": wrong}
    figures |= {f"of_these_with_{END_NAME}": named}
    return {"file": path.name, **figures, "texts_with_special_tokens": special, "same_begin_token": begins}


def train_small(folder: Path, name: str) -> Path:
    """The run of a small llama in the form of an architecture."""
    text = folder / "text.txt"
    text.write_text("\n".join(one.read_text(encoding="utf-8") for one in sorted((ROOT / "docs").glob("*.md"))))
    shape = {"hidden": 128, "heads": 4, "kv_heads": 2, "layers": 3, "context": 128, "inner": 256}
    quick = {"train.steps": 150, "train.batch": 4, "tokenizer.kind": "bpe", "tokenizer.vocabulary": 600}
    return ensue.fit("llama", text, out=folder / name, settings={**shape, **quick, **SMALL[name]}).folder.path


def compare_written(path: Path, name: str, folder: Path) -> dict[str, Any]:
    """A run as GGUF in llama.cpp, and as a folder in transformers: greedy texts."""
    run = ensue.load(path)
    file, hub = folder / f"{name}.gguf", folder / f"{name}-hf"
    convert(path, to="gguf", out=file)
    convert(path, to="hf", out=hub)
    count = min(TOKENS, run.model.config.context - 40)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(hub, attn_implementation="eager").eval()
    other, fast = llama_cpp(file, n_ctx=512, n_threads=1), transformers.AutoTokenizer.from_pretrained(hub)
    in_llama, in_hub, tokens, longest = 0, 0, 0, []
    for prompt in PROMPTS:
        ids = run.tokenizer.encode(prompt).tolist()
        tokens += ids == other.tokenize(prompt.encode(), add_bos=False, special=False)
        tokens += ids == fast(prompt, add_special_tokens=False)["input_ids"]
        mine = greedy(run.model, ids, True, count)
        other.reset()
        steps = other.generate(ids, temp=0.0, repeat_penalty=1.0)
        found = [next(steps) for _ in range(count)]
        in_llama += found == mine
        longest.append(next((at for at, pair in enumerate(zip(found, mine)) if pair[0] != pair[1]), count))
        in_hub += greedy(theirs, ids, False, count) == mine
    kinds = sorted({entry.format.name for entry in read_gguf(file).tensors.values()})
    return {
        "run": name,
        "types_in_the_file": kinds,
        "same_prompts": f"{tokens} of {2 * len(PROMPTS)}",
        f"same_greedy_texts_of_{count}_in_llama_cpp": f"{in_llama} of {len(PROMPTS)}",
        "same_tokens_in_llama_cpp": longest,
        f"same_greedy_texts_of_{count}_in_transformers": f"{in_hub} of {len(PROMPTS)}",
    }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, help="a GGUF file")
    parser.add_argument("--run", type=Path, help="a run of a language model")
    parser.add_argument("--texts", type=int, default=len(PROMPTS), help="greedy texts of the part model")
    parser.add_argument("--only", default="model,tokens,written")
    chosen = parser.parse_args()
    parts = chosen.only.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if chosen.file and "model" in parts:
            record("gguf_models", {"part": "model", **compare_model(chosen.file, folder, chosen.texts)})
        if chosen.file and "tokens" in parts:
            record("gguf_models", {"part": "tokens", **compare_tokens(chosen.file, folder)})
        if "written" in parts:
            with torch.enable_grad():
                runs = {f"small {own}": train_small(folder, own) for own in SMALL} | (
                    {chosen.run.name: chosen.run} if chosen.run else {}
                )
            if chosen.run:  # llama.cpp rounds the inputs of quantised weights to 8 bits, and not those of float32
                plain = convert(chosen.run, out=folder / "plain", weights="float32")
                runs[f"{chosen.run.name} in float32"] = plain
            for own, path in runs.items():
                record("gguf_models", {"part": "written", **compare_written(path, own, folder)})


if __name__ == "__main__":
    main()
