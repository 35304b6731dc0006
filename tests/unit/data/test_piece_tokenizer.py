"""Tokenizers of SentencePiece: text comes back, special tokens cannot be smuggled in, the library's own tokens."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ensue.core.errors import InputError
from ensue.data.tokenizers.pieces import PieceTokenizer
from ensue.data.tokenizers.protocol import first_token
from ensue.data.tokenizers.registry import restore_tokenizer
from ensue.runs.stream_detokenizer import StreamDetokenizer

SPECIAL = ["<unk>", "<s>", "</s>"]
MERGES = [("<", "s"), ("<s", ">"), ("▁", "a"), ("▁a", "b"), ("▁", "▁"), ("a", "b")]


def tokenizer(space):
    """One with merges that make the special token <s> of its name."""
    pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *"▁<>/sab", *("".join(two) for two in MERGES)]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    inner = Tokenizer(models.BPE(vocab, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if space == "always":
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif space == "first":
        inner.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    else:
        inner.normalizer = normalizers.Replace(" ", "▁")
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    return PieceTokenizer(inner, "</s>", "<s>")


@pytest.fixture(scope="module", params=["always", "first", "never"])
def each(request):
    return tokenizer(request.param)


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.sampled_from("ab <s>/é☂\n🎈\x00"), max_size=30))
def test_text_comes_back_and_holds_no_special_token(each, text):
    if each._space == "first":  # a space that is there already is taken for the one before a text
        text = text.lstrip(" ")
    ids = each.encode(text)
    assert each.decode(ids) == text
    assert not set(ids.tolist()) & set(each.named.values())


def test_without_special_names_tokens_are_the_librarys(each):
    for text in ("ab a  b", "é ab", "a\nb"):
        assert each.encode(text).tolist() == each._inner.encode(text, add_special_tokens=False).ids


def test_a_space_comes_before_a_text_and_not_after_a_special_token():
    one = tokenizer("first")
    assert one.decode(one.encode("ab")) == "ab"
    assert [one.name(token) for token in one.encode("ab")] == ["␣ab"]
    assert [one.name(token) for token in one.encode_after("ab")] == ["ab"]


def test_it_is_restored_from_its_state(each):
    again = restore_tokenizer(json.loads(json.dumps(each.state())))
    assert type(again) is PieceTokenizer and again.state() == each.state()
    assert (first_token(again), again.end) == (again.named["<s>"], again.named["</s>"])


def test_characters_arrive_whole_when_their_bytes_come_one_by_one(each):
    stream = StreamDetokenizer(each, [each.begin])
    pieces = [stream.add(int(token)) for token in each.encode("a☂b")]
    assert "".join([*pieces, stream.finish()]) == "a☂b" and "\ufffd" not in "".join(pieces)


def test_a_tokenizer_without_a_byte_is_refused():
    inner = Tokenizer(models.BPE({"<s>": 0, "a": 1}, [], byte_fallback=True))
    inner.add_special_tokens([AddedToken("<s>", special=True)])
    with pytest.raises(InputError, match="<0x00>"):
        PieceTokenizer(inner, "<s>")
