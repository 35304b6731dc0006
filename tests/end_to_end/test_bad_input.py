"""Whatever is wrong with what people give is said in one line, and nothing is lost or left behind."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typed import TINY, ensue, finished, sentences, started

import ensue as package
from ensue.cli.main import main
from ensue.core.run_folder import RunFolder

GOOD = sentences(40)


def contents(folder):
    """Every file below a folder with its bytes, and every folder."""
    return {p.relative_to(folder): p.read_bytes() if p.is_file() else None for p in sorted(Path(folder).rglob("*"))}


def refused(*words, says=()):
    """The command fails with one line on standard error, and the folder it ran in stays as it was."""
    before = contents(".")
    answer = ensue(*words)
    assert answer.code not in (0, None)
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ensue: "), answer.err
    for part in [says] if isinstance(says, str) else says:
        assert part in lines[0]
    assert contents(".") == before
    return lines[0]


@pytest.mark.parametrize(("redirect", "words", "code"), [(">&-", "systems", 0), ("<&-", "words context - the", 2)])
def test_a_closed_standard_input_is_empty_and_a_closed_standard_output_is_ignored(redirect, words, code):
    command = f"{sys.executable} -m ensue {words} {redirect}"
    process = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == code and process.stdout == ""
    error = "ensue: standard input: the file is empty; give a file with text in it\n"
    assert process.stderr == ("" if code == 0 else error)


def test_a_number_that_overflows_is_one_line(monkeypatch):
    def overflow():
        raise OverflowError("int too big to convert")

    monkeypatch.setattr("ensue.verbs.systems.systems", lambda name: overflow())
    refused("systems", "gpt", says="a number is too large (int too big to convert)")


@pytest.mark.parametrize(("words", "code"), [(("--version",), 0), (("fit", "rnn", "nowhere.txt"), 2)])
def test_nothing_is_written_to_a_closed_standard_error(monkeypatch, capsys, words, code):
    monkeypatch.setattr(sys, "stderr", None)  # as Python has it after 2>&-
    monkeypatch.setattr(sys, "argv", ["ensue", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    assert capsys.readouterr().out.startswith("ensue") == (code == 0)


BAD_FILES = {
    "empty.txt": (b"", "empty.txt: the file is empty"),
    "mark.txt": (b"\xef\xbb\xbf", "mark.txt: the file is empty"),
    "binary.txt": (b"abc\nde\0f\n" * 50, "binary.txt:2: binary"),
    "latin.txt": (GOOD.encode() + b"caf\xe9\n", "latin.txt:41: not UTF-8 (byte 0xe9)"),
    "utf16.txt": (GOOD.encode("utf-16"), "utf16.txt: is UTF-16"),
    "plain.gz": (GOOD.encode(), "plain.gz: the gzip file is damaged"),
    "cut.txt.gz": (gzip.compress(GOOD.encode())[:200], "cut.txt.gz: the gzip file is damaged"),
    "short.txt": (b"hello there", "short.txt: 11 bytes are too few"),
    "field.jsonl": (b'{"body": "hi"}\n', "field.jsonl:1: there is no field 'text'; name one of its fields: body"),
    "half.jsonl": (b'{"text": "hi there"}\n{"te', "half.jsonl:2: not JSON"),
    "number.jsonl": (b'{"text": 5}\n', "number.jsonl:1: the field 'text' is not text but int"),
    "list.jsonl": (b"[1]\n", "list.jsonl:1: not a JSON object"),
    "nothing.jsonl": (b'{"text": ""}\n', "nothing.jsonl: there is no document"),
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("system", ["rnn", "ngram"])
def test_files_that_cannot_be_read(name, system):
    data, says = BAD_FILES[name]
    Path(name).write_bytes(data)
    refused("fit", system, name, "--out", "run", says=says)


def test_missing_files_are_one_line_errors():
    Path("story.txt").write_text(GOOD)
    Path("empty").mkdir()
    Path("pictures").mkdir()
    Path("pictures", "a.png").write_bytes(b"\0")
    refused("fit", "rnn", "stori.txt", "--out", "run", says="did you mean")
    refused("fit", "rnn", "nowhere/story.txt", "--out", "run", says="there is no such file")
    refused("fit", "rnn", "x" * 300, "--out", "run", says="not the name of a file")
    refused("fit", "rnn", "empty", "--out", "run", says="no text in this folder")
    refused("fit", "rnn", "pictures", "--out", "run", says="no text in this folder")
    refused("fit", "rnn", "story.txt", "--valid", "nowhere.txt", "--out", "run", says="there is no such file")
    refused("race", "nowhere.txt", "--out", "race", says="there is no such file")
    refused("look", "ngrams", "nowhere.txt", says="there is no such file")


NAMES = [
    (("fit", "ltsm", "TEXT"), "unknown system or task 'ltsm'; did you mean 'lstm'?"),
    (("fit", "lstm", "TEXT", "--preset", "pbt"), "unknown preset 'pbt'; did you mean 'ptb'?"),
    (("fit", "lstm", "TEXT", "--tokenizer", "wrd"), "unknown tokenizer 'wrd'; did you mean 'word'?"),
    (("fit", "lstm", "TEXT", "--tokenizer", "./no.json"), "./no.json: there is no such file"),
    (("fit", "lstm", "TEXT", "--tokenizer", "TEXT"), "is damaged: not JSON"),
    (("fit", "lstm", "TEXT", "--set", "hiden=4"), "unknown setting 'hiden'; did you mean 'hidden'?"),
    (("fit", "lstm", "TEXT", "--set", "train.stepz=4"), "did you mean 'train.steps'?"),
    (("fit", "lstm", "TEXT", "--set", "trian.steps=4"), "did you mean 'train.steps'?"),
    (("fit", "lstm", "TEXT", "--config", "no.toml"), "no.toml: is missing"),
    (("fit", "lstm", "TEXT", "--config", "TEXT"), "is not TOML"),
    (("race", "TEXT", "--systems", "ngram,ltsm"), "unknown system 'ltsm'; did you mean 'lstm'?"),
    (("race", "TEXT", "--systems", ","), "a race of no systems"),
    (("race", "TEXT", "--systems", "gpt", "--attention", ","), "--attention names nothing"),
    (("race", "TEXT", "--systems", "gpt", "--attention", "bigbird:block=-1"), "block = -1"),
    (("cost", "attention", "--attention", ""), "--attention names nothing"),
    (("race", "TEXT", "--systems", "bilm"), "bilm sees both sides"),
    (("race", "TEXT", "--task", "forcast"), "unknown task 'forcast'; did you mean 'forecast'"),
    (("race", "TEXT", "--task", "classify", "--labels", "100,many"), "--labels '100,many' is not a list of numbers"),
    (("race", "TEXT", "--task", "classify", "--labels", "9" * 5000), "is not a list of numbers"),
    (("fit", "lstm", "TEXT", "--budget", ""), "'' is not a time"),
    (("race", "TEXT", "--labels", "100"), "--labels is for tasks that label"),
    (("race", "TEXT", "--columns", "text=1"), "has one column: there are no tabs or commas between columns"),
    (("systems", "lsmt"), "did you mean 'lstm'?"),
    (("cost", "lsmt"), "did you mean 'lstm'?"),
    (("cost", "ngram"), "has no parameters"),
    (("look", "curvs", "TEXT"), "unknown view 'curvs'; did you mean 'curves'?"),
    (("check", "nowhere.module:Class"), "cannot import"),
    (("check", ".relative:Class"), "cannot import"),
    (("fit", "lstm", "hello", "--set", "system=gpt"), "setting 'system' is lstm, the first argument; write `ensue fit"),
    (("fit", "lstm", "hello", "--set", "data.hash=1"), "setting 'data.hash' follows from the text; leave it out"),
    (("chat", "nowhere"), "`ensue get` fetches one"),
    (("chat", "TEXT"), "is a file, not the folder of a run; `ensue convert`"),
    (("fit",), "fit what?"),
    (("fit", "lstm"), "no text to learn from"),
    (("race",), "race on what?"),
]


def test_a_folder_without_a_model_cannot_be_converted():
    Path("texts").mkdir()
    Path("texts/story.txt").write_text("once")
    refused(
        "convert", "texts", "--out", "run", says="texts: holds no model: config.json is missing; name a run, or a Hug"
    )


@pytest.mark.parametrize(("words", "says"), NAMES, ids=[" ".join(words) for words, _ in NAMES])
def test_unknown_names_suggest_the_nearest(words, says, text):
    refused(*(text if word == "TEXT" else word for word in words), says=says)


VALUES = {
    "lstm": """x =3 layers=0 layers=two layers=1.5 hidden=-1 hidden=nan dropout=1 dropout=-0.1 dropout=nan train.lr=0
        train.lr=nan train.lr=fast train.batch=0 train.steps=-1 train.optimiser=adam train.schedule=linear
        train.keep=all train.precision=fp8 train.cut=thin train.warmup=-1 train.beta2=1 train.momentum=1 train.clip=-1
        train.threads=-1 train.threads=1e9 train.log_every=0 train.epochs=nan data.holdout=1 data.direction=up
        hidden=inf data.eval_tokens=-1
        tokenizer.vocabulary=-1 tokenizer.vocabulary=2 tokenizer.min_count=-1 seed=x compile=maybe order=3""",
    "gpt": "heads=0 heads=3 heads=-2 context=0 context=-1 dropout=1 positions=odd",
    "ngram": "order=0 order=9 order=-1 mode=odd layers=2",
    "window": "context=0 context=-3",
}


@pytest.mark.parametrize(("system", "setting"), [(s, v) for s, values in VALUES.items() for v in values.split()])
def test_invalid_settings_are_one_line_errors(system, setting, text):
    refused("fit", system, text, "--set", setting, "--out", "run")


@pytest.mark.parametrize("budget", ["soon", "0", "-5", "1d", "0s", "nan", "inf"])
def test_invalid_budgets_are_one_line_errors(budget, text):
    refused("fit", "lstm", text, "--budget", budget, "--out", "run")
    refused("race", text, "--budget", budget, "--out", "race")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max-tokens", value) for value in (0, -1)),
        *(("top-p", value) for value in (2, 0, -1, "nan")),
        *(("temperature", value) for value in (-1, "nan", "inf")),
        ("top-k", -1),
        ("num-samples", 0),
    ],
)
def test_invalid_sampling_options_are_rejected(name, value, runs):
    refused("generate", runs / "lstm", f"--{name}={value}", says=f"--{name}")


def test_options_that_are_not_numbers_are_one_line_errors(runs, text):
    for words in (
        ("next", runs / "lstm", "the", "--top", "0"),
        ("generate", runs / "lstm", "--tokens", "many"),
        ("race", text, "--seeds", "0"),
        ("cost", "lstm", "--vocabulary", "1"),
        ("fit", "lstm", text, "--nonsense"),
        ("frobnicate",),
    ):
        refused(*words, says="--help`")
    refused("words", "analogy", runs / "lstm", "king", "man", says="Missing argument 'WOMAN'")


def test_an_existing_run_is_not_overwritten(runs, text):
    shutil.copytree(runs / "lstm", "run")
    refused("fit", "lstm", text, *TINY, "--out", "run", says=("--resume", "--force", "--out"))
    refused("fit", "lstm", "nowhere.txt", *TINY, "--out", "run", "--force", says="no such file")
    refused("fit", "lstm", text, "--set", "layers=0", "--out", "run", "--force", says="layers")
    assert ensue("fit", "lstm", text, *TINY, "--out", "run", "--force", "--json").json["steps"] == 4


def test_paths_that_cannot_be_a_run_folder_are_rejected(text):
    Path("file").write_text("keep")
    Path("mine").mkdir()
    Path("mine", "thesis.txt").write_text("keep")
    for force in ((), ("--force",)):
        refused("fit", "lstm", text, *TINY, "--out", "file", *force, says="file: is a file")
        refused("fit", "lstm", text, *TINY, "--out", "mine", *force, says="mine: is")
    refused("fit", "lstm", text, *TINY, "--out", "file/run")
    refused("race", text, "--out", "mine", "--force", says="is not a race")
    refused("race", text, "--out", "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_one_line_error(text):
    Path("locked").mkdir(mode=0o500)
    refused("fit", "lstm", text, *TINY, "--out", "locked/run", says="is not writable")


def test_resume_needs_a_run(text):
    Path("file").write_text("keep")
    for words in (("lstm", text, "--out", "nothing"), ("lstm",), ("lstm", "--out", "file"), ("nothing",)):
        refused("fit", *words, "--resume", says="holds no run to resume")


def test_a_resumed_run_needs_its_text():
    Path("mine.txt").write_text(GOOD)
    assert ensue("fit", "ngram", "mine.txt", "--out", "run", "--json").code == 0
    unfinish(Path("run"))
    Path("mine.txt").write_text(GOOD + "another end\n")
    refused("fit", "run", "--resume", says="mine.txt: the text has changed")
    Path("mine.txt").write_text("another beginning\n" + GOOD)
    refused("fit", "run", "--resume", says="mine.txt: the text has changed")
    Path("mine.txt").unlink()
    refused("fit", "run", "--resume", says="mine.txt: there is no such file")


def unfinish(run):
    """A run as a break would leave it: without the files that are written last."""
    (run / "config.json").unlink()
    (run / "manifest.json").unlink()


def cut(name, size):
    """Keep the first bytes of a file."""
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:size])


def config(**changes):
    """Change entries of config.json, and its digest in the manifest."""

    def change(run):
        path = run / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        RunFolder(run).write_manifest()

    return change


def holding(name, data):
    """Put other bytes in the place of a file's."""
    return lambda run: (run / name).write_bytes(data)


DAMAGES = {
    "config cut": (cut("config.json", 50), "config.json: is damaged"),
    "config empty": (cut("config.json", 0), "config.json: is damaged"),
    "config of another tool": (holding("config.json", b'{"model_type": "gpt2"}'), "config.json: was not made by ensue"),
    "config gone": (lambda run: (run / "config.json").unlink(), "is not a finished run"),
    "from the future": (config(format=99, ensue="9.9"), "was made by a newer version of ensue (9.9); upgrade"),
    "unknown system": (config(system="zz"), "unknown system 'zz'"),
    "unknown setting": (config(model={"vocabulary": 20, "zz": 1}), "unknown setting 'zz'"),
    "another size": (config(model={"vocabulary": 22, "hidden": 99}), "model.safetensors: does not fit config.json"),
    "another vocabulary": (
        config(model={"vocabulary": 20, "hidden": 16}),
        "tokenizer.json: has 22 tokens, the model 20",
    ),
    "another tokenizer": (holding("tokenizer.json", b'{"kind": "byte"}'), "tokenizer.json: has 257 tokens"),
    "format of text": (config(format="1"), "was not made by ensue"),
    "no settings": (config(model=[]), "was not made by ensue"),
    "negative size": (config(model={"vocabulary": -1}), "config.json: "),
    "figures of a list": (config(figures=[]), "config.json: figures"),
    "weights cut": (cut("model.safetensors", 500), "model.safetensors: is damaged"),
    "weights empty": (cut("model.safetensors", 0), "model.safetensors: is damaged"),
    "weights gone": (lambda run: (run / "model.safetensors").unlink(), "model.safetensors: is missing"),
    "tokenizer cut": (cut("tokenizer.json", 50), "tokenizer.json: is damaged"),
    "tokenizer of nothing": (holding("tokenizer.json", b"{}"), "tokenizer.json: does not describe a tokenizer"),
    "tokenizer gone": (lambda run: (run / "tokenizer.json").unlink(), "tokenizer.json: is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_runs(damage, runs, text):
    shutil.copytree(runs / "lstm", "run")
    harm, says = DAMAGES[damage]
    harm(Path("run"))
    refused("score", "run", text)
    if "gone" not in damage:
        RunFolder(Path("run")).write_manifest()  # as if the file had been written so
    refused("score", "run", text, says=says)
    refused("generate", "run", "--tokens", "3", says=says)
    refused("next", "run", "the", says=says)


UNRESUMABLE = {
    "settings cut": (holding("run.toml", b'system = "ls'), "run.toml: is incomplete"),
    "settings of bytes": (holding("run.toml", b"\xff\0"), "run.toml: is incomplete"),
    "settings gone": (lambda run: (run / "run.toml").unlink(), "holds no run to resume"),
    "settings empty": (cut("run.toml", 0), "run.toml: is incomplete"),
    "settings halved": (cut("run.toml", 330), "run.toml: is incomplete"),
    "tokenizer cut": (cut("tokenizer.json", 50), "tokenizer.json: is damaged"),
}


@pytest.mark.parametrize("damage", UNRESUMABLE)
def test_damaged_runs_cannot_be_resumed(damage, runs):
    shutil.copytree(runs / "lstm", "run")
    harm, says = UNRESUMABLE[damage]
    harm(Path("run"))
    unfinish(Path("run"))
    refused("fit", "run", "--resume", says=says)


def test_a_damaged_checkpoint_is_skipped(runs):
    shutil.copytree(runs / "lstm", "run")
    weights = (runs / "lstm" / "model.safetensors").read_bytes()
    newest = max(Path("run/checkpoints").glob("step-*"))
    cut("model.safetensors", 100)(newest)
    unfinish(Path("run"))
    answer = ensue("fit", "run", "--resume")
    assert answer.code == 0 and answer.err.count(f"{newest}: is damaged") == 1
    assert Path("run/model.safetensors").read_bytes() == weights


def test_folders_that_are_not_runs_are_rejected(runs, text):
    for run in ("nowhere", text, "."):
        for words in (("score", run, text), ("generate", run), ("next", run, "x"), ("check", run)):
            refused(*words)
    refused("look", "curves", "nowhere", says="there is no such run")
    refused("check", "nowhere", "--resume", says="there is no such run")
    refused("score", runs / "lstm", says="score what?")
    refused("score", runs / "lstm", text, "--text", "both", says="score what?")
    refused("score", runs / "lstm", text, "--streams", "99999999", says="--streams")
    refused("generate", runs / "bilm", says="sees both sides")
    refused("next", runs / "bilm", "the", says="sees both sides")


def test_invalid_conversions_and_views_are_one_line_errors(runs, text):
    ngram = runs / "ngram"
    Path("there.arpa").write_text("keep")
    Path("bytes.arpa").write_bytes(bytes(range(128, 256)))
    Path("empty.arpa").write_text("")
    assert ensue("convert", ngram, "--to", "arpa", "--out", "good.arpa").code == 0
    Path("cut.arpa").write_bytes(Path("good.arpa").read_bytes()[:300])
    refused("convert", "nowhere", says="there is no such file")
    refused("convert", ngram, says="--to arpa")
    refused("convert", ngram, "--to", "arpaa", says="did you mean 'arpa'?")
    refused("convert", ngram, "--to", "arpa", "--out", "there.arpa", says="--force replaces it")
    refused("convert", runs / "lstm", "--to", "arpa", says="is not an n-gram model")
    refused("convert", text, says="not a word and its numbers; give a vector file")
    for name in ("bytes", "empty", "cut"):
        refused("convert", f"{name}.arpa", "--out", "run", says=f"{name}.arpa")
    refused("look", "curves", runs / "lstm", "--out", "x.gif", says=".html")
    refused("look", "curves", runs / "lstm", "--out", "there.arpa/x.html")


ODD_TEXTS = ["zzz qqq", "Ω 😀", "\n", " ", "a\0b", "the " * 300]


@pytest.mark.parametrize("text_", ODD_TEXTS)
@pytest.mark.parametrize("name", ["lstm", "gpt", "ngram"])
def test_odd_texts_can_be_scored(name, text_, runs):
    score = ensue("score", runs / name, "--text", text_, "--per-token", "--json").json
    assert score["bits_per_byte"] > 0 and len(score["per_token"]) == score["tokens"]
    assert len(ensue("generate", runs / name, "--prompt", text_, "--tokens", "3", "--json").json["samples"]) == 1
    assert len(ensue("next", runs / name, text_, "--json").json["next"]) == 10


@pytest.mark.parametrize("name", ["lstm", "gpt", "ngram"])
def test_an_empty_prompt_generates_from_the_start(name, runs):
    assert ensue("generate", runs / name, "--tokens", "3", "--json").json["samples"][0]["tokens"] <= 3
    assert len(ensue("next", runs / name, "", "--json").json["next"]) == 10


def test_text_is_read_in_every_supported_form():
    """The same text with a byte-order mark, compressed, and as one JSONL document is the same text."""
    Path("plain.txt").write_text(GOOD)
    Path("mark.txt").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    Path("small.txt.gz").write_bytes(gzip.compress(GOOD.encode()))
    Path("one.jsonl").write_text(json.dumps({"body": GOOD}) + "\n")
    Path("mixed").mkdir()
    Path("mixed", "a.txt").write_text(GOOD)
    Path("mixed", "b.png").write_bytes(b"\0")
    Path("mixed", "c").write_bytes(b"\0\1")
    Path("mixed", "empty.txt").write_text("")
    figures = []
    for name in ("plain.txt", "mark.txt", "small.txt.gz", "one.jsonl", "mixed"):
        field = ("--field", "body") if name == "one.jsonl" else ()
        figures.append(ensue("fit", "ngram", name, *field, "--out", f"run-{name}", "--json").json["valid"])
    assert all(one == figures[0] for one in figures)
    Path("windows.txt").write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert ensue("fit", "ngram", "windows.txt", "--out", "run-windows", "--json").json["valid"]["bits_per_byte"] > 0


def test_standard_input(runs):
    run = runs / "ngram"
    assert finished(started("score", run, "-", "--json", stdin=subprocess.PIPE), GOOD).json["bytes"] == len(GOOD)
    command = [sys.executable, "-m", "ensue", "score", run, "-"]
    process = subprocess.run(command, input=b"a\ncaf\xe9\n", capture_output=True, check=False)
    assert process.returncode == 2 and b"standard input:2: not UTF-8" in process.stderr
    assert process.stdout == b"" and process.stderr.count(b"\n") == 1


def test_an_unwritable_cache_is_a_one_line_error(text, monkeypatch, runs):
    Path("file").write_text("keep")
    monkeypatch.setenv("ENSUE_CACHE", str(Path("file").absolute()))
    refused("fit", "ngram", text, "--out", "run", says="ENSUE_CACHE")
    refused("score", runs / "ngram", text, says="ENSUE_CACHE")


def test_one_failing_system_does_not_end_a_race(text):
    words = ("--systems", "gpt,ngram", "--set", "gpt.context=999999", "--budget", "1s", "--out", "race", "--json")
    result = ensue("race", text, *words).json
    best, last = result["systems"]
    assert best["system"] == "ngram" and best["bits_per_byte"] > 0 and not best["error"]
    assert last["system"] == "gpt" and last["bits_per_byte"] is None and "window of 999999" in last["error"]


def test_debug_shows_the_traceback():
    with pytest.raises(package.InputError):
        ensue("systems", "lsmt", "--debug")


WRONG_CALLS = {
    "system": lambda text: package.fit("ltsm", text),
    "setting": lambda text: package.fit("lstm", text, hiden=4),
    "kind of value": lambda text: package.fit("lstm", text, hidden=1.5),
    "no text": lambda text: package.fit("lstm", []),
    "text for a name": lambda text: package.fit("lstm", "the cat sat on the mat " * 50),
    "budget": lambda text: package.fit("lstm", text, budget="soon"),
    "negative budget": lambda text: package.fit("lstm", text, budget=-1),
    "tokenizer": lambda text: package.fit("lstm", text, tokenizer="wrd"),
    "preset": lambda text: package.fit("lstm", text, preset="zz"),
    "load": lambda text: package.load("nowhere"),
    "load a file": package.load,
    "race": lambda text: package.race(text, systems=["zz"]),
    "race on nothing": lambda text: package.race("nowhere"),
    "cost": lambda text: package.cost("zz"),
    "systems": lambda text: package.systems("zz"),
    "check": lambda text: package.check("zz"),
    "convert": lambda text: package.convert("zz"),
}


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_wrong_calls_in_python_raise_input_errors(call, text):
    with pytest.raises(package.InputError) as found:
        WRONG_CALLS[call](text)
    assert "\n" not in str(found.value)
    assert contents(".") == {}


def test_a_closed_pipe_ends_the_command_silently(runs, text):
    process = started("score", runs / "lstm", text, text, text, "--per-token")
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(timeout=60)
    process.stderr.close()


def test_force_deletes_nothing_before_all_arguments_are_checked(runs, text):
    shutil.copytree(runs / "lstm", "run")
    Path("short.txt").write_text("too short for a window\n")
    refused("fit", "gpt", "short.txt", "--valid", text, "--force", "--out", "run", says="fewer than a window")
    refused("fit", "lstm", text, "--device", "meta", "--force", "--out", "run", says="no device")
    refused("fit", "gpt", text, "--set", "train.cut=streams", "--force", "--out", "run", says="none to carry")
    refused("fit", "lstm", "nowhere.txt", "--force", "--out", "run", says="no such file")
    refused(
        "fit", "lstm", text, "--set", "train.objective=reward", "--force", "--out", "run", says="is for sentence pairs"
    )
    refused("fit", "lstm", text, "--from", "run", "--force", "--out", "run", says="cannot be initialised from itself")
    refused(
        "fit",
        "lstm",
        text,
        "--from",
        "run",
        "--tokenizer",
        "word",
        "--out",
        "new",
        says="takes the tokenizers of its run",
    )
    refused("fit", "gru", text, "--from", "run", "--out", "new", says="is a run of lstm, not of gru")
    refused("fit", "ngram", text, "--from", "run", "--out", "new", says="no weights to initialise")
    refused("race", text, "--force", "--out", "run", says="is not a race")
    Path("thesis").mkdir()
    Path("thesis/config.json").write_text('{"model_type": "gpt2"}')
    refused("fit", "lstm", text, "--force", "--out", "thesis", says="is not a run, so --force will not delete it")


@pytest.mark.parametrize(
    ("system", "says"),
    [("bilm", "bilm generates no samples"), ("ngram", "'train.sample_every' has no effect on ngram")],
)
def test_a_model_that_cannot_generate_has_no_samples(system, says, text):
    refused("fit", system, text, "--sample-every", 2, "--out", "run", says=says)


def test_the_corpus_dates_holds_pairs_and_is_rejected_as_text(text):
    says = ("dates: the corpus holds sentence pairs, not text", "seq2seq, convs2s, bytenet, transformer")
    refused("fit", "gpt", "dates", says=says)
    refused("fit", "lstm", text, "--valid", "dates", says=says)
    refused("race", "dates", says=says)
    Path("dates").write_text(GOOD)
    assert ensue("fit", "ngram", "dates", "--out", "run").code == 0  # a file of this name is a text


def test_columns_of_a_text_name_the_text(text):
    refused("fit", "lstm", text, "--columns", "source=1", says="columns of a text are named as text=2")
    refused("fit", "lstm", text, "--columns", "text=1", says="has one column")


def test_a_resumed_run_keeps_its_settings(runs):
    shutil.copytree(runs / "lstm", "run")
    refused("fit", "gpt", "--resume", "--out", "run", says="is a lstm, not a gpt")
    refused("fit", "lstm", "--set", "layers=5", "--resume", "--out", "run", says="has layers = 1, not 5")
    refused("fit", "lstm", "--set", "nosuch=1", "--resume", "--out", "run", says="unknown setting")
    config(format=99, ensue="9.9")(Path("run"))
    refused("fit", "run", "--resume", says="newer version")


def test_two_processes_do_not_train_in_one_folder(runs):
    shutil.copytree(runs / "lstm", "run")
    unfinish(Path("run"))
    with RunFolder(Path("run")).lock():
        refused("fit", "run", "--resume", says="another process is training here")


def test_texts_that_cannot_be_scored(runs):
    refused("score", runs / "lstm", "--text", "", says="the text is empty")
    refused("score", runs / "lstm", "--text", "abc", "--streams", "-1", says="0 or more")
    refused("generate", runs / "lstm", "--seed", "9" * 30, says="--seed")
    answer = ensue("score", runs / "lstm", "--text", "😀" * 100, "--json")
    assert answer.code == 0 and json.loads(answer.out)["perplexity"]["word"] is None


def test_a_text_of_one_letter_and_a_model_too_large(text):
    Path("a.txt").write_text("a" * 500)
    refused(
        "fit", "rnn", "a.txt", "--valid", "a.txt", "--tokenizer", "char", "--out", "run", says="a vocabulary of one"
    )
    refused("fit", "rnn", text, "--set", "hidden=1e15", "--out", "run", says="cannot be built")
    refused(
        "fit", "rnn", text, "--set", "train.threads=1e15", "--out", "run", says="threads = 1000000000000000 must be"
    )
    refused("cost", "lstm", "--set", "hidden=99999999999", says="cannot be built")
    refused("check", "builtins:int", says="not a language model")


def test_a_race_with_a_wrong_setting_trains_nothing(text):
    refused("race", text, "--systems", "ngram,gpt", "--set", "gpt.heads=3", "--out", "race", says="heads")
    refused("race", text, "--systems", "ngram", "--resume", "--out", "race", says="holds no race to resume")


def test_a_name_that_is_not_utf8_is_refused_as_a_text_and_can_be_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"bad\xff.txt")
    Path(name).write_text("hello there, old friend\n" * 9)
    refused("fit", "ngram", name, "--out", "run", says="the name is not UTF-8, so run.toml cannot hold it; rename it")
    Path(name).rename("text.txt")
    out = os.fsdecode(b"run\xff")
    assert ensue("fit", "ngram", "text.txt", "--out", out, "--json").code == 0
    assert ensue("check", out, "--files").code == 0


def test_a_folder_without_settings_is_no_unknown_system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    refused("cost", "mine", says="mine: has no run.toml")
