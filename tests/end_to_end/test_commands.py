"""Each command as a person types it."""

import hashlib
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typed import TINY, ensue, finished, sentences, started

import ensue as package
from ensue.core.notes import note_once
from ensue.data import text_pieces, tokens
from ensue.runs.language import LanguageRun

RUN_FILES = {"config.json", "model.safetensors", "tokenizer.json", "run.toml", "metrics.jsonl", "README.md"}


def weights(run):
    """The SHA-256 of a run's weights."""
    return hashlib.sha256(Path(run, "model.safetensors").read_bytes()).hexdigest()


def until(process, path):
    """Wait until a process has written something to a file, or made a folder."""
    while not (Path(path).exists() and Path(path).stat().st_size):
        assert process.poll() is None, finished(process).err
        time.sleep(0.01)


def test_fit_writes_a_complete_run(text):
    answer = ensue("fit", "lstm", text, *TINY)
    assert answer.code == 0 and "runs/lstm: 4 steps" in answer.out and "bits per byte" in answer.out
    assert {path.name for path in Path("runs/lstm").iterdir()} >= RUN_FILES
    records = [json.loads(line) for line in Path("runs/lstm/metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] == 4 and records[-1]["loss"] > 0
    assert "hidden = 16" in Path("runs/lstm/run.toml").read_text()
    assert "ensue fit lstm" in Path("runs/lstm/README.md").read_text()


def test_the_same_seed_gives_the_same_weights(text):
    for run, seed in (("a", 5), ("b", 5), ("c", 6)):
        assert ensue("fit", "gru", text, *TINY, "--seed", seed, "--out", run).code == 0
    assert weights("a") == weights("b") != weights("c")


def test_a_run_can_be_repeated_from_its_run_toml(text, runs):
    assert ensue("fit", "lstm", "--config", runs / "lstm" / "run.toml", "--out", "again").code == 0
    assert weights("again") == weights(runs / "lstm")


def test_a_run_keeps_the_direction_of_the_run_it_is_initialised_from(text):
    assert ensue("fit", "rnn", text, *TINY, "--set", "data.direction=backward", "--out", "first").code == 0
    words = ("fit", "rnn", text, *TINY, "--from", "first")
    assert ensue(*words, "--out", "second").code == 0
    assert package.load("second").direction == "backward"
    assert ensue(*words, "--set", "data.direction=backward", "--out", "third").code == 0
    turned = ensue(*words, "--set", "data.direction=forward", "--out", "fourth")
    assert turned.code == 2 and "first: reads backward, so a run initialised from it cannot" in turned.err
    assert not Path("fourth").exists()


def test_fit_json(text):
    result = ensue("fit", "rnn", text, *TINY, "--out", "run", "--json").json
    assert result["run"] == "run" and result["system"] == "rnn" and result["steps"] == 4
    assert result["valid"]["bits_per_byte"] > 0


@pytest.mark.parametrize("name", ["lstm", "gpt", "ngram", "bilm"])
def test_score_json(name, runs, text):
    score = ensue("score", runs / name, text, "--json").json
    keys = {"bits_per_byte", "perplexity", "nll", "nll_total", "tokens", "words", "bytes", "unknown", "streams"}
    assert score.keys() >= keys and score["perplexity"].keys() == {"token", "word", "byte"}
    assert score["bytes"] == len(text.read_bytes())
    assert (score["bits_per_byte"] is None) == (name == "bilm")


def test_score_equals_the_sum_over_tokens(runs):
    score = ensue("score", runs / "lstm", "--text", "the rain fell", "--per-token", "--json").json
    total = sum(token["bits"] for token in score["per_token"])
    assert total == pytest.approx(score["bits_per_byte"] * score["bytes"], rel=1e-6)
    shown = ensue("score", runs / "lstm", "--text", "the rain fell", "--per-token").out.splitlines()
    assert len(shown) == score["tokens"] + 2


@pytest.mark.parametrize("name", ["lstm", "gpt", "ngram"])
def test_generate_is_repeatable(name, runs):
    words = ("generate", runs / name, "--prompt", "the ", "--max-tokens", "12", "--num-samples", "2", "--seed", "3")
    first, second = ensue(*words, "--json").json, ensue(*words, "--json").json
    assert first == second and len(first["samples"]) == 2
    other = ensue(*words[:-1], "4", "--json").json
    assert [one["text"] for one in other["samples"]] != [one["text"] for one in first["samples"]]
    assert ensue(*words).out.startswith("— 1 of 2")


def test_generate_accepts_the_old_names_of_its_options(runs):
    new = ensue("generate", runs / "lstm", "--max-tokens", "5", "--num-samples", "2", "--json")
    old = ensue("generate", runs / "lstm", "--tokens", "5", "--n", "2", "--json")
    assert old.json == new.json and len(old.json["samples"]) == 2
    shown = ensue("generate", "--help").out
    assert "--max-tokens" in shown and "--tokens" not in shown.replace("--max-tokens", "") and "--n " not in shown


def test_generate_says_when_the_prompt_is_longer_than_the_context(runs):
    note_once.cache_clear()
    said = ensue("generate", runs / "gpt", "--prompt", "the cat " * 200, "--max-tokens", 2).err
    assert "note: the prompt has" in said and "the model sees the last" in said
    for name, prompt in (("gpt", "the "), ("ngram", "the cat " * 200)):
        assert "the model sees" not in ensue("generate", runs / name, "--prompt", prompt, "--max-tokens", 2).err


def test_ctrl_c_while_the_command_is_loaded_is_one_line():
    code = (
        "import runpy, sys\n"
        "class Slow:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'ensue.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Slow())\n"
        "runpy.run_module('ensue', run_name='__main__')\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 130 and answer.stderr.strip() == "ensue: stopped; no partial output was left behind"


def test_generate_selects_the_best_of_several_texts_and_logs_all(runs):
    words = ("generate", runs / "gpt", "--prompt", "the ", "--max-tokens", 12, "--num-samples", 8, "--seed", 3)
    everything = ensue(*words, "--json").json["samples"]
    answer = ensue(*words, "--select", "best", "--log", "tries.json", "--json").json
    log = json.loads(Path("tries.json").read_text())
    assert [one["text"] for one in log["tries"]] == [one["text"] for one in everything] and log["select"] == "best"
    (chosen,) = (one for one in log["tries"] if one["chosen"])
    assert answer["chosen"] == chosen["number"] and [one["text"] for one in answer["samples"]] == [chosen["text"]]
    assert all(one["reason"] and one["mean_log_prob"] < 0 and 0 <= one["repetition"] <= 1 for one in log["tries"])
    shown = ensue(*words, "--select", "best").out
    assert shown.startswith(f"— {chosen['number']} of 8: log P = ") and chosen["reason"] in shown
    assert ensue(*words, "--select", "first", "--json").json["samples"] == everything[:1]


def test_generate_refuses_an_unknown_rule_and_a_folder_as_log(runs):
    assert "did you mean 'best'" in ensue("generate", runs / "gpt", "--select", "bets").err
    answer = ensue("generate", runs / "gpt", "--log", runs)
    assert answer.code == 2 and "is a folder" in answer.err


def test_a_log_that_cannot_be_written_is_refused_before_texts_are_drawn(runs, monkeypatch):
    monkeypatch.setattr(LanguageRun, "generate", lambda *_, **__: pytest.fail("texts are drawn"))
    answer = ensue("generate", runs / "gpt", "--log", runs / "gpt" / "config.json" / "tries.json")
    assert answer.code == 2 and "a part of this path is a file" in answer.err


def test_generate_past_the_context(runs):
    sample = ensue("generate", runs / "gpt", "--prompt", "the " * 30, "--max-tokens", "40", "--json").json["samples"][0]
    assert sample["tokens"] == 40 or sample["ended"]


def test_temperature_zero_is_greedy(runs):
    best = ensue("next", runs / "lstm", "the", "--top", "1", "--json").json["next"][0]["token"]
    words = ("generate", runs / "lstm", "--prompt", "the", "--max-tokens", "1", "--temperature", "0", "--json")
    text = ensue(*words).json["samples"][0]["text"]
    assert text == best.replace("␣", " ").replace("<|end|>", "")


@pytest.mark.parametrize("name", ["lstm", "gpt", "ngram"])
def test_next_sums_to_one(name, runs):
    found = ensue("next", runs / name, "the", "--top", "100000", "--json").json["next"]
    chances = [one["probability"] for one in found]
    assert sum(chances) == pytest.approx(1, abs=1e-6) and chances == sorted(chances, reverse=True)
    assert len(ensue("next", runs / name, "the", "--top", "3").out.splitlines()) == 3


def test_race(text):
    words = ("--systems", "ngram,rnn", "--set", "rnn.hidden=16", "--set", "train.steps=5", "--budget", "5s")
    answer = ensue("race", text, *words, "--out", "race")
    assert answer.code == 0 and "bits per byte" in answer.out
    result = json.loads(Path("race/race.json").read_text())
    assert {one["system"] for one in result["systems"]} == {"ngram", "rnn"}
    for one in result["systems"]:
        assert one["bits_per_byte"] > 0 and one["seconds"] >= 0 and one["parameters"] >= 0 and one["bytes"] > 0
    assert result["systems"][0]["bits_per_byte"] <= result["systems"][1]["bits_per_byte"]
    assert "| ngram |" in Path("race/race.md").read_text()
    assert Path("race/race.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in Path("race/race.svg").read_text()
    assert "<html" in Path("race/race.html").read_text().lower()
    before = weights("race/rnn")
    again = ensue("race", text, *words, "--out", "race", "--resume", "--json").json
    assert weights("race/rnn") == before and again["systems"] == result["systems"]


def test_systems():
    listed = ensue("systems").out
    names = [one["system"] for one in ensue("systems", "--json").json["systems"]]
    assert {"ngram", "lstm", "gpt"} <= set(names) and all(name in listed for name in names)
    for name in names:
        found = ensue("systems", name, "--json").json
        assert found["equation"] and all(setting["meaning"] for setting in found["settings"])
        assert ensue("systems", name).out.startswith(name)


@pytest.mark.parametrize("name", ["lstm", "gpt", "ngram", "bilm"])
def test_check(name, runs):
    assert ensue("check", runs / name, "--json").json["kept"] is True
    assert "FAIL" not in ensue("check", runs / name).out


def test_check_a_class():
    assert ensue("check", "ensue.models.window:WindowLanguageModel", "--json").json["kept"] is True


def test_cost():
    result = ensue("cost", "lstm", "--vocabulary", "100", "--set", "hidden=32", "--json").json
    assert result["parameters"] == sum(result["parts"].values()) and result["flops_per_token"] > 0
    assert (
        f"{result['parameters']:,} parameters" in ensue("cost", "lstm", "--vocabulary", "100", "--set", "hidden=32").out
    )


def test_an_ngram_survives_a_round_trip_through_arpa(runs, text):
    assert ensue("convert", runs / "ngram", "--to", "arpa", "--out", "model.arpa").out == "wrote model.arpa\n"
    assert ensue("convert", "model.arpa", "--out", "back", "--json").json == {"out": "back"}
    before = ensue("score", runs / "ngram", text, "--json").json
    after = ensue("score", "back", text, "--json").json
    assert after["nll"] == pytest.approx(before["nll"], rel=1e-5) and after["tokens"] == before["tokens"]
    assert ensue("convert", runs / "ngram", "--to", "arpa", "--out", "model.arpa.gz").code == 0
    assert ensue("convert", "model.arpa.gz", "--out", "packed").code == 0
    assert weights("packed") == weights("back")


@pytest.mark.parametrize("ending", ["html", "png", "svg", "json"])
def test_look(ending, runs, text):
    assert ensue("look", "curves", runs / "lstm", runs / "gpt", "--out", f"curves.{ending}").code == 0
    assert ensue("look", "ngrams", text, "--out", f"ngrams.{ending}").code == 0
    assert Path(f"curves.{ending}").stat().st_size > 500 and Path(f"ngrams.{ending}").stat().st_size > 500


def test_the_smallest_corpus():
    assert ensue("fit", "rnn", "hello", *TINY, "--out", "run", "--json").json["steps"] == 4
    assert ensue("score", "run", "--text", "hello", "--json").json["tokens"] == 6


def test_from_another_folder(text, monkeypatch):
    Path("mine.txt").write_text(sentences(40))
    Path("deep/er").mkdir(parents=True)
    monkeypatch.chdir("deep")
    assert ensue("fit", "rnn", "../mine.txt", *TINY, "--out", "er/run").code == 0
    before = weights("er/run")
    monkeypatch.chdir("er")
    assert ensue("fit", "run", "--resume").code == 0
    assert weights("run") == before


def test_the_commands_are_functions_in_python(text, runs):
    run = package.fit("lstm", text, out="run", hidden=16, settings={"train.steps": 4, "train.batch": 4})
    assert run.score(text=sentences(3)).bits_per_byte > 0
    assert len(run.generate("the", tokens=3, n=2)) == 2
    assert len(run.next("the", 5)) == 5
    held = package.load(runs / "lstm")
    assert held.system == "lstm"


def test_as_a_module():
    answer = finished(started("--version"))
    assert answer.code == 0 and answer.out == f"ensue {package.__version__}\n"
    shown = finished(started("--help"))
    assert shown.code == 0 and all(word in shown.out for word in ("fit", "score", "generate", "race", "doctor"))


def test_help_does_not_import_torch():
    code = "import sys; from ensue.cli.main import app; sys.argv = ['ensue', '--help']\n"
    code += "try:\n    app()\nexcept SystemExit:\n    sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0 and "train a model" in done.stdout, done.stderr


LONG = ("--set", "hidden=16", "--set", "train.batch=4", "--set", "layers=2", "--set", "dropout=0.3")


def test_a_killed_run_resumes_bit_for_bit(text):
    words = ("fit", "lstm", text, *LONG, "--set", "train.steps=30", "--set", "train.checkpoint_every=4")
    whole = finished(started(*words, "--out", "whole"))
    assert whole.code == 0, whole.err
    process = started(*words, "--out", "broken")
    until(process, "broken/checkpoints/step-00000008")
    process.kill()
    finished(process)
    resumed = finished(started("fit", "broken", "--resume"))
    assert resumed.code == 0, resumed.err
    assert weights("broken") == weights("whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_training_with_a_checkpoint(number, text):
    """It saves, says how to go on, and what it says works as it is printed."""
    words = ("fit", "lstm", text, *LONG, "--set", "train.steps=1000000", "--set", "train.eval_every=1000000")
    process = started(*words, "--out", "my run")
    until(process, "my run/metrics.jsonl")  # it is training
    process.send_signal(number)
    answer = finished(process)
    assert answer.code == 130 and answer.out == "" and "Traceback" not in answer.err
    [line] = [line for line in answer.err.splitlines() if line.startswith("resume with: ensue ")]
    again = started(*shlex.split(line.removeprefix("resume with: ensue ")), "--budget", "1s")
    resumed = finished(again)
    assert resumed.code == 0, resumed.err
    assert "my run" in resumed.out


def test_interrupted_tokenising_is_resumed(tmp_path, monkeypatch):
    """Ctrl-C says in one line what is kept, and the same command goes on from there to the same run."""
    Path("my.txt").write_text(sentences(100))
    monkeypatch.setattr(text_pieces, "PIECE_BYTES", 1024)
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "one"))
    words = ("fit", "ngram", "my.txt", "--tokenizer", "word")
    assert ensue(*words, "--out", "whole").code == 0
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "other"))
    encode, left = tokens.encode_parts, 3

    def interrupted(tokenizer, parts):
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return encode(tokenizer, parts)

    monkeypatch.setattr(tokens, "encode_parts", interrupted)
    stopped = ensue(*words, "--out", "cut")
    assert stopped.code == 130 and stopped.out == "" and not Path("cut").exists()
    [line] = stopped.err.strip().splitlines()
    assert line.startswith("ensue: stopped; 0.0 MB of 0.0 MB are tokenised, and the same command continues from there")
    again = ensue(*words, "--out", "cut")
    assert again.code == 0 and "MB were tokenised before" in again.err
    assert weights("cut") == weights("whole")
