"""Evaluate tagging: entity F1 for B-, I- and O tags, else accuracy.

    precision = right / given        right: entities with the right type, first word and last word
    recall    = right / wanted
    F1        = 2 · right / (given + wanted)

Partly right entities do not count. Tags are B-X at the first word of an entity of type X, I-X at its other words, O
outside. Inconsistent tags are read as by conlleval, the script of the CoNLL tasks, and seqeval: an I-X begins an entity
if no entity of type X is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ensue.core.errors import InputError
from ensue.measure.labels import LabelScores, label_scores, rates

Sentences = Sequence[Sequence[str]]
"""The tags of each sentence."""
Span = tuple[str, int, int]
"""The type of an entity, its first word, and the word after its last."""
NO_TYPE = "_"
"""The type of entities whose tags are a bare B and I."""


@dataclass(frozen=True, slots=True)
class EntityScores:
    """Figures of entity recognition."""

    precision: float
    recall: float
    f1: float
    """Micro average over all types."""
    accuracy: float
    """The share of words with the right tag. High if most are O, so unsuited to compare models."""
    per_type: list[dict[str, Any]]
    """For each type ``name``, ``precision``, ``recall``, ``f1``, ``count`` and ``predicted``."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def tag_scores(wanted: Sentences, given: Sentences) -> EntityScores | LabelScores:
    """Entity scores if all tags are B-, I- or O; else scores of single tags, such as parts of speech.

    For single tags use ``accuracy`` and ``macro_f1``. Both kinds have ``accuracy``, ``f1`` and ``as_dict()``.

    >>> tag_scores([["B-PER", "O"]], [["B-PER", "O"]]).f1, tag_scores([["NOUN", "VERB"]], [["NOUN", "NOUN"]]).accuracy
    (1.0, 0.5)
    """
    _check_lengths(wanted, given)
    names = sorted({*_flat(wanted), *_flat(given)})
    if are_entities(names):
        return entity_scores(wanted, given)
    index = {name: number for number, name in enumerate(names)}
    truth, predicted = ([index[tag] for tag in _flat(tags)] for tags in (wanted, given))
    return label_scores(truth, predicted, names)


def entity_scores(wanted: Sentences, given: Sentences) -> EntityScores:
    """Precision, recall and F1 of the entities in predicted tags (``given``), 0 to 1.

    >>> scores = entity_scores([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-ORG"]])
    >>> scores.precision, scores.recall, scores.f1, scores.accuracy
    (0.5, 0.5, 0.5, 0.75)
    """
    _check_lengths(wanted, given)
    count, predicted, right = Counter[str](), Counter[str](), Counter[str]()
    for tags, predicted_tags in zip(wanted, given):
        true, guessed = set(spans_of(tags)), set(spans_of(predicted_tags))
        for counter, spans in ((count, true), (predicted, guessed), (right, true & guessed)):
            counter.update(type_ for type_, _, _ in spans)
    whole = rates("all", right.total(), count.total(), predicted.total())
    pairs = list(zip(_flat(wanted), _flat(given)))
    return EntityScores(
        precision=whole["precision"],
        recall=whole["recall"],
        f1=whole["f1"],
        accuracy=sum(truth == tag for truth, tag in pairs) / len(pairs),
        per_type=[rates(type_, right[type_], count[type_], predicted[type_]) for type_ in sorted({*count, *predicted})],
    )


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The entities of one sentence, in order: (type, first word, word after the last).

    >>> spans_of(["B-PER", "I-PER", "O", "I-LOC", "I-PER"])
    [('PER', 0, 2), ('LOC', 3, 4), ('PER', 4, 5)]
    """
    spans: list[Span] = []
    for i, tag in enumerate(tags):
        if not _is_entity_tag(tag):
            raise InputError(f"tag {tag!r} is not O and does not begin with B- or I-", hint="score single tags instead")
        if tag == "O":
            continue
        type_ = tag[2:] or NO_TYPE
        if tag[0] == "I" and spans and spans[-1][2] == i and spans[-1][0] == type_:
            spans[-1] = (type_, spans[-1][1], i + 1)
        else:
            spans.append((type_, i, i + 1))
    return spans


def are_entities(tags: Iterable[str]) -> bool:
    """True if every tag is O or begins with B- or I-.

    >>> are_entities(["O", "B-PER"]), are_entities(["NOUN", "B-PER"])
    (True, False)
    """
    return all(map(_is_entity_tag, set(tags)))


def _is_entity_tag(tag: str) -> bool:
    return tag in ("O", "B", "I") or tag.startswith(("B-", "I-"))


def _flat(sentences: Sentences) -> list[str]:
    return [tag for sentence in sentences for tag in sentence]


def _check_lengths(wanted: Sentences, given: Sentences) -> None:
    if len(wanted) != len(given):
        raise InputError(f"{len(wanted)} sentences have tags of {len(given)}", hint="give tags for each sentence")
    for number, (words, tags) in enumerate(zip(wanted, given), 1):
        if len(words) != len(tags):
            what = f"sentence {number} has {len(words)} words and {len(tags)} tags"
            raise InputError(what, hint="give a tag for each word")
    if not any(map(len, wanted)):
        raise InputError("there are no tags to score")
