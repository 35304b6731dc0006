"""Tiny GGUF files of every architecture that is read, with tokenizers of both kinds and all types of blocks."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from ensue.data.tokenizers.pieces import PieceTokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.exchange.gguf.blocks import FORMATS, BlockFormat
from ensue.exchange.gguf.file import read_gguf
from ensue.exchange.gguf.pieces import score_merges
from ensue.exchange.gguf.writing import write_decoder, write_gguf
from ensue.models.llama import LlamaConfig, LlamaLanguageModel

SIZES: dict[str, Any] = {"heads": 4, "kv_heads": 2, "layers": 2, "inner": 64, "hidden": 64, "context": 32}
GEMMA: dict[str, Any] = {"norm": "sandwich-rms", "feed": "geglu", "embed_scale": sqrt(256)}
GEMMA |= {"hidden": 256, "inner": 256, "head_width": 32}
CAPS = {"attention_cap": 50.0, "logit_cap": 30.0}
FORMS: dict[str, dict[str, Any]] = {
    "llama": {"tied": False, "rope_scaling": "llama3:factor=8:original=8192:low=1:high=4"},
    "mistral": {"attention": "local:span=8", "rope_scaling": "linear:factor=2"},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "head_width": 32},
    "gemma2": {**GEMMA, **CAPS, "attention": "local:span=8,full"},
    "gemma3": {**GEMMA, "qk_norm": True, "attention": "local:span=8:base=10000,full"},
}
TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
TEXT = "the students opened their books and the clock ran on while the rain fell\n"


def piece_tokenizer() -> PieceTokenizer:
    """A small tokenizer of SentencePiece."""
    learnt = ("▁t", "he", "▁the", "in", "ain", "▁r", "▁rain", "ll", "▁c", "ck")
    scores = dict.fromkeys("▁abcdefghijklmnopqrstuvwxyz<>/", -1000.0)
    scores |= {piece: -float(rank) for rank, piece in enumerate(learnt)}
    special = ("<unk>", "<s>", "</s>")
    names = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "  ", *scores]
    vocab = {name: number for number, name in enumerate(names)}
    inner = Tokenizer(models.BPE(vocab, score_merges(scores), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    inner.normalizer = normalizers.Replace(" ", "▁")
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.add_tokens([AddedToken("  ", normalized=False, special=False)])
    inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    return PieceTokenizer(inner, "</s>", "<s>")


def random_blocks(form: BlockFormat, rows: int, columns: int, seed: int) -> bytes:
    """Random blocks whose scales are finite: codes of any value, float16 numbers below 2."""
    found = np.random.default_rng(seed).integers(0, 256, (rows, columns // form.values, form.bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        finite = form.split is None or np.isfinite(form.decode(found)).all()
    if not finite:
        found[..., 1::2] &= 0xBF  # no float16 is NaN or infinite without this bit
    return found.tobytes()


def gguf_files(folder: Path) -> dict[str, Path]:
    """Write a file of each architecture; their matrices are blocks of all types in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    found, number = {}, 0
    kinds = [form for form in FORMATS.values() if form.split is not None]
    for name, form in FORMS.items():
        pieces = name in ("mistral", "gemma2", "gemma3")
        tokenizer: Any = (
            piece_tokenizer() if pieces else fit_tokenizer_to_parts("bpe", [(TEXT * 9, True, True)], vocabulary=270)
        )
        torch.manual_seed(0)
        model = LlamaLanguageModel(LlamaConfig(**{**SIZES, **form, "vocabulary": tokenizer.size}))
        end = tokenizer.name(tokenizer.end)
        special = {"begin": "<s>" if pieces else end, "end": end}
        found[name] = folder / f"{name}.gguf"
        write_decoder(model, folder / "plain", tokenizer.state(), special, name, TEMPLATE)
        file, tensors = read_gguf(folder / "plain"), {}
        for key, entry in file.tensors.items():
            number += 1
            other = kinds[number % len(kinds)]
            if len(entry.shape) == 2 and entry.shape[1] % other.values == 0:
                tensors[key] = (other, entry.shape, random_blocks(other, *entry.shape, number))
            else:
                tensors[key] = (entry.format, entry.shape, file.blocks(key).tobytes())
        write_gguf(found[name], file.values, tensors)
        (folder / "plain").unlink()
    return found
