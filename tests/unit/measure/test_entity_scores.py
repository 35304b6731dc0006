import json

import pytest

from ensue.core.errors import InputError
from ensue.measure.entities import EntityScores, are_entities, entity_scores, spans_of, tag_scores
from ensue.measure.labels import LabelScores


@pytest.mark.parametrize(
    "tags, spans",
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("O I-PER I-PER", [("PER", 1, 3)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("I-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)]),
        ("B-work-of-art I-work-of-art", [("work-of-art", 0, 2)]),
        ("B I O I", [("_", 0, 2), ("_", 3, 4)]),
    ],
)
def test_spans(tags, spans):
    assert spans_of(tags.split()) == spans


def test_only_whole_entities_count():
    wanted = [["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "O", "B-ORG"]]
    given = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O", "B-LOC"]]
    scores = entity_scores(wanted, given)
    assert (scores.precision, scores.recall, scores.f1, scores.accuracy) == (0.5, 0.5, 0.5, 5 / 7)
    assert [(row["name"], row["precision"], row["recall"], row["count"]) for row in scores.per_type] == [
        ("LOC", 0.5, 1, 1),
        ("ORG", 0, 0, 1),
        ("PER", 0.5, 0.5, 2),
    ]


def test_the_same_span_of_another_sentence_is_not_the_same():
    scores = entity_scores([["B-PER", "O"], ["O", "O"]], [["O", "O"], ["B-PER", "O"]])
    assert scores.f1 == 0 and scores.accuracy == 0.5


def test_an_entity_ends_with_its_sentence():
    assert entity_scores([["B-PER"], ["I-PER"]], [["B-PER"], ["I-PER"]]).per_type[0]["count"] == 2


def test_no_entities_at_all_are_zeros():
    scores = entity_scores([["O", "O"]], [["O", "O"]])
    assert (scores.precision, scores.recall, scores.f1, scores.accuracy, scores.per_type) == (0, 0, 0, 1, [])


def test_tags_choose_their_measure():
    entities = tag_scores([["B-PER", "I-PER"]], [["B-PER", "O"]])
    assert isinstance(entities, EntityScores) and entities.f1 == 0 and entities.accuracy == 0.5
    speech = tag_scores([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]])
    assert isinstance(speech, LabelScores) and speech.labels == ("DET", "NOUN", "VERB")
    assert speech.accuracy == pytest.approx(2 / 3) and speech.macro_f1 == pytest.approx((1 + 0 + 2 / 3) / 3)
    for scores in (entities, speech):
        assert json.loads(json.dumps(scores.as_dict())) == scores.as_dict()


def test_entity_tags_are_recognised():
    assert are_entities(["O", "B-X", "I-X"]) and are_entities(["O"])
    assert not are_entities(["O", "B-X", "NOUN"]) and not are_entities(["IN", "O"]) and not are_entities([""])


@pytest.mark.parametrize(
    "wanted, given, message",
    [
        ([["O"]], [], "1 sentences"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], "sentence 2 has 2 words and 1 tags"),
        ([], [], "no tags"),
        ([[]], [[]], "no tags"),
        ([["O"]], [["NOUN"]], "'NOUN'"),
    ],
)
def test_invalid_input_is_rejected(wanted, given, message):
    with pytest.raises(InputError, match=message):
        entity_scores(wanted, given)
