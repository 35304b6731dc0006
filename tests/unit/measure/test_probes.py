"""Minimal pairs: files, probabilities, figures."""

import gzip
import json
import math

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.copy_task import COPY_LETTERS, copy_questions, copy_text
from ensue.data.minimal_pairs import MinimalPair, read_minimal_pairs
from ensue.data.tokenizers.char import ByteTokenizer
from ensue.measure.language import log_probs
from ensue.measure.probes import probe_figures, text_log_probs
from ensue.models.bidirectional import BidirectionalLanguageModel
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel, RecurrentConfig

SENTENCES = "the writer of the books is tired . <eos>\nthe keys to the cabinet are here . <eos>\n"


def agreement(folder, gold, text=SENTENCES):
    (folder / "probe.text").write_text(text)
    with gzip.open(folder / "other.text.gz", "wt") as file:
        file.write(text)
    (folder / "probe.gold").write_text(gold)
    return folder / "probe.gold"


def test_agreement_is_read_up_to_the_verb(tmp_path):
    file = agreement(tmp_path, "5\tis\tare\t1\n5\tare\tis\t1\n")
    first, second = read_minimal_pairs(file)
    assert first == MinimalPair("the writer of the books is", "the writer of the books are", {"attractors": 1})
    assert second.good == "the keys to the cabinet are"
    assert read_minimal_pairs(tmp_path / "probe.text") == [first, second]


def test_agreement_of_the_long_form_says_how_far_the_subject_is(tmp_path):
    row = "L!N\t0\t{}\t5\tVERB\tMood=Ind\tis\tare\tbe\t1\tNOUN\tthe writer of the books is\n"
    pairs = read_minimal_pairs(agreement(tmp_path, row.format(0) + row.format(3)))
    assert pairs[0].groups == {"distance": 4, "kind": "original"} and pairs[1].groups["kind"] == "words replaced"


def test_pairs_of_blimp_of_columns_and_of_a_folder(tmp_path):
    record = {"sentence_good": "a b", "sentence_bad": "b a", "UID": "order", "linguistics_term": "syntax"}
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(record) + "\n\n")
    (tmp_path / "b.tsv").write_text("good text\tbad text\tshort\nx\ty\n")
    (tmp_path / "README.md").write_text("no pairs")
    pairs = read_minimal_pairs(tmp_path)
    assert pairs[0] == MinimalPair("a b", "b a", {"phenomenon": "syntax", "paradigm": "order"})
    assert pairs[1:] == [MinimalPair("good text", "bad text", {"kind": "short"}), MinimalPair("x", "y")]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.jsonl", "{", r"x\.jsonl:1: not JSON"),
        ("x.jsonl", '{"good": "a"}', "there are no two texts; name them sentence_good"),
        ("x.tsv", "a\tb\nalone\n", r"x\.tsv:2: not two texts with a tab between"),
        ("x.txt", "a", "is not a file of pairs; give a .jsonl"),
        ("x.gold", "1\ta\tb\t0\n", "x.text is missing"),
        ("x.tsv", "", "the file is empty"),
    ],
)
def test_files_without_pairs_are_errors_that_name_them(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_minimal_pairs(tmp_path / name)


def test_gold_and_text_belong_together(tmp_path):
    with pytest.raises(InputError, match=r"2 sentences, but 1 lines in probe\.gold"):
        read_minimal_pairs(agreement(tmp_path, "5\tis\tare\t1\n"))
    with pytest.raises(InputError, match=r"probe\.gold:2: there is no word 99 in a sentence of 9"):
        read_minimal_pairs(agreement(tmp_path, "5\tis\tare\t1\n99\tis\tare\t1\n"))
    with pytest.raises(InputError, match=r"probe\.gold:1: not the columns of a \.gold file"):
        read_minimal_pairs(agreement(tmp_path, "x\tis\tare\t1\n5\tis\tare\t1\n"))
    with pytest.raises(InputError, match="there is no such file"):
        read_minimal_pairs(tmp_path / "absent.tsv")


@pytest.mark.parametrize("backward", [False, True])
def test_probability_of_a_text_is_the_product_of_its_tokens(backward):
    tokenizer = ByteTokenizer()
    for model in (
        LSTMLanguageModel(LSTMConfig(vocabulary=tokenizer.size, hidden=8)),
        GPTLanguageModel(GPTConfig(vocabulary=tokenizer.size, layers=1, heads=2, hidden=8, context=32)),
    ):
        texts = ["the writer is", "a", "the keys are here"]
        found = text_log_probs(model, tokenizer, texts, backward=backward)
        for text, value in zip(texts, found):
            ids = tokenizer.encode(text)[:: -1 if backward else 1]
            one = log_probs(model, np.concatenate([[tokenizer.end], ids]))
            assert value == pytest.approx(one.sum(), rel=1e-5)


def test_texts_with_one_beginning_compare_the_last_word_alone():
    tokenizer = ByteTokenizer()
    model = LSTMLanguageModel(LSTMConfig(vocabulary=tokenizer.size, hidden=8))
    good, bad = text_log_probs(model, tokenizer, ["the books is", "the books are"])
    start = torch.tensor([[tokenizer.end, *tokenizer.encode("the books ").tolist()]])
    state = model(start[:, :-1], want=("hidden",)).state
    parts = []
    for word in ("is", "are"):
        ids = torch.tensor([[int(start[0, -1]), *tokenizer.encode(word).tolist()]])
        parts.append(model.log_prob(ids[:, :-1], ids[:, 1:], state.fork())[0].sum().item())
    assert good - bad == pytest.approx(parts[0] - parts[1], abs=1e-4)


def test_a_bidirectional_model_is_rejected():
    model = BidirectionalLanguageModel(RecurrentConfig(vocabulary=257, hidden=4))
    with pytest.raises(InputError, match="gives a text no probability"):
        text_log_probs(model, ByteTokenizer(), ["a"])


def test_figures_count_ties_half_and_group_numbers_in_order():
    pairs = [MinimalPair("a", "b", {"attractors": n}) for n in (10, 2, 2, 10)]
    figures = probe_figures(pairs, np.array([0.0, 1.0, 2.0, 5.0]), np.array([1.0, 1.0, 1.0, 1.0]))
    assert figures["accuracy"] == 0.625 and figures["ties"] == 1 and figures["margin"] == 1.0
    assert [row["value"] for row in figures["by"]["attractors"]] == [2, 10]
    assert [row["accuracy"] for row in figures["by"]["attractors"]] == [0.75, 0.5]


def test_copying_asks_for_a_letter_that_only_the_gap_separates():
    text = copy_text(lines=300, longest=9)
    assert all(line[0] == line[-1] in COPY_LETTERS and set(line[1:-2]) <= {"."} for line in text.splitlines())
    assert max(line.count(".") for line in text.splitlines()) == 9
    for asked, letters, answer in copy_questions(5):
        before, last = asked.split("\n")
        assert last == f"{answer}.....?" and before[-1] != answer and set(letters) == set(COPY_LETTERS)
    assert math.isclose(len(copy_questions(5)) / len(COPY_LETTERS), 4)
