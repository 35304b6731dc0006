"""Transformer-XL as people type it: fit, resume, score with another memory, views, folders, and what goes wrong."""

import pytest
from typed import ensue, sentences

SMALL = ("--set", "hidden=16", "--set", "heads=2", "--set", "layers=2", "--set", "segment=8", "--set", "memory=12")
THEIRS = ("--set", "norm=post", "--set", "begin=zeros")
"""What Hugging Face's library has."""
SHORT = ("--set", "train.steps=6", "--set", "train.batch=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xl")
    (folder / "text.txt").write_text(sentences(80), encoding="utf-8")
    (folder / "held.txt").write_text(sentences(20), encoding="utf-8")
    for system, out, more in (
        (
            "transformer-xl",
            "xl",
            (*SMALL, *THEIRS, "--tokenizer", "word", "--set", "adaptive=4", "--set", "adaptive_factor=2"),
        ),
        ("lstm", "lstm", ("--set", "hidden=8", "--tokenizer", "word")),
    ):
        answer = ensue("fit", system, folder / "text.txt", *more, *SHORT, "--out", folder / out, "--json")
        assert answer.code == 0, answer.err
    return folder


def test_a_training_row_is_a_segment_and_the_memory_is_carried_on(folder):
    settings = (folder / "xl" / "run.toml").read_text(encoding="utf-8")
    assert 'cut = "streams"' in settings and "length = 8\n" in settings


def test_a_killed_training_ends_with_the_same_weights(folder):
    found = ensue("check", folder / "xl", "--resume", "--json").json["findings"]
    assert all(one["kept"] for one in found) and any("resume" in one["name"] for one in found)


def test_score_generate_and_next_take_another_memory(folder):
    run, held = folder / "xl", folder / "held.txt"
    bits = [
        ensue("score", run, held, *more, "--json").json["bits_per_byte"]
        for more in ((), ("--memory", "12"), ("--memory", "40"), ("--memory", "0"))
    ]
    assert bits[0] == bits[1] and len(set(bits)) == 3
    assert ensue("generate", run, "--max-tokens", "3", "--memory", "4").code == 0
    assert ensue("next", run, "the", "--memory", "4").code == 0
    for words, message in (
        (("score", run, held, "--memory", "-1"), "memory = -1 must be 0 or more"),
        (("score", folder / "lstm", held, "--memory", "3"), "lstm has no memory of segments"),
    ):
        answer = ensue(*words)
        assert answer.code != 0 and message in answer.err and "Traceback" not in answer.err


def test_context_prints_a_table_and_draws_both_runs(folder):
    runs = (folder / "xl", folder / "lstm")
    words = ("look", "context", *runs, "--text-file", folder / "held.txt", "--length", "12", "--samples", "20")
    said = ensue(*words)
    assert said.code == 0 and "effective context" in said.out and "xl" in said.out, said.err
    drawn = ensue(*words, "--out", folder / "reach.svg")
    assert "wrote" in drawn.out and "effective context" in drawn.out
    assert (folder / "reach.svg").read_text(encoding="utf-8").startswith("<svg")
    curves = ensue(*words, "--memory", "3", "--json").json["runs"]
    assert [curve["run"] for curve in curves] == ["xl", "lstm"]
    assert curves[0]["reaches"] == [1, 2, 4, 8, 12] and len(curves[0]["bits_per_byte"]) == 5


def test_attention_of_several_segments_is_seen(folder):
    text = "the students opened their books and the rain fell on the students"
    answer = ensue("look", "attention", folder / "xl", "--text", text, "--json")
    assert answer.code == 0 and answer.json["of"] == {"layers": 2, "heads": 2}


def test_a_run_becomes_a_folder_and_a_run_again_with_the_same_score(folder):
    assert ensue("convert", folder / "xl", "--to", "hf", "--out", folder / "hub").code == 0
    answer = ensue("convert", folder / "hub", "--out", folder / "back")
    assert answer.code == 0, answer.err
    score = [ensue("score", folder / name, folder / "held.txt", "--json").json["nll"] for name in ("xl", "back")]
    assert score[0] == pytest.approx(score[1], abs=1e-6)
    written = folder / "default"
    assert ensue("fit", "transformer-xl", folder / "text.txt", *SMALL, *SHORT, "--out", written).code == 0
    refused = ensue("convert", written, "--to", "hf", "--out", folder / "none")
    assert refused.code != 0 and "norm = pre is not supported" in refused.err


def test_formats_that_have_no_adaptive_softmax_are_refused_in_one_line(folder):
    small = ("--set", "hidden=16", "--set", "heads=2", "--set", "layers=1", "--set", "adaptive=4")
    fitted = ensue("fit", "gpt", folder / "text.txt", *small, "--tokenizer", "word", *SHORT, "--out", folder / "gpt")
    assert fitted.code == 0, fitted.err
    for more, message in (
        (("--to", "onnx"), "cannot be exported to ONNX"),
        (("--to", "hf"), "adaptive=(4,)"),
        (("--weights", "int8"), "--weights is for models without adaptive="),
    ):
        answer = ensue("convert", folder / "gpt", *more, "--out", folder / "other")
        assert answer.code != 0 and message in answer.err and not (folder / "other").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("segment=0",), "segment = 0 must be at least 1"),
        (("segment=-3",), "segment = -3 must be at least 1"),
        (("memory=-1",), "memory = -1 must be 0 or more"),
        (("attention=full", "memory=5"), "attention = 'full' must be xl in some layer"),
        (("rope_base=500",), "no position is rotated here"),
        (("adaptive=5,3",), "must be increasing"),
        (("adaptive=5000",), "cuts a vocabulary of"),
        (("window=far",), "window = 'far' must be one of segment, fixed"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings, message, folder):
    given = [word for one in settings for word in ("--set", one)]
    answer = ensue("fit", "transformer-xl", folder / "text.txt", *given, *SHORT, "--out", folder / "none")
    assert answer.code != 0 and message in answer.err and "Traceback" not in answer.err
    assert not (folder / "none" / "model.safetensors").exists()
