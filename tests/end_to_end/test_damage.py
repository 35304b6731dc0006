"""Nothing damaged loads silently, and --force deletes only what is a run's own."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_bad_input import refused
from typed import TINY, ensue, sentences

import ensue as package
from ensue.core.run_folder import RunFolder
from ensue.data.tokenizers.registry import load_tokenizer

PAIR_SETTINGS = ("--set", "train.steps=2", "--set", "hidden=16", "--set", "tokenizer.joint=false")
PAIRS = "".join(f"{line}\t{line[::-1]}\n" for line in sentences(30).splitlines())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Small runs of several kinds."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text(sentences(40))
    (folder / "pairs.tsv").write_text(PAIRS)
    (folder / "vectors.txt").write_text("2 2\nking 1 0\nqueen 0 1\n")
    fits = {
        "ngram": ("ngram", folder / "text.txt"),
        "disk": ("ngram", folder / "text.txt", "--memory", "100M"),
        "lstm": ("lstm", folder / "text.txt", *TINY, "--tokenizer", "word"),
        "words": ("word2vec", folder / "text.txt", "--set", "tokenizer.min_count=1", "--set", "train.steps=2"),
        "pairs": ("seq2seq", folder / "pairs.tsv", *PAIR_SETTINGS, "--tokenizer", "char"),
    }
    for name, words in fits.items():
        answer = ensue("fit", *words, "--out", folder / name, "--json")
        assert answer.code == 0, answer.err
    assert ensue("convert", folder / "vectors.txt", "--out", folder / "converted").code == 0
    return folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def flip(path, position=-1):
    """Change one bit of a byte."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


NEEDED = {
    "ngram": {"config.json", "model.safetensors", "tokenizer.json", "run.toml"},
    "disk": {"config.json", "model.safetensors", "tokenizer.json", "run.toml"},
    "lstm": {"config.json", "model.safetensors", "tokenizer.json", "run.toml"},
    "words": {"config.json", "model.safetensors", "tokenizer.json", "run.toml"},
    "pairs": {"config.json", "model.safetensors", "tokenizer.json", "tokenizer.source.json", "run.toml"},
    "converted": {"config.json", "model.safetensors", "tokenizer.json"},
}


@pytest.mark.parametrize("kind", NEEDED)
def test_every_way_to_write_a_run_writes_its_manifest(kind, made):
    assert json.loads((made / kind / "manifest.json").read_text()).keys() == NEEDED[kind]
    assert not package.core.run_files.strangers(made / kind)
    answer = ensue("check", made / kind, "--files")
    assert answer.code == 0 and "FAIL" not in answer.out and answer.err == ""


@pytest.mark.parametrize("kind", ["ngram", "pairs"])
def test_one_flipped_bit_in_any_file_is_refused(kind, made):
    for name in (*NEEDED[kind], "manifest.json"):
        for position in (0, 40, -2):
            shutil.copytree(made / kind, "run", dirs_exist_ok=True)
            flip(Path("run", name), position)
            line = refused("check", "run")
            assert name in line or name == "manifest.json", line
            with pytest.raises(package.InputError):
                package.load("run")
    shutil.copytree(made / kind, "run", dirs_exist_ok=True)
    package.load("run")


def test_a_damaged_run_loads_without_verification(made, monkeypatch):
    shutil.copytree(made / "lstm", "run")
    flip(Path("run/model.safetensors"))
    refused("score", "run", "--text", "the books", says=("run/model.safetensors: is damaged", "--no-verify"))
    assert ensue("score", "run", "--text", "the books", "--no-verify").code == 0
    refused("score", "run", "--text", "the books", says="is damaged")  # it was for one command
    assert package.load("run", verify=False).score(text="the books").tokens
    monkeypatch.setenv("ENSUE_VERIFY", "0")
    assert package.load("run").score(text="the books").tokens


def test_damaged_runs_are_refused_wherever_they_are_read(made):
    shutil.copytree(made / "lstm", "run")
    flip(Path("run/tokenizer.json"), 100)
    text = made / "text.txt"
    refused("fit", "gru", text, *TINY, "--tokenizer", "run", "--out", "new", says="run/tokenizer.json: is damaged")
    refused("fit", "lstm", text, *TINY, "--from", "run", "--out", "new", says="run/tokenizer.json: is damaged")
    refused("convert", "run", "--to", "onnx", "--out", "x.onnx", says="run/tokenizer.json: is damaged")
    refused("fit", "run", "--resume", says=("run/tokenizer.json: is damaged", "restore it from a copy"))
    shutil.copytree(made / "lstm", "run", dirs_exist_ok=True)
    flip(Path("run/run.toml"), 100)
    refused("cost", "run", says="run/run.toml: is damaged")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_resuming_writes_a_damaged_file_of_a_finished_run_again(name, made):
    shutil.copytree(made / "lstm", "run")
    shutil.rmtree("run/events", ignore_errors=True)
    before = Path("run/model.safetensors").read_bytes()
    flip(Path("run", name), 1)
    assert f"run/{name}: is damaged" in ensue("fit", "run", "--resume").err
    assert ensue("check", "run", "--files").code == 0
    assert Path("run/model.safetensors").read_bytes() == before


def test_a_run_of_an_older_version_loads_with_one_note_and_gets_a_manifest_on_request(made):
    shutil.copytree(made / "ngram", "run")
    Path("run/manifest.json").unlink()
    answer = ensue("next", "run", "the")
    assert answer.code == 0 and answer.err.count("\n") == 1
    assert answer.err.startswith("note: run has no manifest.json") and "ensue check run --files --write" in answer.err
    assert ensue("next", "run", "the", "--json").err == ""
    answer = ensue("check", "run", "--files")
    assert answer.code == 1 and answer.out == "FAIL  manifest.json                is missing: --write adds one\n"
    assert ensue("check", "run", "--files", "--write").code == 0
    assert ensue("next", "run", "the").err == ""
    refused("check", "run", "--write", says="--write is for --files")


def test_a_run_stopped_between_its_last_two_files_is_resumed(made, monkeypatch):
    """The manifest is written before config.json: after a crash between them the run is not finished."""
    shutil.copytree(made / "lstm", "run")
    Path("run/config.json").unlink()
    refused("next", "run", "the", says="is not a finished run (no config.json)")
    assert ensue("fit", "run", "--resume").code == 0
    old = Path("run/config.json").read_text()
    Path("run/config.json").write_text(old.replace('"steps": 4', '"steps": 3'))  # new weights, old config.json
    refused("next", "run", "the", says=("run/config.json: is damaged", "`ensue fit run --resume` writes it again"))
    assert ensue("fit", "run", "--resume").code == 0
    assert ensue("next", "run", "the").code == 0


def test_files_of_checkpoints_are_checked_too(made):
    shutil.copytree(made / "lstm", "run")
    (newest,) = Path("run/checkpoints").glob("step-00000004")
    flip(newest / "optimiser.safetensors")
    answer = ensue("check", "run", "--files")
    assert answer.code == 1
    (line,) = (line for line in answer.out.splitlines() if line.startswith("FAIL"))
    assert "checkpoints/step-00000004/optimiser.safetensors" in line


def test_a_checkpoint_of_another_torch_is_resumed_with_one_note(made, monkeypatch):
    import torch

    shutil.copytree(made / "lstm", "run")
    Path("run/config.json").unlink()
    versions = json.loads(Path("run/checkpoints/step-00000004/versions.json").read_text())
    assert versions == {"ensue": package.__version__, "torch": torch.__version__}
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    answer = ensue("fit", "run", "--resume")
    assert answer.code == 0 and answer.err.count(f"was written with torch {versions['torch']}, this is 9.9.9") == 1


THESES = {
    "two keys": '{"format": "A4", "system": "LaTeX"}',
    "types": '{"ensue": "no", "format": "A4", "system": "LaTeX", "model": {}}',
    "without ensue": '{"format": 1, "system": "lstm", "model": {}}',
}


@pytest.mark.parametrize("config", THESES)
def test_force_deletes_no_folder_that_is_not_a_run(config, made):
    Path("thesis").mkdir()
    Path("thesis/config.json").write_text(THESES[config])
    Path("thesis/chapter.tex").write_text("years of work")
    command = ("fit", "ngram", made / "text.txt", "--out", "thesis", "--force")
    refused(*command, says="thesis: is not a run, so --force will not delete it")
    refused("convert", made / "vectors.txt", "--out", "thesis", "--force", says="is not a run")


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "checkpoints/notes.txt",
        "events/notes.txt",
        "model.safetensors.bak",
        "checkpoints/step-00000004/my.txt",
    ],
)
def test_force_refuses_a_run_with_files_of_others(name, made):
    shutil.copytree(made / "lstm", "run")
    Path("run", name).parent.mkdir(exist_ok=True)
    Path("run", name).write_text("keep")
    command = ("fit", "ngram", made / "text.txt", "--out", "run", "--force")
    refused(*command, says=f"run: {name} is not a file of a run, so --force will not delete this folder")
    Path("run", name).unlink()
    assert ensue(*command, "--json").code == 0
    assert not Path("run/checkpoints").exists() and package.load("run").system == "ngram"


def test_a_run_is_not_overwritten_by_its_own_conversion(made):
    shutil.copytree(made / "lstm", "run")
    refused("convert", made / "lstm", "--to", "hf", "--out", "run", "--force", says="run: is a run")


def test_hidden_files_of_others_are_kept(made):
    Path("run").mkdir()
    Path("run/.film.part").write_text("a download")
    refused("fit", "ngram", made / "text.txt", "--out", "run", says="run: is there already")
    refused("fit", "ngram", made / "text.txt", "--out", "run", "--force", says="run: is not a run")


def test_a_folder_of_a_process_killed_at_its_start_counts_as_empty(made):
    Path("run").mkdir()
    Path("run/.lock").touch()
    command = ("fit", "ngram", made / "text.txt", "--out", "run", "--json")
    with RunFolder(Path("run")).lock():
        refused(*command, says="run: another process is training here")
    assert ensue(*command).code == 0


def test_force_deletes_a_run_behind_a_link(made):
    shutil.copytree(made / "ngram", "disk")
    Path("run").symlink_to("disk")
    assert ensue("fit", "ngram", made / "text.txt", "--set", "order=2", "--out", "run", "--force", "--json").code == 0
    assert Path("run").is_symlink() and package.load("disk").config["model"]["order"] == 2


def test_force_replaces_a_race_but_no_files_of_others(made, monkeypatch):
    monkeypatch.setattr("ensue.verbs.race.save_chart", lambda chart, path: path.write_text("chart"))
    command = ("race", made / "text.txt", "--systems", "ngram", "--budget", "1s", "--out", "race")
    assert ensue(*command, "--json").code == 0
    flip(Path("race/ngram/model.safetensors"))
    assert ensue(*command, "--resume", "--json").json["systems"][0]["error"] == ""  # the run is written again
    package.load("race/ngram")
    for name in ("notes.txt", "ngram/notes.txt", "mine/notes.txt"):
        Path("race", name).parent.mkdir(exist_ok=True)
        Path("race", name).write_text("keep")
        stranger = "mine" if name.startswith("mine") else name
        refused(*command, "--force", says=f"race: {stranger} is not a file of a race, so --force will not delete")
        Path("race", name).unlink()
    Path("race/mine").rmdir()
    Path("race/ngram/notes.txt").write_text("keep")
    again = ensue(*command, "--resume", "--repeat", "ngram")
    assert again.code == 2 and "ngram: notes.txt is not a file of a run" in again.err
    Path("race/ngram/notes.txt").unlink()
    assert ensue(*command, "--resume", "--repeat", "ngram", "--json").code == 0
    assert ensue(*command, "--force", "--json").code == 0
    Path("thesis").mkdir()
    Path("thesis/race.json").write_text('{"cars": 2}')
    refused(*command[:-1], "thesis", "--force", says="thesis: is not a race, so --force will not delete it")


def limited(*words, size):
    """Run a command that can write no file larger than ``size`` bytes, as on a full disk."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    command = [sys.executable, "-m", "ensue", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, preexec_fn=limit, capture_output=True, text=True, check=False)


def test_a_disk_without_space_loses_nothing(made):
    """A checkpoint that cannot be written is an error of one line, and what was there before is resumed."""
    words = ("fit", "lstm", made / "text.txt", "--set", "hidden=256", "--set", "train.steps=2")
    done = limited(*words, "--out", "run", size=1_000_000)
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("ensue: run/checkpoints/"), done.stderr
    assert "Traceback" not in done.stderr and not list(Path("run").rglob("*.part"))
    assert ensue("fit", "run", "--resume", "--json").code == 0
    assert ensue("check", "run", "--files").code == 0


def test_the_source_tokenizer_is_needed(made):
    shutil.copytree(made / "pairs", "run")
    RunFolder(Path("run")).source_tokenizer.unlink()
    refused("translate", "run", "--text", "the", says="tokenizer.source.json: is missing; restore it from a copy")
    assert load_tokenizer("run").size
