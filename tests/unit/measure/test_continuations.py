"""Log-likelihoods of continuations against one plain forward pass for each."""

from __future__ import annotations

import random

import pytest
import torch

from ensue.measure import continuations
from ensue.measure.continuations import Request, continuation_scores, pieces
from ensue.models.table import SYSTEMS

V = 40
SHAPES = {
    "gpt": {"hidden": 16, "heads": 2, "layers": 2, "context": 64},
    "llama": {"hidden": 16, "heads": 4, "kv_heads": 2, "layers": 2, "context": 64, "inner": 24},
    "lstm": {"hidden": 12, "layers": 1},
}


def make(system, **changes):
    torch.manual_seed(3)
    kind = SYSTEMS.load(system)
    return kind(kind.Config(vocabulary=V, **{**SHAPES[system], **changes})).eval()


def some_tokens(chance, low, high):
    return tuple(chance.randrange(V) for _ in range(chance.randint(low, high)))


def plainly(model, context, continuation):
    """One whole forward pass, log_softmax, gather."""
    size = model.traits.context
    read = (context + continuation)[:-1]
    read = read if size is None else read[-size:]
    with torch.no_grad():
        log_p = model(torch.tensor([read])).logits[0].double().log_softmax(-1)[-len(continuation) :]
    targets = torch.tensor(continuation)
    return float(log_p.gather(1, targets[:, None]).sum()), bool((log_p.argmax(-1) == targets).all())


def requests_with_shots(chance, questions=9):
    """Questions with one to four options after the same shots; some after other shots, and some without."""
    found = []
    for group, prefix in (("a", some_tokens(chance, 20, 20)), ("b", some_tokens(chance, 18, 18)), (None, ())):
        for _ in range(questions):
            context = prefix + some_tokens(chance, 1, 12)
            options = [some_tokens(chance, 1, 6) for _ in range(chance.randint(1, 4))]
            found += [Request(context, option, group) for option in options]
    return found


@pytest.mark.parametrize("system", SHAPES)
@pytest.mark.parametrize("greedy", (False, True))
def test_shared_contexts_and_prefixes_change_no_log_likelihood(system, greedy, monkeypatch):
    monkeypatch.setattr(continuations, "BATCH_TOKENS", 400)  # several batches
    model, requests = make(system), requests_with_shots(random.Random(1))
    found = continuation_scores(model, requests, greedy=greedy)
    for request, score in zip(requests, found, strict=True):
        value, right = plainly(model, request.context, request.continuation)
        assert score.log_prob == pytest.approx(value, abs=1e-4)
        assert score.greedy is (right if greedy else None)
        assert not score.cut


def test_the_most_probable_continuation_is_greedy():
    model = make("gpt")
    context = (1, 2, 3)
    best = int(model(torch.tensor([context])).logits[0, -1].argmax())
    yes, no = continuation_scores(model, [Request(context, (one,)) for one in (best, (best + 1) % V)], greedy=True)
    assert yes.greedy is True and no.greedy is False


@pytest.mark.parametrize("system", ("gpt", "llama"))
def test_a_context_that_is_too_long_is_cut_on_the_left(system):
    model, chance = make(system, context=12), random.Random(2)
    requests = [Request(some_tokens(chance, 1, 30), some_tokens(chance, 1, 12)) for _ in range(30)]
    for request, score in zip(requests, continuation_scores(model, requests)):
        value, _ = plainly(model, request.context, request.continuation)
        assert score.log_prob == pytest.approx(value, abs=1e-4)
        assert score.cut == (len(request.context) + len(request.continuation) > 13)


def test_a_continuation_longer_than_the_context_is_the_sum_of_its_pieces():
    model, chance = make("gpt", context=8), random.Random(3)
    context, continuation = some_tokens(chance, 5, 5), some_tokens(chance, 21, 21)
    parts = pieces(context, continuation, 8)
    assert sum((part for _, part in parts), ()) == continuation
    assert all(len(before) + len(part) <= 9 and before for before, part in parts)
    (score,) = continuation_scores(model, [Request(context, continuation)])
    assert score.log_prob == pytest.approx(sum(plainly(model, *part)[0] for part in parts), abs=1e-4)


def test_a_shared_prefix_is_read_once(monkeypatch):
    model, seen = make("gpt"), []
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda tokens, *a, **k: (seen.append(tokens.numel()), forward(tokens, *a, **k))[1]
    )
    prefix = some_tokens(random.Random(4), 40, 40)
    requests = [Request((*prefix, n, n + 1, n + 2), (5, n), "shots") for n in range(20)]
    continuation_scores(model, requests)
    assert sum(seen) < 40 + 20 * (2 + 2 + 1)


def test_the_same_request_is_scored_once(monkeypatch):
    model, rows = make("lstm"), []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda x, *a, **k: (rows.append(len(x)), forward(x, *a, **k))[1])
    scores = continuation_scores(model, [Request((1, 2), (3,))] * 5)
    assert rows == [1, 1] and len(set(scores)) == 1  # the context, then the continuation
