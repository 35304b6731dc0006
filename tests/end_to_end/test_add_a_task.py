"""A task of another package, as docs/how-to/add-a-task.md writes it: all commands know it by its entry point."""

import re
import sys
from pathlib import Path

import httpx
import pytest

import ensue
from ensue.serve.server import listen, load_models
from ensue.tasks.table import TASKS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-task.md"
LINES = ["ab", "ba", "aab", "abb", "bab", "aba", "bba", "baa"] * 4
SMALL = {"hidden": 32, "train.steps": 8, "train.checkpoint_every": 4}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The page's code, installed: a module, and metadata with an entry point."""
    text = PAGE.read_text(encoding="utf-8")
    code, toml = (re.search(rf"```{kind}\n(.*?)```", text, re.S)[1] for kind in ("python", "toml"))
    assert len([line for line in code.splitlines() if line.strip()]) <= 80
    folder = tmp_path / "site"
    (folder / "reverse-1.0.dist-info").mkdir(parents=True)
    (folder / "reverse_task.py").write_text(code, encoding="utf-8")
    entry = toml.replace('[project.entry-points."ensue.tasks"]', "[ensue.tasks]").replace('"', "")
    (folder / "reverse-1.0.dist-info" / "entry_points.txt").write_text(entry, encoding="utf-8")
    (folder / "reverse-1.0.dist-info" / "METADATA").write_text("Name: reverse\nVersion: 1.0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{':'.join(path for path in sys.path if path)}")
    TASKS.__dict__.pop("entries", None)
    yield folder
    TASKS.__dict__.pop("entries", None)
    sys.modules.pop("reverse_task", None)


def test_a_task_of_another_package_is_fit_scored_predicted_checked_raced_and_served(package, tmp_path):
    data = tmp_path / "lines.txt"
    data.write_text("\n".join(LINES), encoding="utf-8")
    run = ensue.fit("reverse", data, settings=SMALL, out=tmp_path / "run")
    assert type(run).__name__ == "ReverseRun" and run.task == "reverse" and run.system == "gpt"
    assert "# gpt to reverse" in run.folder.card.read_text() and "| lines |" in run.folder.card.read_text()
    assert 0 <= run.score(data).as_dict()["accuracy"] <= 1
    assert [set(answer) for answer in run.predict(["ab", "ba"])] == [{"answer"}] * 2
    assert all(found["kept"] for found in ensue.check(run.folder.path))
    race = ensue.race(
        data,
        task="reverse",
        systems=["lstm"],
        settings={**SMALL, "train.epochs": 1},
        match="tokens",
        out=tmp_path / "race",
    )
    assert [entrant.system for entrant in race.entrants] == ["lstm"] and race.entrants[0].error == ""
    models = load_models([run.folder.path])
    with (
        listen(models, host="127.0.0.1", port=0) as bound,
        bound.in_background() as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        assert "predict" in client.get("/api/runs").json()["runs"][0]["can"]
        answer = client.post("/api/predict", json={"model": "run", "texts": ["ab"]})
        assert answer.json()["predictions"] == run.predict(["ab"])


def test_a_run_of_a_task_of_another_package_resumes_to_the_bit(package, tmp_path):
    data = tmp_path / "lines.txt"
    data.write_text("\n".join(LINES), encoding="utf-8")
    run = ensue.fit("reverse", data, settings=SMALL, out=tmp_path / "run")
    assert ensue.check(run.folder.path, resume=True)[0]["kept"]


def test_the_task_learns(package, tmp_path):
    data = tmp_path / "lines.txt"
    data.write_text("\n".join(a + b for a in "abc" for b in "abc"), encoding="utf-8")
    settings = {"hidden": 64, "dropout": 0.0, "train.steps": 600, "train.lr": 2e-3}
    run = ensue.fit("reverse", data, settings=settings, out=tmp_path / "run")
    assert run.score(data).as_dict()["accuracy"] == 1
