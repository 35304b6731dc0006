"""A run whose config.json has the head of another task, or labels that its head does not have, is refused."""

import json

import pytest

import ensue
from ensue.core.errors import InputError

ROWS = "".join(f"{'good' if n % 2 else 'bad'}\tthe film was {'fine' if n % 2 else 'dull'} {n}\n" for n in range(24))


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "rows.tsv").write_text(ROWS, encoding="utf-8")
    quick = {"train.steps": 2, "hidden": 8, "data.columns": "label=1,text=2"}
    return ensue.fit("classify", folder / "rows.tsv", model="lstm", out=folder / "run", settings=quick)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda config: config.pop("task"), "has a head, which the task"),
        (lambda config: config.pop("head"), "has no head, which the task classify needs"),
        (lambda config: config["head"].update(kind="token"), "has another head than the task classify"),
        (lambda config: config["data"].update(labels=["bad"]), "has 1 labels, and a head of 2 outputs"),
        (lambda config: config.update(task="tag"), "has another head than the task tag"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(labelled, monkeypatch, change, why):
    monkeypatch.setenv("ENSUE_VERIFY", "0")
    path = labelled.folder.config
    whole = path.read_text(encoding="utf-8")
    config = json.loads(whole)
    change(config)
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        with pytest.raises(InputError, match=why) as error:
            ensue.load(labelled.folder.path)
        assert "config.json" in str(error.value)
    finally:
        path.write_text(whole, encoding="utf-8")
