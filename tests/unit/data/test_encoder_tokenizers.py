"""Tokenizers with special tokens: encoding, decoding, saving and loading."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from ensue.core.errors import InputError
from ensue.data.tokenizers import Tokenizer, load_tokenizer, save_tokenizer
from ensue.data.tokenizers.bert import BERT_SPECIAL_TOKENS, ROBERTA_SPECIAL_TOKENS
from ensue.data.tokenizers.encoder_fitting import ENCODER_KINDS, byte_encoder_tokenizer, fit_encoder_tokenizer
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.subword import BYTE_ALPHABET, SubwordTokenizer

TEXT = "The cat sat on the mat, the dog did not; it's a naïve café. [MASK] <mask> 12 unbelievable cats\n"
TEXTS = [TEXT] * 30
SIZES = {"wordpiece": 130, "bpe": 320, "unigram": 320}


def fitted(kind: str, lowercase: bool = True) -> EncoderTokenizer:
    return fit_encoder_tokenizer(kind, iter(TEXTS), SIZES[kind], 2, lowercase)


@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_encoder_tokenizers_implement_the_protocol(kind: str) -> None:
    made = fitted(kind, lowercase=False)
    assert isinstance(made, Tokenizer)
    assert (made.kind, made.lines, made.end, made.size) == (kind, False, made.special_tokens.end, made.size)
    assert made.size <= SIZES[kind]
    ids = made.encode(TEXT)
    assert ids.dtype == np.int32 and ids.min() >= 0 and ids.max() < made.size
    names = [made.name(token) for token in range(made.size)]
    assert all(name and name.isprintable() and " " not in name for name in names)
    assert made.encode("").tolist() == [] and made.decode([]) == ""
    for broken in (made.encode, lambda text: made.encode_batch([text]), made.spans):
        with pytest.raises(InputError, match="surrogate"):
            broken("a\udc80b")


@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_names_of_special_tokens_in_a_text_are_plain_text(kind: str) -> None:
    made = fitted(kind)
    marks = set(
        made.encode(f"{' '.join(BERT_SPECIAL_TOKENS)} {' '.join(ROBERTA_SPECIAL_TOKENS)} [MASK]<mask>").tolist()
    )
    assert not marks & (
        {made.special_tokens.start, made.special_tokens.end, made.special_tokens.mask, made.special_tokens.pad}
    )


def test_special_tokens_have_the_ids_of_bert_and_roberta() -> None:
    bert, roberta = fitted("wordpiece"), fitted("bpe")
    assert tuple(bert.name(token) for token in range(5)) == BERT_SPECIAL_TOKENS and bert.unknown == 1
    last = roberta.size - 1
    assert tuple(roberta.name(token) for token in (0, 1, 2, 3, last)) == ROBERTA_SPECIAL_TOKENS and roberta.unknown == 3
    assert (bert.special_tokens.start, bert.special_tokens.end, bert.special_tokens.mask, bert.special_tokens.pad) == (
        2,
        3,
        4,
        0,
    )
    assert (
        roberta.special_tokens.start,
        roberta.special_tokens.end,
        roberta.special_tokens.mask,
        roberta.special_tokens.pad,
    ) == (0, 2, last, 1)
    assert roberta.special_tokens.double_separator and not bert.special_tokens.double_separator


def test_wordpiece_treats_case_accents_and_unknown_letters_as_bert_does() -> None:
    lower, cased = fitted("wordpiece"), fitted("wordpiece", lowercase=False)
    assert lower.encode("THE Café").tolist() == lower.encode("the cafe").tolist()
    assert cased.encode("The").tolist() != cased.encode("the").tolist()
    assert lower.encode("the ж").tolist()[-1] == lower.unknown
    assert lower.encode("a" * 101).tolist() == [lower.unknown]


def test_wordpiece_decodes_to_readable_text() -> None:
    made = fit_encoder_tokenizer("wordpiece", TEXTS, 80)
    marks, ids = made.special_tokens, made.encode(TEXT).tolist()
    assert any(made.name(token).startswith("##") for token in ids)
    plain = "the cat sat on the mat, the dog did not ; it ' s a naive cafe."
    assert made.decode(ids).startswith(plain)
    cat = made.encode("cat").tolist()
    assert made.decode([marks.start, *cat, marks.mask, marks.end, marks.pad]) == "cat [MASK]"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_byte_level_tokenizers_are_lossless_without_a_surcharge(kind: str) -> None:
    made = fitted(kind, lowercase=False)
    text = "Tabs\tand  spaces \n\n ж🎈 <mask>"
    assert made.decode([made.special_tokens.start, *made.encode(text), made.end]) == text
    assert made.surcharge(text) == (0.0, 0)


def test_a_byte_tokenizer_of_an_encoder_has_a_token_for_each_byte_and_special_tokens() -> None:
    made = byte_encoder_tokenizer(lowercase=False)
    text = "Tabs\tand  spaces \n\n ж🎈 <mask>"
    ids = made.encode(text)
    assert len(ids) == len(text.encode()) and made.decode(ids) == text
    assert made.size == 256 + len(ROBERTA_SPECIAL_TOKENS) and made.special_tokens.mask == made.size - 1


@pytest.mark.parametrize(("kind", "lowercase"), [("wordpiece", True), ("wordpiece", False), ("bpe", True)])
def test_a_lossy_tokenizer_has_no_bits_per_byte(kind: str, lowercase: bool) -> None:
    with pytest.raises(InputError, match="bits per byte cannot be counted") as caught:
        fitted(kind, lowercase).surcharge("A text")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_a_batch_is_encoded_as_single_texts_and_as_by_the_library(kind: str, lowercase: bool) -> None:
    made = fitted(kind, lowercase)
    library = Library.from_str(json.dumps(made.state()))
    library.encode_special_tokens = True
    chance = random.Random(5)
    odd = ["the", " cat", "ä", "a\u0301", "\u0301", "\n", "\r\n", "\t", "\0", "\x0b", "\x1c", "\x7f", "\x85", "中"]
    odd += ["'s", "IT'S", "#", "##", "_", "!", "\u2028", "\u200b", "\ufffd", "[CLS]", "</s>", "İ", "ß", " ", ""]
    texts = ["".join(chance.choices(odd, k=chance.randrange(12))) for _ in range(400)]
    texts += ["".join(chance.choices([*"aThe's#_ \t\n\0\x0b\x0c\r\x1c\x7f"], k=10)) for _ in range(300)]
    wanted = [library.encode(text, add_special_tokens=False).ids for text in texts]
    assert [made.encode(text).tolist() for text in texts] == wanted
    assert [ids.tolist() for ids in made.encode_batch(texts)] == wanted
    assert made.encode("\n".join(texts)).tolist() == library.encode("\n".join(texts), add_special_tokens=False).ids
    assert all(ids.dtype == np.int32 for ids in made.encode_batch(["", *texts]))


@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_a_loaded_tokenizer_equals_the_saved_one(kind: str, tmp_path: Path) -> None:
    made = fitted(kind)
    save_tokenizer(made, tmp_path)
    again = load_tokenizer(tmp_path)
    assert isinstance(again, EncoderTokenizer)
    assert again.state() == made.state() and again.special_tokens == made.special_tokens
    assert again.encode(TEXT).tolist() == made.encode(TEXT).tolist()
    save_tokenizer(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


def test_fitting_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = """if True:
        import sys, json, hashlib
        from ensue.data.tokenizers.encoder_fitting import ENCODER_KINDS, fit_encoder_tokenizer
        texts = open(sys.argv[1]).read().split("|")
        for kind in ENCODER_KINDS:
            for lowercase in (False, True):
                state = fit_encoder_tokenizer(kind, texts, 600, 2, lowercase).state()
                print(hashlib.sha256(json.dumps(state).encode()).hexdigest())
    """
    chance = random.Random(1)
    letters = "aäbcdefghijklmnoprstuvwyzABCDE"
    file = tmp_path / "text.txt"
    file.write_text("|".join("".join(chance.choices(letters, k=5)) + " and." for _ in range(1500)))
    command = [sys.executable, "-c", code, str(file)]
    runs = [subprocess.run(command, capture_output=True, check=True).stdout.split() for _ in range(2)]
    assert runs[0] == runs[1] and len(set(runs[0])) == 6
    order = fit_encoder_tokenizer("wordpiece", sorted(file.read_text().split("|")), 600, 2, True).state()
    assert hashlib.sha256(json.dumps(order).encode()).hexdigest().encode() == runs[0][1]  # whatever the order


def test_too_small_a_vocabulary_is_an_error_in_one_line() -> None:
    for kind, least in (("wordpiece", 60), ("bpe", 261), ("unigram", 261)):
        with pytest.raises(InputError, match=rf"a {kind} vocabulary of 40 is too small; choose at least \d+") as caught:
            fit_encoder_tokenizer(kind, TEXTS, 40)
        wanted = int(str(caught.value).split("at least ")[1].split(":")[0])
        assert fit_encoder_tokenizer(kind, TEXTS, wanted).size == wanted and abs(wanted - least) < 20
    with pytest.raises(InputError, match="did you mean 'wordpiece'"):
        fit_encoder_tokenizer("wordpeice", TEXTS, 400)


def test_wordpiece_keeps_the_frequent_letters_of_a_large_alphabet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.data.tokenizers.encoder_fitting.MAX_ALPHABET", 3)
    made = fit_encoder_tokenizer("wordpiece", ["aaa bb c d", "aab b c c ad"], 30, 1)
    assert made.unknown in made.encode("d") and made.encode("ad").tolist() == [made.unknown]
    assert [made.name(token) for token in made.encode("b c aab")] == ["b", "c", "aab"]


def bert_folder(folder: Path, tokens: str = "the cat ##s The é e . 中 文 中文", **described: object) -> Tokenizer:
    (folder / "vocab.txt").write_text("\n".join([*BERT_SPECIAL_TOKENS, *tokens.split()]) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return load_tokenizer(folder)


def names(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.name(token) for token in tokenizer.encode(text)]


def test_a_vocabulary_file_is_read_as_its_config_says(tmp_path: Path) -> None:
    assert names(bert_folder(tmp_path, do_lower_case=True), "The CATS.é") == ["the", "cat", "##s", ".", "e"]
    assert names(bert_folder(tmp_path, do_lower_case=False), "The cats.é") == ["The", "cat", "##s", ".", "é"]
    loud = bert_folder(tmp_path, do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False)
    assert names(loud, "The é 中文") == ["the", "é", "中文"]
    assert names(bert_folder(tmp_path, do_lower_case=True), "中文") == ["中", "文"]
    assert names(bert_folder(tmp_path), "The") == ["The"]  # nothing said: the vocabulary has capitals
    assert names(bert_folder(tmp_path, "the cat"), "The") == ["the"]
    (tmp_path / "vocab.txt.gz").write_bytes(gzip.compress((tmp_path / "vocab.txt").read_bytes()))
    (tmp_path / "vocab.txt").unlink()
    assert names(load_tokenizer(tmp_path), "The") == ["the"]
    (tmp_path / "vocab.txt").write_text("the\ncat\n")
    with pytest.raises(InputError, match=r"vocab\.txt: the vocabulary has no \[PAD\]"):
        load_tokenizer(tmp_path)


def test_the_config_beside_a_tokenizer_file_is_respected(tmp_path: Path) -> None:
    made = bert_folder(tmp_path, do_lower_case=False)
    save_tokenizer(made, tmp_path)
    assert names(load_tokenizer(tmp_path), "The") == ["The"]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert names(load_tokenizer(tmp_path), "The") == ["the"]
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(InputError, match=r"tokenizer_config\.json: does not describe"):
        load_tokenizer(tmp_path)


def test_the_files_of_roberta_are_distinguished_from_those_of_gpt2(tmp_path: Path) -> None:
    merges = ["t h", "th e", "Ġ the"]
    parts = [*sorted(BYTE_ALPHABET), *(merge.replace(" ", "") for merge in merges)]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    for tokens, kind in (
        ([*ROBERTA_SPECIAL_TOKENS[:4], *parts, "<mask>"], EncoderTokenizer),
        ([*parts, "<|endoftext|>"], SubwordTokenizer),
    ):
        (tmp_path / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
        made = load_tokenizer(tmp_path)
        assert type(made) is kind
        assert names(made, "the the") == ["the", "␣the"]
    for marks in ({"<mask>": 0}, {"<|endoftext|>": 0}):
        (tmp_path / "vocab.json").write_text(json.dumps(marks))
        with pytest.raises(InputError, match="vocabulary and merges do not belong together"):
            load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("a b c\n")
    with pytest.raises(InputError, match="not a file of merges"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("")
    (tmp_path / "vocab.json").write_text(json.dumps({"<mask>": 0}))
    with pytest.raises(InputError, match="the vocabulary has no <s>"):
        load_tokenizer(tmp_path)


def test_truncation_and_padding_are_switched_off(tmp_path: Path) -> None:
    made = fitted("wordpiece")
    library = Library.from_str(json.dumps(made.state()))
    library.enable_truncation(max_length=4)
    library.enable_padding(length=12)
    library.save(str(tmp_path / "tokenizer.json"))
    again = load_tokenizer(tmp_path)
    assert again.state() == made.state()
    assert again.encode("the cat sat on the mat").tolist() == made.encode("the cat sat on the mat").tolist()
    assert again.encode("cat").tolist() == made.encode("cat").tolist()


def test_a_file_without_template_and_decoder_gets_them(tmp_path: Path) -> None:
    for kind in ("wordpiece", "bpe"):
        made = fitted(kind)
        bare = {**made.state(), "post_processor": None, "decoder": None, "added_tokens": []}
        (tmp_path / "tokenizer.json").write_text(json.dumps(bare))
        again = load_tokenizer(tmp_path)
        assert isinstance(again, EncoderTokenizer) and again.special_tokens == made.special_tokens
        assert again.decode(again.encode("the cat sat")) == "the cat sat"
        framed = [
            json.loads(Library.from_str(json.dumps(one.state())).to_str())["post_processor"] for one in (made, again)
        ]
        assert framed[0] == framed[1]


def test_special_tokens_are_read_from_the_template_whatever_their_names() -> None:
    state = fitted("wordpiece").state()
    text = json.dumps(state).replace("[CLS]", "[BOS]").replace("[SEP]", "[EOS]")
    made = EncoderTokenizer.restore(json.loads(text))
    assert (made.special_tokens.start, made.special_tokens.end, made.name(made.end)) == (2, 3, "[EOS]")


def test_special_tokens_without_a_template_or_known_names_are_an_error(tmp_path: Path) -> None:
    inner = Library(
        models.BPE(vocab={letter: number for number, letter in enumerate(sorted(BYTE_ALPHABET))}, merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.add_special_tokens(["<|a|>", "<|b|>"])
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=r"tokenizer\.json: a tokenizer with several special tokens needs one before"):
        load_tokenizer(tmp_path)
