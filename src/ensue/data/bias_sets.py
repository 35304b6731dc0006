"""Read public sets that measure bias. None of them is part of this package.

    CrowS-Pairs   a table (.csv, .tsv or .jsonl) with the columns sent_more, sent_less and bias_type; sent_more is the
                  more stereotyped sentence (Nangia et al., 2020)
    WinoBias      pro_stereotyped_… and anti_stereotyped_… beside it, a line each: 1 [The developer] argued with the
                  designer because [he] … The first brackets hold what the pronoun in the other ones refers to (Zhao et
                  al., 2018)
    Winogender    a table with the columns sentid (technician.customer.1.male.txt) and sentence; with
                  occupations-stats.tsv beside it, the share of women in each occupation says which pronoun is the
                  stereotype (Rudinger et al., 2018)
    BOLD          a .json object: domain or group → name → beginnings of sentences (Dhamala et al., 2021)

Each may end in .gz. A folder means all of these files in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.lines import located_lines, read_lines
from ensue.data.sources import plain_suffix
from ensue.data.tables import ColumnRole, TableSchema, read_table

HINT = "give a file of CrowS-Pairs, WinoBias, Winogender or BOLD"
SIDES = ("pro", "anti")
BRACKETS = re.compile(r"\[([^\[\]]+)\]")
NUMBERED = re.compile(r"^\d+\s+(.*\[[^\[\]]+\].*)$")
ARTICLE = re.compile(r"^(?:the|an?|some)\s+", re.IGNORECASE)
SAMPLE_LINES = 5
STATS = "occupations-stats.tsv"
GENDERS = ("male", "female", "neutral")


@dataclass(frozen=True, slots=True)
class StereotypePair:
    """Two sentences that differ in a group: the more stereotyped one, and the less stereotyped one."""

    more: str
    less: str
    category: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A sentence with a pronoun, what the pronoun refers to, and the other person in the sentence."""

    text: str
    pronoun: str
    answer: str
    other: str
    gender: str
    """male, female or neutral: that of the pronoun."""
    side: str = ""
    """pro or anti: whether the right answer agrees with the stereotype; empty if that is not known."""
    kind: str = ""
    number: int = 0
    """Sentences with the same number differ in the pronoun only."""


@dataclass(frozen=True, slots=True)
class GroupPrompt:
    """The beginning of a text about a group."""

    axis: str
    group: str
    text: str
    template: str = ""
    """The template it was made from; comparisons are made within a template."""
    neutral: str = ""
    """The same beginning without the group; empty if there is none."""


@dataclass(frozen=True)
class BiasSet:
    """The contents of a file."""

    name: str
    """CrowS-Pairs, WinoBias …"""
    source: str
    pairs: list[StereotypePair] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    prompts: list[GroupPrompt] = field(default_factory=list)


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
    return _merged([_read_file(file) for file in files])


def _merged(sets: list[BiasSet]) -> list[BiasSet]:
    """The files of WinoBias as one set."""
    wino = [one for one in sets if one.name == "WinoBias"]
    if len(wino) < 2:
        return sets
    references, offset = [], 0
    for one in wino:
        references += [_renumbered(reference, offset) for reference in one.references]
        offset += len(one.pairs)
    whole = BiasSet("WinoBias", str(Path(wino[0].source).parent), [p for one in wino for p in one.pairs], references)
    return [*(one for one in sets if one.name != "WinoBias"), whole]


def _renumbered(reference: Reference, offset: int) -> Reference:
    values = {name: getattr(reference, name) for name in Reference.__slots__}
    return Reference(**{**values, "number": reference.number + offset})


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


# WinoBias.


def read_winobias(path: Path) -> BiasSet:
    """Read a file of pro-stereotyped sentences and that of the anti-stereotyped ones, whichever of them is named."""
    side = next((side for side in SIDES if path.name.startswith(f"{side}_")), "")
    if not side:
        hint = "name it pro_stereotyped_… and put anti_stereotyped_… beside it"
        raise InputError("cannot tell whether these sentences are stereotyped", where=str(path), hint=hint)
    paths = {one: path.with_name(path.name.replace(f"{side}_", f"{one}_", 1)) for one in SIDES}
    for one in paths.values():
        if not one.exists():
            raise InputError(f"{one.name} is missing", where=str(path), hint="the two files belong together")
    rows = {side: list(_bracketed(paths[side])) for side in SIDES}
    if len(rows["pro"]) != len(rows["anti"]):
        what = f"{len(rows['pro']):,} sentences, but {len(rows['anti']):,} in {paths['anti'].name}"
        raise InputError(what, where=str(paths["pro"]), hint="the two files belong together line by line")
    people = {_person(words[0]) for side in SIDES for _, _, words in rows[side]}
    kind = next((f"type {n}" for n in "12" if f"type{n}" in path.name), "sentences")
    references = [
        _reference(where, text, words, people, side, kind, number)
        for side in SIDES
        for number, (where, text, words) in enumerate(rows[side])
    ]
    half = len(rows["pro"])
    pairs = [StereotypePair(pro.text, anti.text, kind) for pro, anti in zip(references[:half], references[half:])]
    return BiasSet("WinoBias", str(path), pairs, references)


def _bracketed(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """The location of each line, its text without brackets, and the phrases in brackets: a person, then pronouns."""
    for where, line in located_lines(path):
        if not line.strip():
            continue
        numbered = NUMBERED.match(line.strip())
        phrases = BRACKETS.findall(line)
        if not numbered or len(phrases) < 2:
            hint = "a line should look like: 1 [The developer] argued with the designer because [he] …"
            raise InputError("no person and pronoun in brackets", where=where, hint=hint)
        yield where, BRACKETS.sub(r"\1", numbered[1]).strip(), phrases


def _person(phrase: str) -> str:
    """A noun phrase without its article.

    >>> _person("The developer")
    'developer'
    """
    return ARTICLE.sub("", phrase.strip()).lower()


PRONOUN_GENDERS = {"male": {"he", "him", "his", "himself"}, "female": {"she", "her", "hers", "herself"}}


def pronoun_gender(pronoun: str) -> str:
    """male, female, or neutral for others.

    >>> pronoun_gender("Her"), pronoun_gender("they")
    ('female', 'neutral')
    """
    return next((gender for gender, words in PRONOUN_GENDERS.items() if pronoun.lower() in words), "neutral")


def _reference(
    where: str, text: str, phrases: list[str], people: set[str], side: str, kind: str, number: int
) -> Reference:
    answer, pronoun = _person(phrases[0]), phrases[1].strip()
    places = {person: re.search(rf"\b{re.escape(person)}\b", text.lower()) for person in people - {answer}}
    named = sorted((found.start(), -len(person), person) for person, found in places.items() if found)
    if not named:
        hint = "each person must stand in brackets in some sentence of the file"
        raise InputError("there is no other person in this sentence", where=where, hint=hint)
    return Reference(text, pronoun, answer, named[0][2], pronoun_gender(pronoun), side, kind, number)


# Winogender.


SENTENCES = TableSchema((ColumnRole("sentid", ("sentid",)), ColumnRole("sentence", ("sentence",))), "sentence")
SHARES = TableSchema((ColumnRole("occupation", ("occupation",)), ColumnRole("women", ("blspctfemale",))), "occupation")


def read_winogender(path: Path) -> BiasSet:
    """Read the sentences; with the table of occupations beside them, also which pronoun is the stereotype."""
    shares = women_shares(path.with_name(STATS)) if path.with_name(STATS).exists() else {}
    references: list[Reference] = []
    numbers: dict[tuple[str, ...], int] = {}
    for line, row in read_table(path, SENTENCES, {role.name: role.name for role in SENTENCES.roles}, []).rows:
        name, text = row["sentid"].strip(), row["sentence"].strip()
        parts = name.removesuffix(".txt").split(".")
        if not name and not text:
            continue
        if len(parts) != 4 or parts[2] not in "01" or parts[3] not in GENDERS or not text:
            hint = "sentid should look like technician.customer.1.male.txt, with a sentence beside it"
            raise InputError(f"{name!r} is not the name of a sentence", where=f"{path}:{line}", hint=hint)
        occupation, participant, right, gender = parts
        people = (occupation, participant) if right == "0" else (participant, occupation)
        side = _side(shares.get(occupation), gender, right == "0")
        pronoun = _pronoun(text, gender, f"{path}:{line}")
        number = numbers.setdefault(tuple(parts[:3]), len(numbers))
        kind = "occupation" if right == "0" else "participant"
        references.append(Reference(text, pronoun, *people, gender, side, kind, number))
    by_number: dict[int, dict[str, str]] = {}
    for one in references:
        if one.side and one.kind == "occupation":
            by_number.setdefault(one.number, {})[one.side] = one.text
    pairs = [StereotypePair(t["pro"], t["anti"], "occupation") for t in by_number.values() if len(t) == 2]
    return BiasSet("Winogender", str(path), pairs, references)


def women_shares(path: Path) -> dict[str, float]:
    """The share of women in each occupation, 0 to 1."""
    shares = {}
    for line, row in read_table(path, SHARES, {"occupation": "occupation", "women": "bls_pct_female"}, []).rows:
        if not row["occupation"].strip():
            continue
        try:
            shares[row["occupation"].strip()] = float(row["women"]) / 100
        except ValueError as error:
            raise InputError(f"{row['women']!r} is not a share", where=f"{path}:{line}") from error
    return shares


def _side(women: float | None, gender: str, occupation: bool) -> str:
    """Whether a pronoun of this gender that refers to the occupation (or to the other person) fits the stereotype."""
    if women is None or gender == "neutral":
        return ""
    return "pro" if ((gender == "female") == (women > 0.5)) == occupation else "anti"


NEUTRAL_PRONOUNS = {"they", "them", "their", "theirs", "themselves", "themself"}


def _pronoun(text: str, gender: str, where: str) -> str:
    """The first pronoun of a gender in a sentence."""
    wanted = PRONOUN_GENDERS.get(gender, NEUTRAL_PRONOUNS)
    found = next((word for word in re.findall(r"[A-Za-z]+", text) if word.lower() in wanted), None)
    if found is None:
        raise InputError(f"there is no {gender} pronoun in this sentence", where=where)
    return found


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
