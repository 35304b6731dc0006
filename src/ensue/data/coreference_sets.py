"""Read sets of sentences whose pronoun refers to one of two people: WinoBias and Winogender.

WinoBias      pro_stereotyped_… and anti_stereotyped_… beside it, a line each: 1 [The developer] argued with the
              designer because [he] … The first brackets hold what the pronouns in the others refer to (Zhao et al.,
              2018)
Winogender    a table with the columns sentid (technician.customer.1.male.txt) and sentence; with
              occupations-stats.tsv beside it, the share of women in each occupation says which pronoun is the
              stereotype (Rudinger et al., 2018)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.bias_items import GENDERS, SIDES, BiasSet, Reference, StereotypePair
from ensue.data.lines import located_lines
from ensue.data.tables import ColumnRole, TableSchema, read_table

BRACKETS = re.compile(r"\[([^\[\]]+)\]")
NUMBERED = re.compile(r"^\d+\s+(.*\[[^\[\]]+\].*)$")
"""A numbered sentence with something in brackets."""
ARTICLE = re.compile(r"^(?:the|an?|some)\s+", re.IGNORECASE)
STATS = "occupations-stats.tsv"


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
    return str(found)
