from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ensue.core.errors import InputError
from ensue.data.tokenizers import (
    KINDS,
    Tokenizer,
    fit_tokenizer,
    load_tokenizer,
    resolve_tokenizer,
    save_tokenizer,
)
from ensue.data.tokenizers.registry import restore_tokenizer
from ensue.data.tokenizers.subword import BYTE_ALPHABET

TEXT = "the cat sat on the mat, the dog did not; naïve café\n" * 30
ODD = "the  zebra\u2028é <|end|> 🎈\n"


def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def found(text: str | Path) -> Tokenizer:
    tokenizer = resolve_tokenizer(str(text))
    assert not isinstance(tokenizer, str)
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_tokenizers_are_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = fit_tokenizer(kind, [corpus(tmp_path)])
    save_tokenizer(tokenizer, tmp_path)
    for again in (load_tokenizer(tmp_path / "tokenizer.json"), found(tmp_path)):
        assert again.state() == tokenizer.state()
        assert (again.kind, again.size, again.end) == (tokenizer.kind, tokenizer.size, tokenizer.end)
        assert again.encode(ODD).tolist() == tokenizer.encode(ODD).tolist()
        assert again.surcharge(ODD) == tokenizer.surcharge(ODD)


def test_fitting_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = """if True:
        import sys, json, hashlib
        from ensue.data.tokenizers import fit_tokenizer
        for kind in ("char", "word", "bpe", "wordpiece", "unigram"):
            options = {} if kind in ("char", "word") else {"vocabulary": 600}
            state = fit_tokenizer(kind, [sys.argv[1]], **options).state()
            print(hashlib.sha256(json.dumps(state).encode()).hexdigest())
    """
    file = tmp_path / "text.txt"
    chance = random.Random(1)
    letters = "aäbcdefghijklmnoprstuvwyz"
    file.write_text("\n".join("".join(chance.choices(letters, k=5)) + " and" for _ in range(5000)))
    runs = [
        subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] and len(runs[0].split()) == 5


def test_kinds_are_resolved_by_name_and_errors_suggest_the_nearest() -> None:
    assert resolve_tokenizer("wordpiece") == "wordpiece"
    with pytest.raises(InputError, match="did you mean 'wordpiece'"):
        resolve_tokenizer("wordpeice")
    with pytest.raises(InputError, match="there is no such file"):
        resolve_tokenizer("runs/none")
    with pytest.raises(InputError, match="did you mean 'byte'"):
        fit_tokenizer("bytes", ["hello"])


def test_files_without_a_tokenizer_are_errors(tmp_path: Path) -> None:
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"kind": "word"}'), ("d", '{"model": {"type": "X"}}')):
        file = tmp_path / f"{name}.json"
        file.write_text(text)
        with pytest.raises(InputError) as caught:
            load_tokenizer(file)
        assert str(caught.value).startswith(str(file))
    with pytest.raises(InputError, match="no tokenizer in this folder"):
        load_tokenizer(tmp_path)
    for name in ("encoder.json", "vocab.bpe"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match="not GPT-2's"):
        load_tokenizer(tmp_path)
    (tmp_path / "encoder.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot be read"):
        load_tokenizer(tmp_path)


def test_a_library_tokenizer_with_missing_ids_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    state = fit_tokenizer("bpe", [corpus(tmp_path)], vocabulary=300).state()
    end = state["added_tokens"][0]
    state["model"]["vocab"][end["content"]] = end["id"] = 5000
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"tokenizer\.json") as caught:
        load_tokenizer(file)
    assert str(caught.value).startswith(str(file))


def made_up_gpt2(folder: Path, packed: bool, names: tuple[str, str]) -> dict[str, int]:
    merges = ["t h", "th e", "Ġ the", "Ġ a", "o n", "Ã ©", "' s", "Ġ Ġ"]
    tokens = [*sorted(BYTE_ALPHABET), *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    vocab = {token: number for number, token in enumerate(tokens)}
    texts = json.dumps(vocab), "#version: 0.2\n" + "\n".join(merges) + "\n"
    for name, text in zip(names, texts, strict=True):
        data = text.encode()
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(data) if packed else data)
    return vocab


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_gpt2_files_are_read(tmp_path: Path, packed: bool, names: tuple[str, str]) -> None:
    vocab = made_up_gpt2(tmp_path, packed, names)
    tokenizer = found(tmp_path)
    assert (tokenizer.kind, tokenizer.size, tokenizer.end) == ("gpt2", len(vocab), vocab["<|endoftext|>"])
    assert tokenizer.encode("the the\n").tolist() == [vocab["the"], vocab["Ġthe"], vocab["Ċ"]]
    text = "é<|endoftext|>\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text and tokenizer.end not in tokenizer.encode(text)
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).kind == "gpt2"


def test_gpt2_ids_are_those_of_transformers(tmp_path: Path) -> None:
    module = pytest.importorskip("transformers.models.gpt2.tokenization_gpt2")
    made_up_gpt2(tmp_path, False, ("vocab.json", "merges.txt"))
    theirs = module.GPT2Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    ours = found(tmp_path)
    chance = random.Random(3)
    for _ in range(50):
        text = "".join(
            chance.choices(["the", " the", "é", "'s", " ", "\n", "\t", "on", "9", "🎈", "!", "\u2028"], k=30)
        )
        assert ours.encode(text).tolist() == theirs.encode(text)


def test_library_reads_our_files_and_decodes_them(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    for kind in ("bpe", "wordpiece", "unigram"):
        tokenizer = fit_tokenizer(kind, [corpus(tmp_path)], vocabulary=600)
        save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        ids = theirs.encode(TEXT).ids
        assert ids == tokenizer.encode(TEXT).tolist()
        assert theirs.decode(ids) == TEXT


def test_a_tokenizer_at_which_the_library_panics_is_refused(tmp_path):
    """A wrong index in the library's own code is not an Exception in Python."""

    class PanicException(BaseException):
        """As the library's panics are called."""

    def panic(text):
        raise PanicException("byte index 5 is out of bounds of `a`")

    state = fit_tokenizer("bpe", "hello", vocabulary=300).state()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ensue.data.tokenizers.library.Tokenizer", type("T", (), {"from_str": staticmethod(panic)}))
        with pytest.raises(InputError, match="not a tokenizer that can be read"):
            restore_tokenizer(state)
