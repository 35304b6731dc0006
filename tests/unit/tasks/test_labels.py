"""The tasks that label: examples as rows, and logits as answers, each way by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.labelled import Answer, ChoiceQuestion, LabelledText, Question, TaggedSentence
from ensue.data.labelled_rows import IGNORE_INDEX
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.tasks.labels.answer import LONGEST_ANSWER, best_span, windows
from ensue.tasks.labels.kind import ExampleEncoding, label_index, softmax, sort_labels
from ensue.tasks.table import all_tasks

LABEL_KINDS = {spec.name: spec.kind for spec in all_tasks() if spec.labels}
CLASSIFY, PAIR, REGRESS, CHOOSE, TAG, ANSWER = LABEL_KINDS.values()

PASSAGE = "The Nile, in Africa, is a long river. It flows north for 6,650 km to the sea; Cairo stands on it. " * 3
TEXTS = [PASSAGE, "where does the river flow?", "how long is it, unbelievably?"]
KINDS = ["wordpiece", "bpe", "unigram", "byte"]


def tokenizer_of(kind):
    if kind == "byte":
        return fit_tokenizer_to_parts("byte", [])
    return fit_encoder_tokenizer(kind, TEXTS, 330, min_count=1)


def encoding(kind="wordpiece", labels=(), length=64, stride=0):
    return ExampleEncoding(tokenizer=tokenizer_of(kind), labels=labels, length=length, stride=stride)


def row(encoded, index):
    rows = encoded.rows
    return rows.tokens[rows.starts[index] : rows.starts[index + 1]].tolist()


# Whole texts.


def test_texts_and_pairs_have_special_tokens_around_them():
    given = encoding(labels=("a", "b"), length=12)
    one = [LabelledText(("the river",), "b", "f:1"), LabelledText((PASSAGE,), "a", "f:2")]
    encoded = CLASSIFY.encode(one, given)
    assert (
        row(encoded, 0)
        == add_special_tokens(special_tokens_of(given.tokenizer), given.tokenizer.encode("the river"))[0].tolist()
    )
    assert encoded.rows.targets.tolist() == [1, 0] and encoded.rows.lengths.max() == 12 and encoded.cut == 1
    two = PAIR.encode([LabelledText(("the river", "is long"), None, "f:1")], given, with_targets=False)
    ids = [given.tokenizer.encode(text) for text in ("the river", "is long")]
    assert (
        row(two, 0) == add_special_tokens(special_tokens_of(given.tokenizer), *ids)[0].tolist()
        and two.rows.segments[-1] == 1
    )
    assert len(CLASSIFY.encode([], given).rows) == 0


@pytest.mark.parametrize("texts", [("one",), ("one", "two")])
def test_numbers_of_one_text_or_two(texts):
    encoded = REGRESS.encode([LabelledText(texts, "2.5", "f:1"), LabelledText(texts, "-1", "f:2")], encoding())
    assert len(encoded.rows) == 2 and encoded.rows.targets.tolist() == [2.5, -1.0]
    assert set(encoded.rows.segments.tolist()) == ({0} if len(texts) == 1 else {0, 1})
    examples = [LabelledText(texts, str(value), "f") for value in (1, 2, 3, 4)]
    found = REGRESS.predictions(examples, encoded, [np.array([value]) for value in (2.0, 4.0, 5.0, 9.0)], ())
    score = REGRESS.score(examples, found, ())
    assert score["spearman"] == pytest.approx(1) and score["mse"] == pytest.approx((1 + 4 + 4 + 25) / 4)
    assert score["pearson"] == pytest.approx(np.corrcoef([1, 2, 3, 4], [2, 4, 5, 9])[0, 1])


def test_the_error_for_an_unknown_label_names_its_line():
    with pytest.raises(InputError, match=r"f.tsv:7: the label 'c' is none of a, b"):
        CLASSIFY.encode([LabelledText(("x",), "c", "f.tsv:7")], encoding(labels=("a", "b")))
    with pytest.raises(InputError, match="…"):
        label_index("z", [str(n) for n in range(20)], "f:1")


def test_the_most_probable_label_is_predicted_and_scored():
    given = encoding(labels=("a", "b"))
    examples = [LabelledText(("x",), label, "f") for label in ("a", "b", "b")]
    logits = [np.array([2.0, 1.0]), np.array([0.0, 1.0]), np.array([3.0, 0.0])]
    found = CLASSIFY.predictions(examples, CLASSIFY.encode(examples, given), logits, given.labels)
    assert [one["label"] for one in found] == ["a", "b", "a"]
    assert found[0]["probabilities"]["a"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert CLASSIFY.score(examples, found, given.labels)["accuracy"] == pytest.approx(2 / 3)


def test_labels_are_sorted_as_numbers_or_alphabetically():
    assert sort_labels({"10", "9", "1.0", "1"}) == ("1", "1.0", "9", "10")
    assert sort_labels({"nan", "1", "inf"}) == ("1", "inf", "nan")
    np.testing.assert_allclose(softmax(np.array([1000.0, 1000.0])), [0.5, 0.5])


def test_typed_lines_are_parsed_as_examples():
    assert CLASSIFY.parse_example("a\tb", "text 1").texts == ("a\tb",)
    assert PAIR.parse_example("a\tb", "text 1").texts == ("a", "b")
    assert CHOOSE.parse_example("a\tb\tc", "text 1").choices == ("b", "c")
    assert TAG.parse_example(" a  b ", "text 1").words == ("a", "b")
    assert ANSWER.parse_example("who?\tme", "text 1").passage == "me"
    for kind, text in ((PAIR, "a"), (CHOOSE, "a\tb"), (ANSWER, "who?")):
        with pytest.raises(InputError, match="text 3"):
            kind.parse_example(text, "text 3")


# Choices.


def test_every_choice_is_read_with_its_context():
    given = encoding(labels=("0", "1", "2"), length=16)
    examples = [
        ChoiceQuestion("the river", ("flows", "is long", "stands"), 2, "f:1"),
        ChoiceQuestion("it", ("a", "b", "c"), 0, "f:2"),
    ]
    encoded = CHOOSE.encode(examples, given)
    assert len(encoded.rows) == 2 and encoded.rows.rows_per_example == 3 and encoded.rows.targets.tolist() == [2, 0]
    ids = [given.tokenizer.encode(text) for text in ("the river", "is long")]
    assert row(encoded, 1) == add_special_tokens(special_tokens_of(given.tokenizer), *ids)[0].tolist()
    found = CHOOSE.predictions(examples, encoded, [np.array([0.0, 1.0, 3.0]), np.array([0.0, 1.0, 0.5])], given.labels)
    assert [one["choice"] for one in found] == [2, 1] and found[0]["text"] == "stands"
    assert CHOOSE.score(examples, found, given.labels) == {"accuracy": 0.5, "chance": 1 / 3, "examples": 2}
    with pytest.raises(InputError, match="f:3: 2 choices where the model has 3"):
        CHOOSE.encode([ChoiceQuestion("it", ("a", "b"), 0, "f:3")], given)


# Tags.


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_has_its_target_at_its_first_token(kind):
    given = encoding(kind, labels=("O", "B-X", "I-X"))
    words = ("The", "unbelievably", "long", "Nile")
    tags = ("O", "B-X", "I-X", "O")
    encoded = TAG.encode([TaggedSentence(words, tags, "f:1"), TaggedSentence((), (), "f:9")], given)
    (firsts, none), targets = encoded.notes, encoded.rows.targets
    assert len(firsts) == 4 and len(none) == 0 and firsts[0] == 1
    asked = np.flatnonzero(targets != IGNORE_INDEX)
    assert asked.tolist() == firsts.tolist() and targets[asked].tolist() == [0, 1, 2, 0]
    tokens = row(encoded, 0)
    ends = [*firsts[1:], len(tokens) - 1]
    parts = [given.tokenizer.decode(tokens[a:b]).strip().lower() for a, b in zip(firsts, ends)]
    assert parts == [word.lower() for word in words]


def test_words_that_were_cut_off_are_tagged_o():
    given = encoding("byte", labels=("O", "B-X"), length=8)
    example = TaggedSentence(("ab", "cde", "f", "g"), ("O", "B-X", "B-X", "O"), "f:1")
    encoded = TAG.encode([example], given)
    assert encoded.cut == 1 and encoded.notes[0].tolist() == [1, 3]
    logits = np.zeros((8, 2))
    logits[[1, 3], [0, 1]] = 5.0
    (found,) = TAG.predictions([example], encoded, [logits], given.labels)
    assert found["tags"] == ["O", "B-X", "O", "O"]
    assert found["entities"] == [{"type": "X", "start": 1, "stop": 2, "text": "cde"}]
    assert TAG.score([example], [found], given.labels)["f1"] == pytest.approx(2 / 3)


def test_tags_without_entities_have_an_accuracy():
    example = TaggedSentence(("a", "b"), ("NOUN", "VERB"), "f:1")
    given = encoding(labels=TAG.labels([example]))
    encoded = TAG.encode([example], given)
    logits = np.zeros((len(row(encoded, 0)), 2))
    (found,) = TAG.predictions([example], encoded, [logits], given.labels)
    assert "entities" not in found and TAG.score([example], [found], given.labels)["accuracy"] == 0.5
    assert TAG.labels([TaggedSentence(("a",) * 4, ("I-B", "O", "B-B", "B-A"), "f")]) == ("O", "B-A", "B-B", "I-B")


# Answers.


@pytest.mark.parametrize(
    ("count", "room", "shared"), [(10, 6, 2), (6, 6, 2), (0, 6, 2), (25, 7, 3), (9, 3, 8), (50, 8, 0)]
)
def test_windows_cover_a_passage(count, room, shared):
    found = list(windows(count, room, shared))
    assert found[0][0] == 0 and found[-1][1] == count
    assert all(stop - start <= room for start, stop in found)
    for (_, stop), (start, _) in itertools.pairwise(found):
        assert start <= stop and (shared >= room or stop - start == shared)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [40, 400])
def test_the_span_of_a_target_is_the_answer(kind, length):
    given = encoding(kind, length=length)
    questions = []
    for number, text in enumerate(("Nile", "in Africa", "6,650 km", "Cairo", "it. The")):
        start = PASSAGE.rindex(text) if number % 2 else PASSAGE.index(text)
        questions.append(Question(str(number), "where is it?", PASSAGE, (Answer(text, start),), False, "f"))
    questions.append(Question("none", "who?", PASSAGE, (), True, "f"))
    encoded = ANSWER.encode(questions, given)
    assert encoded.rows.lengths.max() <= length
    logits = []
    for place in range(len(encoded.rows)):
        one = np.zeros((int(encoded.rows.lengths[place]), 2))
        start, stop = encoded.rows.targets[place]
        one[start, 0] = one[stop, 1] = 9.0
        logits.append(one)
    found = ANSWER.predictions(questions, encoded, logits, given.labels)
    for question, one in zip(questions[:-1], found):
        wanted = question.answers[0]
        assert one["answer"] == question.passage[one["start"] : one["stop"]]
        if kind == "byte":
            assert one["start"] == wanted.start and one["answer"] == wanted.text
        assert wanted.text in one["answer"] and len(one["answer"]) <= len(wanted.text) + 2
        assert one["no_answer"] < 0 and abs(one["start"] - wanted.start) <= 1
    assert found[-1]["no_answer"] > 0
    for window in encoded.notes:  # each window's positions are those of the passage
        spans = window.spans[window.spans[:, 1] > window.spans[:, 0]]
        assert (np.diff(spans[:, 0]) >= 0).all()


def test_the_best_span_is_the_best_of_all():
    chance = np.random.default_rng(0)
    for size in (1, 5, 45):
        logits = chance.normal(size=(size, 2))
        pairs = [(i, j) for i in range(size) for j in range(i, min(size, i + LONGEST_ANSWER))]
        i, j = max(pairs, key=lambda pair: logits[pair[0], 0] + logits[pair[1], 1])
        assert best_span(logits) == (pytest.approx(logits[i, 0] + logits[j, 1]), i, j)
    assert best_span(np.zeros((0, 2)))[0] == -np.inf


def question(number, *answers):
    texts = tuple(Answer(text, PASSAGE.index(text)) for text in answers)
    return Question(str(number), "?", PASSAGE, texts, not answers, "f")


def test_no_answer_is_given_above_a_threshold():
    examples = [question(0, "Nile"), question(1), question(2, "Cairo"), question(3)]
    scores = [-3.0, 1.0, -1.0, 2.0]
    answers = [
        {"id": str(place), "answer": text, "no_answer": score}
        for place, (text, score) in enumerate(zip(("Nile", "sea", "Cairo", "sea"), scores))
    ]
    free = ANSWER.score(examples, answers, ())
    assert free["f1"] == free["exact_match"] == 100.0 and -1.0 <= free["threshold"] < 1.0
    strict = ANSWER.score(examples, [{**one, "threshold": -2.0} for one in answers], ())
    assert strict["f1"] == 75.0 and strict["threshold"] == -2.0 and strict["best_f1"] == 100.0
    assert "threshold" not in ANSWER.score(examples[:1], answers[:1], ())


def test_every_kind_names_its_measure_and_its_outputs():
    assert {name: kind.chosen_by for name, kind in LABEL_KINDS.items()} == {
        "classify": "accuracy",
        "pair": "accuracy",
        "regress": "pearson",
        "choose": "accuracy",
        "tag": "f1",
        "answer": "f1",
    }
    assert [kind.outputs(("a", "b", "c")) for kind in LABEL_KINDS.values()] == [3, 3, 1, 1, 3, 2]


def test_numbers_of_one_text_or_two_if_the_number_of_texts_is_unknown(tmp_path):
    kind = replace(REGRESS, text_count=0)
    assert kind.parse_example("one text", "here").texts == ("one text",)
    assert kind.parse_example("one\tother", "here").texts == ("one", "other")
    with pytest.raises(InputError, match="3 texts where 2 are needed"):
        kind.parse_example("a\tb\tc", "here")
    (tmp_path / "a.txt").write_text("one text\nanother text\n", encoding="utf-8")
    assert [one.texts for one in kind.read_inputs(str(tmp_path / "a.txt"), "", [])] == [
        ("one text",),
        ("another text",),
    ]
