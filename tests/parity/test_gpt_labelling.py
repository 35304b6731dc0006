"""GPT-2 that labels, asked by text: the same answers here and in transformers, whichever way the folder went."""

import json

import pytest
import torch
import transformers

import ensue
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, save_tokenizer

TEXTS = ["the film was fine and long", "dull", "a lovely lovely film, really"]
LINES = ["the film was fine and long and lovely", "a dull film, really", "lovely lovely acting", "long and dull"]


def their_answers(folder, texts=TEXTS):
    """The probabilities of a folder's model, each text by itself."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in texts]
    return torch.stack(logits).softmax(-1)


def our_answers(run, texts=TEXTS):
    return torch.tensor([list(answer["probabilities"].values()) for answer in ensue.load(run).predict(texts)])


@pytest.fixture(scope="module")
def their_folder(tmp_path_factory):
    """A GPT-2 that labels, with a tokenizer that puts no marks around texts."""
    folder = tmp_path_factory.mktemp("theirs")
    tokenizer = fit_tokenizer_to_parts("bpe", ((line, True, True) for line in LINES * 3), vocabulary=300)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, n_positions=64, vocab_size=tokenizer.size, num_labels=3, pad_token_id=1
    )
    model = transformers.GPT2ForSequenceClassification(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    inputs = ["input_ids", "attention_mask"]  # GPT-2's own tokenizer tells no segments
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


def test_a_folder_of_theirs_answers_alike(their_folder, tmp_path):
    run = ensue.convert(their_folder, out=tmp_path / "run")
    torch.testing.assert_close(our_answers(run), their_answers(their_folder), atol=1e-5, rtol=1e-5)
    back = ensue.convert(run, to="hf", out=tmp_path / "back")
    torch.testing.assert_close(their_answers(back), their_answers(their_folder), atol=1e-5, rtol=1e-5)


def test_a_model_of_ours_answers_alike(tmp_path):
    table = "".join(f"{line}\t{'good' if 'lovely' in line else 'bad'}\n" for line in LINES * 5)
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + table, encoding="utf-8")
    run = ensue.fit(
        "classify",
        tmp_path / "train.tsv",
        model="gpt",
        out=tmp_path / "run",
        settings={
            "layers": 1,
            "heads": 2,
            "hidden": 16,
            "context": 64,
            "positions": "learned",
            "train.steps": 3,
            "tokenizer.kind": "bpe",
        },
    )
    folder = ensue.convert(run.folder.path, to="hf", out=tmp_path / "hf")
    torch.testing.assert_close(their_answers(folder), our_answers(run.folder.path), atol=1e-5, rtol=1e-5)
    again = ensue.convert(folder, out=tmp_path / "again")
    torch.testing.assert_close(our_answers(again), our_answers(run.folder.path), atol=1e-5, rtol=1e-5)
