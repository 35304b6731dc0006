"""Adapters beside weights of 4 bits, as people type them: train, resume, use, merge, write for other tools."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from typed import ensue, sentences

import ensue as library
from ensue.core.errors import InputError
from ensue.exchange.gguf.file import read_gguf
from ensue.kernels.grouped import count_grouped
from ensue.nn.adapters import adapters

QUICK = ("--set", "train.batch=2", "--set", "train.length=16", "--set", "data.eval_tokens=64")
LORA = ("--set", "train.lora=4", *QUICK)


@pytest.fixture(scope="module")
def base(chat_file, tmp_path_factory):
    """The run of a tiny chat model with weights of 4 bits."""
    folder = tmp_path_factory.mktemp("base")
    assert ensue("convert", chat_file, "--out", folder / "float").code == 0
    answer = ensue("convert", folder / "float", "--weights", "int4", "--out", folder / "base")
    assert answer.code == 0, answer.err
    return folder / "base"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "my.txt"
    path.write_text("the clock started while students fell\n" * 60 + sentences(20), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def mine(base, text, tmp_path_factory):
    """A run of adapters, asked for as a gpt: a llama is one."""
    out = tmp_path_factory.mktemp("mine") / "mine"
    words = ("--from", base, *LORA, "--set", "train.steps=30", "--set", "train.lr=0.02", "--out", out)
    answer = ensue("fit", "gpt", text, *words, "--json")
    assert answer.code == 0, answer.err
    return out


def test_a_run_of_adapters_is_complete_and_has_learnt(base, mine, text):
    run, before = library.load(mine), library.load(base)
    assert run.system == "llama" and count_grouped(run.model) == count_grouped(before.model)
    assert len(dict(adapters(run.model))) == 5
    assert run.score(text).bits_per_byte < before.score(text).bits_per_byte - 0.05
    assert run.model.config.context == before.model.config.context
    own = load_file(mine / "model.safetensors")
    assert all(name.endswith((".down", ".up", ".scale")) for name in own)
    weights = load_file(mine / "base" / "model.safetensors")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in load_file(base / "model.safetensors").items())
    for file in (mine / "checkpoints").rglob("model.safetensors"):
        assert load_file(file).keys() == own.keys()
    figures = run.config["figures"]
    assert figures["parameters"] == before.config["figures"]["parameters"] + sum(
        tensor.numel() for name, tensor in own.items() if not name.endswith(".scale")
    )


def test_a_run_of_adapters_works_without_the_run_it_came_from(mine, text, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(mine, moved)
    for words in (
        ("score", moved, text),
        ("generate", moved, "--prompt", "the clock", "--max-tokens", "5"),
        ("chat", moved, "--message", "the clock"),
        ("next", moved, "the clock"),
        ("check", moved, "--files"),
        ("check", moved),
        ("cost", moved),
    ):
        answer = ensue(*words, "--json")
        assert answer.code == 0, (words, answer.err)


def test_a_resumed_run_of_adapters_is_the_same_to_the_bit(base, text, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(base, source)
    words = ("--from", source, *LORA, "--set", "train.checkpoint_every=2")
    assert ensue("fit", "llama", text, *words, "--set", "train.steps=4", "--out", tmp_path / "a").code == 0
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in ("config.json", "model.safetensors", "manifest.json"):
        (tmp_path / "b" / name).unlink()
    for step in (tmp_path / "b" / "checkpoints").iterdir():
        if step.name not in ("step-00000000", "step-00000002"):
            shutil.rmtree(step)
    shutil.rmtree(source)
    answer = ensue("fit", tmp_path / "b", "--resume")
    assert answer.code == 0, answer.err
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert json.loads((tmp_path / "b" / "config.json").read_text())["chat"]["stop"]


def test_adapters_are_trained_further_beside_the_same_base(mine, text, tmp_path):
    words = ("--set", "train.steps=2", *QUICK, "--out", tmp_path / "next")
    answer = ensue("fit", "llama", text, "--from", mine, "--set", "train.lora=8", *words)
    assert answer.code == 2 and "adapters of rank 4" in answer.err
    assert ensue("fit", "llama", text, "--from", mine, "--set", "train.lora=4", *words).code == 0
    assert (tmp_path / "next/base/model.safetensors").read_bytes() == (mine / "base/model.safetensors").read_bytes()
    assert not (tmp_path / "next/base/base").exists()


@pytest.mark.parametrize(("weights", "near"), [("float32", 1e-5), ("int8", 0.02), ("int4", 0.5)])
def test_merged_adapters_are_weights(mine, text, tmp_path, weights, near):
    answer = ensue("convert", mine, "--weights", weights, "--out", tmp_path / "merged", "--json")
    assert answer.code == 0, answer.err
    run, merged = library.load(mine), library.load(tmp_path / "merged")
    assert not dict(adapters(merged.model)) and bool(count_grouped(merged.model)) == (weights != "float32")
    assert abs(merged.score(text).bits_per_byte - run.score(text).bits_per_byte) < near
    assert ensue("chat", tmp_path / "merged", "--message", "the clock", "--json").code == 0
    if weights == "float32":
        answer = ensue("fit", "llama", text, "--from", tmp_path / "merged", "--set", "train.steps=1", *QUICK)
        assert answer.code == 0, answer.err


def test_a_gguf_file_of_a_run_of_adapters_has_them_merged(mine, tmp_path):
    assert ensue("convert", mine, "--to", "gguf", "--out", tmp_path / "x.gguf").code == 0
    found = read_gguf(tmp_path / "x.gguf").tensor("blk.0.ffn_up.weight")
    wanted = library.load(mine).model.blocks[0].feed.up.weight.detach()
    torch.testing.assert_close(torch.from_numpy(found), wanted)


def test_a_folder_for_transformers_has_them_merged(mine, tmp_path):
    assert ensue("convert", mine, "--to", "hf", "--out", tmp_path / "hf").code == 0
    found = load_file(tmp_path / "hf/model.safetensors")["model.layers.0.mlp.up_proj.weight"]
    torch.testing.assert_close(found, library.load(mine).model.blocks[0].feed.up.weight.detach())


def test_what_cannot_be_adapted_is_refused_in_one_line(base, text, tmp_path):
    out = ("--out", tmp_path / "x")
    for words, says in {
        ("fit", "llama", text, "--from", base, *QUICK, *out): "--set train.lora=8",
        ("fit", "llama", text, *LORA, *out): "name its run: --from",
        ("fit", "llama", text, "--from", base, *LORA, "--set", "train.layer_decay=0.5", *out): "leave out train.layer",
        ("fit", "lstm", text, "--from", base, *LORA, *out): "is a run of llama, not of lstm",
        ("fit", "llama", text, "--from", base, *LORA, "--set", "hidden=64", *out): "leave the model's settings",
        ("convert", base, "--weights", "int3", *out): "int4, int8, float32",
    }.items():
        answer = ensue(*words)
        assert answer.code == 2 and says in answer.err and "Traceback" not in answer.err, (words, answer.err)
    assert not (tmp_path / "x").exists()


def test_damaged_adapters_and_a_damaged_base_are_refused(mine, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(mine, moved)
    file = moved / "base" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    answer = ensue("score", moved, "--text", "the clock")
    assert answer.code == 2 and "base" in answer.err and "SHA-256" in answer.err
    assert ensue("check", moved, "--files").code == 1
    (moved / "config.json").unlink()
    answer = ensue("fit", moved, "--resume")
    assert answer.code == 2 and "base" in answer.err, answer.err
    shutil.copy(mine / "config.json", moved / "config.json")
    shutil.copy(moved / "base" / "tokenizer.json", moved / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors"):
        library.load(moved, verify=False).model  # noqa: B018


def test_float_weights_take_adapters_too(chat_file, text, tmp_path):
    assert ensue("convert", chat_file, "--out", tmp_path / "float").code == 0
    words = ("--from", tmp_path / "float", *LORA, "--set", "train.steps=2", "--out", tmp_path / "mine")
    answer = ensue("fit", "llama", text, *words)
    assert answer.code == 0, answer.err
    run = library.load(tmp_path / "mine")
    assert not dict(adapters(run.model)) and run.folder.base is None
    assert ensue("chat", tmp_path / "mine", "--message", "the clock", "--json").code == 0


def test_older_commands_work_on_weights_of_4_bits(base, text, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("the clock\nstudents fell\n", encoding="utf-8")
    for words in (
        ("next", base, "the clock", "--json"),
        ("embed", base, lines, "--json"),
        ("cost", base, "--json"),
        ("look", "attention", base, "--text", "the clock", "--out", tmp_path / "attention.json"),
        ("look", "surprise", base, "--text", "the clock", "--out", tmp_path / "surprise.json"),
        ("look", "next", base, "--text", "the clock", "--out", tmp_path / "next.json"),
        ("look", "gradients", base, "--text", "the clock started", "--out", tmp_path / "gradients.json"),
    ):
        answer = ensue(*words)
        assert answer.code == 0, (words, answer.err)
    assert '"median"' in (tmp_path / "gradients.json").read_text()


def test_a_language_model_races_from_its_weights_with_its_own_tokenizer(base, text, tmp_path):
    words = ("--systems", "ngram,llama", "--from", base, "--budget", "1s", "--set", "llama.train.length=16")
    answer = ensue("race", text, *words, "--out", tmp_path / "race", "--json")
    assert answer.code == 0, answer.err
    found = {one["system"]: one for one in answer.json["systems"]}
    assert found["llama"]["start"] == "pre-trained" and found["llama"]["bits_per_byte"] > 0
    run = library.load(tmp_path / "race/llama-pretrained")
    assert run.tokenizer.size == library.load(base).tokenizer.size and run.folder.base is not None
    assert library.load(tmp_path / "race/ngram").tokenizer.size != run.tokenizer.size


def test_a_small_model_learns_from_a_language_model(base, mine, text, tmp_path):
    small = ("--set", "hidden=16", "--set", "layers=1", "--set", "heads=2", "--set", "context=16", *QUICK)
    out = tmp_path / "student"
    words = ("--set", "train.steps=4", "--set", "train.checkpoint_every=2", "--out", out)
    answer = ensue("distil", mine, "gpt", "--unlabelled", text, *small, *words, "--json")
    assert answer.code == 0, answer.err
    run = library.load(out)
    assert run.tokenizer.size == library.load(mine).tokenizer.size and run.system == "gpt"
    assert run.settings["distil.weight"] == 0.5 and run.score(text).bits_per_byte > 0
    for words, says in {
        ("distil", mine, "ngram", "--unlabelled", text): "ngram cannot learn",
        ("distil", mine, "gpt"): "--unlabelled",
        ("distil", mine, "gpt", "--unlabelled", text, "--tokenizer", "char", "--out", tmp_path / "x"): "tokenizer",
        ("fit", "gpt", text, "--set", "distil.weight=0.1", "--out", tmp_path / "x"): "ensue distil",
    }.items():
        answer = ensue(*words)
        assert answer.code == 2 and says in answer.err, (words, answer.err)
