"""Files for onnxruntime answer what the model answers, for any number of rows and any length."""

import importlib.util

import pytest
import torch

from ensue.core.errors import InputError
from ensue.exchange.onnx import write_onnx
from ensue.kernels.grouped import GroupedLinear, group_weights
from ensue.models.albert import ALBERT
from ensue.models.bert import BERT, RoBERTa
from ensue.models.encoder import Encoder
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import KINDS, HeadConfig, Labelled, pool
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.models.recurrent import LSTMLanguageModel

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
SMALL = {"vocabulary": 31, "layers": 2, "heads": 4, "hidden": 16, "context": 40}
SHAPES = [(1, 1), (2, 5), (4, 40), (6, 17)]


def large(model):
    """Weights so large that no place of the text can be left out unseen; training mode, which must not matter."""
    for part in model.modules():
        for name, weight in part.named_parameters(recurse=False):
            norm = isinstance(part, torch.nn.LayerNorm) and name == "weight"
            torch.nn.init.normal_(weight, mean=1.0 if norm else 0.0, std=0.25)
    return model.train()


@torch.no_grad()
def check(model, path, expected, segments=2, choices=1, **form):
    """The file's answer at real places is ``expected(tokens, segments, lengths)`` for every shape."""
    write_onnx(model, path, **form)
    assert model.training  # it is left as it was
    model.eval()
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for rows, time in SHAPES:
        tokens = torch.randint(31, (rows * choices, time))
        lengths = torch.randint(1, time + 1, (rows * choices,))
        kinds = torch.randint(segments, tokens.shape)
        real = torch.arange(time) < lengths[:, None]
        inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": kinds}
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        found, wanted = torch.from_numpy(found), expected(tokens, kinds, lengths)
        if wanted.dim() == 3:
            found, wanted = found[real], wanted[real]
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        assert wanted.std() > 0.05 or wanted.numel() == 1


def test_a_masked_model(tmp_path):
    model = large(BERT(BERT.Config(**SMALL)))
    check(model, tmp_path / "m.onnx", lambda x, s, n: model(x, None, n, ("logits",), s).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_head(kind, tmp_path):
    outputs = {"choice": 1, "span": 2}.get(kind, 3)
    model = large(Labelled(Encoder(BERT.Config(**SMALL)), HeadConfig(kind=kind, outputs=outputs), choices=2))
    choices = 2 if kind == "choice" else 1
    check(model, tmp_path / "m.onnx", lambda x, s, n: model(x, s, n).logits, choices=choices)


def test_layers_that_share_a_block_and_narrow_embeddings(tmp_path):
    model = large(ALBERT(ALBERT.Config(**SMALL, embedding=6)))
    check(model, tmp_path / "m.onnx", lambda x, s, n: model(x, None, n, ("logits",), s).logits)


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_every_pooling_and_an_encoder_without_segments(pooling, tmp_path):
    body = Encoder(RoBERTa.Config(**SMALL, segments=0))
    model = large(Labelled(body, HeadConfig(outputs=3, pooling=pooling)))
    check(model, tmp_path / "m.onnx", lambda x, s, n: model(x, None, n).logits, segments=1)


@pytest.mark.parametrize("kind", ["whole", "token"])
@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_a_labelling_language_model(kind, positions, tmp_path):
    body = GPTLanguageModel(GPTConfig(**SMALL, positions=positions))
    model = large(Labelled(body, HeadConfig(kind=kind, outputs=3)))
    check(model, tmp_path / "m.onnx", lambda x, s, n: model(x, None, n).logits)


LLAMAS = {
    "llama": {"kv_heads": 2, "tied": False},
    "scaled": {"rope_scaling": "llama3:factor=8:original=8192:low=1:high=4", "qkv_bias": True, "head_width": 8},
    "qwen3": {"qk_norm": True},
    "gemma": {"norm": "sandwich-rms", "feed": "geglu", "embed_scale": 4.0, "attention_cap": 3.0, "logit_cap": 2.0},
}


@pytest.mark.parametrize("name", LLAMAS)
def test_a_llama_gives_its_logits(name, tmp_path):
    model = large(LlamaLanguageModel(LlamaConfig(**SMALL, **LLAMAS[name])))
    check(model, tmp_path / "m.onnx", lambda x, s, n: model(x, want=("logits",)).logits)


def test_a_gpt_gives_its_logits_and_a_labelling_llama_its_labels(tmp_path):
    gpt = large(GPTLanguageModel(GPTConfig(**SMALL)))
    check(gpt, tmp_path / "g.onnx", lambda x, s, n: gpt(x, want=("logits",)).logits)
    llama = large(Labelled(LlamaLanguageModel(LlamaConfig(**SMALL, kv_heads=2)), HeadConfig(kind="token", outputs=3)))
    check(llama, tmp_path / "l.onnx", lambda x, s, n: llama(x, None, n).logits)


@pytest.mark.parametrize("attention", ["linear", "performer"])
def test_bidirectional_attention_without_blocks(attention, tmp_path):
    model = large(BERT(BERT.Config(**SMALL, attention=attention)))
    check(model, tmp_path / "m.onnx", lambda x, s, n: model(x, None, n, ("logits",), s).logits)


@pytest.mark.parametrize("attention", ["local:span=5,full", "full+local:span=4", "sparse", "mamba", "linear"])
def test_attention_in_blocks_of_the_length_is_refused_before_anything_is_written(attention, tmp_path):
    model = LlamaLanguageModel(LlamaConfig(**SMALL, attention=attention))
    with pytest.raises(InputError, match=r"attention = .* cannot be exported to ONNX"):
        write_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_weights_in_groups_are_refused_before_anything_is_written(tmp_path):
    model = LlamaLanguageModel(LlamaConfig(**{**SMALL, "hidden": 32}))
    codes, scales = torch.zeros(31, 1, 32, dtype=torch.int8), torch.ones(31, 1)
    model.head = GroupedLinear(*group_weights(codes, scales, None), 31)
    with pytest.raises(InputError, match="weights of 4 or 8 bits"):
        write_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_an_operation_that_onnx_lacks_is_named_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: False)
    with pytest.raises(InputError, match=r"rms_norm.* opset version 17") as error:
        write_onnx(LlamaLanguageModel(LlamaConfig(**SMALL)), tmp_path / "m.onnx")
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_vectors_of_texts(tmp_path):
    model = large(BERT(BERT.Config(**SMALL)))

    def vectors(tokens, segments, lengths):
        mean = pool(model.body(tokens, segments, lengths).hidden, lengths, "mean")
        return mean / mean.norm(dim=1, keepdim=True)

    check(model, tmp_path / "m.onnx", vectors, form="vectors")


def test_one_line_says_what_is_wrong(tmp_path, monkeypatch):
    lstm = Labelled(LSTMLanguageModel(LSTMLanguageModel.Config(vocabulary=9)), HeadConfig(outputs=2))
    with pytest.raises(InputError, match="LSTMLanguageModel cannot be exported to ONNX"):
        write_onnx(lstm, tmp_path / "m.onnx")
    bert = BERT(BERT.Config(**SMALL))
    with pytest.raises(InputError, match="opset 9 is too old"):
        write_onnx(bert, tmp_path / "m.onnx", 9)
    with pytest.raises(InputError, match="unknown form 'words'"):
        write_onnx(bert, tmp_path / "m.onnx", form="words")
    with pytest.raises(InputError, match="vectors"):
        write_onnx(bert.body, tmp_path / "m.onnx")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'ensue\[onnx\]'"):
        write_onnx(bert, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
