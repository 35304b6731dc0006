"""Import folders of Hugging Face models: config.json and safetensors.

``read_folder`` reads and checks; what it finds has every tensor its class needs, under the library's newest names.
``build_model`` builds the model. A pickle is never opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.files import read_json
from ensue.exchange.huggingface.families import FAMILIES, POOLER, Family, WeightMap
from ensue.exchange.huggingface.naming import backbone_map, head_map, import_weights
from ensue.exchange.huggingface.settings import backbone_settings, check_settings, head_dropout, setting, unused_rows
from ensue.models.bert import BERT, BERTConfig, RoBERTa, RoBERTaConfig
from ensue.models.encoder import Encoder
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import KINDS, HeadConfig, Labelled

WEIGHTS_FILE, INDEX_FILE, CONFIG_FILE = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}
"""Old suffixes of layer norms."""
MAX_NAMES = 3
"""Names listed in an error; the rest are counted."""
HEAD_TASKS = {"choice": "choose", "token": "tag", "span": "answer"}


@dataclass(frozen=True, slots=True)
class HubFolder:
    """The contents of a folder."""

    path: Path
    family: str
    """Their ``model_type``: a name in ``families.FAMILIES``."""
    architecture: str
    """Their class."""
    heads: tuple[str, ...]
    """The heads of the class whose tensors are present."""
    config: dict[str, Any]
    weights: dict[str, Tensor]
    """In float32, under the library's current names."""
    tokenizer: Path | None
    """tokenizer.json, or another tokenizer file."""
    labels: tuple[str, ...] | None
    """id2label, in order."""
    notes: tuple[str, ...]
    """Notes for the user, one sentence each."""


class ImportedModel(NamedTuple):
    """A model built from a folder, with its system and task."""

    system: str
    model: nn.Module
    task: str
    labels: tuple[str, ...] | None


def read_folder(path: str | Path) -> HubFolder:
    """Read and check a folder; errors name what is missing or not supported."""
    path = Path(path)
    where = str(path / CONFIG_FILE)
    if not path.is_dir():
        raise InputError("there is no such folder", where=str(path))
    config = read_json(path / CONFIG_FILE)
    if not isinstance(config, dict):
        raise InputError("does not describe a model", where=where)
    family = _family(config, where)
    architecture = _architecture(family, config, where)
    check_settings(family, config, where)
    raw, notes = _single(_tensors(path))
    layers = next(setting(family, config, theirs, where) for theirs, (o, _) in family.settings.items() if o == "layers")
    weights = _untied(family, config, _tidied(family, layers, raw), where)
    heads = _heads(family, architecture, weights)
    notes += _checked(family, heads, backbone_map(family, layers, ""), weights, str(path))
    notes += _remarks(family, config, heads)
    tokenizer = next((path / name for name in TOKENIZER_FILES if (path / name).exists()), None)
    if tokenizer is None:
        notes.append("there is no tokenizer in the folder")
    return HubFolder(
        path, family.name, architecture, heads, config, weights, tokenizer, _labels(config, where), tuple(notes)
    )


def build_model(found: HubFolder) -> ImportedModel:
    """Build a masked or causal language model, or a labelling model, as the folder's class says, with its weights."""
    family = FAMILIES[found.family]
    where = str(found.path / CONFIG_FILE)
    settings = backbone_settings(family, found.config, where)
    kind = next((head for head in found.heads if head in KINDS), None)
    if kind is not None:
        return _labelling(found, family, settings, kind)
    if family.name == "gpt2":
        return ImportedModel("gpt", _filled(found, GPTLanguageModel(GPTConfig(**settings)), ""), "language", None)
    pooled, following = any(_pools(family, head) for head in found.heads), "next" in found.heads
    cls, form = (RoBERTa, RoBERTaConfig) if family.name == "roberta" else (BERT, BERTConfig)
    model = cls(form(**settings, pooled=pooled, next_sentence=following))
    return ImportedModel("roberta" if cls is RoBERTa else "bert", _filled(found, model, "body."), "masked", None)


def _labelling(found: HubFolder, family: Family, settings: dict[str, Any], kind: str) -> ImportedModel:
    outputs = _outputs(found, family, kind)
    task, labels = HEAD_TASKS.get(kind, "classify"), found.labels
    if kind == "whole" and (found.config.get("problem_type") == "regression" or outputs == 1):
        task = "regress"
    _may_be_task(found, task, outputs)
    body: nn.Module
    if family.name == "gpt2":
        body, system, dense = GPTLanguageModel(GPTConfig(**settings)), "gpt", "none"
    else:
        form = RoBERTaConfig if family.name == "roberta" else BERTConfig
        body = Encoder(form(**settings, pooled=_pools(family, kind), next_sentence=False))
        system, dense = ("roberta" if family.name == "roberta" else "bert"), "tanh"
        if family.name == "distilbert":
            dense = "relu"
    head = HeadConfig(
        pooling="last" if system == "gpt" else "first",
        dense=dense,
        dropout=head_dropout(family, found.config, kind, str(found.path / CONFIG_FILE)),
        outputs=outputs,
        kind=kind,
    )
    choices = found.config.get("num_choices", 1) if kind == "choice" else 1
    model = _filled(found, Labelled(body, head, choices), "body.")
    return ImportedModel(system, model, task, labels if task in ("classify", "tag") else None)


def _outputs(found: HubFolder, family: Family, kind: str) -> int:
    """Return the number of outputs of a head: the rows of its last matrix."""
    names = head_map(family, kind, POOLER)
    last = next(theirs for theirs, (ours, _) in names.items() if ours == "out.weight")
    if found.weights[last].dim() != 2:
        raise InputError(f"{last} is no matrix", where=str(found.path))
    return len(found.weights[last])


def _may_be_task(found: HubFolder, task: str, outputs: int) -> None:
    where = str(found.path / CONFIG_FILE)
    if found.config.get("problem_type") == "multi_label_classification":
        what = "several labels at once (problem_type = multi_label_classification) have no form here"
        raise InputError(what, where=where, hint="labels here exclude each other")
    if task in ("classify", "tag") and found.labels is not None and len(found.labels) != outputs:
        raise InputError(f"id2label has {len(found.labels)} labels, and the head {outputs} outputs", where=where)
    wanted = {"regress": 1, "choose": 1, "answer": 2}.get(task, outputs)
    if outputs != wanted:
        raise InputError(f"a head with {outputs} outputs cannot {task}: that takes {wanted}", where=where)


def _filled(found: HubFolder, model: nn.Module, ours: str) -> nn.Module:
    """Load the folder's weights into the model; missing ones stay newly initialised."""
    family, own = FAMILIES[found.family], model.state_dict()
    layers = int(getattr(model, "body", model).config.layers)  # type: ignore[union-attr, arg-type]
    names = backbone_map(family, layers, ours)
    for head in found.heads:
        names |= head_map(family, head, "body.pooler" if _pools(family, head) else "dense")
    new = import_weights(names, found.weights, unused_rows(family, found.config))
    wrong = [name for name, tensor in new.items() if tensor.shape != own[name].shape]
    if wrong:
        theirs = [name for name, (here, _) in names.items() if here in wrong]
        sizes = f"{tuple(found.weights[theirs[0]].shape)}"
        what = f"{_listed(theirs)}: the sizes, e.g. {sizes}, are not those that {CONFIG_FILE} gives"
        raise InputError(what, where=str(found.path))
    with torch.no_grad():
        for name, tensor in new.items():  # tied weights share one tensor, so copying once is enough
            own[name].copy_(tensor)
    return model


def _pools(family: Family, head: str) -> bool:
    """Return whether a head uses the backbone's pooled first token."""
    return f"{family.prefix}pooler.dense" in family.heads[head]


def _family(config: dict[str, Any], where: str) -> Family:
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        what = "does not say its model_type" if name is None else f"a model_type {name!r} has no form here"
        raise InputError(what, where=where, hint=f"there is {', '.join(FAMILIES)}")
    return FAMILIES[name]


def _architecture(family: Family, config: dict[str, Any], where: str) -> str:
    """Return the folder's class; the base class if none is given."""
    said = config.get("architectures") or list(family.classes)[:1]
    if not isinstance(said, list):
        raise InputError(f"architectures = {said!r} should be a list of classes", where=where)
    found = next((name for name in said if name in family.classes), None)
    if found is None:
        raise InputError(f"a {said[0]} has no form here", where=where, hint=f"there is {', '.join(family.classes)}")
    return str(found)


def _labels(config: dict[str, Any], where: str) -> tuple[str, ...] | None:
    names = config.get("id2label")
    if not names:
        return None
    try:
        numbered = {int(number): str(name) for number, name in names.items()}
        labels = tuple(numbered[number] for number in range(len(numbered)))
    except (AttributeError, ValueError, KeyError) as error:
        raise InputError("id2label does not number its labels 0, 1, 2, …", where=where) from error
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise InputError(f"id2label has the label {twice!r} twice", where=where, hint="give each a name of its own")
    return labels


def _tensors(path: Path) -> dict[str, Tensor]:
    """Load all tensors of a folder, from one file or several."""
    if (path / WEIGHTS_FILE).exists():
        return _file(path / WEIGHTS_FILE)
    if (path / INDEX_FILE).exists():
        index = read_json(path / INDEX_FILE)
        held = index.get("weight_map") if isinstance(index, dict) else None
        files = list(held.values()) if isinstance(held, dict) else []
        if not files or any(Path(str(name)).name != name for name in files):
            raise InputError("is damaged: it does not name the files of this folder", where=str(path / INDEX_FILE))
        found: dict[str, Tensor] = {}
        for name in sorted(set(files)):
            found |= _file(path / name)
        absent = sorted(set(index["weight_map"]) - set(found))
        if absent:
            raise InputError(f"its files do not hold {_listed(absent)}", where=str(path / INDEX_FILE))
        return found
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES)
    if pickles:
        raise pickle_error(path / pickles[0])
    raise InputError(f"there is no {WEIGHTS_FILE}", where=str(path))


def is_pickle(path: Path) -> bool:
    """Return whether torch.save wrote a file: a pickle, or an archive with one."""
    with path.open("rb") as file:
        return path.suffix in PICKLE_SUFFIXES and file.read(4).startswith((b"\x80", b"PK\x03\x04"))


def pickle_error(path: Path) -> InputError:
    """Return the error for a pickle: why it is not opened, and what to do."""
    what = f"{path.name} is a pickle, which can run any code when it is opened, so it is not"
    hint = "open it with transformers where you trust it and save_pretrained(folder, safe_serialization=True)"
    return InputError(what, where=str(path.parent), hint=hint)


def _file(path: Path) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = load_file(path)
    except FileNotFoundError as error:
        raise InputError("is missing", where=str(path)) from error
    except SafetensorError as error:
        raise InputError(f"is damaged: {error}", where=str(path)) from error
    return found


def _single(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Convert tensors to float32, with a note if they were not."""
    kinds = {str(t.dtype).removeprefix("torch.") for t in weights.values() if t.is_floating_point()} - {"float32"}
    single = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    return single, [f"its weights were {', '.join(sorted(kinds))} and are float32 here"] if kinds else []


def _tidied(family: Family, layers: int, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to the library's current names, with the backbone's prefix; buffers are dropped."""
    known = _known(family, layers)
    found = {}
    for name, tensor in weights.items():
        for old, new in OLD_SUFFIXES.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name.endswith(family.buffers):
            continue
        found[family.prefix + name if name not in known and family.prefix + name in known else name] = tensor
    return found


def _known(family: Family, layers: int) -> WeightMap:
    names = backbone_map(family, layers, "")
    for head in family.heads:
        names |= head_map(family, head, POOLER)
    return names


def _untied(family: Family, config: dict[str, Any], weights: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """Drop tied tensors; raise an error for one that should be tied and is not."""
    found = dict(weights)
    for alias, name in family.tied.items():
        again = found.pop(alias, None)
        if again is None:
            continue
        held = found.setdefault(name, again)
        apart = config.get("tie_word_embeddings") is False and name.startswith(family.prefix)
        if apart and not torch.equal(held, again):
            what = f"an output layer of its own ({alias} is not {name}, tie_word_embeddings = false) has no form here"
            raise InputError(what, where=where)
    return found


def _heads(family: Family, architecture: str, weights: dict[str, Tensor]) -> tuple[str, ...]:
    """Return the heads of a class; if it is not a labelling class, also others whose tensors are complete."""
    heads = family.classes[architecture]
    if any(head in KINDS for head in heads):
        return heads
    more = (head for head in ("masked", "next", "pooler") if head in family.heads and head not in heads)
    return heads + tuple(head for head in more if head_map(family, head, POOLER).keys() <= weights.keys())


def _checked(
    family: Family, heads: tuple[str, ...], body: WeightMap, weights: dict[str, Tensor], where: str
) -> list[str]:
    """Raise an error for missing, unexpected or broken tensors; note unused heads of other tasks."""
    needed = set(body).union(*(head_map(family, head, POOLER) for head in heads))
    missing = sorted(needed - set(weights), key=_natural)
    if missing:
        raise InputError(f"tensors are missing: {_listed(missing)}", where=where)
    broken = sorted((name for name in needed if not bool(weights[name].isfinite().all())), key=_natural)
    if broken:
        what = f"tensors hold what is no number (NaN or infinite): {_listed(broken)}"
        raise InputError(what, where=where, hint="save or download the model again")
    others = {name for head in family.heads for name in head_map(family, head, POOLER)}
    extra = set(weights) - needed
    if extra - others:
        what = f"tensors that its class has no place for: {_listed(sorted(extra - others, key=_natural))}"
        raise InputError(what, where=where)
    return [f"not used, of another task: {_listed(sorted(extra))}"] if extra else []


def _remarks(family: Family, config: dict[str, Any], heads: tuple[str, ...]) -> list[str]:
    """Return notes on harmless differences."""
    notes = []
    if "masked" in family.heads and "masked" not in heads and not any(head in KINDS for head in heads):
        notes.append("the folder has no masked head: a new one, not trained, is put in")
    dropout = next(theirs for theirs, (ours, _) in family.settings.items() if ours == "dropout")
    share = config.get(dropout, family.settings[dropout][1])
    notes += [
        f"{name} = {config[name]} is {share} here: there is one dropout for the whole body"
        for name in family.dropouts
        if config.get(name, share) != share
    ]
    if config.get("sinusoidal_pos_embds"):
        notes.append("its positions are sinusoids; here they are learnt on if it is trained")
    return notes


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key: layer 10 after layer 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"\.", name)]


def _listed(names: list[str]) -> str:
    """List the first few names and the total number.

    >>> _listed(["a", "b", "c", "d", "e"])
    'a, b, c … (5 in all)'
    """
    return ", ".join(names[:MAX_NAMES]) + (f" … ({len(names)} in all)" if len(names) > MAX_NAMES else "")
