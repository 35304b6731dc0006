"""Texts that begin alike are read from where they differ, and get the same distributions."""

import pytest
import torch

from ensue.core.settings import build
from ensue.models.table import SYSTEMS
from ensue.search.continuous_batching import ContinuousBatch, Row
from ensue.search.prefix_cache import Prefix, PrefixCache, shared_prefix
from ensue.search.sampling import Sampling

TOKENS = [int(token) for token in torch.randint(30, (24,), generator=torch.Generator().manual_seed(0))]


def model(system="gpt", **settings):
    cls = SYSTEMS.load(system)
    torch.manual_seed(0)
    sizes = {"layers": 2, "hidden": 16, "heads": 2, "context": 64} if system == "gpt" else {"hidden": 16}
    return cls(build(cls.Config, {"vocabulary": 30, **sizes, **settings})).eval()


@torch.no_grad()
def after(own, tokens, state=None):
    output = own(torch.tensor([tokens]), own.start(1) if state is None else state, want=("last",))
    return output.logits[0, -1], output.state


@pytest.mark.parametrize("system", ["gpt", "lstm"])
def test_a_longer_text_takes_the_whole_state(system):
    own, cache = model(system), PrefixCache(least=4)
    cache.put(TOKENS[:10], after(own, TOKENS[:10])[1])
    found = cache.take(TOKENS[:15])
    assert list(found.tokens) == TOKENS[:10]
    torch.testing.assert_close(after(own, TOKENS[10:15], found.state)[0], after(own, TOKENS[:15])[0])
    again = cache.take(TOKENS[:15])  # the first one's step did not change what is stored
    torch.testing.assert_close(after(own, TOKENS[10:15], again.state)[0], after(own, TOKENS[:15])[0])


@pytest.mark.parametrize(("settings", "cuts"), [({}, True), ({"attention": "local:span=4"}, False)])
def test_a_text_that_leaves_halfway_takes_a_part_where_it_is_kept(settings, cuts):
    own, cache = model(**settings), PrefixCache(least=4)
    cache.put(TOKENS[:12], after(own, TOKENS[:12])[1])
    other = [*TOKENS[:7], 29, 3]
    found = cache.take(other)
    assert (found is not None) == cuts
    if cuts:
        assert list(found.tokens) == TOKENS[:7]
        torch.testing.assert_close(after(own, other[7:], found.state)[0], after(own, other)[0])


def test_the_last_token_is_always_read():
    own = model()
    stored = Prefix(TOKENS[:8], after(own, TOKENS[:8])[1])
    assert len(shared_prefix(stored, TOKENS[:8]).tokens) == 7
    assert shared_prefix(stored, TOKENS[:1]) is None
    assert shared_prefix(stored, [29, 29]) is None


def test_a_window_that_has_moved_is_not_cut():
    own = model(context=8)
    state = after(own, TOKENS[:12])[1]
    assert shared_prefix(Prefix(TOKENS[:12], state), [*TOKENS[:6], 1, 2]) is None
    whole = shared_prefix(Prefix(TOKENS[:12], state), TOKENS[:16])
    torch.testing.assert_close(after(own, TOKENS[12:16], whole.state)[0], after(own, TOKENS[:16])[0])


def test_the_oldest_texts_leave_where_there_is_no_room():
    own = model()
    texts = [[number, *TOKENS[:9]] for number in range(4)]
    states = [after(own, text)[1] for text in texts]
    size = sum(tensor.numel() * tensor.element_size() for _, tensor in states[0].tensors())
    cache = PrefixCache(max_bytes=2 * size, least=4)
    for text, state in zip(texts, states):
        cache.put(text, state)
    assert [cache.take([*text, 1]) is not None for text in texts] == [False, False, True, True]
    cache.put([*texts[3], 5, 6], after(own, [*texts[3], 5, 6])[1])  # continues one, which is not needed any more
    assert len(cache.take([*texts[3], 5, 6, 7]).tokens) == 12
    assert len(cache.take([*texts[3], 5, 7]).tokens) == 11
    assert len(cache) == 1


def test_small_states_do_not_make_the_search_long():
    cache, state = PrefixCache(max_texts=3), after(model("lstm"), TOKENS)[1]
    for number in range(5):
        cache.put([number, *TOKENS], state)
    assert len(cache) == 3
    assert [cache.take([number, *TOKENS, 1]) is not None for number in range(5)] == [False, False, True, True, True]


@torch.no_grad()
def texts_of(batch, prompts):
    rows = [Row(torch.tensor(prompt), Sampling(tokens=6, temperature=0), frozenset({29})) for prompt in prompts]
    found = {id(row): [] for row in rows}
    batch.join(rows)
    while len(batch):
        for row, drawn in batch.step():
            found[id(row)].append(drawn.token)
    return list(found.values())


def test_a_batch_writes_the_same_texts_from_stored_prefixes():
    own = model()
    reads = []
    own.register_forward_pre_hook(lambda _, given: reads.append(given[0].shape[1]))
    first = [TOKENS[:12], TOKENS[4:14]]
    batch = ContinuousBatch(own, PrefixCache(least=4))
    answers = texts_of(batch, first)
    turns = [[*prompt, *answer[:5], 7, 8] for prompt, answer in zip(first, answers)]
    reads.clear()
    again = texts_of(batch, [*turns, first[0]])
    assert max(reads) <= 3  # the second turns and the repeated prompt are read from where they differ
    assert again == texts_of(ContinuousBatch(own), [*turns, first[0]])


def test_a_row_that_is_cancelled_leaves_its_state_and_a_failed_one_does_not():
    batch = ContinuousBatch(model(), PrefixCache(least=4))
    rows = [Row(torch.tensor(TOKENS[at : at + 10]), Sampling(tokens=50)) for at in (0, 5)]
    batch.join(rows)
    batch.step()
    batch.leave(rows[:1], store=True)
    batch.leave(rows[1:])
    assert len(batch.prefixes) == 1
    found = batch.prefixes.take([*TOKENS[:10], *rows[0].drawn, 3])
    assert len(found.tokens) == 11
    wanted = after(batch.model, [*found.tokens, 3])[0]
    torch.testing.assert_close(after(batch.model, [3], found.state)[0], wanted)
