from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.core.errors import InputError, Paused
from ensue.data import text_pieces, tokens
from ensue.data.encoding import bundle_parts, count_words, encode_parts
from ensue.data.text_pieces import Part
from ensue.data.tokenizers import KINDS, Tokenizer, fit_tokenizer
from ensue.data.tokenizers import registry as finding
from ensue.data.tokenizers.char import ByteTokenizer
from ensue.data.tokenizers.registry import save_tokenizer
from ensue.data.tokenizers.spelled_words import fit_spelled_words
from ensue.data.tokenizers.word import word_tokenizer
from ensue.data.tokens import TokenizedText, tokenize
from ensue.data.workers import Workers, _Worker, can_share, serve

LINES = [
    "the cat sat on the mat",
    "  naïve café, it's 12345",
    "",
    "def f(x):\treturn x",
    "五六七八 a\u00a0b",
    "unseen-{n}",
]
TEXT = "\n".join(LINES[n % len(LINES)].format(n=n) for n in range(2000))
SIZES = {"bpe": 400, "wordpiece": 600, "unigram": 400, "word": 40}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_pieces, "PIECE_BYTES", 4096)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": f"a small text {n}"}) + "\n" for n in range(500)))
    return [tmp_path / "a.txt", tmp_path / "b.jsonl"]


def facts(text: TokenizedText) -> tuple[Any, ...]:
    return (text.tokens.tobytes(), *(getattr(text, field.name) for field in fields(text) if field.name != "tokens"))


@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_give_the_tokens_and_counts_of_one(kind: str, files: list[Path], tmp_path: Path) -> None:
    tokenizer = fit_tokenizer(kind, files, vocabulary=SIZES.get(kind))
    one = tokenize(files, tokenizer, cache=tmp_path / "one", workers=1)
    two = tokenize(files, tokenizer, cache=tmp_path / "two", workers=2)
    assert facts(one) == facts(two)
    assert one.documents == 501 and one.bytes == len(TEXT.encode()) + sum(len(f"a small text {n}") for n in range(500))
    whole = [*tokenizer.encode(TEXT).tolist(), tokenizer.end]
    assert one.tokens.tolist()[: len(whole) + 1] == [tokenizer.end, *whole]
    left = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert left == [f"{two.hash[:32]}.json", f"{two.hash[:32]}.tokens"]


class Stop(Exception):
    pass


def stopping(after: int, error: type[BaseException] = Stop) -> Any:
    def report(kind: str, values: dict[str, Any]) -> None:
        nonlocal after
        after -= kind == "progress"
        if not after:
            raise error

    return report


class Listening:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: str, values: dict[str, Any]) -> None:
        self.events.append((kind, values))

    @property
    def notes(self) -> list[str]:
        return [values["text"] for kind, values in self.events if kind == "note"]

    @property
    def done(self) -> list[int]:
        return [values["done"] for kind, values in self.events if kind == "progress"]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_call_resumes_where_it_stopped(workers: int, files: list[Path], tmp_path: Path) -> None:
    tokenizer = fit_tokenizer("word", files, vocabulary=40)
    wanted = tokenize(files, tokenizer, cache=tmp_path / "whole", workers=1)
    for _ in range(2):
        with pytest.raises(Stop):
            tokenize(files, tokenizer, cache=tmp_path / "cut", workers=workers, report=stopping(3))
    heard = Listening()
    assert facts(tokenize(files, tokenizer, cache=tmp_path / "cut", workers=workers, report=heard)) == facts(wanted)
    first = heard.done[0]
    assert "MB were tokenised before" in heard.notes[0] and first > 6 * 3000
    assert heard.done == sorted(heard.done) and heard.done[-1] == wanted.bytes
    last = heard.events[-1][1]
    assert last["total"] == wanted.bytes and last["counts"] == "bytes" and last["per_second"] > 0 and last["left"] == 0


def test_an_interruption_reports_what_is_saved(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(Paused, match="tokenised, and the same command continues from there"):
        tokenize(files, ByteTokenizer(), cache=tmp_path / "c", workers=2, report=stopping(3, KeyboardInterrupt))
    assert len(list((tmp_path / "c").iterdir())) == 2


def damage(part: Path, journal: Path, how: str) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    if how == "torn line":
        journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    elif how == "line without end":
        journal.write_bytes(b"".join(lines)[:-1])
    elif how == "lost tokens":
        part.write_bytes(part.read_bytes()[:-3000])
    elif how == "wrong tokens":
        data = bytearray(part.read_bytes())
        data[-5] ^= 1
        part.write_bytes(data)
    elif how == "nonsense":
        journal.write_bytes(b'{"parts": 3}\n[1]\n')
    elif how == "no journal":
        journal.unlink()
    else:
        part.write_bytes(part.read_bytes() + b"more than the journal knows")


@pytest.mark.parametrize(
    "how",
    ["torn line", "line without end", "lost tokens", "wrong tokens", "nonsense", "no journal", "more tokens"],
)
def test_only_valid_lines_of_the_journal_are_kept(how: str, files: list[Path], tmp_path: Path) -> None:
    wanted = tokenize(files, ByteTokenizer(), cache=tmp_path / "whole", workers=1)
    with pytest.raises(Stop):
        tokenize(files, ByteTokenizer(), cache=tmp_path / "cut", workers=1, report=stopping(5))
    (part,) = (tmp_path / "cut").glob(".*.part")
    (journal,) = (tmp_path / "cut").glob(".*.journal")
    whole = json.loads(journal.read_bytes().splitlines()[-1])["bytes"]
    damage(part, journal, how)
    heard = Listening()
    made = tokenize(files, ByteTokenizer(), cache=tmp_path / "cut", workers=1, report=heard)
    assert facts(made) == facts(wanted)
    kept = {"nonsense": 0, "no journal": 0, "more tokens": whole}.get(how)
    if kept is not None:
        assert heard.done[0] == pytest.approx(kept + 4096, abs=200)
    else:  # one line less
        assert whole - 4096 < heard.done[0] <= whole


def test_text_in_other_pieces_is_tokenised_again(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tokenize(files, ByteTokenizer(), cache=tmp_path / "whole", workers=1)
    with pytest.raises(Stop):
        tokenize(files, ByteTokenizer(), cache=tmp_path / "cut", workers=1, report=stopping(5))
    monkeypatch.setattr(text_pieces, "PIECE_BYTES", 5000)
    heard = Listening()
    assert facts(tokenize(files, ByteTokenizer(), cache=tmp_path / "cut", workers=1, report=heard)) == facts(wanted)
    assert not heard.notes and heard.done[0] < 5001


@pytest.mark.parametrize("change", [b"one more line\n", b""])
def test_a_text_that_changes_while_it_is_read_is_refused_and_not_cached(
    change: bytes, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, measure = files[0].read_bytes(), tokens.measure_text

    def measured(*arguments: Any) -> tuple[str, int]:
        result = measure(*arguments)
        files[0].write_bytes(before + change if change else before.swapcase())  # longer, or as long as it was
        return result

    monkeypatch.setattr(tokens, "measure_text", measured)
    with pytest.raises(InputError, match="the text changes while it is read"):
        tokenize(files[:1], ByteTokenizer(), cache=tmp_path / "c", workers=1)
    assert not list((tmp_path / "c").iterdir())
    monkeypatch.undo()
    files[0].write_bytes(before)
    assert bytes(tokenize(files[:1], ByteTokenizer(), cache=tmp_path / "c", workers=1).tokens[1:-1].tolist()) == before


def test_a_killed_process_leaves_its_finished_work_and_no_worker(files: list[Path], tmp_path: Path) -> None:
    tokenizer = fit_tokenizer("bpe", files, vocabulary=400)
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    wanted = tokenize(files, tokenizer, cache=tmp_path / "whole", workers=1)
    code = """if True:
        import os, signal, sys
        from pathlib import Path
        from ensue.data import text_pieces, workers
        from ensue.data.tokenizers.registry import load_tokenizer
        from ensue.data.tokens import tokenize

        text_pieces.PIECE_BYTES = 4096
        made, start = [], workers._Worker.__init__

        def noting(self, state):
            start(self, state)
            print(self._process.pid, flush=True)

        workers._Worker.__init__ = noting
        left = 6

        def report(kind, values):
            global left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        folder = Path(sys.argv[1])
        files = [folder / "a.txt", folder / "b.jsonl"]
        tokenize(files, load_tokenizer(folder / "tokenizer.json"), cache=folder / "cut", workers=2, report=report)
    """
    # no guard around the script's last line: workers do not run it again
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL and not ended.stderr
    workers = [int(line) for line in ended.stdout.split()]
    assert len(workers) == 2
    heard = Listening()
    made = tokenize(files, tokenizer, cache=tmp_path / "cut", workers=2, report=heard)
    assert facts(made) == facts(wanted)
    assert heard.notes and heard.done[0] > 5 * 3000
    deadline = time.monotonic() + 20
    while any(map(runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, workers))


def runs(process: int) -> bool:
    """Whether a process of ours is alive; what nobody has waited for is not."""
    try:
        return b"ensue.data.workers" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def bundles() -> Iterator[list[Part]]:
    return bundle_parts(text_pieces.as_parts(text_pieces.cut_text(TEXT)), 2048)


def test_the_parent_does_the_work_of_a_lost_worker() -> None:
    tokenizer = ByteTokenizer()
    with Workers(tokenizer, 2) as workers:
        found = []
        for number, one in enumerate(workers.encode(bundles())):
            found.append(one)
            if number in (1, 4):
                workers._workers[number // 4]._process.kill()
    assert [one.tokens.tolist() for one in found] == [encode_parts(tokenizer, b).tokens.tolist() for b in bundles()]


def test_the_parent_does_the_work_if_workers_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Workers(ByteTokenizer(), 2) as workers:
        assert sum(one.bytes for one in workers.encode(bundles())) == len(TEXT.encode())


def test_input_errors_of_a_worker_reach_the_user(files: list[Path], tmp_path: Path) -> None:
    tokenizer = word_tokenizer(["</s>", *dict.fromkeys(TEXT.split())])
    (tmp_path / "c.txt").write_text(TEXT + "\nstranger\n")
    with pytest.raises(InputError, match="the word 'stranger' is not in the vocabulary"):
        tokenize([tmp_path / "c.txt"], tokenizer, cache=tmp_path / "c", workers=2)


def test_leaving_the_context_ends_the_workers_at_once() -> None:
    with pytest.raises(Stop), Workers(ByteTokenizer(), 2) as workers:
        next(workers.encode(bundles()))
        raise Stop
    assert all(worker._process.poll() is not None for worker in workers._workers)


@pytest.mark.parametrize("message", [b"", b"\3\0", b"\3\0\0\0\0\0\0\0ab"])
def test_a_worker_ends_when_its_parent_closes_the_pipe(message: bytes) -> None:
    answer = io.BytesIO()
    serve(io.BytesIO(message), answer)
    assert not answer.getvalue()


def test_small_texts_and_fast_tokenizers_start_no_process(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "Workers", None)
    monkeypatch.setattr(tokens, "available_cores", lambda: 8)
    assert tokenize(files, ByteTokenizer(), cache=tmp_path / "c").documents == 501


def test_long_work_is_shared_by_the_cores(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Pretended:
        def __init__(self, tokenizer: Tokenizer, count: int) -> None:
            asked.append(count)
            self.tokenizer = tokenizer

        def __enter__(self) -> Pretended:
            return self

        def __exit__(self, *error: object) -> None:
            asked.append(-1)

        def encode(self, bundles: Iterator[Sequence[Part]]) -> Iterator[Any]:
            return (encode_parts(self.tokenizer, bundle) for bundle in bundles)

    monkeypatch.setattr(tokens, "Workers", Pretended)
    monkeypatch.setattr(tokens, "available_cores", lambda: 3)
    monkeypatch.setattr(tokens, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "MIN_SHARED_SECONDS", 0.0)
    made = tokenize(files, ByteTokenizer(), cache=tmp_path / "c")
    assert asked == [3, -1]
    assert facts(made) == facts(tokenize(files, ByteTokenizer(), cache=tmp_path / "one", workers=1))


def test_a_tokenizer_that_numbers_new_words_stays_in_one_process(files: list[Path], tmp_path: Path) -> None:
    spelt = fit_spelled_words([(TEXT, True, True)], 40)
    assert not can_share(spelt) and can_share(spelt.closed())
    again = fit_spelled_words([(TEXT, True, True)], 40)
    one = tokenize(files[:1], spelt, cache=tmp_path / "one", workers=1)
    two = tokenize(files[:1], again, cache=tmp_path / "two", workers=2)
    assert one.tokens.tolist() == two.tokens.tolist()


def test_a_second_process_waits_for_the_first(files: list[Path], tmp_path: Path) -> None:
    wanted = tokenize(files, ByteTokenizer(), cache=tmp_path / "whole", workers=1)
    part = tmp_path / "c" / f".{wanted.hash[:32]}.tokens.part"
    part.parent.mkdir()
    heard, made = Listening(), []
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        asking = threading.Thread(
            target=lambda: made.append(tokenize(files, ByteTokenizer(), cache=part.parent, report=heard))
        )
        asking.start()
        while not heard.notes:
            time.sleep(0.01)
        for name in (f"{wanted.hash[:32]}.tokens", f"{wanted.hash[:32]}.json"):  # the first one finishes
            (tmp_path / "whole" / name).rename(part.parent / name)
        part.unlink()
    asking.join()
    assert facts(made[0]) == facts(wanted) and not heard.done
    assert "waits" in heard.notes[0] and len(list(part.parent.iterdir())) == 2


def test_words_are_counted_as_python_splits_them() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(chr(code) for code in generator.choice([*range(128), 32, 10, 97] * 3, 20))
        assert count_words(text, text.encode()) == len(text.split())
    assert count_words("é\u00a0b c", "é\u00a0b c".encode()) == 3 and count_words("", b"") == 0


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_tokenizers_are_fitted_to_an_even_part_of_a_large_text(
    kind: str, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit_tokenizer(kind, files[:1], vocabulary=400)
    monkeypatch.setattr(finding, "MAX_FIT_BYTES", 12_000)
    read: list[int] = []
    taken = finding.sample_parts

    def noting(parts: Iterator[Part], share: float) -> Iterator[Part]:
        for part in taken(parts, share):
            read.append(len(part[0].encode()))
            yield part

    monkeypatch.setattr(finding, "sample_parts", noting)
    notes: list[str] = []
    one = fit_tokenizer(kind, files[:1], vocabulary=400, notes=notes)
    assert 8_000 <= sum(read) <= 20_000
    assert notes == [f"the {kind} tokenizer is fitted to 0 of the text's 0 MB, evenly from all of it"]
    assert one.state() == fit_tokenizer(kind, files[:1], vocabulary=400).state() != whole.state()


def test_characters_are_fitted_to_all_of_a_large_text(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_tokenizer("char", files[:1])
    monkeypatch.setattr(finding, "MAX_FIT_BYTES", 1000)
    notes: list[str] = []
    assert fit_tokenizer("char", files[:1], notes=notes).state() == whole.state() and not notes


def test_signals_of_the_terminal_do_not_reach_workers() -> None:
    worker = _Worker(b"{}")
    try:
        assert os.getsid(worker._process.pid) != os.getsid(0)
    finally:
        worker.end()


def test_one_long_word_is_cut_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    class Searched:
        def finditer(self, *given: object) -> object:
            raise AssertionError("there is no white space to search for")

    monkeypatch.setattr(text_pieces, "_BOUNDARIES", tuple((white, Searched()) for white, _ in text_pieces._BOUNDARIES))
    found = list(text_pieces.cut_bytes(b"a" * 100, 8))
    assert b"".join(found) == b"a" * 100 and max(map(len, found)) <= 8 * text_pieces.MAX_GROWTH
