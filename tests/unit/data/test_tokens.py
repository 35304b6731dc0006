from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data import text_pieces
from ensue.data.splitting import hold_out
from ensue.data.tokenizers import KINDS, fit_tokenizer
from ensue.data.tokenizers.char import ByteTokenizer
from ensue.data.tokens import TokenizedText, tokenize, tokenize_text

TEXT = "the cat sat\non the mat\n"


def write(tmp_path: Path, *texts: str) -> list[Path]:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_bytes(text.encode())
    return files


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_begins_with_the_end_token_and_each_document_ends_with_one(kind: str, tmp_path: Path) -> None:
    files = write(tmp_path, TEXT, "a dog", "\n")
    tokenizer = fit_tokenizer(kind, files)
    text = tokenize(files, tokenizer, cache=tmp_path / "cache")
    ids, end = text.tokens.tolist(), tokenizer.end
    assert ids[0] == end and ids[-1] == end
    assert ids.count(end) == 1 + (4 if kind == "word" else 3)
    assert (text.bytes, text.documents) == (len(TEXT) + 6, 3)
    assert text.words == 6 + 2 + 2 + 1 + 1
    if kind == "word":
        assert len(text) == text.words + 1
    else:
        assert tokenizer.decode(ids) == TEXT + "a dog\n"


def test_tokens_are_read_from_the_cache_and_cannot_be_written(tmp_path: Path) -> None:
    files = write(tmp_path, TEXT)
    calls: list[tuple[str, int, int]] = []

    def run() -> TokenizedText:
        def report(kind: str, values: dict[str, Any]) -> None:
            calls.append((kind, values["done"], values["total"]))

        return tokenize(files, ByteTokenizer(), cache=tmp_path / "c", report=report)

    first = run()
    assert calls == [("progress", len(TEXT), len(TEXT))]
    again = run()
    assert len(calls) == 1
    assert again.hash == first.hash and again.tokens.tolist() == first.tokens.tolist()
    assert isinstance(again.tokens, np.memmap) and again.tokens.dtype == np.uint16
    with pytest.raises(ValueError):
        again.tokens[0] = 1
    files[0].write_text("other")
    assert run().hash != first.hash and len(calls) == 2


@pytest.mark.parametrize("damage", ["short", "flip", "card", "gone", "odd"])
def test_damaged_cache_files_are_written_again(tmp_path: Path, damage: str) -> None:
    files, cache = write(tmp_path, TEXT), tmp_path / "cache"
    first = tokenize(files, ByteTokenizer(), cache=cache).tokens.tolist()
    (tokens,), (card,) = cache.glob("*.tokens"), cache.glob("*.json")
    data = tokens.read_bytes()
    if damage == "short":
        tokens.write_bytes(data[:-2])
    elif damage == "flip":
        tokens.write_bytes(data[:-3] + b"\1" + data[-2:])
    elif damage == "card":
        card.write_text("{")
    elif damage == "odd":
        card.write_text("[]")
    else:
        tokens.unlink()
    assert tokenize(files, ByteTokenizer(), cache=cache).tokens.tolist() == first
    assert json.loads(card.read_text())["count"] == len(first)
    assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".tokens"]


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "mine"))
    tokenize(["hello"], ByteTokenizer())
    assert len(list((tmp_path / "mine").iterdir())) == 2
    monkeypatch.delenv("ENSUE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    tokenize(["hello"], ByteTokenizer())
    assert len(list((tmp_path / "home/.cache/ensue/tokens").iterdir())) == 2


def test_the_error_for_a_read_only_cache_has_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="set ENSUE_CACHE"):
        tokenize(["hello"], ByteTokenizer(), cache=tmp_path / "file" / "cache")


@pytest.mark.parametrize("kind", ["word", "bpe", "char", "wordpiece"])
def test_long_documents_give_the_same_tokens_as_whole_ones(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_pieces, "PIECE_BYTES", 1 << 13)
    text = "".join(f"line {n % 977} \tof  a text\n" + "\n  x\n" * (n % 2) for n in range(4000))
    files = write(tmp_path, text)
    tokenizer = fit_tokenizer(kind, files, **({} if kind in ("word", "char") else {"vocabulary": 600}))
    made = tokenize(files, tokenizer, cache=tmp_path / "cache")
    ends = [] if kind == "word" else [tokenizer.end]
    assert made.tokens.tolist() == [tokenizer.end, *tokenizer.encode(text).tolist(), *ends]
    assert made.surcharge == pytest.approx(tokenizer.surcharge(text)[0])


def test_a_word_longer_than_a_piece_is_counted_once(tmp_path: Path) -> None:
    files = write(tmp_path, "x" * (2 * text_pieces.PIECE_BYTES + 5) + " y\n")
    assert tokenize(files, ByteTokenizer(), cache=tmp_path / "cache").words == 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_a_held_out_text_add_up(kind: str, tmp_path: Path) -> None:
    files = write(tmp_path, "".join(f"{n % 13} line {n} of a text\n" for n in range(1000)))
    train, valid = hold_out(files, 0.2)
    tokenizer = fit_tokenizer(kind, train)
    parts = [tokenize(part, tokenizer, cache=tmp_path / "cache") for part in (train, valid)]
    whole = tokenize(files, tokenizer, cache=tmp_path / "cache")
    for name in ("bytes", "words", "unknown"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name)
    assert sum(part.surcharge for part in parts) == pytest.approx(whole.surcharge)
    assert whole.bytes == files[0].stat().st_size
    assert (whole.surcharge > 0) == (kind == "word")


def test_text_in_memory_is_tokenised_like_a_file(tmp_path: Path) -> None:
    text = "some words\nand  more"
    files = write(tmp_path, text)
    tokenizer = fit_tokenizer("word", files)
    memory, file = tokenize_text(text, tokenizer), tokenize(files, tokenizer, cache=tmp_path / "cache")
    assert memory.tokens.tolist() == file.tokens.tolist()
    for name in ("bytes", "words", "documents", "surcharge", "unknown"):
        assert getattr(memory, name) == getattr(file, name)


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    files = write(tmp_path, " ".join(map(str, range(70_000))) + "\n")
    tokenizer = fit_tokenizer("word", files, vocabulary=80_000, min_count=1)
    text = tokenize(files, tokenizer, cache=tmp_path / "cache")
    assert text.tokens.dtype == np.uint32 and text.tokens.max() == tokenizer.size - 1 == 70_001
