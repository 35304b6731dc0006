"""Folders of language models: config.json read and written, storage of weights, damage refused in one line."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import ensue
from ensue.core.errors import InputError
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.exchange.huggingface.decoder_config import export_config, export_family, import_config
from ensue.exchange.huggingface.decoder_families import FAMILIES
from ensue.exchange.huggingface.decoders import write_decoder_folder
from ensue.exchange.tensor_files import StoredTensors
from ensue.kernels.grouped import count_grouped
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.runs.load_model import read_header
from ensue.verbs.convert import convert

SIZES = {"vocabulary": 300, "hidden": 64, "heads": 4, "kv_heads": 2, "layers": 3, "inner": 96, "context": 32}
GEMMA = {"norm": "sandwich-rms", "feed": "geglu", "qk_norm": True, "embed_scale": 8.0, "epsilon": 1e-6}
GEMMA2 = {**GEMMA, "qk_norm": False}
FORMS = {
    "llama": {},
    "llama with biases": {"bias": True, "tied": False, "rope_scaling": "linear:factor=4.5"},
    "llama 3": {"rope_base": 5e5, "rope_scaling": "llama3:factor=8:original=16:low=1:high=4", "head_width": 32},
    "mistral": {"attention": "local:span=7"},
    "qwen2": {"qkv_bias": True, "tied": False},
    "qwen2 with a window": {"qkv_bias": True, "attention": "full,local:span=5*2"},
    "qwen3": {"qk_norm": True},
    "qwen3 with yarn": {"qk_norm": True, "rope_scaling": "yarn:factor=4:original=16:slow=1:fast=32:attention=1.2"},
    "gemma2": {**GEMMA2, "attention": "local:span=5,full", "attention_cap": 50.0, "logit_cap": 30.0},
    "gemma2 without caps": {**GEMMA2, "attention": "local:span=5,full"},
    "gemma3": {**GEMMA, "attention": "local:span=5:base=1000*2,full", "rope_base": 1e6},
    "gemma3 with a cap": {**GEMMA, "attention": "local:span=5:base=1000*2,full", "logit_cap": 12.5},
}


@pytest.fixture(scope="module")
def model():
    """A tiny llama."""
    torch.manual_seed(0)
    return LlamaLanguageModel(LlamaConfig(**SIZES)).eval()


@pytest.fixture
def folder(model, tmp_path):
    """The same with a tokenizer, as a folder of several files."""
    text = ("the rain fell and the students opened their books\n" * 40, True, True)
    tokenizer = fit_tokenizer_to_parts("bpe", [text], vocabulary=290)
    write_decoder_folder(model, tmp_path / "hub", tokenizer, begin="<|end|>", end="<|end|>", shard=30_000)
    return tmp_path / "hub"


def change(folder, name="config.json", **values):
    """Change values of a JSON file; None removes one."""
    old = json.loads((folder / name).read_text())
    new = {key: value for key, value in (old | values).items() if value is not None}
    (folder / name).write_text(json.dumps(new))


def refused(folder, *words):
    """The folder is refused in one line with these words, and no run is made."""
    out = folder.parent / "made"
    with pytest.raises(InputError) as error:
        convert(folder, out=out)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value) and not out.exists()
    assert not list(folder.parent.glob(".made*"))


@pytest.mark.parametrize("form", FORMS)
def test_settings_survive_export_and_import(form):
    config = LlamaConfig(**SIZES, **FORMS[form])
    written = export_config(config)
    assert written["model_type"].startswith(form.split()[0])
    again = import_config(written, "config.json")
    assert again == config and export_config(again) == written


def test_newer_folders_hold_rotary_positions_in_a_table():
    old = export_config(LlamaConfig(**SIZES, **FORMS["gemma3"]))
    new = {name: value for name, value in old.items() if name not in ("rope_theta", "rope_local_base_freq")}
    full, local = {"rope_type": "default", "rope_theta": 1e6}, {"rope_type": "default", "rope_theta": 1000.0}
    new["rope_parameters"] = {"full_attention": full, "sliding_attention": local}
    assert import_config(new, "config.json") == import_config(old, "config.json")


@pytest.mark.parametrize(
    "settings",
    [
        {"feed": "gelu"},
        {"norm": "post-rms"},
        {"positions": "none"},
        {"experts": 2},
        {"attention": "mean"},
        {"attention": "full,local:span=3"},
        {"attention": "full:base=100"},
        {"embed_scale": 2.0},
        {**GEMMA, "embed_scale": 3.0},
        {"attention_cap": 50.0},
        {"logit_cap": 30.0},
        {**GEMMA, "attention_cap": 50.0},
        {**GEMMA2, "attention": "full:base=100"},
    ],
)
def test_a_model_that_their_library_does_not_have_is_refused(settings):
    with pytest.raises(InputError, match="not supported by Hugging Face"):
        export_family(LlamaConfig(**SIZES, **settings))


@pytest.mark.parametrize(
    "values",
    [
        {"hidden_act": "gelu"},
        {"rope_scaling": {"rope_type": "yarn"}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 0.5}},
        {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}},
        {"rope_scaling": {"rope_type": "llama3", "factor": 4.0}},
        {"rope_scaling": 4},
        {"attention_bias": True},
        {"quantization_config": {"bits": 4}},
        {"auto_map": {"AutoModel": "code.py"}},
        {"num_attention_heads": 0},
        {"num_hidden_layers": "two"},
        {"num_hidden_layers": 10**9},
        {"num_key_value_heads": 3},
        {"vocab_size": 10**12},
        {"rms_norm_eps": True},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"architectures": {"LlamaModel": 1}},
        {"architectures": 5},
        {"model_type": "gemma3"},
        {"tie_word_embeddings": 3},
    ],
)
def test_what_is_not_supported_is_named(folder, values):
    change(folder, **values)
    refused(folder, "config.json")


def test_an_attention_cap_of_gemma_3_is_named():
    config = export_config(LlamaConfig(**SIZES, **FORMS["gemma3"]))
    with pytest.raises(InputError, match="attn_logit_softcapping"):
        import_config(config | {"attn_logit_softcapping": 30.0}, "config.json")
    for wrong in (-1.0, "30", True):
        with pytest.raises(InputError, match="final_logit_softcapping"):
            import_config(config | {"final_logit_softcapping": wrong}, "config.json")


def test_a_gemma_2_folder_that_does_not_say_has_the_caps_and_layers_of_its_library():
    config = export_config(LlamaConfig(**SIZES, **FORMS["gemma2 without caps"]))
    left = ("attn_logit_softcapping", "final_logit_softcapping", "layer_types")
    found = import_config({name: value for name, value in config.items() if name not in left}, "config.json")
    assert (found.attention_cap, found.logit_cap, found.attention) == (50.0, 30.0, "local:span=5,full")


def test_a_missing_file_or_tensor_and_wrong_tensors_are_named(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name, up = "model.layers.1.mlp.up_proj.weight", folder / index["weight_map"]["model.layers.1.mlp.up_proj.weight"]
    tensors, whole = load_file(up), up.read_bytes()
    for changed, words in (
        (tensors[name][:-1].contiguous(), ("sizes", name)),
        (tensors[name].to(torch.int32), ("I32", name)),
        (tensors[name] / 0, ("NaN or infinite", name)),
    ):
        save_file(tensors | {name: changed}, up)
        refused(folder, *words)
    save_file({one: tensor for one, tensor in tensors.items() if one != name}, up)
    refused(folder, "index.json", name)
    save_file(tensors | {"model.layers.1.mlp.extra": tensors[name].clone()}, up)
    refused(folder, "model.layers.1.mlp.extra")
    up.write_bytes(whole[: len(whole) // 2])
    refused(folder, up.name, "damaged")
    up.unlink()
    refused(folder, up.name, "missing")
    change(folder, "model.safetensors.index.json", weight_map={name: "../secret.safetensors"})
    refused(folder, "does not name the files of this folder")


def test_a_pickle_and_a_folder_without_a_tokenizer_are_refused(folder):
    (folder / "tokenizer.json").rename(folder / "tokenizer.old")
    refused(folder, "tokenizer.json", "AutoTokenizer")
    for file in folder.glob("model*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")
    refused(folder, "is a pickle")


def test_damaged_tokenizer_files_are_named(folder):
    whole = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(whole | {"model": {"type": "BPE", "vocab": {"a": "b"}}}))
    refused(folder, "tokenizer.json")
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    change(folder, "tokenizer_config.json", chat_template="{% for %}")
    refused(folder, "chat template")
    change(folder, "tokenizer_config.json", chat_template=7)
    refused(folder, "chat_template")
    change(folder, "tokenizer_config.json", chat_template=None, eos_token=[1])
    refused(folder, "eos_token")
    change(folder, "tokenizer_config.json", eos_token="<|end|>")
    change(folder, vocab_size=299)
    refused(folder, "sizes")


@pytest.mark.parametrize(
    ("storage", "types", "most"),
    [
        ("as-is", {torch.float32}, 0.0),
        ("bf16", {torch.bfloat16, torch.float32}, 0.05),
        ("int8", {torch.int8, torch.float16, torch.float32}, 0.05),
        ("int4", {torch.uint8, torch.int8, torch.float16, torch.float32}, 0.5),
    ],
)
def test_weights_are_stored_as_asked_and_the_model_stays_near(model, folder, storage, types, most, tmp_path):
    made = ensue.load(convert(folder, out=tmp_path / storage, weights=storage))
    assert {tensor.dtype for tensor in read_header(made.folder.weights).values()} == types
    assert made.config["figures"]["parameters"] == sum(p.numel() for p in model.parameters())
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        wanted, found = model(tokens).logits, made.model(tokens).logits
    assert (found - wanted).norm() <= most * wanted.norm()
    assert bool(count_grouped(made.model)) == storage.startswith("int")


def test_a_run_in_groups_is_written_decoded(folder, tmp_path):
    made = ensue.load(convert(folder, out=tmp_path / "short", weights="int4"))
    for weights, most in (("", 1e-5), ("bf16", 0.02)):
        back = tmp_path / f"back{weights}"
        convert(tmp_path / "short", to="hf", out=back, weights=weights)
        again = ensue.load(convert(back, out=tmp_path / f"again{weights}"))
        tokens = torch.arange(20)[None]
        with torch.no_grad():
            wanted = made.model(tokens).logits
            assert (again.model(tokens).logits - wanted).norm() <= most * wanted.norm()
    stored = StoredTensors(tmp_path / "backbf16")
    assert {one.dtype for one in stored.tensors.values()} == {"BF16"}


def test_nothing_of_an_earlier_model_stays_in_a_folder(model, folder):
    tokenizer = fit_tokenizer_to_parts("bpe", [("the rain\n", True, True)], vocabulary=290)
    names = {"begin": "<|end|>", "end": "<|end|>"}
    write_decoder_folder(model, folder, tokenizer, **names, template="{{ messages }}")  # one file, where several were
    assert (folder / "chat_template.jinja").exists() and not (folder / "model.safetensors.index.json").exists()
    write_decoder_folder(model, folder, tokenizer, **names, shard=30_000)
    assert not (folder / "chat_template.jinja").exists() and not (folder / "model.safetensors").exists()
    assert (folder / "model.safetensors.index.json").exists()


def test_wrong_uses_of_weights_are_refused(folder, tmp_path):
    run = convert(folder, out=tmp_path / "run")
    with pytest.raises(InputError, match="float32"):
        convert(folder, out=tmp_path / "a", weights="float3")
    with pytest.raises(InputError, match="bf16"):
        convert(run, to="hf", out=tmp_path / "b", weights="int4")
    with pytest.raises(InputError, match="--to hf"):
        convert(run, to="gguf", out=tmp_path / "c.gguf", weights="bf16")
    (tmp_path / "words.txt").write_text("a 1 2\nb 3 4\n", encoding="utf-8")
    with pytest.raises(InputError, match=", ".join(FAMILIES)):
        convert(tmp_path / "words.txt", out=tmp_path / "d", weights="int8")
