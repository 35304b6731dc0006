import random
import shutil
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import ensue
from ensue.core.errors import InputError, Interrupted
from ensue.core.files import sha256
from ensue.core.run_folder import RunFolder
from ensue.core.settings import read_toml
from ensue.tasks.labels import distillation as distilled
from ensue.tasks.table import all_tasks
from ensue.verbs import fit as fitting

GOOD, BAD = ("good", "fine", "lovely", "great"), ("bad", "dull", "poor", "awful")
PLAIN = ("the", "film", "was", "and", "plot", "very")
TINY = {"hidden": 16, "heads": 2, "context": 24, "layers": 3}
SHORT = {"train.steps": 8, "train.eval_every": 4, "train.checkpoint_every": 4, "train.threads": 1, "train.lr": 1e-2}


def texts(count, seed):
    """Sentences with their labels: a good word or a bad one among plain ones."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        label = chance.randrange(2)
        words = [*chance.choices(PLAIN, k=chance.randint(2, 6)), chance.choice((BAD, GOOD)[label])]
        chance.shuffle(words)
        found.append((" ".join(words), label))
    return found


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of every kind, and a teacher to classify and one to tag."""
    folder = tmp_path_factory.mktemp("distil")
    torch.set_num_threads(1)
    kinds = {"train": texts(200, 1), "dev": texts(60, 2), "more": texts(40, 3)}
    for name, rows in kinds.items():
        lines = [f"{text}\t{label}" for text, label in rows]
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
        tagged = [
            [f"{word} {'GOOD' if word in GOOD else 'BAD' if word in BAD else 'O'}" for word in text.split()]
            for text, _ in rows
        ]
        (folder / f"{name}.conll").write_text("\n\n".join("\n".join(one) for one in tagged) + "\n", encoding="utf-8")
        pairs = [
            f"{text}\t{other}\t{label + (other_label == label)}"
            for (text, label), (other, other_label) in pairwise(rows)
        ]
        (folder / f"{name}.pairs.tsv").write_text("text1\ttext2\tscore\n" + "\n".join(pairs) + "\n", encoding="utf-8")
    (folder / "plain.txt").write_text("\n".join(text for text, _ in texts(120, 4)) + "\n", encoding="utf-8")
    for task, ending in (("classify", "tsv"), ("tag", "conll")):
        ensue.fit(
            task,
            folder / f"train.{ending}",
            valid=folder / f"dev.{ending}",
            out=folder / task,
            settings={**TINY, **SHORT, "train.steps": 30, "train.eval_every": 30},
        )
    return folder


def distil(folder, out, student="bert", **more):
    """A student of the teacher that classifies."""
    given = {"valid": folder / "dev.tsv", "settings": {**SHORT, **more.pop("settings", {})}, **more}
    return ensue.distil(
        given.pop("teacher", folder / "classify"),
        student,
        given.pop("unlabelled", folder / "plain.txt"),
        out=out,
        **given,
    )


def small(**more):
    """A student of one layer."""
    return {**TINY, "layers": 1, **more}


def test_a_student_learns_its_teachers_labels_and_is_an_ordinary_run(folder, tmp_path):
    run = distil(folder, tmp_path / "small", settings=small(**{"train.steps": 40, "train.eval_every": 40}))
    figures, teacher = run.config["figures"]["valid"], ensue.load(folder / "classify")
    assert figures["teacher"]["accuracy"] == teacher.config["figures"]["valid"]["accuracy"] > 0.9
    assert figures["teacher"]["parameters"] == teacher.config["figures"]["parameters"]
    assert figures["accuracy"] > 0.8 and run.config["figures"]["parameters"] < figures["teacher"]["parameters"]
    again = ensue.load(tmp_path / "small")
    assert again.predict(["the film was lovely"])[0]["label"] == teacher.predict(["the film was lovely"])[0]["label"]
    assert again.score(folder / "dev.tsv").figures["accuracy"] == pytest.approx(figures["accuracy"])
    assert again.tokenizer.state() == teacher.tokenizer.state()
    card = (tmp_path / "small" / "README.md").read_text(encoding="utf-8")
    assert f"| teacher | {folder / 'classify'} |" in card and "120 texts without labels" in card
    assert read_toml(tmp_path / "small" / "run.toml")["teacher"] == str(folder / "classify")
    assert not any(name.startswith("distil.") for name in read_toml(folder / "classify" / "run.toml"))


def test_the_teachers_outputs_for_each_text_are_kept(folder, tmp_path):
    distil(folder, tmp_path / "small", settings=small())
    kept = load_file(tmp_path / "small" / "teacher.safetensors")["logits"]
    teacher = ensue.load(folder / "classify")
    lines = (folder / "plain.txt").read_text(encoding="utf-8").splitlines()
    p = np.exp(kept) / np.exp(kept).sum(-1, keepdims=True)
    said = [list(one["probabilities"].values()) for one in teacher.predict(lines)]
    np.testing.assert_allclose(p, said, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("student", ["lstm", "gpt"])
def test_a_student_of_another_system_with_another_tokenizer(folder, tmp_path, student):
    shape = {"hidden": 16, "layers": 1, **({"heads": 2, "context": 64} if student == "gpt" else {})}
    run = distil(folder, tmp_path / student, student, settings={**shape, "train.language": 0.1}, tokenizer="char")
    assert run.system == student and run.task == "classify" and run.tokenizer.kind == "char"
    assert run.config["data"]["labels"] == ["0", "1"]
    kept = load_file(tmp_path / student / "teacher.safetensors")["logits"]
    assert kept.shape == (120, 2) and np.isfinite(kept).all()


def test_tags_are_distilled_by_word_whatever_the_tokenizers(folder, tmp_path):
    settings = {"hidden": 16, "layers": 1}
    run = distil(
        folder,
        tmp_path / "tags",
        "lstm",
        teacher=folder / "tag",
        valid=folder / "dev.conll",
        settings=settings,
        tokenizer="byte",
    )
    lines = (folder / "plain.txt").read_text(encoding="utf-8").splitlines()
    kept = load_file(tmp_path / "tags" / "teacher.safetensors")["logits"]
    asked = kept[~np.isnan(kept[:, 0])]
    labels = run.config["data"]["labels"]
    assert len(asked) == sum(len(line.split()) for line in lines)
    said = [tag for one in ensue.load(folder / "tag").predict(lines) for tag in one["tags"]]
    assert [labels[place] for place in asked.argmax(-1)] == said
    assert len(run.predict(["the film was lovely"])[0]["tags"]) == 4


def test_regression_and_pairs_are_distilled(folder, tmp_path):
    teacher = ensue.fit("regress", folder / "train.pairs.tsv", out=tmp_path / "numbers", settings={**TINY, **SHORT})
    run = ensue.distil(
        tmp_path / "numbers",
        "gru",
        folder / "more.pairs.tsv",
        labelled=folder / "dev.pairs.tsv",
        out=tmp_path / "small",
        settings={**SHORT, "hidden": 16, "layers": 1},
    )
    assert run.task == "regress" and "pearson" in run.config["figures"]["valid"]
    data = run.config["data"]
    assert data["train_texts"] == 39 and data["train_examples"] + data["valid_examples"] == 59
    assert (
        abs(run.predict(["the film\tthe plot"])[0]["value"] - teacher.predict(["the film\tthe plot"])[0]["value"]) < 1
    )


def test_labelled_examples_are_trained_on_as_well(folder, tmp_path):
    weights = []
    for share in (0.0, 0.5):
        run = distil(
            folder, tmp_path / str(share), settings=small(**{"distil.labels": share}), labelled=folder / "more.tsv"
        )
        assert run.config["data"]["train_examples"] == 40 and run.config["data"]["train_texts"] == 120
        weights.append(run.model.out.weight.detach())
    assert not torch.equal(*weights)


@pytest.mark.parametrize("hidden", [16, 8])
def test_matching_hidden_states_adds_nothing_to_the_run(folder, tmp_path, hidden):
    run = distil(folder, tmp_path / "small", settings=small(**{"distil.hidden": 1.0, "hidden": hidden}))
    assert not any("onto" in name for name in run.model.state_dict())
    assert run.score(folder / "dev.tsv").figures["examples"] == 60


def broken_off(step):
    """A report that asks to stop, as Ctrl-C does, at a step of training."""

    def report(kind, values):
        if kind == "step" and values["step"] == step:
            signal.raise_signal(signal.SIGINT)

    return report


@pytest.mark.parametrize("settings", [{}, {"distil.hidden": 0.5, "hidden": 8}], ids=["answers", "hidden"])
def test_an_interrupted_distillation_resumes_bit_exactly_and_runs_the_teacher_once(
    folder, tmp_path, monkeypatch, settings
):
    asked = []
    compute_logits = distilled.compute_logits
    monkeypatch.setattr(distilled, "compute_logits", lambda *a, **k: asked.append(1) or compute_logits(*a, **k))
    settings = small(**settings, **{"train.keep": "last"})
    distil(folder, tmp_path / "whole", settings=settings)
    with pytest.raises(Interrupted, match="--resume"):
        distil(folder, tmp_path / "broken", settings=settings, report=broken_off(6))
    assert len(asked) == 2
    notes = []
    ensue.fit("", out=tmp_path / "broken", resume=True, report=lambda kind, values: notes.append(str(values)))
    assert len(asked) == 2
    assert any("not asked again" in note for note in notes)
    for name in ("model.safetensors", "checkpoints/step-00000008/optimiser.safetensors"):
        assert sha256(tmp_path / "whole" / name) == sha256(tmp_path / "broken" / name)


def test_a_student_resumes_without_its_teacher_but_not_with_another_or_other_texts(folder, tmp_path):
    teacher, plain = tmp_path / "teacher", tmp_path / "plain.txt"
    shutil.copytree(folder / "classify", teacher)
    shutil.copy(folder / "plain.txt", plain)
    with pytest.raises(Interrupted):
        distil(folder, tmp_path / "small", teacher=teacher, unlabelled=plain, settings=small(), report=broken_off(5))

    def again(**more):
        return ensue.distil(teacher, "bert", out=tmp_path / "small", resume=True, **more)

    with pytest.raises(InputError, match=r"has temperature = 2\.0, not 3\.0"):
        again(settings={"distil.temperature": 3})
    plain.write_text("another text\n", encoding="utf-8")
    with pytest.raises(InputError, match="the text has changed since this run started"):
        again()
    shutil.copy(folder / "plain.txt", plain)
    shutil.copy(folder / "tag" / "model.safetensors", teacher / "model.safetensors")
    with pytest.raises(InputError, match=r"teacher/model\.safetensors: is damaged"):
        again()
    RunFolder(teacher).write_manifest()
    with pytest.raises(InputError, match="other weights than when this run began"):
        again()
    shutil.rmtree(teacher)
    outputs = tmp_path / "small" / "teacher.safetensors"
    whole = outputs.read_bytes()
    outputs.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match=r"teacher\.safetensors: is damaged: its SHA-256 has changed; delete it"):
        again()
    outputs.write_bytes(whole)
    assert again().config["figures"]["stopped"] == "finished"


def test_a_student_can_be_initialised_from_some_of_its_teachers_layers(folder, tmp_path, monkeypatch):
    notes, begun = [], {}
    init_weights = fitting.init_weights

    def remembered(model, *given):
        init_weights(model, *given)
        begun.update({name: value.clone() for name, value in model.state_dict().items()})

    monkeypatch.setattr(fitting, "init_weights", remembered)
    run = distil(
        folder,
        tmp_path / "small",
        begin_with=str(folder / "classify"),
        settings={"layers": 2, "train.steps": 1},
        report=lambda kind, values: notes.append(str(values.get("text"))),
    )
    assert any("initialised from layers 1, 3 of" in note for note in notes)
    assert run.config["model"]["layers"] == 2 and run.config["model"]["hidden"] == 16
    teacher = ensue.load(folder / "classify").model.state_dict()
    for name, value in begun.items():
        assert torch.equal(value, teacher[name.replace("blocks.1.", "blocks.2.")]), name


def test_bad_input_is_refused_in_one_line(folder, tmp_path):
    (tmp_path / "language").mkdir()
    (tmp_path / "language" / "config.json").write_text('{"format": 1, "system": "lstm", "model": {}}', encoding="utf-8")
    empty, other = tmp_path / "empty.txt", tmp_path / "other.tsv"
    empty.write_text("\n\n", encoding="utf-8")
    other.write_text("text\tlabel\ngood film\t0\nbad film\t7\n", encoding="utf-8")
    out, shape = tmp_path / "small", small()
    cases = {
        "bert cannot learn the next token from a teacher": {"teacher": tmp_path / "language"},
        "there is no such run": {"teacher": tmp_path / "nowhere"},
        "unknown system 'brt'; did you mean 'bert'": {"student": "brt"},
        "ngram cannot be trained to classify": {"student": "ngram", "settings": {}},
        "there is no text": {"unlabelled": empty},
        "name some: --unlabelled": {"unlabelled": ()},
        f"{other}:3: the label '7' is none of 0, 1": {"valid": other},
        "apart from its teacher's": {"out": folder / "classify" / "small"},
        "so a lstm cannot be initialised from it": {
            "student": "lstm",
            "begin_with": str(folder / "classify"),
            "settings": {},
        },
        "only hidden states of two encoders": {"student": "lstm", "settings": {"distil.hidden": 1}},
        "has another tokenizer than the student": {"tokenizer": "wordpiece", "settings": small(**{"distil.hidden": 1})},
        "has the labels 0, 1": {"settings": small(**{"data.labels": ("no", "yes")})},
        "temperature = 0.0 must be above 0": {"settings": small(**{"distil.temperature": 0})},
        "no labels to balance": {"settings": small(**{"train.class_weights": "balanced"})},
    }
    for said, given in cases.items():
        student = given.pop("student", "bert")
        with pytest.raises(InputError) as error:
            distil(folder, given.pop("out", out), student, **{"settings": shape, **given})
        assert said in str(error.value) and "\n" not in str(error.value)
        assert not out.exists()
    with pytest.raises(InputError, match="is for a student with a teacher; use `ensue distil`"):
        ensue.fit("classify", folder / "train.tsv", out=out, settings={"distil.temperature": 3})


def test_force_never_deletes_the_teacher(folder, tmp_path):
    shutil.copytree(folder / "classify", tmp_path / "outer" / "teacher")
    for out in (tmp_path / "outer", tmp_path / "outer" / "teacher"):
        with pytest.raises(InputError, match="apart from its teacher's"):
            distil(folder, out, teacher=tmp_path / "outer" / "teacher", settings=small(), force=True)
    assert Path(tmp_path / "outer" / "teacher" / "model.safetensors").exists()


def test_every_task_with_a_teacher_labels():
    taught = {spec.name for spec in all_tasks() if distilled.can_teach(spec)}
    assert taught == {spec.name for spec in all_tasks() if spec.labels} - {"answer"}
