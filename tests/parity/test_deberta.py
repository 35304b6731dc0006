"""DeBERTa's folders, versions 1, 2 and 3, and its mask decoder against Hugging Face's classes with the same weights."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_bert import LABELS, LENGTHS, TASKS, TOLERANCE, T, V, check, marks, rows, tokenizer_state

from ensue.core.errors import InputError
from ensue.exchange.huggingface import build_model, read_folder, write_folder
from ensue.exchange.huggingface.conversion import export_weights, model_map
from ensue.exchange.huggingface.families import FAMILIES
from ensue.models.deberta import SIZES, DeBERTa
from ensue.models.encoder import Encoder
from ensue.models.labelled import HeadConfig, Labelled

transformers = pytest.importorskip("transformers")

SIZE = {
    "vocab_size": V,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_biased_input": False,
}
SHARED = {"share_att_key": True, "norm_rel_ebd": "layer_norm"}
FORMS = {
    "Deberta": {},
    "DebertaV2": {**SHARED, "position_buckets": 6},
}
HEADS = ["SequenceClassification", "TokenClassification", "QuestionAnswering"]
CLASSES = [
    *(f"{form}{end}" for form in FORMS for end in ("Model", "ForMaskedLM", *(f"For{head}" for head in HEADS))),
    "DebertaV2ForMultipleChoice",
]
CHANGES = [
    ("Deberta", {"max_relative_positions": 4}),
    ("Deberta", {"position_biased_input": True, "type_vocab_size": 2, "hidden_act": "gelu_new"}),
    ("Deberta", {"max_relative_positions": 40, "num_hidden_layers": 1}),
    ("DebertaV2", {"position_buckets": -1}),
    ("DebertaV2", {"position_buckets": 4, "max_relative_positions": 9, "type_vocab_size": 2}),
    ("DebertaV2", {"position_buckets": 8, "position_biased_input": True}),
]


def theirs_of(name, **changes):
    form = name.partition("For")[0].removesuffix("Model")
    settings = {**SIZE, **FORMS[form], **changes}
    if name.endswith(("SequenceClassification", "TokenClassification")):
        settings["id2label"] = dict(enumerate(LABELS))
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, f"{form}Config")(**settings)).eval()
    for weight_name, weight in model.named_parameters():  # so large that no part of the model can be left out unseen
        torch.nn.init.normal_(weight, mean=float(weight_name.endswith("LayerNorm.weight")), std=0.25)
    return model


def written(model, folder, task="masked", labels=None):
    write_folder(model, folder, tokenizer_state=tokenizer_state(), special=marks(0), labels=labels, task=task)
    return folder


def round_trip(theirs, folder):
    theirs.save_pretrained(folder / "theirs")
    made = build_model(read_folder(folder / "theirs"))
    written(made.model.eval(), folder / "ours", made.task, made.labels)
    again, report = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    return made, again.eval()


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_is_the_same_here_and_there_and_comes_back_with_equal_tensors(name, tmp_path):
    theirs = theirs_of(name)
    made, again = round_trip(theirs, tmp_path)
    check(made.model, theirs, *rows(theirs))
    assert made.system == "deberta"
    assert made.task == TASKS.get(name.partition("For")[2], "masked")
    assert made.untrained == (("masked",) if name.endswith("Model") else ())
    state = again.state_dict()
    for tensor_name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, state[tensor_name]), tensor_name


@pytest.mark.parametrize(("form", "changes"), [*((form, {}) for form in FORMS), *CHANGES])
def test_hidden_states_logits_losses_and_gradients_are_theirs(form, changes, tmp_path):
    theirs = theirs_of(f"{form}ForMaskedLM", **changes)
    made, again = round_trip(theirs, tmp_path)
    tokens, segments, real = rows(theirs)
    labels = torch.where(torch.rand(tokens.shape) < 0.3, torch.randint(5, V, tokens.shape), -100)
    labels[~real] = -100
    inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": segments}
    expected = theirs(**inputs, labels=labels, output_hidden_states=True, output_attentions=True)
    expected.loss.backward()
    ours = made.model
    found = ours.body(tokens, segments, LENGTHS, layers=True, weights=True)
    for here, there in zip(found.layers, expected.hidden_states, strict=True):
        torch.testing.assert_close(here[real], there[real], **TOLERANCE)
    for here, there in zip(found.attention, expected.attentions, strict=True):
        torch.testing.assert_close(here.transpose(1, 2)[real], there.transpose(1, 2)[real], **TOLERANCE)
    torch.testing.assert_close(ours.head(found.hidden)[real], expected.logits[real], **TOLERANCE)
    loss = ours.masked_loss(ours.body(tokens, segments, LENGTHS).hidden[labels >= 0], labels[labels >= 0])
    torch.testing.assert_close(loss, expected.loss, **TOLERANCE)
    loss.backward()
    family = FAMILIES[theirs.config.model_type].of(theirs.config.to_dict())
    names = model_map(family, theirs.config.num_hidden_layers, ("masked",), "body.", "dense")
    own = {name: one.grad for name, one in ours.named_parameters(remove_duplicate=False)}
    gradients = export_weights(names, own, heads=theirs.config.num_attention_heads)
    wanted = {name: one.grad for name, one in theirs.named_parameters()}
    assert gradients.keys() == wanted.keys()
    for name, gradient in wanted.items():
        scale = float(gradient.abs().max().clamp(min=1))
        torch.testing.assert_close(gradients[name] / scale, gradient / scale, atol=1e-5, rtol=0)
    state = again.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in theirs.state_dict().items())
    for name in (*SIZE, "max_relative_positions", "type_vocab_size"):
        assert getattr(again.config, name) == getattr(theirs.config, name), name
    assert getattr(again.config, "position_buckets", -1) == getattr(theirs.config, "position_buckets", -1)


def test_a_head_and_a_body_with_segments_are_theirs(tmp_path):
    theirs = theirs_of("DebertaForSequenceClassification", type_vocab_size=2)
    made, again = round_trip(theirs, tmp_path)
    tokens, segments, real = rows(theirs)
    inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": segments}
    expected = theirs(**inputs).logits
    torch.testing.assert_close(made.model(tokens, segments, LENGTHS).logits, expected, **TOLERANCE)
    torch.testing.assert_close(again(**inputs).logits, expected)


def test_the_mask_decoder_applies_the_last_block_to_other_queries_as_theirs_does(tmp_path):
    theirs = theirs_of("DebertaV2Model")
    theirs.save_pretrained(tmp_path)
    ours = build_model(read_folder(tmp_path)).model
    decoding = DeBERTa(DeBERTa.Config(**SMALL | {"attention": ours.config.attention, "layers": 3})).eval()
    decoding.load_state_dict(ours.state_dict(), strict=False)
    torch.nn.init.normal_(decoding.decoder.positions.weight)
    tokens, _, real = rows(theirs)
    with torch.no_grad():
        layers = theirs(tokens, real.long(), output_hidden_states=True).hidden_states
        encoder = theirs.encoder
        queries = layers[-2] + decoding.decoder.positions.weight[:T]
        for _ in range(2):
            queries, _ = encoder.layer[-1](
                layers[-2],
                encoder.get_attention_mask(real.long()),
                query_states=queries,
                relative_pos=encoder.get_rel_pos(layers[-2]),
                rel_embeddings=encoder.get_rel_embedding(),
            )
        found = decoding(tokens, None, LENGTHS, ("hidden",)).hidden
        torch.testing.assert_close(found[real], queries[real], **TOLERANCE)
        some = torch.tensor([[1, 3], [2, 0], [1, 1], [4, 2]]) % LENGTHS[:, None]
        picked = queries.gather(1, torch.cat([some[:, :1] * 0, some], 1)[..., None].expand(-1, -1, 24))
        torch.testing.assert_close(decoding.encode(tokens, None, LENGTHS, some).hidden, picked, **TOLERANCE)


def test_the_newer_masked_head_is_read_and_written_as_the_older(tmp_path):
    theirs = theirs_of("DebertaForMaskedLM", legacy=False, tie_word_embeddings=False)
    theirs.save_pretrained(tmp_path / "theirs")
    made = build_model(read_folder(tmp_path / "theirs"))
    check(made.model, theirs, *rows(theirs))
    again = transformers.DebertaForMaskedLM.from_pretrained(written(made.model, tmp_path / "ours")).eval()
    check(made.model, again, *rows(theirs))


@pytest.mark.parametrize("form", FORMS)
def test_absolute_positions_in_a_folder_are_those_of_the_mask_decoder(form, tmp_path):
    theirs = theirs_of(f"{form}ForMaskedLM")
    theirs.save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(file)
    tensors["deberta.embeddings.position_embeddings.weight"] = positions = torch.randn(20, 24)
    tensors["mask_predictions.dense.weight"] = torch.randn(24, 24)  # of the discriminator of version 3
    if form == "Deberta":
        del tensors["mask_predictions.dense.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    folder = read_folder(tmp_path / "theirs")
    assert any("absolute positions" in note for note in folder.notes)
    made = build_model(folder)
    assert made.model.config.decoder == 2 and torch.equal(made.model.decoder.positions.weight, positions)
    again, report = type(theirs).from_pretrained(written(made.model, tmp_path / "ours"), output_loading_info=True)
    assert not report["missing_keys"]
    back = build_model(read_folder(tmp_path / "ours")).model
    assert all(torch.equal(one, back.state_dict()[name]) for name, one in made.model.state_dict().items())
    state = again.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in theirs.state_dict().items())


def parameters(model):
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("size", ["base", "large", "v3-xsmall", "v3-small", "v3-base", "v3-large"])
def test_published_sizes_have_as_many_parameters_as_theirs(size):
    shape, form = SIZES[size], "DebertaV2" if size.startswith("v3") else "Deberta"
    vocabulary = 128_100 if form == "DebertaV2" else 50_265
    settings = {
        **SIZE,
        **FORMS[form],
        "vocab_size": vocabulary,
        "hidden_size": shape["hidden"],
        "intermediate_size": 4 * shape["hidden"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "max_position_embeddings": 512,
        "position_buckets": 256,
    }
    with torch.device("meta"):
        theirs = getattr(transformers, f"{form}Model")(getattr(transformers, f"{form}Config")(**settings))
        ours = Encoder(DeBERTa.Config(vocabulary=vocabulary, **shape))
    assert parameters(ours) == parameters(theirs)


def test_distances_fall_into_their_buckets():
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    for buckets, longest in ((256, 512), (6, 20), (32, 128), (7, 50), (2, 9), (64, 1000)):
        shape = SMALL | {"context": longest, "attention": f"disentangled-shared:buckets={buckets}"}
        mixer = Encoder(DeBERTa.Config(**shape)).blocks[0].attention
        distances = torch.arange(-longest - 3, longest + 4)
        bucket = make_log_bucket_position(distances, buckets, longest).long()
        assert torch.equal(mixer.row(distances), (bucket + buckets).clamp(0, 2 * buckets - 1))


@pytest.mark.parametrize(
    ("form", "changes", "says"),
    [
        ("Deberta", {"relative_attention": False}, "relative_attention = False is not supported"),
        ("Deberta", {"pos_att_type": ["c2p"]}, "pos_att_type = .* is not supported"),
        ("Deberta", {"talking_head": True}, "talking_head = True"),
        ("Deberta", {"embedding_size": 12}, "embedding_size = 12 is not supported"),
        ("Deberta", {"max_relative_positions": 7}, "sizes"),
        ("Deberta", {"max_relative_positions": "far"}, "max_relative_positions = .* should be an int"),
        ("Deberta", {"type_vocab_size": 2}, "tensors are missing: deberta.embeddings.token_type"),
        ("Deberta", {"num_attention_heads": 5}, "heads"),
        ("DebertaV2", {"conv_kernel_size": 3}, "conv_kernel_size = 3 is not supported"),
        ("DebertaV2", {"share_att_key": False}, "share_att_key = False"),
        ("DebertaV2", {"norm_rel_ebd": "none"}, "norm_rel_ebd = .*none.* is not supported"),
        ("DebertaV2", {"position_buckets": 40}, "longest = 20 must be above"),
        ("DebertaV2", {"attention_head_size": 12}, "attention_head_size = 12"),
    ],
)
def test_folders_that_are_not_supported_are_refused_in_one_line(form, changes, says, tmp_path):
    theirs_of(f"{form}ForMaskedLM").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(InputError, match=says) as error:
        build_model(read_folder(tmp_path))
    assert "\n" not in str(error.value)


SMALL = {"vocabulary": V, "layers": 2, "heads": 4, "hidden": 24, "context": 20, "inner": 40}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"norm": "pre"}, "norm=post"),
        ({"embedding": 8}, "embedding=0"),
        ({"groups": 1}, "groups=0"),
        ({"attention": "disentangled,disentangled-shared"}, "the same disentangled attention"),
        ({"decoder": 0, "attention": "full"}, "the same disentangled attention"),
        ({"positions": "sinusoidal"}, "positions=none or learned"),
        ({"decoder": 3}, "decoder=2"),
        ({"positions": "learned"}, "decoder=2 and positions=none"),
        ({"tied": False}, "tied=True"),
        ({"bias": False}, "bias=True"),
    ],
)
def test_debertas_that_they_do_not_have_are_not_written(settings, says, tmp_path):
    with pytest.raises(InputError, match=says):
        written(DeBERTa(DeBERTa.Config(**SMALL | settings)), tmp_path)


def test_choosing_needs_the_second_version(tmp_path):
    for attention, written_as in (("disentangled", None), ("disentangled-shared", "DebertaV2ForMultipleChoice")):
        body = Encoder(DeBERTa.Config(**SMALL, attention=attention))
        model = Labelled(body, HeadConfig(kind="choice", outputs=1), 2)
        if written_as is None:
            with pytest.raises(InputError, match="disentangled-shared"):
                written(model, tmp_path, "choose")
        else:
            written(model, tmp_path, "choose")
            assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [written_as]
