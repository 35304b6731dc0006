"""Transformer-XL against transformers' TransfoXL with the same weights: logits, losses, gradients, mems, folders."""

import json
import warnings
from dataclasses import replace

import pytest
import torch
from hub_decoders import TEXT
from safetensors.torch import load_file

from ensue.core.errors import InputError
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.data.tokenizers.word import word_tokenizer
from ensue.exchange.huggingface.conversion import import_weights
from ensue.exchange.huggingface.transfo_xl import config_from_theirs, read_transfo_xl, weight_map, write_transfo_xl
from ensue.models.transformer_xl import TransformerXL, TransformerXLConfig
from ensue.runs.load import load
from ensue.verbs.convert import convert

deprecated = pytest.importorskip("transformers.models.deprecated.transfo_xl.modeling_transfo_xl")
configuration = pytest.importorskip("transformers.models.deprecated.transfo_xl.configuration_transfo_xl")
V, D, L = 29, 8, 3
SIZES = {"vocab_size": V, "d_model": D, "d_embed": D, "n_head": 2, "d_head": 4, "d_inner": 12, "n_layer": L}
PLAIN = {"cutoffs": [], "div_val": 1, "same_length": False, "clamp_len": -1, "dropout": 0.0}
FORMS = {
    "plain": {"mem_len": 6},
    "same-length": {"mem_len": 6, "same_length": True},
    "adaptive": {"mem_len": 4, "cutoffs": [5, 12], "div_val": 2},
    "untied": {
        "mem_len": 4,
        "cutoffs": [5, 12],
        "div_val": 2,
        "tie_word_embeddings": False,
        "proj_share_all_but_first": False,
    },
    "clamped": {"mem_len": 7, "same_length": True, "clamp_len": 3, "d_head": 6},
    "without-memory": {"mem_len": 0},
}


@pytest.fixture(autouse=True)
def type_as_takes_a_type(monkeypatch):
    """transformers 4.57 calls ``type_as(dtype=…)``, which torch does not have, so its model cannot run as it is."""

    def type_as(tensor, other=None, *, dtype=None):
        return tensor.to(dtype or other.dtype)

    monkeypatch.setattr(torch.Tensor, "type_as", type_as)


def theirs(form):
    torch.manual_seed(0)
    config = configuration.TransfoXLConfig(**SIZES | PLAIN | FORMS[form])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = deprecated.TransfoXLLMHeadModel(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model


def ours_of(model, **values):
    """Our model with their weights."""
    config = config_from_theirs({**model.config.to_dict(), **values}, "config.json")
    own = TransformerXL(config).eval()
    names = weight_map(config)
    with torch.no_grad():
        state = own.state_dict()
        for name, tensor in import_weights(names, model.state_dict()).items():
            state[name].copy_(tensor)
    return own


def close(left, right, atol=1e-5):
    torch.testing.assert_close(left, right, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_logits_and_mems_of_one_segment_after_another_equal_theirs(form):
    model = theirs(form)
    own = ours_of(model, tgt_len=5)
    tokens, mems, state = torch.randint(V, (2, 20)), None, None
    with torch.no_grad():
        for piece in tokens.split(5, dim=1):
            expected = model(piece, mems=mems)
            found = own(piece, state)
            close(found.logits.log_softmax(-1), expected.prediction_scores)
            mems, state = expected.mems, found.state
            if mems is not None:
                for memory, block in zip(mems, state.blocks, strict=True):
                    size = block.inputs.shape[1]  # with window=fixed ours keeps only what is seen again
                    close(block.inputs, memory.transpose(0, 1)[:, memory.shape[0] - size :])
        close(own(tokens).logits[:, -5:].log_softmax(-1), expected.prediction_scores)


@pytest.mark.parametrize("form", ["plain", "same-length", "adaptive", "untied"])
def test_losses_and_gradients_with_a_memory_equal_theirs(form):
    model = theirs(form)
    own = ours_of(model, tgt_len=8)
    first, second = torch.randint(V, (2, 2, 8))
    with torch.no_grad():
        mems, state = model(first).mems, own(first).state
    expected = model(second, mems=mems, labels=second).loss
    expected.backward()
    found, _ = own.loss(second[:, :-1], second[:, 1:], state)
    found.backward()
    close(found, expected)
    names = weight_map(own.config)
    weights = dict(model.named_parameters())
    gradients = {
        name: torch.zeros_like(weights[name]) if weights[name].grad is None else weights[name].grad for name in names
    }
    mine = dict(own.named_parameters())
    for name, gradient in import_weights(names, gradients).items():
        close(mine[name].grad, gradient, atol=1e-4)


def test_without_a_memory_of_zeros_it_equals_theirs_with_mems_of_length_0():
    model = theirs("adaptive")
    own = TransformerXL(replace(ours_of(model).config, begin="empty"))
    own.load_state_dict(ours_of(model).state_dict())
    tokens = torch.randint(V, (2, 9))
    with torch.no_grad():
        empty = [torch.zeros(0, 2, D) for _ in range(L)]
        close(own.eval()(tokens).logits, model(tokens, mems=empty).prediction_scores)


def test_attention_weights_equal_theirs():
    model = theirs("plain")
    own = ours_of(model, tgt_len=9)
    tokens = torch.randint(V, (2, 9))
    with torch.no_grad():
        expected = model(tokens, output_attentions=True).attentions
        found = own(tokens, want=("attention",)).attention
    for left, right in zip(found, expected, strict=True):
        close(left, right)


def folder(form, path, words=True):
    model = theirs(form)
    model.save_pretrained(path)
    if words:
        names = ["<unk>", "<eos>", *(f"w{n}" for n in range(V - 2))]
        (path / "vocab.txt").write_text("".join(f"{name}\n" for name in names))
    return model


@pytest.mark.parametrize("form", ["plain", "adaptive", "untied"])
def test_a_folder_of_theirs_becomes_a_run_and_a_folder_again_with_equal_tensors(form, tmp_path):
    model = folder(form, tmp_path / "theirs")
    run = load(convert(tmp_path / "theirs", out=tmp_path / "run"))
    tokens = torch.from_numpy(run.tokenizer.encode("w3 w9 w20\nw1"))[None].long()
    with torch.no_grad():
        close(run.model(tokens).logits.log_softmax(-1), model(tokens).prediction_scores)
    back = convert(tmp_path / "run", to="hf", out=tmp_path / "back")
    before, after = (load_file(where / "model.safetensors") for where in (tmp_path / "theirs", back))
    own_names = {name for name in before if not name.endswith("inv_freq")}
    assert own_names == set(after)
    assert all(torch.equal(before[name], after[name]) for name in own_names)
    assert (back / "vocab.txt").read_text() == (tmp_path / "theirs" / "vocab.txt").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = deprecated.TransfoXLLMHeadModel.from_pretrained(back).eval()
    with torch.no_grad():
        close(again(tokens).prediction_scores, model(tokens).prediction_scores)


def test_a_run_of_subwords_becomes_a_folder_and_a_run_again(tmp_path):
    tokenizer = fit_tokenizer_to_parts("bpe", [(text, True, True) for text in TEXT], vocabulary=280)
    torch.manual_seed(0)
    config = TransformerXLConfig(vocabulary=tokenizer.size, layers=1, heads=2, hidden=8, memory=3)
    model = TransformerXL(config).eval()
    write_transfo_xl(model, tmp_path, tokenizer)
    again = read_transfo_xl(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert again.tokenizer.encode(TEXT[0]).tolist() == tokenizer.encode(TEXT[0]).tolist()
    assert again.model.config.begin == "zeros" and again.model.config.segment == config.segment
    state = model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.model.state_dict().items())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pre_lnorm": True}, "pre_lnorm = True is not supported"),
        ({"attn_type": 1}, "attn_type = 1 is not supported"),
        ({"div_val": 2}, "div_val = 2 with no cutoffs is not supported"),
        ({"cutoffs": "many"}, "cutoffs = 'many' should be a list"),
        ({"d_embed": 4}, "d_embed = 4 is not d_model = 8"),
        ({"mem_len": -1}, "mem_len = -1 should be a whole number"),
        ({"n_head": 0}, "heads = 0 must be at least 1"),
        ({"n_layer": 200}, "n_layer = 200, and there are"),
        ({"d_inner": 13}, "the sizes are not those that config.json gives"),
        ({"n_layer": 2}, "tensors that its class does not have"),
    ],
)
def test_what_is_not_supported_is_refused_in_one_line(values, message, tmp_path):
    folder("plain", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | values
    with pytest.raises(InputError, match=message):
        read_transfo_xl(tmp_path, config)


def test_a_folder_without_words_is_refused(tmp_path):
    folder("plain", tmp_path, words=False)
    with pytest.raises(InputError, match=r"there is no tokenizer\.json"):
        read_transfo_xl(tmp_path, json.loads((tmp_path / "config.json").read_text()))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"norm": "pre"}, "norm = pre is not supported by Hugging Face's library"),
        ({"attention": "xl,local:span=3"}, "attention = xl,local:span=3 is not supported"),
        ({"kv_heads": 1}, "kv_heads = 1 is not supported"),
        ({"embed_scale": 1.0}, "embed_scale = 1.0 is not supported"),
        ({"adaptive": (2,), "adaptive_factor": 1}, "adaptive_factor = 1 is not supported"),
    ],
)
def test_what_they_do_not_have_is_refused_in_one_line(values, message, tmp_path):
    names = ["</s>", "<unk>", "a", "b"]
    model = TransformerXL(TransformerXLConfig(vocabulary=4, layers=1, heads=2, hidden=8, **values))
    with pytest.raises(InputError, match=message):
        write_transfo_xl(model, tmp_path, word_tokenizer(names))
