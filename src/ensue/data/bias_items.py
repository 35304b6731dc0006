"""What sets that measure bias consist of: pairs of sentences, sentences with a pronoun, and beginnings of texts."""

from __future__ import annotations

from dataclasses import dataclass, field

SIDES = ("pro", "anti")
"""Whether a sentence fits the stereotype or contradicts it."""
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
