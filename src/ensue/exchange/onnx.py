"""Export a model to ONNX: one file that runs without Python, for example in onnxruntime.

    input_ids, attention_mask, token_type_ids   (B, T), int64, any B and T  →  logits, or vectors (B, D)

The mask is 1 for tokens and 0 for padding, on the right; T is at most the model's context. The names are
those that Hugging Face's tools use. Choices are rows that follow each other: logits are (B / choices, choices) then.
A language model reads all tokens again for each new one: the file has no key–value cache.
"""

from __future__ import annotations

import copy
import importlib.util
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError, unknown_name
from ensue.core.files import atomic_file
from ensue.kernels.grouped import GroupedWeight
from ensue.models.backbones import body_of
from ensue.models.bert import BERT
from ensue.models.encoder import Encoder
from ensue.models.gpt import GPTLanguageModel
from ensue.models.labelled import Labelled, pool
from ensue.nn.mixers.mixer import parse_mixer, parse_pattern

OUTPUTS = ("logits", "vectors")
INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
MIN_OPSET = 14
"""First opset with all operations."""
CAUSAL, BIDIRECTIONAL = ("full",), ("full", "linear", "performer")
"""Mixers that are the same operations at every length, which a file has to be."""


def write_onnx(model: nn.Module, path: str | Path, opset: int = 17, *, form: str = "logits") -> Path:
    """Write a BERT, a GPT, a Llama or a labelling model, or with ``form="vectors"`` a model that embeds a text: the
    normalised mean of its hidden states.
    """
    path = Path(path)
    if importlib.util.find_spec("onnx") is None:
        raise InputError("ONNX needs a package that is not installed", hint="pip install 'ensue[onnx]'")
    if form not in OUTPUTS:
        raise unknown_name("form", form, OUTPUTS)
    if opset < MIN_OPSET:
        raise InputError(f"opset {opset} is too old for this model", hint=f"use {MIN_OPSET} or more")
    wrapped = _wrapped(_plain(model), form)
    output = wrapped(*_example(model))
    axes = {name: {0: "batch", 1: "length"} for name in INPUT_NAMES}
    axes[form] = {0: "batch", 1: "length"} if output.dim() == 3 else {0: "batch"}
    with atomic_file(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about checks of the input's size
        try:
            torch.onnx.export(
                wrapped,
                _example(model),
                temporary,
                input_names=list(INPUT_NAMES),
                output_names=[form],
                dynamic_axes=axes,
                opset_version=opset,
                dynamo=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:  # its message holds the whole graph
            what = f"has an operation that ONNX does not have: {str(error).splitlines()[0][:200]}"
            raise InputError(f"this {type(model).__name__} {what}") from error
        temporary.chmod(0o644)
    return path


def _plain(model: nn.Module) -> nn.Module:
    """Return a copy for inference only, with reference kernels."""
    return copy.deepcopy(model).eval().float().cpu().requires_grad_(False)


def _wrapped(model: nn.Module, form: str) -> nn.Module:
    body = model.masked_encoder if isinstance(model, BERT) and form != "vectors" else body_of(model)
    if not isinstance(body, (Encoder, GPTLanguageModel)):
        hint = "bert, roberta, gpt, llama and models that label with them can be"
        raise InputError(f"a {type(body).__name__} cannot be exported to ONNX", hint=hint)
    _check_attention(body)
    if any(isinstance(part, GroupedWeight) for part in model.modules()):
        hint = "ensue convert RUN --weights float32 makes one that can be"
        raise InputError("a model with weights of 4 or 8 bits cannot be exported to ONNX", hint=hint)
    if getattr(body.config, "adaptive", ()):
        raise InputError("a model with adaptive= cannot be exported to ONNX", hint="one without it can be")
    if form == "vectors":
        return VectorsExport(body)
    if isinstance(model, (BERT, Labelled, GPTLanguageModel)):
        return LogitsExport(model)
    raise InputError(
        f"a {type(model).__name__} alone is exported as vectors only",
        hint='in Python: write_onnx(model, path, form="vectors")',
    )


def _check_attention(body: Encoder | GPTLanguageModel) -> None:
    """Raise InputError for attention whose blocks depend on the length: the file would hold those of the example's."""
    allowed = CAUSAL if isinstance(body, GPTLanguageModel) else BIDIRECTIONAL
    names = [parse_mixer(one)[0] for one in parse_pattern(body.config.attention, body.config.layers)]
    for name in names:
        if name not in allowed:
            hint = f"one with attention = {' or '.join(allowed)} can be"
            raise InputError(f"a model with attention = {name} cannot be exported to ONNX", hint=hint)


def _example(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Return two example rows per choice, one of them padded."""
    rows = 2 * (model.choices if isinstance(model, Labelled) else 1)
    mask = torch.ones(rows, 3, dtype=torch.long)
    mask[0, 2:] = 0
    return torch.zeros(rows, 3, dtype=torch.long), mask, torch.zeros(rows, 3, dtype=torch.long)


class LogitsExport(nn.Module):
    """Exports the logits of a language model, masked or not, or of a labelling model."""

    def __init__(self, model: BERT | Labelled | GPTLanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """(B, T) each → logits."""
        model = self.model
        body = model if isinstance(model, GPTLanguageModel) else body_of(model)
        tokens, segments, lengths = _inputs(body, input_ids, attention_mask, token_type_ids)
        if isinstance(model, GPTLanguageModel):
            return model.logits(_read(model, tokens, segments, lengths))
        if isinstance(model, Labelled):
            if isinstance(model.body, GPTLanguageModel):
                return model.label(_read(model.body, tokens, segments, lengths), lengths)
            labelled: Tensor = model(tokens, segments, lengths).logits
            return labelled
        logits: Tensor = model.head(_read(model.masked_encoder, tokens, segments, lengths))
        return logits


class VectorsExport(nn.Module):
    """Exports the normalised mean of a text's hidden states."""

    def __init__(self, body: Encoder | GPTLanguageModel) -> None:
        super().__init__()
        self.body = body

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """(B, T) each → (B, D)."""
        tokens, segments, lengths = _inputs(self.body, input_ids, attention_mask, token_type_ids)
        return F.normalize(pool(_read(self.body, tokens, segments, lengths), lengths, "mean"), dim=-1)


def _inputs(body: nn.Module, tokens: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return tokens, segments if the model uses them, and lengths."""
    uses_segments = isinstance(body, Encoder) and body.config.segments > 1
    tokens = tokens + 0 * (mask + segments)  # an unused input would be dropped from the file
    return tokens, segments if uses_segments else None, mask.sum(1)


def _read(body: nn.Module, tokens: Tensor, segments: Tensor | None, lengths: Tensor) -> Tensor:
    """Return hidden states (B, T, D). A language model is causal, so padding on the right has no effect."""
    if isinstance(body, Encoder):
        hidden: Tensor = body(tokens, segments, lengths).hidden
        return hidden
    with torch.enable_grad():  # keys and values are then not written to fixed-size buffers
        hidden = body(tokens, want=("hidden",)).hidden
    return hidden
