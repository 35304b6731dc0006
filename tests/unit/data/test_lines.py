"""Lines of files and of standard input, whatever the file's suffix."""

import os
import sys
from itertools import chain

import pytest

from ensue.core.errors import InputError
from ensue.data.lines import line_blocks


@pytest.fixture
def typed(monkeypatch):
    """Standard input that gets one chunk after the other."""
    read, write = os.pipe()
    with os.fdopen(read) as file:
        monkeypatch.setattr(sys, "stdin", file)
        yield lambda *chunks: [os.write(write, chunk) for chunk in chunks] and os.close(write)


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.tsv"])
def test_a_line_is_a_line_whatever_the_file_is_called(name, tmp_path):
    (tmp_path / name).write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n\n{"text": "two"}\n\nlast')
    found = list(line_blocks(tmp_path / name, 2))
    assert found == [['{"text": "one"}', ""], ['{"text": "two"}', ""], ["last"]]


def test_standard_input_is_read_as_a_file_is(typed, tmp_path):
    data = "\ufeffone\r\n\ntwo\u2028three\n\n\nlast".encode()
    (tmp_path / "x").write_bytes(data)
    typed(data)
    typed_in, in_file = ([*chain(*line_blocks(name, 100))] for name in ("-", tmp_path / "x"))
    assert typed_in == in_file == ["one", "", "two\u2028three", "", "", "last"]


def test_typed_lines_arrive_at_once_and_in_small_blocks(typed, monkeypatch):
    monkeypatch.setattr("ensue.data.lines.STDIN_CHUNK_BYTES", 8)
    typed(b"one\ntwo\nthree")
    assert list(line_blocks("-", 1)) == [["one"], ["two"], ["three"]]


@pytest.mark.parametrize("bad", [b"caf\xe9\n", b"a\0b\n"])
def test_the_error_for_binary_data_names_the_line(bad, typed, tmp_path):
    (tmp_path / "x").write_bytes(b"one\n\n" + bad)
    typed(b"one\n\n" + bad)
    for name in ("-", tmp_path / "x"):
        with pytest.raises(InputError, match=":3: "):
            list(line_blocks(name, 100))
