import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rank_cases import CASES, RESUMED, SHARDED, fit, resume, unfinished, write_data
from safetensors.torch import load_file
from typed import Answer, ensue

from ensue.core import torchrun
from ensue.train.metrics import read_metrics

RUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]


def start_ranks(*words):
    """Start two ranks; one that crashes says where."""
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    return subprocess.Popen(
        [*RUN, *map(str, words)], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process):
    out, err = process.communicate(timeout=180)
    return Answer(process.returncode, out, err)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Every case trained by one process and by two ranks, and runs of each that the other goes on with."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.set_num_threads(1)
    write_data(folder)
    for name in RESUMED:
        fit(folder, name, folder / "one" / name)
        unfinished(folder / "one" / name, folder / "to two" / name)
        unfinished(folder / "one" / name, folder / "to sharded" / name)
    ranks = start_ranks(Path(__file__).with_name("rank_cases.py"), folder)
    for name in CASES.keys() - RESUMED:
        fit(folder, name, folder / "one" / name)
    answer = ended(ranks)
    assert answer.code == 0, f"{answer.err[:6000]}\n…\n{answer.err[-2000:]}"
    assert "Warning" not in answer.err
    for kind in ("two", "sharded"):
        for name in RESUMED:
            unfinished(folder / kind / name, folder / f"{kind} to one" / name)
            resume(folder / f"{kind} to one" / name)
    return folder


def same(one, other):
    """Every line of metrics the same within 1e-5, and the weights that were kept nearly so."""
    records = read_metrics(one), read_metrics(other)
    assert [record["step"] for record in records[0]] == [record["step"] for record in records[1]] != []
    for mine, theirs in zip(*records):
        assert mine.keys() == theirs.keys()
        for key in mine.keys() - {"seconds"}:
            assert mine[key] == pytest.approx(theirs[key], abs=1e-5), (key, mine["step"])
    mine, theirs = (load_file(path / "model.safetensors") for path in (one, other))
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        torch.testing.assert_close(theirs[name], weight, atol=2e-3, rtol=0)  # AdamW moves by rounding where ∇ = 0


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_have_the_losses_of_one_process(runs, name):
    same(runs / "one" / name, runs / "two" / name)


@pytest.mark.parametrize("name", SHARDED)
def test_ranks_that_share_the_weights_have_the_same_losses(runs, name):
    same(runs / "one" / name, runs / "sharded" / name)


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("way", ["to two", "to sharded", "two to one", "sharded to one"])
def test_a_run_resumes_with_another_number_of_ranks(runs, name, way):
    same(runs / "one" / name, runs / way / name)


@pytest.mark.parametrize(("way", "file"), [("to two", "model.safetensors"), ("to sharded", "model.shards")])
def test_a_run_resumes_sharded_only_if_asked(runs, way, file):
    assert (runs / way / "lstm" / "checkpoints" / "step-00000010" / file).exists()


def test_ranks_that_stop_in_an_evaluation_go_on_with_it(runs):
    assert json.loads((runs / "said-0.json").read_text())["owed"]
    same(runs / "one" / "lstm", runs / "interrupted")


def test_checkpoints_of_shared_weights_are_safetensors_of_every_rank(runs):
    folder = runs / "sharded" / "bert" / "checkpoints" / "step-00000010"
    for group in ("model", "optimiser"):
        assert len(list((folder / f"{group}.shards").glob("*.safetensors"))) == 2
    kinds = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json"}
    listed = json.loads((folder / "manifest.json").read_text())
    assert sum(name.startswith("model.shards/") for name in listed) == 2


def test_all_ranks_lose_patience_together_even_with_dropout(runs):
    figures = json.loads((runs / "patience" / "config.json").read_text())["figures"]
    assert (figures["stopped"], figures["steps"]) == ("patience", 8)


def test_a_loss_that_is_not_finite_on_one_rank_rolls_all_back(runs):
    first, second = (json.loads((runs / f"said-{rank}.json").read_text())["rolled back"] for rank in (0, 1))
    assert first == second
    assert first["step"] == 9 and first["calls"] == 6 + 5
    assert "the loss is not finite at step 6: rolled back to step 4" in first["notes"][0]


def test_what_ranks_cannot_do_is_refused_once(runs):
    first, second = (json.loads((runs / f"said-{rank}.json").read_text()) for rank in (0, 1))
    assert "ngram is not trained by gradient" in first["ngram"] and second["ngram"].startswith("OtherRankFailed")
    assert "word2vec has a training loop" in first["word2vec"] and second["word2vec"].startswith("OtherRankFailed")
    assert first["odd"].startswith("OtherRankFailed") and second["odd"] == "OSError: odd"
    assert "which FSDP cannot" in first["unfreeze"] and second["unfreeze"].startswith("OtherRankFailed")
    assert first["missing"].startswith("OtherRankFailed") and "RankError: rank 1:" in second["missing"]
    assert first["other"].startswith("OtherRankFailed") and "is not what the first rank reads" in second["other"]
    assert not any((runs / name).exists() for name in ("ngram", "word2vec", "unfreeze", "missing", "other"))


def test_a_signal_to_torchrun_saves_once_and_the_run_resumes(runs, tmp_path):
    out = tmp_path / "run"
    words = ("fit", "lstm", runs / "text.txt", "--set", "hidden=8", "--set", "train.steps=1000000", "--out", out)
    process = start_ranks("-m", "ensue", *words, "--set", "train.log_every=1")
    until = time.monotonic() + 120
    while len(read_metrics(out)) < 5 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    answer = ended(process)
    assert answer.err.count("stopped; everything is saved in") == 1
    step = json.loads((out / "checkpoints" / "stop" / "progress.json").read_text())["step"]
    assert step >= 5 and step == json.loads((out / "config.json").read_text())["figures"]["steps"]
    again = ensue("fit", out, "--resume", "--budget", "1s", "--json")
    assert again.code == 0 and again.json["steps"] > step


@pytest.fixture(params=[0, 1])
def rank(request, monkeypatch):
    """This process as one of two ranks, as far as a command can tell before they meet."""
    for name, value in zip(torchrun.VARIABLES, (request.param, 2, "localhost", 29500), strict=True):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("ensue.cli.main.SILENT_RANK_DELAY", 0.0)
    return request.param


def test_bad_arguments_are_refused_in_one_line_by_one_rank(rank):
    answer = ensue("race", "text.txt")
    assert answer.code == 2 and not answer.out
    assert answer.err == ("" if rank else "ensue: `ensue race` runs in one process; run it without torchrun\n")


def test_a_rank_that_is_ended_reports_it_once(rank, monkeypatch):
    monkeypatch.setattr("ensue.cli.main.app", lambda **_: 130)  # what typer answers to Ctrl-C or SIGTERM
    answer = ensue("fit", "lstm", "text.txt")
    assert answer.code == 130
    assert answer.err == ("" if rank else "\nensue: stopped; no partial output was left behind\n")
