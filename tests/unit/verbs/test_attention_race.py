"""Races of attentions: who takes part, names, folders, resuming, and what is refused before anything is read."""

import pytest

from ensue.core.errors import InputError
from ensue.core.files import read_json
from ensue.nn.mixers.mixer import MIXERS
from ensue.verbs import race as module
from ensue.verbs.race import race
from ensue.verbs.racing.folder import runs_of
from ensue.verbs.racing.plan import usable_attentions

TEXT = "the rain fell and the students opened their books while the clock ran on\n" * 40
TINY = {
    "layers": 1,
    "heads": 2,
    "hidden": 8,
    "context": 8,
    "train.steps": 2,
    "train.batch": 2,
    "tokenizer.kind": "char",
}


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A text to race on; no pictures are drawn."""
    monkeypatch.setattr(module, "save_chart", lambda chart, path: None)
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_each_system_with_an_attention_is_trained_once_with_each(text):
    settings = {**{f"gpt.{key}": value for key, value in TINY.items() if "." not in key}}
    settings |= {key: value for key, value in TINY.items() if "." in key} | {"rnn.hidden": 4}
    out = text.parent / "race"
    how = {"systems": ["gpt", "rnn"], "attention": ["full", "local:span=2", "mean"], "budget": "1s", "out": out}
    result = race(text, settings=settings, **how)
    names = [result.name(one) for one in result.entrants]
    assert names == ["gpt full", "gpt local:span=2", "gpt mean", "rnn"]
    assert all(one.value is not None for one in result.entrants), result.remarks()
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"gpt+full", "gpt+local.span=2", "gpt+mean", "rnn"}
    for entry in read_json(out / "race.json")["systems"]:
        run = {"rnn": "rnn"}.get(entry["system"], f"gpt+{entry.get('attention', '').replace(':', '.')}")
        config = read_json(out / run / "config.json")
        assert config["model"].get("attention", "") == entry.get("attention", "")
    assert len(runs_of(out)) == 4
    before = (out / "gpt+mean" / "model.safetensors").stat().st_mtime_ns
    again = race(text, settings=settings, resume=True, repeat=["gpt full"], **how)
    assert (out / "gpt+mean" / "model.safetensors").stat().st_mtime_ns == before
    assert sorted(filter(None, (one.attention for one in again.entrants))) == ["full", "local:span=2", "mean"]
    with pytest.raises(InputError, match="another attention"):
        race(text, settings=settings, resume=True, **{**how, "attention": ["full"]})
    race(text, settings=settings, force=True, **{**how, "systems": ["gpt"], "attention": ["mean"]})
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"gpt+mean"}


def test_all_are_those_that_mix_in_the_directions_of_the_model():
    causal, both = usable_attentions(("causal",), ["all"]), usable_attentions(("both",), ["all", "full"])
    assert {"full", "local", "linear", "mamba", "mean"} <= set(causal)
    assert "full" in both and "mamba" not in both and len(set(both)) == len(both)
    assert set(causal) | set(both) == set(MIXERS)
    assert set(usable_attentions(("causal", "both"), ["all"])) == set(causal) & set(both)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"systems": ["gpt"], "attention": ["ful"]}, "did you mean 'full'"),
        ({"systems": ["gpt"], "attention": ["local:spam=1"]}, "did you mean 'span'"),
        (
            {"systems": ["gpt"], "attention": ["local:span=9"], "settings": {"context": 8}},
            "span = 9 is larger than the",
        ),
        ({"systems": ["rnn"], "attention": ["full"]}, "rnn has no attention to choose"),
        ({"systems": ["gpt"], "attention": ["full"], "match": "params"}, "exclude each other"),
    ],
)
def test_wrong_attentions_are_refused_before_anything_is_read(tmp_path, how, message):
    with pytest.raises(InputError, match=message):
        race(tmp_path / "missing.txt", out=tmp_path / "race", **how)
    assert not (tmp_path / "race").exists()
