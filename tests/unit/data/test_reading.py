from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ensue.core.errors import InputError
from ensue.data import sources as sources_module
from ensue.data.reading import measure_text, read_pieces
from ensue.data.sources import Slice
from ensue.data.text_pieces import MAX_GROWTH, PIECE_BYTES, cut_point, safe_cut


def joined(path: Path | str, field: str | None = None) -> str:
    return "".join(piece.text for piece in read_pieces([path], field))


def complaint(path: Path | str, field: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        list(read_pieces([path], field))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_reading_does_not_import_torch() -> None:
    code = "import ensue.data.tokens, ensue.data.splitting, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("text", ["a\r\nb\rc\n\nd", "no newline", "é\u2028\x85x\n" * 3, "\n"])
def test_pieces_join_to_exactly_the_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(text.encode())
    assert joined(file) == text


def test_long_text_is_cut_at_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    text = "".join(f"line {n} of näive text\n" + "\n" * (n % 3) for n in range(100_000))
    file.write_text(text)
    found = list(read_pieces([file]))
    assert "".join(piece.text for piece in found) == text
    assert len(found) > 2
    assert all(piece.text.endswith("\n") and len(piece.text.encode()) <= PIECE_BYTES for piece in found)
    assert [piece.ends for piece in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize(("unit", "edge"), [("wörd ", " "), ("€", "€"), ("\u00a0", "\u00a0"), ("a\n", "a")])
def test_a_line_without_end_is_cut_anyway(tmp_path: Path, unit: str, edge: str) -> None:
    file = tmp_path / "a.txt"
    text = unit * ((2 * MAX_GROWTH + 1) * PIECE_BYTES // len(unit.encode()))
    file.write_text(text)
    found = list(read_pieces([file]))
    assert "".join(piece.text for piece in found) == text
    assert len(found) >= 3 and all(len(piece.text.encode()) <= MAX_GROWTH * PIECE_BYTES for piece in found)
    assert all(piece.text.startswith(edge) for piece in found[1:])


@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES])
def test_exactly_one_piece_ends_a_document(tmp_path: Path, size: int) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x" * (size - 1) + "\n")
    found = list(read_pieces([file]))
    assert sum(piece.ends for piece in found) == 1 and found[-1].ends and all(piece.text for piece in found)


@pytest.mark.parametrize(
    ("text", "borders"),
    [
        ("one\ntwo\n\nthree", {4}),
        ("one two  three four", {3, 14}),
        ("a\u2028\nb\n\u2028c d", {11}),
        ("слово и\nдело", {10, 14}),
        ("五六。\n七八九", {10}),
        ("五六\u3000\n七八", set()),
        ("\n\n \nword", set()),
    ],
)
def test_text_is_cut_between_visible_characters(text: str, borders: set[int]) -> None:
    data = text.encode()
    assert {safe_cut(data[:stop]) for stop in range(len(data) + 1)} - {0} == borders


def test_cut_never_splits_a_character() -> None:
    for letter in ("é", "€", "🎈"):
        data = (letter * 9).encode()
        for stop in range(5, len(data) + 1):
            data[: cut_point(data[:stop])].decode()


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfabc\n")
    assert joined(file) == "abc\n"
    file.write_bytes(b"\xef\xbb\xbf")
    assert "empty" in complaint(file)


def test_gzip_and_plain_are_the_same_text(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_text("some text\n" * 1000)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert joined(packed) == joined(plain)
    assert measure_text([packed]) == measure_text([plain])
    assert measure_text([packed])[1] == 10_000


def test_the_hash_depends_on_document_boundaries(tmp_path: Path) -> None:
    for name, text in (("a", "xy"), ("b", "z"), ("c", "x"), ("d", "yz")):
        (tmp_path / name).write_text(text)
    one, other = [tmp_path / "a", tmp_path / "b"], [tmp_path / "c", tmp_path / "d"]
    assert measure_text(one)[0] != measure_text(other)[0]


def test_damaged_gzip_is_an_error(tmp_path: Path) -> None:
    good = gzip.compress(os.urandom(5000).hex().encode())
    for number, data in enumerate((good[:-20], good[:200] + b"####" + good[204:], b"plain text")):
        file = tmp_path / f"{number}.txt.gz"
        file.write_bytes(data)
        assert "gzip file is damaged" in complaint(file)


def test_the_error_for_a_missing_file_suggests_the_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shakespeare.txt").write_text("x")
    assert "shakespeare.txt?" in complaint(tmp_path / "shakespere.txt")
    assert "nor a folder" in complaint(tmp_path / "no" / "a.txt")
    assert "'pydoc'" in complaint("pydocs")
    assert "give a file" in complaint("qqqqqq")
    assert "no such file" in complaint("")
    assert "not the name of a file" in complaint("a text, " * 50)
    assert "no such file" in complaint("a\0b")


def test_errors_in_a_file_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"")
    assert "empty" in complaint(file)
    file.write_bytes(b"a\nb\n\0c")
    assert complaint(file).startswith(f"{file}:3: binary")
    file.write_bytes(b"a\nb\nc\xe9d\n")
    assert complaint(file).startswith(f"{file}:3: not UTF-8 (byte 0xe9)")
    file.write_bytes(("line\n" * PIECE_BYTES).encode() + b"\xff")
    assert complaint(file).startswith(f"{file}:{PIECE_BYTES + 1}: not UTF-8")
    file.write_bytes("hi".encode("utf-16"))
    assert "UTF-16" in complaint(file)


def test_a_folder_is_read_in_order_and_skipped_files_are_noted(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("hidden")
    for name, data in (("b/z.txt", b"3"), ("b/a.md", b"2"), ("a.txt", b"1"), (".h", b"no"), ("p.png", b"no")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "raw").write_bytes(b"\0\1")
    (tmp_path / "void.txt").write_bytes(b"")
    notes: list[str] = []
    assert [piece.text for piece in read_pieces([tmp_path], notes=notes)] == ["1", "2", "3"]
    assert len(notes) == 5 and all("skipped" in note for note in notes)


def test_a_folder_without_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    assert "no text in this folder" in complaint(tmp_path)


def test_jsonl_is_a_document_a_line(tmp_path: Path) -> None:
    lines = ['{"text": "one\\n"}', "", '{"text": ""}', '{"text": "two", "body": "zwei"}']
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    notes: list[str] = []
    found = list(read_pieces([file], notes=notes))
    assert [(piece.text, piece.ends, piece.origin) for piece in found] == [
        ("one\n", True, f"{file}:1"),
        ("two", True, f"{file}:4"),
    ]
    assert notes == [f"{file}: skipped 1 documents without text"]
    assert complaint(file, "body") == f"{file}:1: there is no field 'body'; name one of its fields: text"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"text": 3}', "is not text but int"),
        ('{"text": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_errors_in_jsonl_name_the_line(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "fine"}\n' + line + "\n")
    assert complaint(file).startswith(f"{file}:2: ") and said in complaint(file)


def test_long_jsonl_documents_come_in_pieces(tmp_path: Path) -> None:
    text = "a line of text\n" * 200_000
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"text": text}) + "\n" + json.dumps({"text": "b"}))
    found = list(read_pieces([file]))
    assert "".join(piece.text for piece in found) == text + "b"
    assert sum(piece.ends for piece in found) == 2


def test_standard_input_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    sources_module._spool.cache_clear()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"t": "abc"}\n')))
    assert joined("-") == '{"t": "abc"}\n'
    assert joined("-") == '{"t": "abc"}\n'
    assert joined("-", "t") == "abc"
    sources_module._spool.cache_clear()


def test_a_pipe_can_be_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"printf abc > {pipe}"]):
        assert joined(pipe) == "abc" and joined(pipe) == "abc"


def test_built_in_names_take_precedence_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hello").write_text("a file")
    assert joined("hello") == "hello"
    assert joined("./hello") == "a file"
    assert joined(Path("hello")) == "a file"


def test_slices_count_bytes_over_all_documents(tmp_path: Path) -> None:
    for name, text in (("a", "äb\n"), ("b", "cd\n"), ("c", "ef\n")):
        (tmp_path / name).write_text(text)
    files = (tmp_path / "a", tmp_path / "b", tmp_path / "c")
    found = list(read_pieces([Slice(files, 2, 5)]))
    assert [(piece.text, piece.ends) for piece in found] == [("b\n", True), ("c", True)]
    found = list(read_pieces([Slice(files, 4)]))
    assert [(piece.text, piece.ends) for piece in found] == [("cd\n", True), ("ef\n", True)]
