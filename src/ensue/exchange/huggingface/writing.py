"""Export a model as a Hugging Face folder: config.json, model.safetensors and the tokenizer's files.

GPT-2's head for whole texts has no bias. W h + b = W (h + δ) with W δ = b, and h is the last layer norm's output, so δ
is added to that norm's bias, which nothing else reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.files import atomic_file, write_json, write_text
from ensue.data.tokenizers.special_tokens import SpecialTokens
from ensue.exchange.huggingface.conversion import export_settings, export_weights, model_map, unused_rows
from ensue.exchange.huggingface.electra import GENERATOR, generator_of
from ensue.exchange.huggingface.export_form import ExportForm, electra_of, export_form, unsupported
from ensue.exchange.huggingface.families import BERT as BERT_FAMILY
from ensue.exchange.huggingface.families import DISTILBERT, ELECTRA, GPT2, ROBERTA
from ensue.exchange.huggingface.family import Family
from ensue.models.electra import ELECTRA as ELECTRAModel
from ensue.models.labelled import Labelled


def write_folder(
    model: nn.Module,
    out: str | Path,
    *,
    tokenizer_state: Mapping[str, Any],
    special: SpecialTokens | None,
    labels: Sequence[str] | None,
    task: str,
) -> Path:
    """Write a model and its tokenizer as a folder; the error for an unsupported model names supported ones."""
    out = Path(out)
    form = export_form(model)
    if isinstance(model, ELECTRAModel):
        small = generator_of(model)
        of_generator = ExportForm(electra_of(small.config), ("masked",), small.body, "body.", "")
        _write(small, of_generator, out / GENERATOR, tokenizer_state, special, None, task)
    return _write(model, form, out, tokenizer_state, special, labels, task)


def _write(
    model: nn.Module,
    form: ExportForm,
    out: Path,
    tokenizer_state: Mapping[str, Any],
    special: SpecialTokens | None,
    labels: Sequence[str] | None,
    task: str,
) -> Path:
    """Write a model in a form that is known."""
    tokens = token_names(tokenizer_state)
    pad = _pad(form, special)
    config = {
        "architectures": [form.architecture],
        "model_type": form.family.name,
        **export_settings(form.family, form.body.config, pad),
        **form.settings,
        **_special_ids(form, special, pad),
        **_label_settings(model, form.family, labels, task),
        "torch_dtype": "float32",
    }
    weights = export_model_weights(model, form, pad)
    write_json(out / "config.json", config)
    with atomic_file(out / "model.safetensors") as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})
        temporary.chmod(0o644)
    _write_tokenizer(out, tokenizer_state, tokens, special, form)
    return out


def export_model_weights(model: nn.Module, form: ExportForm, pad: int | None) -> dict[str, Tensor]:
    """Return the model's tensors under their names."""
    own = {name: tensor.detach().float().cpu() for name, tensor in model.state_dict().items()}
    segments = f"{form.ours}segments.weight"
    if segments not in own:
        own[segments] = torch.zeros(1, form.body.embed.embedding_dim)
    if form.family is GPT2 and "whole" in form.heads:
        own = _without_bias(own)
    names = model_map(form.family, len(form.body.blocks), form.heads, form.ours, form.pool)
    return export_weights(names, own, unused_rows(form.family, {"pad_token_id": pad}), form.body.config.heads)


def _without_bias(own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Move the bias of a head into the last layer norm: W δ = b."""
    weight, bias = own["out.weight"].double(), own["out.bias"].double()
    shift = torch.linalg.pinv(weight) @ bias
    if not torch.allclose(weight @ shift, bias, atol=1e-6):
        hint = "its head has no bias; train with fewer labels or a wider model"
        raise unsupported("a gpt's head whose outputs depend on each other", hint)
    norm = own["body.norm.bias"]
    return {**own, "out.bias": torch.zeros_like(own["out.bias"]), "body.norm.bias": (norm.double() + shift).to(norm)}


def _pad(form: ExportForm, special: SpecialTokens | None) -> int | None:
    """Return the pad token; GPT-2 classifies the last token that is not padding, so it must differ from the end."""
    if form.family is GPT2:
        return None if special is None or special.pad == special.end else special.pad
    if special is None:
        raise InputError("an encoder is written with a tokenizer that has special tokens", hint="this one has none")
    return special.pad


def _special_ids(form: ExportForm, special: SpecialTokens | None, pad: int | None) -> dict[str, int | None]:
    """Return the ids of special tokens that differ from the library's defaults."""
    ends = {"bos_token_id": special.start, "eos_token_id": special.end} if special else {}
    if form.family in (BERT_FAMILY, DISTILBERT) or form.family.name == ELECTRA.name:
        return {"pad_token_id": pad}
    return {"pad_token_id": pad, "bos_token_id": None, "eos_token_id": None, **ends}


def _label_settings(model: nn.Module, family: Family, labels: Sequence[str] | None, task: str) -> dict[str, Any]:
    """Return their settings of a head and its labels."""
    if not isinstance(model, Labelled):
        return {}
    head = model.config
    settings: dict[str, Any] = {}
    name = family.head_dropouts.get(head.kind)
    if name is not None and name not in family.settings:  # otherwise it is the backbone's
        settings[name] = head.dropout
    if head.kind == "choice":
        return {**settings, "num_choices": model.choices}
    if head.kind == "span":
        return settings
    if task == "regress":
        return {**settings, "problem_type": "regression", "num_labels": 1, **_numbered(["LABEL_0"])}
    if labels is None or len(labels) != head.outputs or len(set(labels)) != head.outputs:
        raise InputError(f"{len(labels or ())} labels were given for a head of {head.outputs} outputs")
    if head.kind == "whole":
        settings["problem_type"] = "single_label_classification"
    return {**settings, "num_labels": len(labels), **_numbered(labels)}


def _numbered(labels: Sequence[str]) -> dict[str, Any]:
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def token_names(state: Mapping[str, Any]) -> dict[int, str]:
    """Return the name of each token of a tokenizer.json; raise an error for other tokenizers."""
    model = state.get("model")
    if not isinstance(model, Mapping) or not model.get("vocab"):
        raise unsupported(f"a tokenizer of kind {state.get('kind', 'unknown')}", "bpe, wordpiece and unigram are")
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        names = {int(number): str(name) for name, number in vocabulary.items()}
    else:  # unigram: pairs of a name and a score
        names = {number: str(pair[0]) for number, pair in enumerate(vocabulary)}
    names |= {int(token["id"]): str(token["content"]) for token in state.get("added_tokens") or ()}
    return dict(sorted(names.items()))


def _write_tokenizer(
    out: Path, state: Mapping[str, Any], tokens: Mapping[int, str], special: SpecialTokens | None, form: ExportForm
) -> None:
    """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json; vocab.txt for WordPiece."""
    names = _special_names(state, tokens, special, form)
    normalizer = state.get("normalizer") or {}
    settings: dict[str, Any] = {"model_max_length": form.body.config.context, **names}
    if state["model"].get("type") == "WordPiece":
        write_text(out / "vocab.txt", "".join(f"{name}\n" for name in tokens.values()))
    if state["model"].get("type") == "WordPiece" and normalizer.get("type") == "BertNormalizer":
        settings |= {
            "tokenizer_class": "DistilBertTokenizer" if form.family is DISTILBERT else "BertTokenizer",
            "do_lower_case": normalizer.get("lowercase", True),
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        }
    else:  # this class reads everything from tokenizer.json
        settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": _lowers(normalizer)}
    if getattr(form.body.config, "segments", 0) < 2:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    write_json(out / "tokenizer.json", _with_template(state, tokens, special, form))
    write_json(out / "tokenizer_config.json", settings)
    write_json(out / "special_tokens_map.json", names)


def _with_template(
    state: Mapping[str, Any], tokens: Mapping[int, str], special: SpecialTokens | None, form: ExportForm
) -> dict[str, Any]:
    """Return the tokenizer's file; for a GPT-2 that labels, with a template of the special tokens around texts."""
    if form.family is not GPT2 or not form.heads or special is None or special.omitted:
        return dict(state)
    ids = (special.start, special.end)
    first, last = ({"SpecialToken": {"id": tokens[number], "type_id": 0}} for number in ids)
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    names = {tokens[number]: number for number in ids}
    frame = {
        "type": "TemplateProcessing",
        "single": [first, a, last],
        "pair": [first, a, last, b, last],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in names.items()},
    }
    before = state.get("post_processor")
    return {**state, "post_processor": {"type": "Sequence", "processors": [before, frame]} if before else frame}


def _special_names(
    state: Mapping[str, Any], tokens: Mapping[int, str], special: SpecialTokens | None, form: ExportForm
) -> dict[str, str]:
    """Return special tokens by purpose; only those that no text contains, since the library splits texts at them."""
    flagged = {int(token["id"]) for token in state.get("added_tokens") or () if token.get("special")}
    numbers: dict[str, int | None] = {}
    if special is not None:
        numbers = {"pad_token": special.pad, "mask_token": special.mask}
        if form.family is not GPT2:
            numbers |= {"cls_token": special.start, "sep_token": special.end}
        if form.family in (ROBERTA, GPT2):
            numbers |= {"bos_token": special.start, "eos_token": special.end}
    names = {role: tokens[number] for role, number in numbers.items() if number is not None and number in flagged}
    unknown = state["model"].get("unk_token") or tokens.get(state["model"].get("unk_id", -1))
    if unknown:
        names["unk_token"] = str(unknown)
    return names


def _lowers(normalizer: Mapping[str, Any]) -> bool:
    """True if a normalizer, or one of several, converts to lower case."""
    lowers = normalizer.get("type") == "Lowercase" or bool(normalizer.get("lowercase"))
    return lowers or any(map(_lowers, normalizer.get("normalizers") or ()))
