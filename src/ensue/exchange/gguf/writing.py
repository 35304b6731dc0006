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
from ensue.data.tokenizers.pieces import is_pieces
from ensue.exchange.gguf.blocks import FORMATS, BlockFormat
from ensue.exchange.gguf.decoder import NORM_QUERY, PROJECT, QKV, weight_names
from ensue.exchange.gguf.file import ARRAY, MAGIC, SCALARS, STRING
from ensue.exchange.gguf.pieces import CONTROL, NORMAL, USER_DEFINED, piece_values
from ensue.exchange.gguf.settings import (
    ARCHITECTURE,
    ARCHITECTURES,
    FREQUENCIES,
    architecture_of,
    config_values,
    frequency_factors,
    query_factor,
)
from ensue.exchange.gguf.tokenizer import SPLITS
from ensue.kernels.grouped import GroupedWeight
from ensue.models.llama import LlamaLanguageModel
from ensue.nn.positions import parse_scaling

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
    kind = architecture_of(config)
    values = {
        ARCHITECTURE: kind,
        "general.name": name,
        **config_values(config, kind),
        **tokenizer_values(tokenizer, special, config.vocabulary),
        **({"tokenizer.chat_template": template} if template else {}),
    }
    write_gguf(path, values, decoder_blocks(model, kind))


def decoder_blocks(model: LlamaLanguageModel, architecture: str) -> dict[str, Stored]:
    """The tensors of a model under GGUF's names."""
    config, found = model.config, {}
    kv = config.kv_heads or config.heads
    d = config.head_width or config.hidden // config.heads
    ends = np.cumsum([0, config.heads * d, kv * d, kv * d])
    heads = (config.heads, kv, 0) if ARCHITECTURES[architecture].rotates_neighbours else (0, 0, 0)
    factor = query_factor(config, architecture)
    modules = dict(model.named_modules())
    if parse_scaling(config.rope_scaling)[0] == "llama3":
        found[FREQUENCIES] = _plain(frequency_factors(config.rope_scaling, d, config.rope_base))
    for layer in (None, *range(config.layers)):
        for theirs, ours in weight_names(config, layer).items():
            found[f"{theirs}.weight"] = _stored(modules[ours])
            if factor != 1.0 and ours == NORM_QUERY.replace("*", str(layer)):
                found[f"{theirs}.weight"] = _plain(modules[ours].get_parameter("weight") / factor)
        if layer is None:
            continue
        project: Any = modules[PROJECT.replace("*", str(layer))]
        for name, count, first, last in zip(QKV, heads, ends[:-1], ends[1:]):
            rows = _order(np.arange(first, last), count)
            share = 1 / factor if name == QKV[0] and not config.qk_norm else 1.0
            found[name.replace("*", str(layer)) + ".weight"] = _stored(project, rows, share)
            if config.qkv_bias:
                bias = project.bias.detach()[torch.from_numpy(rows)] * share
                found[name.replace("*", str(layer)) + ".bias"] = _plain(bias)
    return found


def _order(rows: np.ndarray, heads: int) -> np.ndarray:
    """The numbers of rows in the order in which a rotation turns neighbours."""
    return rows.reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1) if heads else rows


def _plain(tensor: torch.Tensor) -> Stored:
    data = tensor.detach().float().contiguous().numpy()
    return BY_NAME["F32"], tuple(data.shape), data.astype("<f4").tobytes()


def _stored(layer: Any, rows: np.ndarray | None = None, factor: float = 1.0) -> Stored:
    """The weights of a layer times ``factor``: groups as blocks where there are such blocks, and else in float32."""
    if not isinstance(layer, GroupedWeight):
        weight = layer.weight.detach()
        return _plain((weight if rows is None else weight[torch.from_numpy(rows)]) * factor)
    rows = np.arange(layer.out_features) if rows is None else rows
    blocks = _blocks(layer, rows, factor)
    return _plain(layer.weight[torch.from_numpy(rows)] * factor) if blocks is None else blocks


def _blocks(layer: GroupedWeight, rows: np.ndarray, factor: float) -> Stored | None:
    """Some rows of a layer in groups as blocks; None if there are no such blocks, whose scales are float16."""
    write = WRITERS.get((layer.bits, layer.offsets is not None))
    if write is None or layer.group != 32:
        return None
    form, join = write
    codes, *shares = (None if one is None else one.numpy()[rows] for one in layer.apart())
    assert codes is not None
    if form == "Q5_1" and not 0 <= codes.min() <= codes.max() < 32:
        return None
    halves = [None if one is None else _as_halves(one, factor) for one in shares]
    if any(half is None and one is not None for half, one in zip(halves, shares)):
        return None
    return BY_NAME[form], (len(rows), layer.in_features), join(codes, *halves).tobytes()


def _as_halves(values: np.ndarray, factor: float) -> np.ndarray | None:
    """``factor`` times scales or offsets in float16; None if that is not the same within the precision of float32."""
    wanted = values.astype(np.float32) * np.float32(factor)
    with np.errstate(over="ignore"):
        found = wanted.astype(np.float16)
    return found if np.allclose(found.astype(np.float32), wanted, rtol=1e-6, atol=0.0) else None


def _halves(values: np.ndarray) -> np.ndarray:
    return values[..., None].astype("<f2").view(np.uint8)


def _q4_1(codes: np.ndarray, scales: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return np.concatenate([_halves(scales), _halves(offsets), codes[..., :16] | codes[..., 16:] << 4], axis=-1)


def _q5_1(codes: np.ndarray, scales: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    whole = codes.view(np.uint8)
    fifth = np.packbits(whole >> 4, axis=-1, bitorder="little")
    low = whole & 15
    return np.concatenate([_halves(scales), _halves(offsets), fifth, low[..., :16] | low[..., 16:] << 4], axis=-1)


def _q8_0(codes: np.ndarray, scales: np.ndarray, offsets: None) -> np.ndarray:
    return np.concatenate([_halves(scales), codes.view(np.uint8)], axis=-1)


WRITERS: dict[tuple[int, bool], tuple[str, Callable[..., np.ndarray]]] = {
    (4, True): ("Q4_1", _q4_1),
    (8, False): ("Q8_0", _q8_0),
    (8, True): ("Q5_1", _q5_1),
}
"""Bits and whether there are offsets → the format, and what writes its blocks."""


def tokenizer_values(state: Mapping[str, Any], special: Special, size: int) -> dict[str, Any]:
    """The metadata of a tokenizer from its ``tokenizer.json``; ids without a token are named."""
    begins, state = "begin" in state, state.get("library", state)
    model = state.get("model", {})
    if model.get("type") == "BPE" and is_pieces(state):
        names, kinds, values = piece_values(state, size)
    else:
        names, kinds, values = _byte_level_values(state, size)
    return {
        **values,
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": names.index(special["begin"]),
        "tokenizer.ggml.eos_token_id": names.index(special["end"]),
        "tokenizer.ggml.add_bos_token": begins,
    }


def _byte_level_values(state: Mapping[str, Any], size: int) -> tuple[list[str], np.ndarray, dict[str, Any]]:
    """The tokens of byte-level BPE, their types and the other metadata."""
    model, found = state.get("model", {}), state.get("pre_tokenizer")
    whole = bool(model.get("ignore_merges"))
    same = (name for name, one in SPLITS.items() if one.whole_words == whole and _described(one.make()) == found)
    split = next(same, None)
    if model.get("type") != "BPE" or split is None:
        raise InputError("GGUF files hold byte-level BPE tokenizers only", hint="fit with --tokenizer bpe")
    names: list[str] = [f"[unused{number}]" for number in range(size)]
    kinds = np.full(size, NORMAL, np.int32)
    for token, number in model["vocab"].items():
        names[number] = token
    for token in state["added_tokens"]:
        names[token["id"]] = token["content"]
        kinds[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    merges: Sequence[Any] = model["merges"]
    joined = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    return names, kinds, {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": split, "tokenizer.ggml.merges": joined}


def _described(pre_tokenizer: Any) -> Any:
    """How the library describes a way to split words."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizer
    return json.loads(inner.to_str())["pre_tokenizer"]
