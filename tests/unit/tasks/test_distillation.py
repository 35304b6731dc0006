"""What a teacher is asked: rows as it reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ensue.data.tokenizers.char import ByteTokenizer
from ensue.tasks.labels.distillation import same_encoding
from ensue.tasks.labels.kind import ExampleEncoding


@pytest.mark.parametrize("other", [{"length": 9}, {"stride": 2}, {"bare": True}])
def test_a_teacher_with_another_encoding_has_rows_of_its_own(other: dict[str, Any]) -> None:
    own = ExampleEncoding(tokenizer=ByteTokenizer(), labels=("a", "b"), length=8)
    assert same_encoding(own, replace(own, labels=("c",)))
    assert not same_encoding(own, replace(own, **other))
