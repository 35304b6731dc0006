"""Requests are checked at a cost that does not depend on how much in them is wrong."""

import pytest
from pydantic import ValidationError

from ensue.serve.schemas import CompletionRequest, ForecastRequest, ViewRequest

MANY = 50_000


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (CompletionRequest, {"prompt": [-1] * MANY}),
        (CompletionRequest, {"prompt": ["a", *[-1] * MANY]}),
        (CompletionRequest, {"prompt": [[-1] * MANY] * 16}),
        (CompletionRequest, {"logit_bias": dict.fromkeys(map(str, range(MANY)), "a")}),
        (CompletionRequest, {"logit_bias": {f"\ud800{number}": 1.0 for number in range(MANY)}}),
        (CompletionRequest, {"stop": [""] * MANY}),
        (ForecastRequest, {"values": [["a"] * 64] * 9_000}),
        (ForecastRequest, {"values": [[]] * 9_000}),
        (ViewRequest, {"models": [""] * MANY}),
    ],
)
def test_a_request_with_many_wrong_items_has_few_errors(kind, fields):
    with pytest.raises(ValidationError) as wrong:
        kind.model_validate({"model": "gpt", **fields})
    assert wrong.value.error_count() <= 50
