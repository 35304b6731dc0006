"""Data cannot move the cursor, forge lines or reverse text in what the commands print."""

import io
import json

import pytest
from typed import ensue

from ensue.cli.display import Display
from ensue.core.escapes import escape_controls, unescape_field

ESCAPE = "\x1b[2J"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def on_terminal(*words):
    """Run a command with standard output on a terminal."""
    return ensue(*words, output=Terminal)


def clean(text):
    """True if a text has no control or bidi characters but line ends and tabs."""
    return escape_controls(text, keep="\n\t") == text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A classifier whose labels, and a word model whose words, hold escapes, line breaks and changes of direction."""
    folder = tmp_path_factory.mktemp("hostile")
    labels = (f"good\n0.9999\tfake{ESCAPE}", "bad\u202e\\n")
    rows = [{"text": f"{word} one two {i}", "label": labels[i % 2]} for i, word in enumerate(["yes", "no"] * 20)]
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tiny = ("--set", "train.steps=2", "--set", "hidden=16", "--set", "layers=1")
    answer = ensue("fit", "classify", data, "--model", "lstm", *tiny, "--out", folder / "classify")
    assert answer.code == 0, answer.err
    text = folder / "text.txt"
    text.write_text(f"the {ESCAPE}word \u202ebook \x9bx :smile: [red]\n" * 60, encoding="utf-8")
    answer = ensue("fit", "ngram", text, "--tokenizer", "word", "--out", folder / "ngram")
    assert answer.code == 0, answer.err
    return folder, labels


def test_labels_cannot_forge_lines_and_can_be_read_back(hostile):
    folder, labels = hostile
    answer = ensue("predict", folder / "classify", "--text", "yes one", "--text", "no two")
    lines = answer.out.split("\n")[:-1]
    assert len(lines) == 2
    for line in lines:
        label, probability = line.split("\t")
        assert unescape_field(label) in labels and 0 <= float(probability) <= 1


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "classify", "--text", "yes one"),
        ("score", "classify", "rows.jsonl"),
        ("generate", "ngram", "--prompt", ESCAPE, "--seed", "1"),
        ("next", "ngram", "the"),
        ("next", "ngram", "the", "--json"),
        ("score", "ngram", "--text", f"the {ESCAPE}word", "--per-token"),
    ],
)
def test_nothing_on_a_terminal_holds_controls(hostile, words, monkeypatch):
    folder, _ = hostile
    monkeypatch.chdir(folder)
    answer = on_terminal(*words)
    assert answer.code == 0, answer.err
    assert clean(answer.out) and clean(answer.err)


def test_generated_text_is_raw_in_a_pipe(hostile):
    folder, _ = hostile
    answer = ensue("generate", folder / "ngram", "--prompt", f"the {ESCAPE}word", "--max-tokens", 3)
    assert answer.out.startswith(f"the {ESCAPE}word")


def test_tokens_of_a_text_keep_their_lines_in_a_pipe(hostile):
    folder, _ = hostile
    answer = ensue("score", folder / "ngram", "--text", f"the {ESCAPE}word", "--per-token")
    assert "\x1b" not in answer.out and "\\x1b[2Jword" in answer.out


@pytest.mark.parametrize(
    "words",
    [
        ("fit", f"lstm{ESCAPE}", "hello"),
        ("score", f"runs/{ESCAPE}\nforged", "--text", "a"),
        ("generate", "run", f"--many{ESCAPE}\nforged"),
        ("race", "hello", "--match", f"\u202e{ESCAPE}"),
        (f"no{ESCAPE}command",),
        ("fit", "ngram", f"missing{ESCAPE}.txt"),
        ("fit", "ngram", "hello", "--set", f"order{ESCAPE}=3"),
    ],
)
def test_errors_are_one_line_without_controls(words):
    answer = ensue(*words)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert clean(answer.err) and "\\x1b" in answer.err


def test_emoji_codes_and_markup_of_data_stay_as_they_are(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("one two :smile: [red]three[/red] four\n" * 80, encoding="utf-8")
    settings = ("--tokenizer", "word", "--set", "train.steps=2", "--set", "hidden=8", "--set", "train.batch=4")
    answer = ensue("fit", "lstm", text, *settings, "--sample-every", 1, "--out", tmp_path / ":smile:[red]")
    assert answer.code == 0, answer.err
    assert "😄" not in answer.out + answer.err and ":smile:[red]" in answer.out
    assert ":smile:" in answer.err or "[red]three[/red]" in answer.err


def test_long_work_without_a_terminal_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr("ensue.cli.display.LINE_INTERVAL", -1.0)
    display = Display()
    display("progress", {"done": 1, "total": 9})  # of no phase
    display("phase", {"name": "scoring"})
    display("progress", {"done": 3000, "total": 9000})
    display("plan", {"first": True, "steps": 1, "step_seconds": 0.0, "threads": 1})
    display("plan", {"first": True, "steps": 2, "step_seconds": 0.25, "threads": 1})
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "scoring: 3,000 of 9,000",
        "the budget was over after 1 step",
        "2 steps fit into the budget (250 ms each)",
    ]
