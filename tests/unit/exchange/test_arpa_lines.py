"""The compiled writer of ARPA lines against Python's own formatting."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ensue.exchange import arpa_lines
from ensue.exchange.arpa_lines import LN_10, level_lines, word_bytes, write_number
from ensue.models.ngram import NGram, NGramConfig
from ensue.train.counting import count


def written(value: float) -> str:
    buffer = np.zeros(64, np.uint8)
    return buffer[: write_number(buffer, 0, value)].tobytes().decode()


@settings(deadline=None)
@given(st.floats(-120, 120, width=32))
@example(0.0)
@example(-99.0)
@example(9.9999999999)
@example(0.1)
@example(-1e-7)
def test_a_number_is_written_with_nine_digits(value: float) -> None:
    if 0 < abs(value) < 1e-9:
        return  # no logarithm of a probability in single precision is as small
    text = written(value)
    assert abs(float(text) - value) <= 1.01 * 10.0 ** (np.floor(np.log10(abs(value))) - 8) / 2 if value else text == "0"
    assert len(text.replace("-", "").replace(".", "").strip("0")) <= 9
    assert "." not in text or not text.endswith(("0", "."))


def test_lines_equal_those_of_a_plain_loop_for_any_buffer_size(monkeypatch) -> None:
    words = ["</s>", "a", "bé", "a-word-longer-than-others"]
    draw = np.random.default_rng(3)
    counter = NGram(NGramConfig(vocabulary=4, order=3, end=0)).counter()
    count(counter, np.concatenate([[0], draw.integers(0, 4, 300), [0]]))
    model = counter.finish()
    starts, offsets, last = model.starts.tolist(), model.offsets.tolist(), model.words.tolist()
    contexts = {node: context for context in range(starts[2]) for node in range(offsets[context], offsets[context + 1])}
    monkeypatch.setattr(arpa_lines, "BUFFER_BYTES", 200)
    openings, closings = word_bytes(["<s>", *words[1:]]), word_bytes(words)
    for order in (1, 2, 3):
        lines = b"".join(bytes(part) for part in level_lines(model, order, openings, closings)).decode().split("\n")
        assert lines.pop() == ""
        assert len(lines) == starts[order] - starts[order - 1]
        for node, line in enumerate(lines, starts[order - 1]):
            log, gram, *weight = line.split("\t")
            assert np.float32(float(log) * LN_10) == np.float32(min(float(model.probability[node]), 0))
            expected, context = [words[last[node]]], contexts.get(node)
            while context is not None:
                expected.insert(0, words[last[context]])
                context = contexts.get(context)
            if order > 1 and expected[0] == "</s>":
                expected[0] = "<s>"
            assert gram == " ".join(expected)
            own = [] if order == 3 else [0.0 if node == 0 else float(model.backoff[node])]
            assert [np.float32(float(text) * LN_10) for text in weight] == [np.float32(value) for value in own]
