"""T5 and its folders against transformers' T5, with the same random weights."""

import json

import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.sentinels import fit_sentinel_tokenizer
from ensue.exchange.huggingface.conversion import import_weights
from ensue.exchange.huggingface.t5 import config_from_theirs, read_t5, weight_map, write_t5
from ensue.models.t5 import T5
from ensue.nn.mixers.relative import bucket_of
from ensue.search.beam import Search, beam_search
from ensue.verbs.convert import convert

transformers = pytest.importorskip("transformers")
V, END = 37, 1
FORMS = {
    "v1.0": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "uneven": {"num_decoder_layers": 1, "d_kv": 16, "num_heads": 3, "relative_attention_max_distance": 20},
}
SIZES = {
    "vocab_size": V,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
LENGTHS = torch.tensor([21, 9, 1])


def theirs(form, seed=0, **more):
    torch.manual_seed(seed)
    config = transformers.T5Config(**{**SIZES, **FORMS[form], **more}, architectures=["T5ForConditionalGeneration"])
    model = transformers.T5ForConditionalGeneration(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def ours_of(model):
    """Our model with their weights."""
    own = T5(config_from_theirs({**model.config.to_dict(), "model_type": "t5"}, "config.json")).eval()
    with torch.no_grad():
        state = own.state_dict()
        for name, tensor in import_weights(weight_map(own.config), model.state_dict()).items():
            state[name].copy_(tensor)
    return own


def batch():
    torch.manual_seed(1)
    source, target = torch.randint(2, V, (3, 21)), torch.randint(2, V, (3, 13))
    return source, (torch.arange(21) < LENGTHS[:, None]).long(), target


def close(left, right, atol=2e-5):
    torch.testing.assert_close(left, right, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("both", [True, False])
def test_buckets_of_distances_equal_theirs(both):
    distances = torch.arange(-600, 600)
    own = transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket
    for buckets, farthest in ((32, 128), (8, 12), (16, 500)):
        expected = own(-distances, bidirectional=both, num_buckets=buckets, max_distance=farthest)
        assert torch.equal(bucket_of(distances, buckets, farthest, both), expected)


@pytest.mark.parametrize("form", FORMS)
def test_logits_and_attention_equal_theirs(form):
    model = theirs(form)
    own, (source, mask, target) = ours_of(model), batch()
    with torch.no_grad():
        expected = model(
            input_ids=source, attention_mask=mask, decoder_input_ids=target, output_attentions=True, return_dict=True
        )
        found = own(target, own.start(source, LENGTHS), want=("logits", "attention"))
    close(found.logits, expected.logits)
    for layer, wanted in zip(found.attention, expected.cross_attentions, strict=True):
        close(layer, wanted)


@pytest.mark.parametrize("form", FORMS)
def test_loss_and_gradients_equal_theirs(form):
    model = theirs(form)
    own, (source, mask, target) = ours_of(model), batch()
    expected = model(input_ids=source, attention_mask=mask, labels=target).loss
    expected.backward()
    tokens = torch.cat([torch.full((3, 1), own.first(END)), target[:, :-1]], dim=1)
    found = own.pair_loss(source, LENGTHS, tokens, target, torch.full((3,), 13))
    found.backward()
    close(found, expected)
    weights, mine = dict(model.named_parameters()), dict(own.named_parameters())
    names = weight_map(own.config)
    for name, gradient in import_weights(names, {name: weights[name].grad for name in names}).items():
        close(mine[name].grad, gradient, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_greedy_and_beam_generation_equal_theirs(form, beam):
    ended = set()
    for seed in range(4):
        model = theirs(form, seed)
        own, (source, mask, _) = ours_of(model), batch()
        how = {"input_ids": source, "attention_mask": mask, "do_sample": False, "max_length": 10, "pad_token_id": 0}
        end = int(model.generate(**how, eos_token_id=None)[0, 4])  # a token that is written: some rows end with it
        early = "never" if beam > 1 else False
        expected = model.generate(**how, num_beams=beam, early_stopping=early, length_penalty=1.0, eos_token_id=end)
        with torch.no_grad():
            start = own.start(source, LENGTHS)
            search = Search(beam=beam, length="mean")
            found = beam_search(own, start, own.first(end), end=end, longest=9, how=search)
        for row, wanted in zip(found, expected.tolist(), strict=True):
            made = wanted[1:]
            ended.add(row.best.ended)
            assert row.best.ended == (end in made)
            assert row.best.tokens == (made[: made.index(end)] if end in made else made)
    assert ended == {True, False}


@pytest.fixture
def folder(tmp_path):
    """A folder that their library wrote, with a tokenizer like T5's: Unigram over characters."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    names = ["<pad>", "</s>", "<unk>", "▁", *(f"▁{letter}" for letter in "abcde"), *"abcdefgh"]
    inner = Tokenizer(models.Unigram([(name, -float(at)) for at, name in enumerate(names)], unk_id=2))
    inner.normalizer = normalizers.Sequence([normalizers.NFKC()])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    extra = [f"<extra_id_{number}>" for number in (2, 1, 0)]
    special = [*names[:3], *extra]
    inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )

    def write(form):
        path = tmp_path / form
        theirs(form, eos_token_id=1, pad_token_id=0).save_pretrained(path)
        fast.save_pretrained(path)
        return path

    return write


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_comes_back_with_equal_tensors_and_the_same_text(folder, form, tmp_path):
    path = folder(form)
    run = convert(path, out=tmp_path / "run")
    back = convert(run, to="hf", out=tmp_path / "back")
    loaded = transformers.T5ForConditionalGeneration.from_pretrained(back)
    original = transformers.T5ForConditionalGeneration.from_pretrained(path)
    for (name, left), right in zip(original.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(left, right), name
    assert loaded.config.decoder_start_token_id == 0 and loaded.config.pad_token_id == 0
    tokenizers = [transformers.AutoTokenizer.from_pretrained(one) for one in (path, back)]
    text = "a bad cab, a dead bee"
    assert tokenizers[0](text).input_ids == tokenizers[1](text).input_ids
    own = read_t5(path, json.loads((path / "config.json").read_text())).tokenizer
    assert [*own.encode(text).tolist(), own.end] == tokenizers[0](text).input_ids
    assert own.decode(own.encode("a bad cab")) == "a bad cab"
    lost, unknown = own.surcharge(text)
    assert lost > 0 and unknown == 1  # the comma


def test_a_tokenizer_that_was_trained_here_is_read_by_their_library(tmp_path):
    tokenizer = fit_sentinel_tokenizer("bpe", ["the cat sat on the mat"] * 4, 380)
    config = {**SIZES, "vocab_size": tokenizer.size, "model_type": "t5"}
    write_t5(T5(config_from_theirs(config, "")), tmp_path, tokenizer)
    theirs_ = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs_("the mat").input_ids == [*tokenizer.encode("the mat").tolist(), tokenizer.end]
    assert theirs_.convert_tokens_to_ids("<extra_id_0>") == tokenizer.size - 1
    model = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path)
    assert model.config.eos_token_id == 1 and model.config.pad_token_id == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "tanh"}, "feed_forward_proj"),
        ({"architectures": ["T5EncoderModel"]}, "T5EncoderModel"),
        ({"num_layers": -1}, "num_layers"),
        ({"num_layers": 10**9}, "tensors"),
        ({"d_ff": 40}, "sizes"),
        ({"relative_attention_num_buckets": 7}, "buckets"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"vocab_size": 36}, "sizes"),
    ],
)
def test_a_folder_that_is_not_supported_is_refused_in_one_line(folder, changes, message, tmp_path):
    path = folder("v1.0")
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=message) as error:
        convert(path, out=tmp_path / "run")
    assert "\n" not in str(error.value)
