"""GGUF files that the package gguf wrote of transformers' models: the same logits, and the same tensors again."""

import gguf_files
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ensue
from ensue.exchange.gguf.file import read_gguf
from ensue.exchange.gguf.tokenizer import gguf_tokenizer
from ensue.verbs.convert import convert

pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
TEXT = "the rain  fell <s></s> and ☂ the"


def same(ours, theirs):
    return ours == theirs or (isinstance(ours, float) and ours == pytest.approx(theirs, rel=1e-6))


@pytest.mark.parametrize("case", gguf_files.SHAPES)
def test_a_file_there_and_back(case, tmp_path):
    theirs = gguf_files.write_file(tmp_path / "x.gguf", case)
    run = ensue.load(convert(tmp_path / "x.gguf", out=tmp_path / "run"))
    size = min(run.tokenizer.size, theirs.config.vocab_size)
    tokens = torch.randint(0, size, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, found = theirs(tokens).logits, run.model(tokens).logits
    assert (found - wanted).abs().max() < 1e-4 * max(1.0, float(wanted.abs().max()))

    convert(tmp_path / "run", to="gguf", out=tmp_path / "again.gguf")
    first, again = (gguf.GGUFReader(tmp_path / name) for name in ("x.gguf", "again.gguf"))
    one, two = ({tensor.name: np.array(tensor.data) for tensor in file.tensors} for file in (first, again))
    assert set(one) == set(two)
    for name, data in one.items():
        assert data.shape == two[name].shape
        assert np.allclose(data, two[name], rtol=1e-5, atol=1e-7), name
    before, after = (read_gguf(tmp_path / name).values for name in ("x.gguf", "again.gguf"))
    for key in set(before) & set(after) - {"general.name"}:
        if isinstance(before[key], int | float | str):
            assert same(after[key], before[key]), key
    left = {key.partition(".")[2] for key in set(before) - set(after)}
    assert left <= {"attention.key_length", "attention.value_length"}  # where they are hidden / heads
    count = len(before["tokenizer.ggml.tokens"])
    assert after["tokenizer.ggml.tokens"][:count] == before["tokenizer.ggml.tokens"]
    assert after["tokenizer.ggml.token_type"][:count].tolist() == before["tokenizer.ggml.token_type"].tolist()
    tokens = run.tokenizer.encode(TEXT).tolist()
    assert gguf_tokenizer(read_gguf(tmp_path / "again.gguf")).encode(TEXT).tolist() == tokens


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """The tokenizer of a file with scores, and its scores."""
    path = tmp_path_factory.mktemp("pieces") / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    gguf_files.tokenizer_values(writer, pieces=True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    scores = dict.fromkeys(gguf_files.LETTERS, -1000.0) | gguf_files.PIECES
    return gguf_tokenizer(read_gguf(path)), scores


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.sampled_from("the rain</s>é☂\n"), max_size=40))
def test_pieces_are_joined_by_their_scores(pieces, text):
    tokenizer, scores = pieces
    wanted = []
    for number, part in enumerate(text.split("  ")):  # a token that a user defined stands for itself
        wanted += (["  "] if number else []) + gguf_files.spm_tokens(part, scores)
    found = tokenizer.encode(text).tolist()
    assert [tokenizer._inner.id_to_token(token) for token in found] == wanted
    assert tokenizer.decode(found) == text
    assert not set(found) & set(tokenizer.named.values())
    assert tokenizer.begin == tokenizer.named["<s>"] and tokenizer.end == tokenizer.named["</s>"]
