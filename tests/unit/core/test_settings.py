import tomllib
from dataclasses import dataclass

import pytest

from ensue.core.durations import duration_in_words, seconds
from ensue.core.errors import InputError
from ensue.core.settings import build, convert, describe, parse_assignments, toml_lines, toml_value
from ensue.models.table import SYSTEMS
from ensue.runs.settings_resolution import defaults_of_tasks, read_settings, resolve, setting_names
from ensue.tasks.table import all_tasks
from ensue.train.settings import TextTrainSettings, TrainSettings
from ensue.verbs.systems import systems


@dataclass(frozen=True, kw_only=True)
class Some:
    """Settings."""

    width: int = 3
    """How wide it is,
    in units."""
    rate: float = 0.1
    """How fast."""
    on: bool = False
    """Whether at all."""
    files: tuple[str, ...] = ()
    """Which ones."""
    name: str = "a"


def test_the_sentence_under_a_field_is_its_description():
    assert [f.meaning for f in describe(Some)] == [
        "How wide it is, in units.",
        "How fast.",
        "Whether at all.",
        "Which ones.",
        "",
    ]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("width", "7", 7),
        ("width", "1e3", 1000),
        ("width", "9_007_199_254_740_993", 2**53 + 1),
        ("width", "-9007199254740993", -(2**53) - 1),
        ("rate", "3e-4", 3e-4),
        ("rate", 1, 1.0),
        ("on", "yes", True),
        ("files", ["x"], ("x",)),
        ("files", "a,b", ("a", "b")),
        ("name", "1e-3", "1e-3"),
    ],
)
def test_values_take_the_kind_of_their_setting(name, value, expected):
    made = getattr(build(Some, {name: value}), name)
    assert made == expected and type(made) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [("width", "wide"), ("width", 2.5), ("width", True), ("on", "perhaps"), ("rate", "fast"), ("files", 3)],
)
def test_a_wrong_value_names_the_setting(name, value):
    with pytest.raises(InputError, match=f"setting x.{name} = "):
        build(Some, {name: value}, "x.")


def test_a_wrong_name_gets_the_nearest_right_one():
    with pytest.raises(InputError, match="did you mean 'width'"):
        build(Some, {"widht": 1})
    with pytest.raises(InputError, match=r"did you mean 'train\.lr'"):
        resolve("lstm", layers=[{"train.lt": 1}])
    with pytest.raises(InputError, match=r"did you mean 'train\.batch'"):
        resolve("lstm", layers=[{"trian.batch": 1}])


def test_settings_survive_a_round_trip_through_toml():
    made = Some(rate=1e-9, files=('a "b"', "c\\d\n"), name="ü", on=True)
    assert build(Some, tomllib.loads("\n".join(toml_lines(made)))) == made


def test_later_layers_win_over_the_preset():
    settings = resolve("gpt", preset="nanogpt", layers=[{"layers": 2}, {"train.lr": "5e-4", "layers": "3"}])
    assert settings.model["layers"] == 3 and settings.train.lr == 5e-4 and settings.model["context"] == 64
    assert settings.tokenizer.kind == "char" and settings.run.preset == "nanogpt"


def test_run_toml_holds_every_setting_with_its_description():
    text = resolve("lstm", layers=[{"train.steps": 3}]).toml()
    flat = tomllib.loads(text)
    assert (
        flat["system"] == "lstm"
        and flat["train"]["steps"] == 3
        and set(flat["train"]) == {f.name for f in describe(TextTrainSettings)}
    )
    assert "# Number of recurrent layers.\nlayers = 1" in text


@pytest.mark.parametrize(
    ("system", "name", "hint"),
    [
        ("lstm", "train.label_smoothing", "lstm learns from text, so leave it out"),
        ("gpt", "train.batch_tokens", "gpt learns from text: use train.batch"),
        ("lstm", "train.objective", "leave it out"),
        ("lstm", "train.samples", "leave it out"),
        ("lstm", "train.likelihood", "leave it out"),
        ("lstm", "data.eval_pairs", "use data.eval_tokens"),
        ("lstm", "tokenizer.joint", "leave it out"),
        ("transformer", "train.batch", "transformer learns from sentence pairs: use train.batch_tokens"),
        ("seq2seq", "train.cut", "leave it out"),
        ("seq2seq", "train.length", "leave it out"),
        ("bytenet", "train.renew", "leave it out"),
        ("transformer", "data.direction", "leave it out"),
    ],
)
def test_a_setting_of_another_task_is_refused(system, name, hint):
    with pytest.raises(InputError, match=f"setting '{name}' is for .*; .*{hint}"):
        resolve(system, layers=[{name: "1"}])
    table, _, own = name.partition(".")
    assert own not in tomllib.loads(resolve(system, layers=[]).toml())[table]
    assert name not in {setting["name"] for setting in systems(system)["settings"]}


@pytest.mark.parametrize(
    ("system", "name", "materials"),
    [
        ("lstm", "data.eval_pairs", "sentence pairs"),
        ("lstm", "data.eval_rows", "documents, text with gaps and sentences"),
        ("lstm", "train.batch_tokens", "sentence pairs, sentences and labelled examples"),
        ("word2vec", "data.columns", "text, sentence pairs, text with gaps and labelled examples"),
    ],
)
def test_the_error_lists_all_tasks_that_have_the_setting(tmp_path, system, name, materials):
    with pytest.raises(InputError, match=f"setting '{name}' is for {materials};"):
        resolve(system, layers=[{name: "1"}])
    path, notes = tmp_path / "run.toml", []
    table, _, own = name.partition(".")
    path.write_text(f'system = "{system}"\n[{table}]\n{own} = 7\n', encoding="utf-8")
    assert name not in read_settings(path, report=lambda kind, facts: notes.append(facts["text"]))
    assert notes == [f"{path}: {name} = 7 is left out: it is for {materials}"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_preset_resolves(system):
    for preset in SYSTEMS.load(system).presets or ["default"]:
        assert resolve(system, preset=preset, layers=[]).run.preset == preset


@pytest.mark.parametrize("system", ["lstm", "transformer"])
def test_files_of_older_versions_can_be_read(tmp_path, system):
    """They wrote the settings of every task into run.toml, where they did nothing."""
    text = resolve(system, layers=[]).toml()
    for name in {field.name for spec in all_tasks() for field in describe(spec.settings["train"])}:
        if f"train.{name}" not in setting_names(system):
            default = next(iter(defaults_of_tasks(f"train.{name}").values()))
            text = text.replace("[train]\n", f"[train]\n{name} = {toml_value(default)}\n")
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    assert resolve(system, layers=[read_settings(path)]) == resolve(system, layers=[])
    wrong = {"lstm": ("samples = 8", "samples = 9"), "transformer": ("renew = 0.03", "renew = 0.5")}
    path.write_text(text.replace(*wrong[system]), encoding="utf-8")
    notes = []
    found = read_settings(path, report=lambda kind, facts: notes.append(facts["text"]))
    assert resolve(system, layers=[found]) == resolve(system, layers=[])
    assert len(notes) == 1 and wrong[system][1].split()[0] in notes[0] and "is left out" in notes[0]


def test_assignments_and_times():
    assert parse_assignments(["a.b = 1=2"]) == {"a.b": "1=2"}
    with pytest.raises(InputError, match="name=value"):
        parse_assignments(["lr"])
    assert (seconds("1h30m"), seconds("90"), seconds("0.5m")) == (5400, 90, 30)
    for bad in ("", "soon", "10 x", "0s", "-3s", "m5"):
        with pytest.raises(InputError, match="time"):
            seconds(bad)
    assert duration_in_words(3599) == "59 min 59 s"


def test_numbers_out_of_range_are_errors_that_name_the_allowed_range():
    with pytest.raises(InputError, match=r"setting lr = -1\.0 must be above 0"):
        TrainSettings(lr=-1.0)
    with pytest.raises(InputError, match="one of constant"):
        TrainSettings(schedule="cosin")
    assert convert("x", 3, float) == 3.0
