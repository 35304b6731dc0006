"""ELECTRA against transformers' with the same weights: both encoders, both losses and their gradients, and folders."""

import json

import pytest
import torch
from test_bert import BERT_SIZES, ELECTRA_SIZES, TOLERANCE, V, enlarge, marks, rows, tokenizer_state

from ensue.core.errors import InputError
from ensue.exchange.huggingface import build_model, read_folder, write_folder
from ensue.exchange.huggingface.conversion import export_weights, model_map
from ensue.exchange.huggingface.families import electra_family
from ensue.models.electra import ELECTRA, SIZES, ELECTRAConfig

transformers = pytest.importorskip("transformers")
LENGTHS = torch.tensor([17, 5, 11, 1])
SMALL = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 20}
"""A generator of half the width."""


def theirs_of(name, **changes):
    config = transformers.ElectraConfig(**{**ELECTRA_SIZES, **changes})
    model = getattr(transformers, name)(config).eval()
    enlarge(model)
    return model


def pair(folder, **changes):
    """A discriminator and its generator, which share their embeddings, in a folder and one inside it."""
    large, small = (
        theirs_of("ElectraForPreTraining", **changes),
        theirs_of("ElectraForMaskedLM", **{**SMALL, **changes}),
    )
    small.electra.embeddings.load_state_dict(large.electra.embeddings.state_dict())
    large.save_pretrained(folder)
    small.save_pretrained(folder / "generator")
    return large, small


def write(made, folder):
    pad = marks(0)
    return write_folder(made.model, folder, tokenizer_state=tokenizer_state(), special=pad, labels=None, task="masked")


def same_tensors(folder, theirs):
    again, report = type(theirs).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    state = again.state_dict()
    assert state.keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    for name in ("hidden_size", "embedding_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        assert getattr(again.config, name) == getattr(theirs.config, name)


CHANGES = [{}, {"embedding_size": 24}, {"embedding_size": 12, "type_vocab_size": 1}, {"num_hidden_layers": 2}]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_pair_of_folders_is_one_model_and_becomes_the_same_pair_again(changes, tmp_path):
    large, small = pair(tmp_path / "theirs", **changes)
    made = build_model(read_folder(tmp_path / "theirs"))
    assert made.system == "electra" and made.task == "masked" and made.untrained == ()
    write(made, tmp_path / "ours")
    same_tensors(tmp_path / "ours", large)
    same_tensors(tmp_path / "ours" / "generator", small)
    tokens, segments, real = rows(large)
    inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": segments}
    with torch.no_grad():
        filled = made.model.eval()(tokens, None, LENGTHS, ("logits",), segments).logits
        torch.testing.assert_close(filled[real], small(**inputs).logits[real], **TOLERANCE)
        found = made.model.replaced_logits(tokens, segments, LENGTHS)
        torch.testing.assert_close(found[real], large(**inputs).logits[real], **TOLERANCE)


@pytest.mark.parametrize("changes", CHANGES)
def test_both_losses_and_their_gradients_are_theirs(changes, tmp_path):
    large, small = pair(tmp_path, **changes)
    ours = build_model(read_folder(tmp_path)).model.train()
    for module in ours.modules():
        if hasattr(module, "p"):
            module.p = 0.0
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    tokens, segments, real = rows(large)
    inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": segments}
    labels = torch.where(torch.rand(tokens.shape) < 0.3, torch.randint(5, V, tokens.shape), -100)
    labels[~real] = -100
    replaced = torch.rand(tokens.shape) < 0.3
    expected = small(**inputs, labels=labels).loss + 50 * large(**inputs, labels=replaced.float()).loss
    expected.backward()
    masked = labels >= 0
    hidden = ours.generator(tokens, segments, LENGTHS).hidden
    fill = ours.masked_loss(hidden[masked], labels[masked])
    loss = fill + ours.config.detection * ours.replaced_loss(tokens, segments, LENGTHS, replaced)
    torch.testing.assert_close(loss, expected, **TOLERANCE)
    loss.backward()
    own = dict(ours.named_parameters(remove_duplicate=False))
    for theirs, prefix, heads in ((large, "body.", ("replaced",)), (small, "generator.", ("masked",))):
        family = electra_family(theirs.config.embedding_size, theirs.config.hidden_size)
        names = model_map(family, theirs.config.num_hidden_layers, heads, prefix)
        gradients = export_weights(names, {ours_: own[ours_].grad for ours_, _ in names.values()})
        for name, weight in theirs.named_parameters():
            wanted = weight.grad
            if ".embeddings." in name:  # the embeddings of both are one tensor
                other = small if theirs is large else large
                wanted = wanted + other.get_parameter(name).grad
            scale = float(wanted.abs().max().clamp(min=1))
            torch.testing.assert_close(gradients[name] / scale, wanted / scale, atol=1e-5, rtol=0)


def test_a_generator_alone_is_a_bert_and_is_written_as_a_generator(tmp_path):
    theirs = theirs_of("ElectraForMaskedLM")
    theirs.save_pretrained(tmp_path / "theirs")
    made = build_model(read_folder(tmp_path / "theirs"))
    assert made.system == "bert" and made.untrained == ()
    write(made, tmp_path / "ours")
    same_tensors(tmp_path / "ours", theirs)


def test_a_discriminator_alone_gets_a_new_generator_and_a_note(tmp_path):
    theirs = theirs_of("ElectraForPreTraining")
    theirs.save_pretrained(tmp_path / "theirs")
    folder = read_folder(tmp_path / "theirs")
    assert any("no generator: a new, untrained one" in note for note in folder.notes)
    made = build_model(folder)
    assert made.system == "electra" and made.untrained == ("masked",)
    write(made, tmp_path / "ours")
    same_tensors(tmp_path / "ours", theirs)


@pytest.mark.parametrize("size", ["paper-small", "base", "large"])
def test_published_sizes_have_as_many_parameters_as_theirs(size):
    shape = SIZES[size]
    with torch.device("meta"):
        config = transformers.ElectraConfig(
            hidden_size=shape["hidden"],
            embedding_size=shape.get("embedding", shape["hidden"]),
            intermediate_size=4 * shape["hidden"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
        )
        theirs = transformers.ElectraModel(config)
        ours = ELECTRA(ELECTRAConfig(vocabulary=30_522, **shape)).body
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())


def _change(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("inside", "changes", "says"),
    [
        (False, {"summary_use_proj": False}, "summary_use_proj = False is not supported"),
        (False, {"embedding_size": 24}, "does not have|sizes"),
        (True, {"hidden_act": "relu"}, "hidden_act = 'relu' is not supported"),
        (True, {"layer_norm_eps": 1e-5}, "epsilon = 1e-05, and 1e-12 beside this discriminator"),
        (True, {"model_type": "bert"}, "BertFor|ElectraForMaskedLM"),
    ],
)
def test_pairs_that_do_not_fit_are_refused_in_one_line(inside, changes, says, tmp_path):
    pair(tmp_path)
    _change(tmp_path / "generator" if inside else tmp_path, **changes)
    with pytest.raises(InputError, match=says) as error:
        build_model(read_folder(tmp_path))
    assert "\n" not in str(error.value)


def test_a_pair_with_embeddings_of_two_kinds_is_refused_in_one_line(tmp_path):
    pair(tmp_path)
    theirs_of("ElectraForMaskedLM", **SMALL).save_pretrained(tmp_path / "generator")
    with pytest.raises(InputError, match=r"its embeddings .* are not those of the discriminator") as error:
        build_model(read_folder(tmp_path))
    assert "\n" not in str(error.value)


def test_an_electra_that_theirs_cannot_hold_is_refused(tmp_path):
    assert BERT_SIZES["hidden_size"] == 24
    shape = {"vocabulary": V, "layers": 2, "heads": 2, "hidden": 16, "context": 20}
    for changes, says in (({"activation": "relu"}, "activation=gelu-erf"), ({"groups": 1}, "groups")):
        model = ELECTRA(ELECTRAConfig(**shape, **changes))
        with pytest.raises(InputError, match=says):
            write_folder(
                model, tmp_path, tokenizer_state=tokenizer_state(), special=marks(0), labels=None, task="masked"
            )
