import json
import math

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.measure.labels import label_scores


def test_two_classes_by_hand():
    # 3 true positives, 1 false positive, 2 false negatives, 4 true negatives
    wanted, given = [1, 1, 1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    scores = label_scores(wanted, given, ["no", "yes"])
    assert scores.accuracy == 0.7 and scores.majority == 0.5 and scores.confusion == [[4, 1], [2, 3]]
    yes = scores.per_class[1]
    assert yes == {"name": "yes", "precision": 0.75, "recall": 0.6, "f1": 6 / 9, "count": 5, "predicted": 4}
    assert scores.f1 == 6 / 9 != scores.macro_f1 == pytest.approx((6 / 9 + 8 / 11) / 2)
    assert scores.matthews == pytest.approx((3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6))


def test_with_more_than_two_classes_f1_is_the_mean():
    scores = label_scores([0, 1, 2, 2], [0, 2, 2, 2], ["a", "b", "c"])
    assert scores.f1 == scores.macro_f1 == pytest.approx((1 + 0 + 0.8) / 3)
    assert scores.confusion == [[1, 0, 0], [0, 0, 1], [0, 0, 2]]


def test_a_class_that_never_occurs_has_zeros_and_no_share_in_the_mean():
    scores = label_scores([0, 1], [0, 1], ["a", "b", "c"])
    assert scores.per_class[2] == {"name": "c", "precision": 0, "recall": 0, "f1": 0, "count": 0, "predicted": 0}
    assert scores.macro_f1 == scores.accuracy == scores.matthews == 1


def test_a_constant_prediction_has_majority_accuracy_and_zero_correlation():
    scores = label_scores([0, 0, 0, 1], [0, 0, 0, 0], ["a", "b"])
    assert scores.accuracy == scores.majority == 0.75 and scores.f1 == scores.matthews == 0


def test_one_class_alone_can_be_scored():
    scores = label_scores([0, 0], [0, 0], ["only"])
    assert (scores.accuracy, scores.f1, scores.matthews) == (1, 1, 0)


def test_matthews_does_not_overflow_for_many_rows():
    wanted = np.arange(200_000) % 2
    assert label_scores(wanted, wanted, ["a", "b"]).matthews == 1
    assert label_scores(wanted, 1 - wanted, ["a", "b"]).matthews == -1


def test_the_dictionary_is_json_and_has_its_keys():
    made = label_scores(np.array([0, 1, 1]), np.array([0, 0, 1]), ["a", "b"]).as_dict()
    assert json.loads(json.dumps(made)) == made
    keys = {"accuracy", "f1", "macro_f1", "matthews", "majority", "per_class", "confusion", "labels"}
    assert set(made) == keys and made["labels"] == ["a", "b"]


@pytest.mark.parametrize(
    "wanted, given, message",
    [([0], [0, 1], "1 labels are wanted and 2 given"), ([], [], "no labels"), ([0], [2], "label 2"), ([-1], [0], "-1")],
)
def test_invalid_input_is_rejected(wanted, given, message):
    with pytest.raises(InputError, match=message):
        label_scores(wanted, given, ["a", "b"])
