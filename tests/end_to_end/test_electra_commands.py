"""ELECTRA as people type it: fit, resume, fill, predict, score, the labelling tasks, folders, and what goes wrong."""

import random

import pytest
from safetensors.torch import load_file
from typed import WORDS, ensue, sentences

SMALL = ("--set", "hidden=16", "--set", "heads=2", "--set", "layers=1", "--set", "context=24", "--set", "embedding=8")
TOKENS = ("--set", "tokenizer.vocabulary=120", "--set", "tokenizer.min_count=1")
SHORT = ("--set", "train.steps=6", "--set", "train.batch=4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("electra")
    chance = random.Random(2)
    (folder / "text.txt").write_text(sentences(80), encoding="utf-8")
    (folder / "held.txt").write_text(sentences(20), encoding="utf-8")
    lines = [" ".join(chance.choices(WORDS, k=5)) for _ in range(40)]
    labels = "".join(f"{line}\t{'yes' if n % 2 else 'no'}\n" for n, line in enumerate(lines))
    (folder / "classify.tsv").write_text(labels, encoding="utf-8")
    pairs = "".join(f"{line}\t{line}\t{'yes' if n % 2 else 'no'}\n" for n, line in enumerate(lines))
    (folder / "pair.tsv").write_text(pairs, encoding="utf-8")
    numbers = "".join(f"{line}\t{n % 3}\n" for n, line in enumerate(lines))
    (folder / "regress.tsv").write_text(numbers, encoding="utf-8")
    tags = "\n\n".join("\n".join(f"{word}\t{'B-X' if word < 'p' else 'O'}" for word in line.split()) for line in lines)
    (folder / "tag.tsv").write_text(tags + "\n", encoding="utf-8")
    words = (*SMALL, *TOKENS, *SHORT, "--set", "train.mask_unit=spans", "--out", folder / "electra", "--json")
    answer = ensue("fit", "electra", folder / "text.txt", *words)
    assert answer.code == 0, answer.err
    return folder


def test_a_killed_training_ends_with_the_same_weights(folder):
    found = ensue("check", folder / "electra", "--resume", "--json").json["findings"]
    assert all(one["kept"] for one in found) and any("resume" in one["name"] for one in found)


def test_the_last_weights_are_kept_and_settings_written(folder):
    text = (folder / "electra" / "run.toml").read_text(encoding="utf-8")
    assert 'keep = "last"' in text and 'mask_unit = "spans"' in text and "mask_as_mask = 1.0" in text


def test_score_says_how_both_do(folder):
    answer = ensue("score", folder / "electra", folder / "held.txt")
    assert "bits per masked token" in answer.out and "replaced tokens: accuracy" in answer.out
    figures = ensue("score", folder / "electra", folder / "held.txt", "--json").json
    assert 0 <= figures["replaced_f1"] <= 1 and figures["replaced_share"] < 0.3


def test_the_generator_fills_and_the_discriminator_judges(folder):
    assert ensue("fill", folder / "electra", "the students [MASK] their books").code == 0
    said = ensue("predict", folder / "electra", "--text", "the students opened their books").out.split()
    assert said[::2][0] == "the" and all(0 <= float(one) <= 1 for one in said[1::2])


@pytest.mark.parametrize("task", ["classify", "pair", "regress", "tag"])
def test_tasks_begin_with_the_discriminator(folder, task):
    out = folder / f"of-{task}"
    words = ("--from", folder / "electra", "--set", "train.steps=2", "--set", "train.lr=1e-9", "--out", out, "--json")
    answer = ensue("fit", task, folder / f"{task}.tsv", *words)
    assert answer.code == 0, answer.err
    before, after = (load_file(path / "model.safetensors") for path in (folder / "electra", out))
    name = "body.blocks.0.attention.project.weight"
    assert before[name].sub(after[name]).abs().max() < 1e-6
    assert not [name for name in after if name.startswith(("generator.", "replaced."))]
    assert ensue("predict", out, "--text", "the students\ttheir books").code == 0


def test_folders_go_out_and_come_back(folder):
    assert ensue("convert", folder / "electra", "--to", "hf", "--out", folder / "hf").code == 0
    assert (folder / "hf" / "generator" / "model.safetensors").exists()
    assert ensue("convert", folder / "hf", "--out", folder / "again").code == 0
    one, other = (ensue("score", folder / name, folder / "held.txt", "--json").json for name in ("electra", "again"))
    for figure in ("masked_loss", "replaced_loss"):
        assert one[figure] == pytest.approx(other[figure], rel=0.2)  # what is masked differs: tokens, not spans
    alone = ensue("convert", folder / "hf" / "generator", "--out", folder / "alone", "--json")
    assert alone.code == 0 and ensue("fill", folder / "alone", "the [MASK] books").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "generator=2"), "generator = 2.0 must be above 0 and at most 1"),
        (("--set", "next_sentence=true"), "next_sentence = True must be false"),
        (("--set", "train.mask_unit=letters"), "mask_unit = 'letters' must be one of tokens, words, spans"),
        (("--set", "positions=functional", "--set", "attention=mean"), "functional|mean"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(folder, words, message):
    answer = ensue("fit", "electra", folder / "text.txt", *words, "--out", folder / "bad")
    assert answer.code != 0 and answer.err.count("\n") == 1
    assert any(part in answer.err for part in message.split("|"))
