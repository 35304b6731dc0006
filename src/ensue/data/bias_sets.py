"""Read public sets that measure bias. None of them is part of this package.

    CrowS-Pairs            a table (.csv, .tsv or .jsonl) with the columns sent_more, sent_less and bias_type;
                           sent_more is the more stereotyped sentence (Nangia et al., 2020)
    WinoBias, Winogender   see ``ensue.data.coreference_sets``
    BOLD                   a .json object: domain or group → name → beginnings of sentences (Dhamala et al., 2021)

Each may end in .gz. A folder means all of these files in it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ensue.core.errors import InputError
from ensue.core.notes import note_once
from ensue.data.bias_items import BiasSet, GroupPrompt, StereotypePair
from ensue.data.coreference_sets import NUMBERED, STATS, read_winobias, read_winogender
from ensue.data.lines import read_lines
from ensue.data.sources import plain_suffix
from ensue.data.tables import ColumnRole, TableSchema, read_table

HINT = "give a file of CrowS-Pairs, WinoBias, Winogender or BOLD"
SAMPLE_LINES = 5
SHOWN_FILES = 5
"""Names of files in a note."""


def read_bias_sets(source: str | Path) -> list[BiasSet]:
    """Read a file, or all files of a folder that hold one of the sets."""
    path = Path(source)
    if not path.exists():
        raise InputError("there is no such file", where=str(source), hint=HINT)
    if not path.is_dir():
        return [_read_file(path)]
    kinds = {file: _kind(file) for file in sorted(path.iterdir()) if file.is_file() and file.name != STATS}
    files = [file for file, kind in kinds.items() if kind]
    # pro and anti are read together; the sentences of Winogender are read, not the templates they are made from
    files = [file for file in files if not (kinds[file] == "WinoBias" and file.name.startswith("anti"))]
    if not files:
        raise InputError("no file in this folder measures bias", where=str(source), hint=HINT)
    if others := [file.name for file, kind in kinds.items() if not kind]:
        shown = ", ".join(others[:SHOWN_FILES]) + ", …" * (len(others) > SHOWN_FILES)
        note_once(f"{source}: not read, because they are none of the sets known here: {shown}")
    return _merged([_read_file(file) for file in files])


def _merged(sets: list[BiasSet]) -> list[BiasSet]:
    """The files of WinoBias as one set."""
    wino = [one for one in sets if one.name == "WinoBias"]
    if len(wino) < 2:
        return sets
    references, offset = [], 0
    for one in wino:
        references += [replace(reference, number=reference.number + offset) for reference in one.references]
        offset += len(one.pairs)
    whole = BiasSet("WinoBias", str(Path(wino[0].source).parent), [p for one in wino for p in one.pairs], references)
    return [*(one for one in sets if one.name != "WinoBias"), whole]


def _kind(path: Path) -> str:
    """The set that a file holds, by its first lines; empty for another file."""
    if plain_suffix(path) == ".json":
        return "BOLD"
    try:
        first = list(islice(read_lines(path), SAMPLE_LINES))
    except InputError:
        return ""
    head = first[0].lower() if first else ""
    if "sent_more" in head and "sent_less" in head:
        return "CrowS-Pairs"
    if "sentid" in head and "sentence" in head:
        return "Winogender"
    return "WinoBias" if any(NUMBERED.match(line) for line in first) else ""


def _read_file(path: Path) -> BiasSet:
    kind = _kind(path)
    if not kind:
        list(islice(read_lines(path), 1))  # an unreadable file says so itself
        raise InputError("is not a set that measures bias", where=str(path), hint=HINT)
    found = {"CrowS-Pairs": read_crows_pairs, "WinoBias": read_winobias, "Winogender": read_winogender}
    return read_bold(path) if kind == "BOLD" else found[kind](path)


# CrowS-Pairs.


PAIRS = TableSchema(
    (
        ColumnRole("sent_more", ("sentmore",)),
        ColumnRole("sent_less", ("sentless",)),
        ColumnRole("bias_type", ("biastype",), optional=True),
    ),
    "pair",
)


def read_crows_pairs(path: Path) -> BiasSet:
    """Read a table with the columns sent_more, sent_less and, if it has one, bias_type."""
    pairs = []
    for number, row in read_table(path, PAIRS, {role.name: role.name for role in PAIRS.roles[:2]}, []).rows:
        more, less = row["sent_more"].strip(), row["sent_less"].strip()
        if not more and not less:
            continue
        if not (more and less) or more == less:
            what = "the two sentences are the same" if more and less else "a sentence is missing"
            raise InputError(what, where=f"{path}:{number}", hint="give sent_more and sent_less")
        pairs.append(StereotypePair(more, less, row.get("bias_type", "").strip() or "all"))
    return BiasSet("CrowS-Pairs", str(path), pairs)


# BOLD.


def read_bold(path: Path) -> BiasSet:
    """Read a .json object: group → name → beginnings of sentences."""
    hint = 'it should look like {"American_actors": {"Jane_Doe": ["Jane Doe is an American actor who "]}}'
    try:
        groups = json.loads("\n".join(read_lines(path)))
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where=str(path), hint=hint) from error
    prompts = []
    axis = path.name.removesuffix(".gz").removesuffix(".json").removesuffix("_prompt").removeprefix("bold_")
    for group, names in groups.items() if isinstance(groups, dict) else ():
        for name, texts in names.items() if isinstance(names, dict) else [(group, None)]:
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise InputError(f"{name!r} has no list of texts", where=str(path), hint=hint)
            shown = group.replace("_", " ")
            prompts += [GroupPrompt(f"BOLD {axis}", shown, " ".join(text.split())) for text in texts if text.strip()]
    if not prompts:
        raise InputError("there is no prompt in this file", where=str(path), hint=hint)
    return BiasSet("BOLD", str(path), prompts=prompts)
