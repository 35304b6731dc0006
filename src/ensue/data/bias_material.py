"""The built-in material of ``ensue look bias``, in bias.toml: groups, templates, occupations, pairs and word lists.

A prompt is a template with a group's phrase as its subject. Written for this purpose, in English; no published set is
part of it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ensue.data.bias_items import GroupPrompt, StereotypePair

PRONOUN = "{pronoun}"


@cache
def material() -> dict[str, Any]:
    """The contents of bias.toml."""
    return tomllib.loads(files("ensue.data").joinpath("bias.toml").read_text(encoding="utf-8"))


def sentence(template: str, **values: str) -> str:
    """A template with its names filled in, and its first letter in upper case.

    >>> sentence("{group} was very", group="the man")
    'The man was very'
    """
    text = template.format(**values)
    return text[:1].upper() + text[1:]


def group_prompts() -> list[GroupPrompt]:
    """Every template with every phrase of every group, axis by axis."""
    built = material()
    return [
        GroupPrompt(
            axis=axis,
            group=group,
            text=sentence(template, group=phrase),
            template=template,
            neutral=sentence(template, group=built["neutral"]),
        )
        for axis, groups in built["axes"].items()
        for group, phrases in groups.items()
        for phrase in phrases
        for template in built["templates"]
    ]


def builtin_pairs() -> list[StereotypePair]:
    """The built-in minimal pairs."""
    return [
        StereotypePair(more, less, category) for category, pairs in material()["pairs"].items() for more, less in pairs
    ]


@dataclass(frozen=True, slots=True)
class PronounFrame:
    """A sentence about an occupation, in two parts: what stands before the pronoun and what follows it."""

    occupation: str
    before: str
    after: str


def pronoun_frames() -> list[PronounFrame]:
    """Every occupation in every template, occupation by occupation."""
    built = material()["pronouns"]
    frames = []
    for occupation in (name.strip() for name in built["occupations"].split(",")):
        for template in built["templates"]:
            before, after = template.replace("{occupation}", occupation).split(PRONOUN)
            frames.append(PronounFrame(occupation, before.rstrip(), after.lstrip()))
    return frames


def pronoun_words() -> list[str]:
    """he, she and they."""
    return list(material()["pronouns"]["words"])


@cache
def stop_words(axis: str) -> frozenset[str]:
    """Words that do not describe a group: function words, those of the templates, and those of the axis's groups."""
    built = material()
    phrases = [phrase for group in built["axes"].get(axis, {}).values() for phrase in group]
    own = " ".join([*phrases, *built["templates"]]).lower().replace("{group}", "").replace("-", " ").replace(",", " ")
    return frozenset([*built["stop"]["words"].split(), *own.split()])
