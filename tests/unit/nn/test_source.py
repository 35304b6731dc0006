"""A source is kept once a sentence: picking rows moves numbers, not keys and values."""

import pytest
import torch

from ensue.nn.source import Source

N, S = 3, 4
LENGTHS = torch.tensor([4, 2, 3])


@pytest.fixture
def source():
    return Source.of((torch.arange(N * S * 2.0).view(N, S, 2), torch.randn(N, 2, S)), LENGTHS, S)


def belongs(source):
    """For each row the first number of its sentence, as the parts have it."""
    source = source.even()
    return [int(source.parts[0][row // source.each, 0, 0]) // (2 * S) for row in range(len(source.index))]


def pick(source, *index):
    return source.rows(torch.tensor(index, dtype=torch.long))


def shares(left, right):
    return all(a.data_ptr() == b.data_ptr() for a, b in zip(left.parts, right.parts))


def test_rows_that_only_multiply_copy_nothing(source):
    twice = pick(source, 0, 0, 1, 1, 2, 2)
    assert shares(source, twice) and twice.each == 2 and belongs(twice) == [0, 0, 1, 1, 2, 2]
    again = pick(twice, 1, 1, 3, 2, 4, 4)  # a beam reorders inside its sentences
    assert shares(source, again) and again.each == 2
    assert shares(source, pick(again, 0, 2, 4)) and pick(again, 0, 2, 4).each == 1


def test_sentences_without_rows_leave(source):
    two = pick(pick(source, 0, 0, 1, 1, 2, 2), 0, 1, 4, 5)
    assert [len(part) for part in two.parts] == [2, 2] and two.lengths.tolist() == [4, 3]
    assert two.index.tolist() == [0, 0, 1, 1] and two.each == 2 and belongs(two) == [0, 0, 2, 2]
    one = pick(two, 3, 2)
    assert len(one.parts[0]) == 1 and belongs(one) == [2, 2]


@pytest.mark.parametrize("index", [(0, 0, 1), (1, 0, 1), (2, 2, 2, 0), (1, 0, 2, 1), (0, 1, 1, 2)])
def test_uneven_picks_know_their_sentences(source, index):
    found = pick(source, *index)
    assert found.index.tolist() == list(index) and belongs(found) == list(index)
    even = found.even()
    assert even.lengths[even.index].tolist() == LENGTHS[list(index)].tolist()
    assert belongs(pick(even, *range(len(index)))) == list(index)


def test_an_uneven_pick_copies_nothing_until_it_is_read(source):
    found = pick(source, 0, 0, 1)
    assert shares(source, found) and found.each == 0
    assert shares(source, pick(found, 2, 0, 2)) and belongs(pick(found, 2, 0, 2)) == [1, 0, 1]


def test_sentences_in_another_order(source):
    found = pick(source, 2, 2, 0, 0, 1, 1)
    assert found.each == 2 and found.lengths.tolist() == [3, 4, 2] and belongs(found) == [2, 2, 0, 0, 1, 1]


def test_no_rows_at_all(source):
    none = pick(source)
    assert len(none.index) == 0 and len(none.even().lengths) == 0 and none.even().mask(S).shape == (0, S)


def test_a_mask_only_where_it_is_needed(source):
    assert source.mask(S).tolist() == [[i < n for i in range(S)] for n in LENGTHS.tolist()]
    for lengths in (None, torch.full((N,), S)):
        assert Source.of(source.parts, lengths, S).mask(S) is None


def test_the_longest_may_leave_its_padding_behind(source):
    rest = pick(source, 1, 2)
    assert rest.mask(S).sum(1).tolist() == [2, 3]


@pytest.mark.parametrize("each", [1, 2, 3])
def test_folding_and_back(source, each):
    held = source.rows(torch.arange(N).repeat_interleave(each))
    x = torch.randn(N * each, 5, 2)
    folded = held.fold(x)
    assert folded.shape == (N, each * 5, 2)
    assert torch.equal(held.unfold(folded), x)
    heads = torch.randn(N, 4, each * 5, 6)  # (N, H, k·T, S) → (B, H, T, S)
    back = held.unfold(heads, dim=2)
    assert back.shape == (N * each, 4, 5, 6)
    for row in range(N * each):
        n, k = divmod(row, each)
        assert torch.equal(back[row], heads[n, :, k * 5 : (k + 1) * 5])


def test_a_source_is_never_written_so_a_fork_is_itself(source):
    assert source.fork() is source


def test_detaching_keeps_the_way_to_the_encoder():
    part = torch.randn(2, 3, 4, requires_grad=True)
    held = Source.of((2 * part,), None, 3).detach()
    held.parts[0].sum().backward()
    assert torch.equal(part.grad, torch.full_like(part, 2.0))
