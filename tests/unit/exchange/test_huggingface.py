"""Folders as Hugging Face's library writes them: what is read, what is refused, what is written."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from ensue.core.errors import InputError
from ensue.exchange.huggingface import build_model, read_folder, write_folder
from ensue.models.bert import BERT, RoBERTa
from ensue.models.encoder import Encoder
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.recurrent import LSTMLanguageModel

SMALL = {"vocabulary": 9, "layers": 2, "heads": 2, "hidden": 8, "context": 6}
MARKS = SimpleNamespace(start=2, end=3, mask=4, pad=0)
STATE = {
    "added_tokens": [
        {"id": n, "content": f"[{name}]", "special": True}
        for n, name in enumerate(["PAD", "UNK", "CLS", "SEP", "MASK"])
    ],
    "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None, "handle_chinese_chars": True},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6, "##a": 7, "##b": 8},
    },
}


def write(model, folder, task="masked", labels=None, marks=MARKS, state=STATE):
    return write_folder(model, folder, tokenizer_state=state, special=marks, labels=labels, task=task)


def bert(**settings):
    return BERT(BERT.Config(**SMALL, **settings)).eval()


def labelled(body=None, **head):
    body = body or Encoder(BERT.Config(**SMALL))
    return Labelled(body, HeadConfig(**{"outputs": 3, **head})).eval()


@pytest.fixture
def folder(tmp_path):
    return write(bert(), tmp_path / "bert")


def change(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def retensor(folder, function):
    save_file(function(load_file(folder / "model.safetensors")), folder / "model.safetensors")


def refused(folder, *words):
    with pytest.raises(InputError) as error:
        build_model(read_folder(folder))
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def test_a_written_model_is_read_back_bit_for_bit(folder):
    first = bert()
    write(first, folder)
    made = build_model(read_folder(folder))
    assert (made.system, made.task, made.labels) == ("bert", "masked", None)
    assert made.model.config == replace(first.config, inner=32)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, made.model.state_dict()[name]), name


@pytest.mark.parametrize(
    "config",
    [
        RoBERTa.Config(**SMALL, activation="gelu-erf"),
        RoBERTa.Config(**SMALL, pooled=True),
        BERT.Config(**SMALL, segments=0, pooled=False, next_sentence=False),
        BERT.Config(**SMALL, next_sentence=False, inner=12, dropout=0.2),
    ],
)
def test_settings_survive_export_and_import(config, tmp_path):
    cls = RoBERTa if isinstance(config, RoBERTa.Config) else BERT
    made = build_model(read_folder(write(cls(config), tmp_path)))
    assert made.model.config == replace(config, inner=config.inner or 32)


def test_a_folder_in_several_files_is_one_model(folder):
    whole = build_model(read_folder(folder)).model
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    files = {name: f"model-{1 + place % 2:05d}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: weights[name] for name in names if files[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    sharded = build_model(read_folder(folder)).model
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, sharded.state_dict()[name])
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, "model-00002-of-00002.safetensors", "is missing")
    index.write_text(json.dumps({"weight_map": {names[0]: "../model.safetensors"}}))
    refused(folder, "model.safetensors.index.json")
    for nonsense in (names, {names[0]: ["model-00001-of-00002.safetensors"]}, {}):
        index.write_text(json.dumps({"weight_map": nonsense}))
        refused(folder, "model.safetensors.index.json")
    index.write_text(json.dumps({"weight_map": {**dict.fromkeys(names, "model-00001-of-00002.safetensors")}}))
    refused(folder, "its files do not hold")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_a_pickle_is_refused_and_never_opened(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"cos\nabort\n(tR.")  # opening this one would end the process
    refused(folder, name, "can run any code", "safe_serialization=True")


def test_non_finite_weights_are_errors_that_name_them(folder):
    spoilt = "bert.encoder.layer.1.output.dense.weight"
    retensor(folder, lambda w: {**w, spoilt: w[spoilt].clone().index_fill_(0, torch.tensor([2]), float("nan"))})
    refused(folder, "NaN or infinite", spoilt)


def test_missing_input_is_an_error_that_names_it(folder):
    retensor(folder, lambda w: {name: t for name, t in w.items() if ".layer.1." not in name})
    refused(folder, "bert.encoder.layer.1.attention.output.LayerNorm.bias", "16 in all")
    (folder / "model.safetensors").unlink()
    refused(folder, "there is no model.safetensors")


def test_unexpected_tensors_are_errors_and_buffers_are_ignored(folder):
    retensor(folder, lambda w: {**w, "bert.embeddings.position_ids": torch.arange(6)[None]})
    read_folder(folder)
    retensor(folder, lambda w: {**w, "bert.encoder.layer.2.output.dense.weight": torch.ones(2)})
    refused(folder, "does not have", "bert.encoder.layer.2.output.dense.weight")


def test_the_head_of_another_task_is_a_note(folder):
    retensor(folder, lambda w: {**w, "classifier.weight": torch.ones(2, 8), "classifier.bias": torch.ones(2)})
    found = read_folder(folder)
    assert any("another task: classifier.bias, classifier.weight" in note for note in found.notes)


def test_old_names_and_names_without_prefix_are_read(folder):
    expected = build_model(read_folder(folder)).model

    def older(weights):
        renamed = {}
        for name, tensor in weights.items():
            if "LayerNorm" in name:
                name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
            renamed[name.removeprefix("bert.")] = tensor
        return renamed

    retensor(folder, older)
    found = build_model(read_folder(folder)).model
    for name, tensor in expected.state_dict().items():
        assert torch.equal(tensor, found.state_dict()[name]), name


def test_an_encoder_without_head_gets_a_new_masked_head_and_a_note(folder):
    keep = ("bert.embeddings.", "bert.encoder.")
    retensor(folder, lambda w: {name.removeprefix("bert."): t for name, t in w.items() if name.startswith(keep)})
    change(folder, architectures=["BertModel"])
    found = read_folder(folder)
    model = build_model(found).model
    assert any("no masked head" in note for note in found.notes)
    assert model.body.pooler is None and model.next is None
    assert model(torch.zeros(1, 4, dtype=torch.long)).logits.shape == (1, 4, 9)


def test_half_precision_becomes_float32_with_a_note(folder):
    retensor(folder, lambda w: {name: t.half() for name, t in w.items()})
    found = read_folder(folder)
    assert any("float16" in note for note in found.notes)
    assert build_model(found).model.body.embed.weight.dtype == torch.float32


def test_an_untied_output_layer_is_rejected_only_if_it_differs(folder):
    change(folder, tie_word_embeddings=False)
    embed = "bert.embeddings.word_embeddings.weight"
    retensor(folder, lambda w: {**w, "cls.predictions.decoder.weight": w[embed].clone()})
    read_folder(folder)
    retensor(folder, lambda w: {**w, "cls.predictions.decoder.weight": w[embed] + 1})
    refused(folder, "cls.predictions.decoder.weight", "tie_word_embeddings")


def test_sizes_that_do_not_match_are_named(folder):
    change(folder, vocab_size=10)
    refused(folder, "bert.embeddings.word_embeddings.weight", "(9, 8)", "config.json")


@pytest.mark.parametrize(
    "settings",
    [
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"add_cross_attention": True},
        {"hidden_act": "silu"},
        {"quantization_config": {"bits": 4}},
        {"hidden_size": "many"},
        {"num_hidden_layers": True},
        {"architectures": "BertForPreTraining"},
        {"architectures": 3},
    ],
)
def test_unsupported_settings_are_errors_that_name_them(folder, settings):
    change(folder, **settings)
    ((name, value),) = settings.items()
    refused(folder, f"{name} = {value!r}")


@pytest.mark.parametrize(
    "settings",
    [
        {"scale_attn_by_inverse_layer_idx": True},
        {"n_inner": 9},
        {"activation_function": "relu"},
        {"layer_norm_epsilon": 1e-3},
    ],
)
def test_unsupported_settings_of_gpt_are_errors_that_name_them(settings, tmp_path):
    write(GPTLanguageModel(GPTConfig(**SMALL, positions="learned")), tmp_path, "language")
    assert build_model(read_folder(tmp_path)).system == "gpt"
    change(tmp_path, **settings)
    ((name, value),) = settings.items()
    refused(tmp_path, f"{name} = {value!r}")


def test_unknown_models_and_classes_name_the_known_ones(folder, tmp_path):
    change(folder, model_type="mamba")
    refused(folder, "'mamba'", "bert, distilbert, roberta, albert, electra, deberta, deberta-v2, gpt2")
    change(folder, model_type=["bert"])
    refused(folder, "model_type", "bert, distilbert, roberta, albert, electra, deberta, deberta-v2, gpt2")
    change(folder, model_type="bert", architectures=["BertLMHeadModel"])
    refused(folder, "BertLMHeadModel", "BertForMaskedLM")
    (folder / "config.json").write_text("{")
    refused(folder, "not JSON")
    (folder / "config.json").unlink()
    refused(folder, "config.json: is missing")
    refused(tmp_path / "nowhere", "no such folder")


def test_damaged_weights_are_an_error_for_people(folder):
    (folder / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00nonsense")
    refused(folder, "model.safetensors", "is damaged")


def test_an_impossible_head_is_an_error_that_names_it(tmp_path):
    write(labelled(), tmp_path, "classify", ("a", "b", "c"))
    assert build_model(read_folder(tmp_path)).labels == ("a", "b", "c")
    change(tmp_path, id2label={"0": "a", "1": "b", "2": "a"})
    refused(tmp_path, "id2label has the label 'a' twice")
    change(tmp_path, id2label={}, classifier_dropout="much")
    refused(tmp_path, "classifier_dropout = 'much'")
    change(tmp_path, classifier_dropout=None)
    retensor(tmp_path, lambda weights: {**weights, "classifier.weight": torch.zeros(())})
    refused(tmp_path, "classifier.weight is not a matrix")


def test_labels_and_tasks_follow_the_folder(tmp_path):
    write(labelled(), tmp_path, "classify", ["x", "y", "z"])
    made = build_model(read_folder(tmp_path))
    assert (made.task, made.labels, made.model.config.dropout) == ("classify", ("x", "y", "z"), 0.1)
    change(tmp_path, id2label={"0": "x"})
    refused(tmp_path, "1 labels", "3 outputs")
    change(tmp_path, id2label={"1": "x"})
    refused(tmp_path, "id2label")
    change(tmp_path, id2label=None, problem_type="regression")
    refused(tmp_path, "3 outputs cannot regress")
    change(tmp_path, problem_type="multi_label_classification")
    refused(tmp_path, "multi_label_classification")
    write(labelled(outputs=1), tmp_path, "regress")
    assert build_model(read_folder(tmp_path)).task == "regress"
    model = labelled(kind="choice", outputs=1)
    model.choices = 4
    write(model, tmp_path, "choose")
    made = build_model(read_folder(tmp_path))
    assert (made.task, made.model.choices) == ("choose", 4)


def test_unsupported_models_are_errors_that_name_supported_ones(tmp_path):
    lstm = LSTMLanguageModel(LSTMLanguageModel.Config(vocabulary=9))
    gpt = GPTLanguageModel(GPTConfig(**SMALL))
    learned = GPTLanguageModel(GPTConfig(**SMALL, positions="learned"))
    cases = [
        (labelled(pooling="mean"), "pooling=first"),
        (labelled(pooling="max"), "pooling=first"),
        (labelled(dense="none"), "dense=tanh"),
        (labelled(lstm), "bert, roberta, albert, electra, deberta and gpt"),
        (lstm, "bert, roberta, albert, electra, deberta and gpt"),
        (gpt, "positions=learned"),
        (labelled(gpt), "positions=learned"),
        (labelled(learned, pooling="mean"), "pooling=last"),
        (labelled(learned, kind="choice"), "bert and roberta"),
        (RoBERTa(RoBERTa.Config(**SMALL, activation="relu")), "activation=gelu-erf"),
    ]
    for model, hint in cases:
        with pytest.raises(InputError, match=re.escape(hint)) as error:
            write(model, tmp_path / "out", "classify", ["x", "y", "z"])
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="kind byte is not supported"):
        write(bert(), tmp_path / "out", state={"kind": "byte"})
    with pytest.raises(InputError, match="2 labels were given for a head of 3"):
        write(labelled(), tmp_path / "out", "classify", ["x", "y"])
    with pytest.raises(InputError, match="has special tokens"):
        write(bert(), tmp_path / "out", marks=None)
    assert not (tmp_path / "out").exists()


def test_the_tokenizer_files_name_its_special_tokens(folder):
    assert (folder / "vocab.txt").read_text().split() == list(STATE["model"]["vocab"])
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "BertTokenizer"
    assert settings["do_lower_case"] is True and settings["model_max_length"] == 6
    marks = json.loads((folder / "special_tokens_map.json").read_text())
    assert marks == {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "mask", "cls", "sep", "unk")}
    assert json.loads((folder / "tokenizer.json").read_text()) == STATE
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"] and config["pad_token_id"] == 0


def test_a_token_that_occurs_in_texts_is_never_exported_as_special(tmp_path):
    state = {**STATE, "added_tokens": STATE["added_tokens"][1:]}
    write(bert(), tmp_path, state=state)
    assert "pad_token" not in json.loads((tmp_path / "special_tokens_map.json").read_text())
