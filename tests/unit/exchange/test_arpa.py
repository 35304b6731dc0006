"""ARPA files: written, read back, escaped, compressed, damaged, pruned."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.exchange.arpa import escape, read_arpa, unescape, write_arpa
from ensue.models.ngram import NGram, NGramConfig
from ensue.train.counting import count

NAMES = ["</s>", "a", "b", " ", "\n", "\\u0020", "<s>", "\\/", "é\u2028"]

SMALL = """\
made by hand

\\data\\
ngram 1=4
ngram 2=2
ngram 3=1

\\1-grams:
-99\t<s>\t-0.5
-0.3\t</s>
-0.6\ta\t-0.2
-0.7\tb\t-0.1

\\2-grams:
-0.1 <s> a -0.4
-0.2 a b 0

\\3-grams:
-0.05\t<s> a b

\\end\\
"""


def model_of(stream: list[int], *, end: int = 0, mode: str = "kneser-ney", order: int = 3) -> NGram:
    config = NGramConfig(vocabulary=len(NAMES), order=order, end=end, mode=mode)  # type: ignore[arg-type]
    counter = NGram(config).counter()
    count(counter, np.array(stream))
    return counter.finish()


def random_stream(end: int = 0) -> list[int]:
    tokens = np.random.default_rng(0).integers(0, len(NAMES), 400).tolist()
    return [end, *tokens, end] if end >= 0 else tokens


@given(st.text(min_size=1))
def test_escaping_is_reversible_and_leaves_no_white_space(token: str) -> None:
    assert unescape(escape(token)) == token
    assert escape(token).split() == [escape(token)]
    assert escape(token) not in ("<s>", "</s>")


@pytest.mark.parametrize("end", [-1, 0, 4])
@pytest.mark.parametrize("mode", ["kneser-ney", "backoff"])
@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_a_written_model_reads_back(tmp_path: Path, end: int, mode: str, name: str) -> None:
    model = model_of(random_stream(end), end=end, mode=mode)
    names = [f"<{token}>" if end == 0 and number == 0 else token for number, token in enumerate(NAMES)]
    write_arpa(model, names, tmp_path / name)
    back, read = read_arpa(tmp_path / name)
    assert read == [("</s>" if number == end else token) for number, token in enumerate(names)]
    assert (back.counts, back.config.end) == (model.counts, end)
    tokens = torch.tensor([random_stream(end)])
    torch.testing.assert_close(back(tokens).logits, model(tokens).logits, atol=1e-5, rtol=0)
    write_arpa(back, read, tmp_path / "again.arpa")
    again, _ = read_arpa(tmp_path / "again.arpa")
    torch.testing.assert_close(again.probability, back.probability, atol=1e-6, rtol=0)


@pytest.mark.parametrize("order", [1, 5])
def test_orders_without_contexts_or_without_ngrams_read_back(tmp_path: Path, order: int) -> None:
    model = model_of([0, 1, 0], order=order)
    write_arpa(model, NAMES, tmp_path / "m.arpa")
    back, _ = read_arpa(tmp_path / "m.arpa")
    tokens = torch.tensor([[0, 1, 2, 0, 0]])
    torch.testing.assert_close(back(tokens).logits, model(tokens).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["add", "mle"])
def test_modes_without_back_off_are_rejected(tmp_path: Path, mode: str) -> None:
    with pytest.raises(InputError, match="has no back-off weights"):
        write_arpa(model_of([0, 1, 0], mode=mode), NAMES, tmp_path / "m.arpa")


def test_token_names_must_be_unique_and_complete(tmp_path: Path) -> None:
    model = model_of([0, 1, 0])
    with pytest.raises(InputError, match="2 names were given for 9 tokens"):
        write_arpa(model, ["a", "b"], tmp_path / "m.arpa")
    with pytest.raises(InputError, match="same name"):
        write_arpa(model, ["x"] * 9, tmp_path / "m.arpa")
    assert list(tmp_path.iterdir()) == []


def test_a_file_made_by_hand(tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text(SMALL)
    model, names = read_arpa(tmp_path / "m.arpa")
    assert (names, model.counts) == (["</s>", "a", "b"], [3, 2, 1])
    found, _ = model.log_prob(torch.tensor([[0, 1, 2]]), torch.tensor([[1, 2, 0]]))
    ten = np.log(10)
    assert (found[0] / ten).tolist() == pytest.approx([-0.1, -0.05, 0 - 0.1 - 0.3], abs=1e-6)


def test_missing_ngrams_of_pruned_models_are_added(tmp_path: Path) -> None:
    """``<s> a b`` without ``a b``: P(b|a) is what backing off gives."""
    pruned = SMALL.replace("-0.2 a b 0\n", "").replace("ngram 2=2", "ngram 2=1")
    (tmp_path / "m.arpa").write_text(pruned)
    model, _ = read_arpa(tmp_path / "m.arpa")
    assert model.counts == [3, 2, 1]
    found, _ = model.log_prob(torch.tensor([[0, 1, 1]]), torch.tensor([[1, 2, 2]]))
    assert (found[0] / np.log(10)).tolist() == pytest.approx([-0.1, -0.05, -0.2 - 0.7], abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "\\date\\", "line 21: the file ends too early"),
        ("ngram 2=2", "ngram 3=2", "line 5: expected the count of order 2"),
        ("ngram 1=4\nngram 2=2\nngram 3=1", "", "expected \\\\1-grams:"),
        ("ngram 1=4", "ngram 1=5", "line 14: there are fewer 1-grams than the header says"),
        ("ngram 1=4", "ngram 1=3", "line 12: expected .*2-grams:"),
        ("-0.6\ta", "0.6\ta", "line 11: 0.6 is not the logarithm of a probability"),
        ("-0.6\ta", "nan\ta", "line 11: nan is not"),
        ("-0.6\ta", "word\ta", "line 11: expected a number"),
        ("-0.7\tb", "-0.7\ta", "line 12: 'a' is listed twice"),
        ("-0.7\tb", "-0.7\t\\u0061", "line 12: 'a' is listed twice, once with escapes"),
        ("a\t-0.2", "a\t1e39", "line 11: 1e39 is not the logarithm of a back-off weight"),
        ("a\t-0.2", "a\tnan", "line 11: nan is not the logarithm of a back-off weight"),
        ("-0.3\t</s>", "-0.3\tc", "<s> is listed but </s> is not"),
        ("-0.2 a b 0", "-0.2 a z 0", "line 16: 'z' is not among the 1-grams"),
        ("-0.2 a b 0", "-0.2 a b c d", "line 16: expected 3 or 4 fields"),
        ("-0.2 a b 0", "-0.2 a <s> 0", "line 16: <s> can only begin"),
        ("-0.2 a b 0", "-0.2 <s> a 0", "line 16: this 2-gram is listed twice"),
        ("-0.05\t<s> a b", "-0.05\tb a b", "line 19: the context of this 3-gram is not listed"),
        ("\\end\\\n", "", "the file ends too early"),
    ],
)
def test_errors_in_a_damaged_file_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    (tmp_path / "m.arpa").write_text(SMALL.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_arpa(tmp_path / "m.arpa")


def test_damaged_bytes_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(SMALL.encode())[:-20])
    (tmp_path / "latin.arpa").write_bytes(SMALL.replace("a b", "\xe9 b").encode("latin-1"))
    for name, message in [
        ("cut.gz", "is damaged"),
        ("latin.arpa", "is damaged"),
        ("none.arpa", "is missing"),
    ]:
        with pytest.raises(InputError, match=message):
            read_arpa(tmp_path / name)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text("\ufeff" + SMALL.removeprefix("made by hand\n\n"), encoding="utf-8")
    assert read_arpa(tmp_path / "m.arpa")[1] == ["</s>", "a", "b"]
