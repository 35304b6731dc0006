from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ensue.core.errors import InputError
from ensue.data import corpora
from ensue.data.corpora import builtin_documents, docstrings


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path_factory.getbasetemp() / "corpora"
    monkeypatch.setenv("ENSUE_CACHE", str(folder))
    yield folder


def test_pydoc_is_megabytes_of_text_in_a_fixed_but_mixed_order(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora._pydoc.cache_clear()
    first = list(builtin_documents("pydoc"))
    assert 1_000_000 < sum(len(text.encode()) for _, text in first) <= corpora.PYDOC_BYTES
    names = [name for name, _ in first]
    assert len(set(names)) == len(names) and names != sorted(names)
    tail = names[-len(names) // 10 :]
    assert any("topic/" in name for name in tail) and any("topic/" not in name for name in tail)
    monkeypatch.setattr(corpora, "_collect_pydoc", lambda: (("made", "again"),))
    corpora._pydoc.cache_clear()
    assert list(builtin_documents("pydoc")) == first  # from the file
    (kept,) = own_cache.glob("pydoc-*.json")
    kept.write_text("[[")
    corpora._pydoc.cache_clear()
    assert list(builtin_documents("pydoc")) == [("made", "again")]
    corpora._pydoc.cache_clear()


def test_stdlib_is_source_without_tests() -> None:
    documents = dict(builtin_documents("stdlib"))
    assert "def dumps(" in documents["stdlib:json"]
    assert not [name for name in documents if ".test." in name or ".tests." in name or "idlelib" in name]


def test_hello_is_one_word() -> None:
    assert list(builtin_documents("hello")) == [("hello", "hello")]


def test_the_error_for_an_unknown_corpus_suggests_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'pydoc'"):
        list(builtin_documents("pydocs"))


def test_docstrings_keep_the_order_of_the_source() -> None:
    source = '"M"\nif 1:\n  class A:\n    "C"\n    def f(self): "F"\nasync def g(): "G \\ud800"\ndef h(): pass'
    assert docstrings("m", source) == "m\n\nM\n\nm.A\n\nC\n\nm.A.f\n\nF\n\nm.g\n\nG ?\n"
