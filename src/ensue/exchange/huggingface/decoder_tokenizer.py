"""Tokenizer and chat template of a decoder-only language model in a folder, in and out.

tokenizer.json holds the tokenizer of the ``tokenizers`` library; tokenizer_config.json names special tokens and may
hold the chat template, or chat_template.jinja does; generation_config.json may list several tokens that end an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from ensue.core.errors import InputError, errors_in, read_errors
from ensue.core.files import read_json, write_json, write_text
from ensue.core.schema import check_schema, shown
from ensue.data.chat_template import MAX_TEMPLATE, ChatTemplate
from ensue.data.tokenizers.library import LIBRARY_SCHEMA, check_ids, library_errors
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.data.tokenizers.unigram_pieces import piece_class
from ensue.exchange.huggingface.writing import token_names

TOKENIZER_FILE, SETTINGS_FILE, TEMPLATE_FILE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
GENERATION_FILE, NAMES_FILE = "generation_config.json", "special_tokens_map.json"
DOCUMENT_ENDS = ("<|endoftext|>", "<|end_of_text|>")
"""The tokens between documents in pre-training, where another one ends an answer."""


@dataclass(frozen=True, slots=True)
class DecoderTokenizer:
    """What a folder says about text."""

    tokenizer: SubwordTokenizer
    template: str
    """The chat template; empty if there is none."""
    begin: str
    """The names of the tokens that the template knows as bos_token and eos_token; empty where there is none."""
    end: str
    stop: tuple[str, ...]
    """The names of the tokens that end an answer."""


def read_decoder_tokenizer(folder: Path, config: Mapping[str, Any]) -> DecoderTokenizer:
    """Read the tokenizer of a folder, given its config.json."""
    file = folder / TOKENIZER_FILE
    if not file.exists():
        hint = "open it with transformers' AutoTokenizer and save_pretrained(folder), which writes tokenizer.json"
        raise InputError(f"there is no {TOKENIZER_FILE}", where=str(folder), hint=hint)
    state, settings = read_json(file), _table(folder / SETTINGS_FILE)
    check_schema(state, LIBRARY_SCHEMA, str(file))
    template, generation = _template(folder, settings), _table(folder / GENERATION_FILE)
    with errors_in(file, KeyError, TypeError, ValueError), library_errors():
        check_ids(state)
        inner = Tokenizer.from_str(json.dumps(state))
        names = {which: _name(settings, which, inner, config) for which in ("bos", "eos")}
        for name in filter(None, names.values()):
            inner.add_special_tokens([AddedToken(name, normalized=False, special=True)])
        special = {number: token.content for number, token in inner.get_added_tokens_decoder().items() if token.special}
        ends = [name for name in DOCUMENT_ENDS if name in special.values()]
        end = names["eos"] if names["eos"] and not ends else (ends[0] if ends else None)
        if end is None:
            raise InputError("names no token that ends a text", hint="eos_token in tokenizer_config.json does")
        tokenizer = piece_class(state)(inner, end, _first(inner, settings, names["bos"]))
        stops = [special.get(number) for number in _eos_numbers(config, generation)]
        stop = dict.fromkeys(name for name in (names["eos"], *stops, end) if name)
    if template:
        with errors_in(folder):
            ChatTemplate(template, tokenizer, names["bos"], names["eos"])  # refused before anything is written
    return DecoderTokenizer(tokenizer, template, names["bos"], names["eos"], tuple(stop))


def _table(path: Path) -> dict[str, Any]:
    """A JSON file that may be absent."""
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise InputError("should be a table", where=str(path))
    return found


def _name(settings: Mapping[str, Any], which: str, inner: Tokenizer, config: Mapping[str, Any]) -> str:
    """The name of a special token, by tokenizer_config.json or by its number in config.json; empty if none is given."""
    if f"{which}_token" in settings:
        token = settings[f"{which}_token"]
        token = token.get("content") if isinstance(token, Mapping) else token
        if token is not None and not isinstance(token, str):
            raise InputError(f"{which}_token = {shown(token)} should be text")
        return token or ""
    number = config.get(f"{which}_token_id")
    number = number[0] if isinstance(number, list) and number else number
    known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 31
    return (inner.id_to_token(number) if known else None) or ""


def _first(inner: Tokenizer, settings: Mapping[str, Any], begin: str) -> str | None:
    """The name of the token that the tokenizer puts before a text; None if it puts none."""
    with_special = inner.encode("a", add_special_tokens=True)
    if with_special.ids and with_special.special_tokens_mask[0]:
        return str(inner.id_to_token(with_special.ids[0]))
    return begin if begin and settings.get("add_bos_token") is True else None


def _eos_numbers(config: Mapping[str, Any], generation: Mapping[str, Any]) -> list[int]:
    """The numbers of all tokens that end an answer."""
    found: list[int] = []
    for one in (config.get("eos_token_id"), generation.get("eos_token_id")):
        found += [number for number in (one if isinstance(one, list) else [one]) if isinstance(number, int)]
    return found


def _template(folder: Path, settings: Mapping[str, Any]) -> str:
    """The chat template: the file, or the one in tokenizer_config.json; of several the one that is named default."""
    file = folder / TEMPLATE_FILE
    if file.exists():
        with read_errors(file, "cannot be read as UTF-8"):
            return file.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, Mapping)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise InputError("chat_template should be text", where=str(folder / SETTINGS_FILE))
    if found and len(found) > MAX_TEMPLATE:
        raise InputError(f"the chat template is longer than {MAX_TEMPLATE:,} characters", where=str(folder))
    return found or ""


def write_decoder_tokenizer(
    out: Path,
    tokenizer: SubwordTokenizer,
    context: int,
    template: str,
    begin: str,
    end: str,
    stop: tuple[str, ...],
    pad: str = "",
) -> dict[str, Any]:
    """Write the files of a tokenizer; return the ids of special tokens for config.json."""
    state = tokenizer.state()
    state = state.get("library", state)
    tokens = token_names(state)  # refuses tokenizers that the library does not have
    unknown = state["model"].get("unk_token") or tokens.get(state["model"].get("unk_id"))
    names = {"bos_token": begin, "eos_token": end, "unk_token": unknown, "pad_token": pad}
    names = {role: name for role, name in names.items() if name and name in tokenizer.named}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        **names,
    }
    write_json(out / TOKENIZER_FILE, state)
    write_json(out / SETTINGS_FILE, settings | ({"chat_template": template} if template else {}))
    write_json(out / NAMES_FILE, names)
    (out / TEMPLATE_FILE).unlink(missing_ok=True)  # of a model that was here before
    if template:
        write_text(out / TEMPLATE_FILE, template)
    numbers = [tokenizer.named[name] for name in stop if name in tokenizer.named]
    ids: dict[str, Any] = {
        "bos_token_id": tokenizer.named.get(begin),
        "eos_token_id": tokenizer.named.get(end),
        "pad_token_id": tokenizer.named.get(pad),
    }
    write_json(out / GENERATION_FILE, {**ids, "eos_token_id": numbers[0] if len(numbers) == 1 else numbers})
    return ids
