"""Write a Llama as a GGUF file, which llama.cpp runs. Weights in groups stay as they are where GGUF has such blocks."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models

from ensue.core.errors import InputError
from ensue.core.files import atomic_file
from ensue.exchange.gguf.blocks import FORMATS, BlockFormat
from ensue.exchange.gguf.decoder import NAMES, PROJECT, QKV
from ensue.exchange.gguf.file import ARRAY, MAGIC, SCALARS, STRING
from ensue.exchange.gguf.tokenizer import CONTROL, NORMAL, SPLITS, USER_DEFINED
from ensue.kernels.grouped import GroupedWeight
from ensue.models.llama import LlamaConfig, LlamaLanguageModel

Special = Mapping[str, str]
"""Names of special tokens: begin and end, of a text or of an answer."""
ALIGNMENT = 32
BY_NAME = {one.name: one for one in FORMATS.values()}
CODES = {code: kind for kind, code in SCALARS.items()}
Stored = tuple[BlockFormat, tuple[int, ...], bytes]
"""Format, shape and data of a tensor."""


def write_gguf(path: Path, values: Mapping[str, Any], tensors: Mapping[str, Stored]) -> None:
    """Write metadata and tensors; whole numbers become uint32, other numbers float32, and lists keep their type."""
    header = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(values))]
    header += [_text(key) + _value(value) for key, value in values.items()]
    offset = 0
    for name, (form, shape, data) in tensors.items():
        header.append(_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape)))
        header.append(struct.pack("<IQ", form.number, offset))
        offset += len(data) + -len(data) % ALIGNMENT
    start = b"".join(header)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        file.write(start + bytes(-len(start) % ALIGNMENT))
        for _, _, data in tensors.values():
            file.write(data + bytes(-len(data) % ALIGNMENT))
        temporary.chmod(0o644)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", CODES["?"], value)
    if isinstance(value, int):
        return struct.pack("<II", CODES["I"], value)
    if isinstance(value, float):
        return struct.pack("<If", CODES["f"], value)
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", ARRAY, CODES[value.dtype.char], len(value)) + value.tobytes()
    return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_text, value))


def write_decoder(
    model: LlamaLanguageModel, path: Path, tokenizer: Mapping[str, Any], special: Special, name: str, template: str = ""
) -> None:
    """Write a model with the state of its tokenizer, its special tokens, and the chat template if it has one."""
    config = model.config
    check_writable(config)
    kind = "qwen2" if config.qkv_bias else "llama"
    values = {
        "general.architecture": kind,
        "general.name": name,
        f"{kind}.block_count": config.layers,
        f"{kind}.context_length": config.context,
        f"{kind}.embedding_length": config.hidden,
        f"{kind}.feed_forward_length": config.feed_width,
        f"{kind}.attention.head_count": config.heads,
        f"{kind}.attention.head_count_kv": config.kv_heads or config.heads,
        f"{kind}.attention.layer_norm_rms_epsilon": float(config.epsilon),
        f"{kind}.rope.freq_base": float(config.rope_base),
        f"{kind}.rope.dimension_count": config.head_width or config.hidden // config.heads,
        f"{kind}.vocab_size": config.vocabulary,
        **tokenizer_values(tokenizer, special, config.vocabulary),
        **({"tokenizer.chat_template": template} if template else {}),
    }
    if config.head_width:
        values |= {f"{kind}.attention.key_length": config.head_width}
        values |= {f"{kind}.attention.value_length": config.head_width}
    write_gguf(path, values, decoder_blocks(model, neighbours=kind == "llama"))


def check_writable(config: LlamaConfig) -> None:
    """Raise InputError for a model that llama.cpp does not compute."""
    needed: dict[str, Any] = {"norm": "rms", "feed": "swiglu", "bias": False, "qk_norm": False, "embed_scale": 1.0}
    needed |= {"positions": "rotary", "rope_scaling": "none", "experts": 1, "attention": "full"}
    needed |= {"attention_cap": 0.0, "logit_cap": 0.0}
    for key, value in needed.items():
        if getattr(config, key) != value:
            what = f"a llama with {key} = {getattr(config, key)} has no GGUF form here"
            raise InputError(what, hint=f"one with {key} = {value} has")


def decoder_blocks(model: LlamaLanguageModel, neighbours: bool) -> dict[str, Stored]:
    """The tensors of a model under GGUF's names."""
    config, found = model.config, {}
    kv = config.kv_heads or config.heads
    d = config.head_width or config.hidden // config.heads
    ends = np.cumsum([0, config.heads * d, kv * d, kv * d])
    heads = (config.heads, kv, 0) if neighbours else (0, 0, 0)
    modules = dict(model.named_modules())
    for layer in (None, *range(config.layers)):
        number = "" if layer is None else str(layer)
        for theirs, ours in NAMES.items():
            if ("*" in theirs) == (layer is not None) and not (theirs == "output" and config.tied):
                found[theirs.replace("*", number) + ".weight"] = _stored(modules[ours.replace("*", number)])
        if layer is None:
            continue
        project: Any = modules[PROJECT.replace("*", number)]
        for name, count, first, last in zip(QKV, heads, ends[:-1], ends[1:]):
            rows = _order(np.arange(first, last), count)
            found[name.replace("*", number) + ".weight"] = _stored(project, rows)
            if config.qkv_bias:
                bias = project.bias.detach()[torch.from_numpy(rows)]
                found[name.replace("*", number) + ".bias"] = _plain(bias)
    return found


def _order(rows: np.ndarray, heads: int) -> np.ndarray:
    """The numbers of rows in the order in which a rotation turns neighbours."""
    return rows.reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1) if heads else rows


def _plain(tensor: torch.Tensor) -> Stored:
    data = tensor.detach().float().contiguous().numpy()
    return BY_NAME["F32"], tuple(data.shape), data.astype("<f4").tobytes()


def _stored(layer: Any, rows: np.ndarray | None = None) -> Stored:
    """The weights of a layer: groups as blocks where there are such blocks, and else in float32."""
    if not isinstance(layer, GroupedWeight):
        weight = layer.weight.detach()
        return _plain(weight if rows is None else weight[torch.from_numpy(rows)])
    rows = np.arange(layer.out_features) if rows is None else rows
    write = WRITERS.get((layer.bits, layer.offsets is not None))
    if write is None or layer.group != 32 or layer.scales.dtype != torch.float16:
        return _plain(layer.weight[torch.from_numpy(rows)])
    form, join = write
    codes, scales, offsets = (None if one is None else one.numpy()[rows] for one in layer.apart())
    blocks = join(codes, scales, offsets)
    return BY_NAME[form], (len(rows), layer.in_features), blocks.tobytes()


def _halves(values: np.ndarray) -> np.ndarray:
    return values[..., None].astype("<f2").view(np.uint8)


def _q4_1(codes: np.ndarray, scales: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return np.concatenate([_halves(scales), _halves(offsets), codes[..., :16] | codes[..., 16:] << 4], axis=-1)


def _q8_0(codes: np.ndarray, scales: np.ndarray, offsets: None) -> np.ndarray:
    return np.concatenate([_halves(scales), codes.view(np.uint8)], axis=-1)


WRITERS: dict[tuple[int, bool], tuple[str, Callable[..., np.ndarray]]] = {
    (4, True): ("Q4_1", _q4_1),
    (8, False): ("Q8_0", _q8_0),
}
"""Bits and whether there are offsets → the format, and what writes its blocks."""


def tokenizer_values(state: Mapping[str, Any], special: Special, size: int) -> dict[str, Any]:
    """The metadata of a byte-level BPE tokenizer from its ``tokenizer.json``; ids without a token are named."""
    begins, state = "begin" in state, state.get("library", state)
    split = next((name for name, make in SPLITS.items() if _described(make()) == state.get("pre_tokenizer")), None)
    if state.get("model", {}).get("type") != "BPE" or split is None:
        raise InputError("GGUF files hold byte-level BPE tokenizers only", hint="fit with --tokenizer bpe")
    names: list[str] = [f"[unused{number}]" for number in range(size)]
    kinds = np.full(size, NORMAL, np.int32)
    for token, number in state["model"]["vocab"].items():
        names[number] = token
    for token in state["added_tokens"]:
        names[token["id"]] = token["content"]
        kinds[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    merges: Sequence[Any] = state["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": names.index(special["begin"]),
        "tokenizer.ggml.eos_token_id": names.index(special["end"]),
        "tokenizer.ggml.add_bos_token": begins,
    }


def _described(pre_tokenizer: Any) -> Any:
    """How the library describes a way to split words."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizer
    return json.loads(inner.to_str())["pre_tokenizer"]
