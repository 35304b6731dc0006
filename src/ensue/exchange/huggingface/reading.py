"""Import folders of Hugging Face models: config.json and safetensors.

``read_folder`` reads and checks: a ``HubFolder`` has every tensor its class needs, under the library's newest names.
``build_model`` builds the model. A pickle is never opened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError, errors_in
from ensue.core.files import read_json
from ensue.core.schema import Fields, Items, Maybe, Table, Text, Whole, check_schema, shown
from ensue.exchange.huggingface.conversion import (
    backbone_settings,
    check_settings,
    head_dropout,
    head_map,
    import_weights,
    model_map,
    setting,
    unused_rows,
)
from ensue.exchange.huggingface.deberta import DECODER_TIMES
from ensue.exchange.huggingface.electra import GENERATOR, check_generator, check_shared, pair_settings
from ensue.exchange.huggingface.families import FAMILIES, electra_family
from ensue.exchange.huggingface.family import Family
from ensue.exchange.huggingface.stored import all_tensors, in_float32
from ensue.exchange.huggingface.tensor_checks import check_tensors, present_heads, rename_tensors, without_tied
from ensue.exchange.tensor_files import listed
from ensue.models.encoder import Encoder
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import KINDS, HeadConfig, Labelled
from ensue.models.table import SYSTEMS
from ensue.nn.planning import without_storage

CONFIG_FILE = "config.json"
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
MOST_LAYERS = 1000
"""The most layers that can share a block."""
HEAD_TASKS = {"whole": ("classify", 0), "choice": ("choose", 1), "token": ("tag", 0), "span": ("answer", 2)}
"""The task of each head, and its number of outputs; 0 means one for each label."""


CONFIG_SCHEMA = Fields(
    optional={
        "architectures": Maybe(Items(Text())),
        "id2label": Maybe(Table(Text())),
        "problem_type": Maybe(Text()),
        "num_choices": Whole(1, 1 << 20),
        "pad_token_id": Maybe(Whole(-1, 1 << 31)),
    }
)
"""What config.json must be, besides the settings of its family."""


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
    generator: HubFolder | None = None
    """Of a discriminator: the folder of its generator."""

    @property
    def where(self) -> str:
        """The path of config.json, for errors."""
        return str(self.path / CONFIG_FILE)


class ImportedModel(NamedTuple):
    """A model built from a folder, with its system and task."""

    system: str
    model: nn.Module
    task: str
    labels: tuple[str, ...] | None
    untrained: tuple[str, ...] = ()
    """Heads that the folder does not have, and that answer at random until they are trained."""


def read_folder(path: str | Path) -> HubFolder:
    """Read and check a folder; errors name what is missing or not supported."""
    path = Path(path)
    where = str(path / CONFIG_FILE)
    if not path.is_dir():
        raise InputError("there is no such folder", where=str(path))
    config = read_json(path / CONFIG_FILE)
    check_schema(config, CONFIG_SCHEMA, where)
    family = _family(config, where)
    architecture = _architecture(family, config, where)
    check_settings(family, config, where)
    raw, notes = in_float32(all_tensors(path))
    blocks = _blocks(family, config, len(raw), where)
    weights = without_tied(family, config, rename_tensors(family, blocks, raw), where)
    heads = present_heads(family, architecture, weights)
    notes += check_tensors(family, heads, blocks, weights, str(path))
    generator = _generator(path, heads)
    notes += _remarks(family, config, heads, generator is not None)
    tokenizer = next((path / name for name in TOKENIZER_FILES if (path / name).exists()), None)
    if tokenizer is None:
        notes.append("there is no tokenizer in the folder")
    return HubFolder(
        path,
        family.name,
        architecture,
        heads,
        config,
        weights,
        tokenizer,
        _labels(config, where),
        tuple(notes),
        generator,
    )


def _generator(path: Path, heads: tuple[str, ...]) -> HubFolder | None:
    """Return the folder of a discriminator's generator, if there is one beside it."""
    inside = path / GENERATOR
    if "replaced" not in heads or not (inside / CONFIG_FILE).exists():
        return None
    generator = read_folder(inside)
    check_generator(generator.family, generator.heads, generator.where)
    return generator


def _blocks(family: Family, config: dict[str, Any], tensors: int, where: str) -> int:
    """Return the number of blocks: of layers, or of groups of layers that share one; every block has tensors."""
    number = {ours: setting(family, config, family.their(ours), where) for ours in ("layers", family.blocks)}
    layers, blocks = number["layers"], number[family.blocks]
    check_has_tensors(family.their(family.blocks), blocks, tensors, where)
    if not 0 < layers <= MOST_LAYERS * blocks or layers % blocks:
        what = f"{family.their('layers')} = {layers} is not supported with {family.their(family.blocks)} = {blocks}"
        raise InputError(what, where=where, hint=f"it can be a multiple of {blocks}, at most {MOST_LAYERS * blocks:,}")
    return int(blocks)


def build_model(folder: HubFolder) -> ImportedModel:
    """Build a masked or causal language model, or a labelling model, as the folder's class says, with its weights.

    It is built without storage first: sizes that the folder's tensors do not have take no memory.
    """
    with errors_in(folder.where, RuntimeError, OverflowError, TypeError, ValueError, IndexError, MemoryError):
        with without_storage():
            planned = _plan_model(folder)
        _converted_weights(folder, planned.model)
        imported = _plan_model(folder)
    own = imported.model.state_dict()
    with torch.no_grad():
        for name, tensor in _converted_weights(folder, imported.model).items():
            own[name].copy_(tensor)  # tied weights share one tensor, so copying once is enough
    return imported


def _plan_model(folder: HubFolder) -> ImportedModel:
    """Build the model of a folder with initial weights."""
    family = _family(folder.config, folder.where)
    settings = backbone_settings(family, folder.config, folder.where)
    kind = next((head for head in folder.heads if head in KINDS), None)
    if kind is not None:
        return _labelling_model(folder, family, settings, kind)
    cls = SYSTEMS.load(family.system)
    if cls is GPTLanguageModel:
        return ImportedModel(family.system, cls(cls.Config(**settings)), cls.task, None)
    untrained = tuple(head for head in ("masked", "replaced") if head in family.heads and head not in folder.heads)
    system = family.system
    if folder.generator is not None:
        theirs = backbone_settings(
            _family(folder.generator.config, folder.generator.where), folder.generator.config, folder.generator.where
        )
        settings, untrained = pair_settings(settings, theirs, folder.generator.where), ()
    elif family.name == "electra" and "masked" in folder.heads:
        system, untrained = "bert", ()  # a generator alone fills in masks
        cls = SYSTEMS.load(system)
    pooled = any(family.pools(head) for head in folder.heads)
    if family.system == "deberta":
        settings["decoder"] = DECODER_TIMES if "decoder" in folder.heads else 0
    model = cls(cls.Config(**settings, pooled=pooled, next_sentence="next" in folder.heads))
    return ImportedModel(system, model, cls.task, None, untrained)


def _labelling_model(folder: HubFolder, family: Family, settings: dict[str, Any], kind: str) -> ImportedModel:
    outputs = _outputs(folder, family, kind)
    task, wanted = HEAD_TASKS[kind]
    if kind == "whole" and (folder.config.get("problem_type") == "regression" or outputs == 1):
        task, wanted = "regress", 1
    _check_task(folder, task, outputs, wanted)
    body: nn.Module
    if family.system == "gpt":
        body = GPTLanguageModel(GPTConfig(**settings))
    else:
        config = SYSTEMS.load(family.system).Config
        body = Encoder(config(**settings, pooled=family.pools(kind), next_sentence=False))
    head = HeadConfig(
        pooling="last" if family.system == "gpt" else "first",
        dense=family.dense,
        dropout=head_dropout(family, folder.config, kind, folder.where),
        outputs=outputs,
        kind=kind,
    )
    choices = folder.config.get("num_choices", 1) if kind == "choice" else 1
    labels = None if wanted else folder.labels
    return ImportedModel(family.system, Labelled(body, head, choices), task, labels)


def _outputs(folder: HubFolder, family: Family, kind: str) -> int:
    """Return the number of outputs of a head: the rows of its last matrix."""
    last = next(theirs for theirs, (ours, _) in head_map(family, [kind]).items() if ours == "out.weight")
    if folder.weights[last].dim() != 2:
        raise InputError(f"{last} is not a matrix", where=str(folder.path))
    return len(folder.weights[last])


def _check_task(folder: HubFolder, task: str, outputs: int, wanted: int) -> None:
    if folder.config.get("problem_type") == "multi_label_classification":
        what = "several labels at once (problem_type = multi_label_classification) are not supported"
        raise InputError(what, where=folder.where, hint="labels here exclude each other")
    if not wanted and folder.labels is not None and len(folder.labels) != outputs:
        what = f"id2label has {len(folder.labels)} labels, and the head {outputs} outputs"
        raise InputError(what, where=folder.where)
    if wanted and outputs != wanted:
        raise InputError(f"a head with {outputs} outputs cannot {task}: that takes {wanted}", where=folder.where)


def _converted_weights(folder: HubFolder, model: nn.Module, ours: str = "") -> dict[str, Tensor]:
    """Return the folder's weights under our names; raise an error for one whose size is not the model's.

    ``ours`` is the prefix of the backbone's names.
    """
    family, own = _family(folder.config, folder.where), model.state_dict()
    ours = ours or ("" if isinstance(model, GPTLanguageModel) else "body.")
    blocks = len(model.get_submodule(ours.removesuffix(".")).blocks)  # type: ignore[arg-type]
    pool = "body.pooler" if any(family.pools(head) for head in folder.heads) else "dense"
    names = model_map(family, blocks, folder.heads, ours, pool)
    heads = setting(family, folder.config, family.their("heads"), folder.where)
    new = import_weights(names, folder.weights, unused_rows(family, folder.config), heads)
    wrong = [name for name, tensor in new.items() if name not in own or tensor.shape != own[name].shape]
    if wrong:
        theirs = [name for name, (here, _) in names.items() if here in wrong]
        size = tuple(folder.weights[theirs[0]].shape)
        what = f"{listed(theirs)}: the sizes, e.g. {size}, are not those that {CONFIG_FILE} gives"
        raise InputError(what, where=str(folder.path))
    if folder.generator is None:
        return new
    of_generator = _converted_weights(folder.generator, model, "generator.")
    check_shared(new, of_generator, folder.generator.where)
    return new | of_generator


def _family(config: dict[str, Any], where: str) -> Family:
    """Return the family of a folder, with the tensors that a model with its settings has."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        what = "has no model_type" if name is None else f"model_type {shown(name)} is not supported"
        raise InputError(what, where=where, hint=f"available: {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    if family.name != "electra":
        return family.of(config)
    return electra_family(*(setting(family, config, theirs, where) for theirs in ("embedding_size", "hidden_size")))


def _architecture(family: Family, config: dict[str, Any], where: str) -> str:
    """Return the folder's class; the base class if none is given."""
    names = config.get("architectures") or list(family.classes)[:1]
    known = next((name for name in names if name in family.classes), None)
    if known is None:
        raise InputError(
            f"{shown(names[0])} is not supported", where=where, hint=f"available: {', '.join(family.classes)}"
        )
    return str(known)


def _labels(config: dict[str, Any], where: str) -> tuple[str, ...] | None:
    names = config.get("id2label")
    if not names:
        return None
    try:
        numbered = {int(number): str(name) for number, name in names.items()}
        labels = tuple(numbered[number] for number in range(len(numbered)))
    except (AttributeError, ValueError, KeyError) as error:
        raise InputError("id2label does not number its labels 0, 1, 2, …", where=where) from error
    twice = next((label for label, count in Counter(labels).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"id2label has the label {twice!r} twice", where=where, hint="give each a name of its own")
    return labels


def check_has_tensors(name: str, blocks: int, tensors: int, where: str) -> None:
    """Raise InputError for a setting ``name`` that asks for no blocks, or for more than there are tensors."""
    if not 0 < blocks <= tensors:
        what = f"{name} = {blocks}, and there are {tensors} tensors"
        raise InputError(what, where=where, hint="config.json belongs to another model, or is damaged")


def _remarks(family: Family, config: dict[str, Any], heads: tuple[str, ...], paired: bool) -> list[str]:
    """Return notes on harmless differences; ``paired``: a generator is beside it."""
    notes = []
    unfilled = "masked" in family.heads and "masked" not in heads and not any(head in KINDS for head in heads)
    if unfilled and family.name == "electra" and not paired:
        notes.append("the folder has no generator: a new, untrained one is added, so what it fills in is random")
    elif unfilled and not paired:
        notes.append("the folder has no masked head: a new, untrained one is added, so what it fills in is random")
    if "decoder" in heads:
        notes.append("masked tokens are decoded with the absolute positions it has, which transformers leaves out")
    dropout = family.their("dropout")
    share = config.get(dropout, family.settings[dropout][1])
    notes += [
        f"{name} = {config[name]} is {share} here: there is one dropout for the whole backbone"
        for name in family.dropouts
        if config.get(name, share) != share
    ]
    if config.get("sinusoidal_pos_embds"):
        notes.append("its positions are sinusoids; here they change if it is trained")
    return notes
