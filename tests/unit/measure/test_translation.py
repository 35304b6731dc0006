import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.gleu_score import sentence_gleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from ensue.core.errors import InputError
from ensue.measure.translation import (
    bleu_by_hand,
    bleu_by_length,
    gleu,
    length_edges,
    paired_bootstrap,
    sentence_counts,
    translation_score,
)

TEXT = "A man , in the blue shirt is standing on a ladder cleaning windows . Two young White males are outside"
WORDS = TEXT.split()
MAT = ["the", "cat", "is", "on", "the", "mat"]


def corpus(sentences, error, seed=0, references=1):
    """Made-up sentences of 3 to 24 words, and outputs that get each word wrong with a probability of ``error``."""
    random = np.random.default_rng(seed)
    outputs, choices = [], []
    for _ in range(sentences):
        truth = random.choice(WORDS, size=random.integers(3, 25))
        noisy = np.where(random.random(len(truth)) < error, random.choice(WORDS, len(truth)), truth)
        outputs.append(" ".join(noisy[: random.integers(len(truth) // 2, len(truth) + 1)]))
        others = [random.permutation(truth) for _ in range(references - 1)]
        choices.append([" ".join(words) for words in (truth, *others)])
    return outputs, choices


def test_score_is_sacrebleus_with_its_signatures():
    outputs, choices = corpus(60, 0.2, references=2)
    score = translation_score(outputs, choices)
    streams = [list(stream) for stream in zip(*choices)]
    assert score.bleu == BLEU().corpus_score(outputs, streams).score
    assert score.bleu_lower_tokenised == BLEU(lowercase=True).corpus_score(outputs, streams).score
    assert score.chrf == CHRF().corpus_score(outputs, streams).score
    assert score.bleu_signature.startswith("nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert score.bleu_lower_tokenised_signature.startswith("nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|version:")
    assert score.chrf_signature.startswith("nrefs:2|case:mixed|")
    assert score.sentences == 60


def test_one_reference_may_be_given_bare():
    outputs, choices = corpus(20, 0.2)
    assert translation_score(outputs, [some[0] for some in choices]) == translation_score(outputs, choices)


def test_numbers_of_references_may_differ():
    outputs, choices = corpus(20, 0.2, references=3)
    choices[3], choices[7] = choices[3][:1], choices[7][:2]
    assert translation_score(outputs, choices).bleu_signature.startswith("nrefs:var|")
    more = [[*some, output] for some, output in zip(choices, outputs)]
    assert translation_score(outputs, more).bleu == pytest.approx(100)


def test_one_bleu_is_cased_and_the_other_is_not():
    score = translation_score(["THE DOG RUNS IN THE SNOW"], ["the dog runs in the snow"])
    assert score.bleu == 0 and score.bleu_lower_tokenised == pytest.approx(100) and score.exact == 0


def test_exact_is_the_share_that_equals_a_reference():
    outputs = ["a b c d", "a b c", "x", ""]
    assert translation_score(outputs, [["q", "a b c d"], ["a b c d"], ["x "], [""]]).exact == 0.5


def test_empty_outputs_count():
    outputs, choices = corpus(10, 0.0)
    full, holes = translation_score(outputs, choices), translation_score(["", *outputs[1:]], choices)
    assert holes.sentences == 10 and holes.bleu < full.bleu
    none = translation_score([""] * 10, choices)
    assert none.bleu == 0 and none.exact == 0


@pytest.mark.parametrize("outputs, references", [(["a"], ["a", "b"]), ([], []), (["a", "b"], [["a"], []])])
def test_invalid_input_is_rejected(outputs, references):
    with pytest.raises(InputError, match=r"output|reference"):
        translation_score(outputs, references)


def test_equation_by_hand_is_sacrebleu_on_tokens():
    outputs, choices = corpus(80, 0.3, references=3)
    streams = [list(stream) for stream in zip(*choices)]
    expected = BLEU(tokenize="none", force=True).corpus_score(outputs, streams)
    found = bleu_by_hand([o.split() for o in outputs], [[r.split() for r in some] for some in choices])
    assert expected.bp < 1 and 5 < expected.score < 95
    assert found == pytest.approx(expected.score, abs=1e-9)


def test_equation_by_hand_on_the_example_of_the_paper():
    # Papineni et al. (2002), example 2: "the" is clipped at two, the most that one reference has
    counts = sentence_counts(["the"] * 7, [MAT])
    assert counts == [7, 6, 2, 0, 0, 0, 7, 6, 5, 4]
    assert bleu_by_hand([["the"] * 7], [[MAT]]) == 0
    # four of four words right, reference of five: only the brevity penalty is left
    assert bleu_by_hand([list("abcd")], [[list("abcde")]]) == pytest.approx(100 * np.exp(1 - 5 / 4))


def test_the_nearest_reference_length_counts_and_the_shorter_of_two():
    assert sentence_counts(list("abcd"), [list("abcdef"), list("abcde"), list("abc")])[:2] == [4, 3]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=12), st.lists(st.integers(0, 4), max_size=12))
def test_gleu_is_nltks_symmetric_and_between_0_and_1(output, reference):
    found = gleu(output, reference)
    assert found == pytest.approx(sentence_gleu([reference], output))
    assert found == gleu(reference, output) and 0 <= found <= 1
    assert (found == 1) == (bool(output) and sorted_grams(output) == sorted_grams(reference))


def sorted_grams(tokens):
    return sorted(tuple(tokens[i : i + n]) for n in range(1, 5) for i in range(len(tokens) - n + 1))


def test_gleu_reads_lists_arrays_and_tensors_alike():
    output, reference = [5, 6, 7, 8, 9], [5, 6, 7, 1, 9]
    expected = gleu(output, reference)
    assert 0 < expected < 1
    assert gleu(torch.tensor(output), torch.tensor(reference)) == expected == gleu(np.array(output), tuple(reference))


def test_bleu_by_length_is_sacrebleus_of_each_bin():
    outputs, choices = corpus(120, 0.2)
    sources = [some[0] for some in choices]  # as long as the reference
    rows = bleu_by_length(sources, outputs, choices)
    assert [row["label"] for row in rows] == ["up to 8", "9–10", "11–12", "13–15", "16–20", "21 or more"]
    assert sum(row["sentences"] for row in rows) == 120
    for row in rows:
        chosen = [i for i, s in enumerate(sources) if row["low"] <= len(s.split()) <= (row["high"] or 999)]
        expected = BLEU().corpus_score([outputs[i] for i in chosen], [[choices[i][0] for i in chosen]]).score
        assert row["bleu"] == pytest.approx(expected) and row["sentences"] == len(chosen)
        assert row["low"] <= row["words"] <= (row["high"] or 999)


def test_bleu_by_length_smooths_and_leaves_out_empty_bins():
    outputs, references = ["a b x d", "q"], ["a b c d", "z"]
    rows = bleu_by_length(["k l m", "k"], outputs, references, edges=(1, 2))
    assert [row["label"] for row in rows] == ["up to 1", "3 or more"]
    assert rows[0]["bleu"] == 0
    assert rows[1]["bleu"] == pytest.approx(BLEU().corpus_score(outputs[:1], [references[:1]]).score)
    assert bleu_by_length(["k", "l"], outputs, references, edges=())[0]["label"] == "all"


def test_quantile_edges_give_bins_of_equal_size():
    sources = [s[0] for s in corpus(300, 0.0)[1]]
    edges = length_edges(sources, bins=4)
    rows = bleu_by_length(sources, sources, sources, edges)
    assert len(rows) == 4 and all(50 <= row["sentences"] <= 100 for row in rows)
    assert length_edges(["a b"] * 9, bins=4) == ()


@pytest.mark.parametrize("edges", [(0, 5), (9, 5), (5, 5)])
def test_edges_must_rise(edges):
    with pytest.raises(InputError, match="rise"):
        bleu_by_length(["a"], ["a"], ["a"], edges)


def test_sources_must_be_as_many_as_outputs():
    with pytest.raises(InputError, match="2 sources"):
        bleu_by_length(["a", "b"], ["a"], ["a"])


def test_identical_systems_differ_by_chance_alone():
    outputs, choices = corpus(50, 0.2)
    found = paired_bootstrap(outputs, list(outputs), choices, samples=100)
    assert found.delta == 0 and found.p_value == 1 and found.interval == (0, 0)


def test_a_clearly_better_system_wins_in_either_order():
    bad, choices = corpus(150, 0.5)
    references = [some[0] for some in choices]
    good = [r if i % 2 else b for i, (r, b) in enumerate(zip(references, bad))]  # every second one perfect
    there, back = (paired_bootstrap(a, b, references, samples=300) for a, b in ((bad, good), (good, bad)))
    assert there.delta > 5 and there.p_value == 1 / 301 and 0 < there.interval[0] < there.delta < there.interval[1]
    assert back.delta == -there.delta and back.p_value == there.p_value
    assert back.interval == pytest.approx((-there.interval[1], -there.interval[0]))
    assert there.bleu_a == pytest.approx(translation_score(bad, references).bleu)
    assert there.bleu_b == pytest.approx(translation_score(good, references).bleu)


def test_bootstrap_repeats_with_its_seed():
    (a, choices), b = corpus(40, 0.3), corpus(40, 0.3)[0]
    b = [*b[:-3], "", "", ""]
    one, two, three = (paired_bootstrap(a, b, choices, samples=50, seed=s) for s in (1, 1, 2))
    assert one == two and one.interval != three.interval
    with pytest.raises(InputError, match="samples"):
        paired_bootstrap(a, b, choices, samples=0)


def test_bootstrap_agrees_with_sacrebleus_paired_test():
    a, choices = corpus(200, 0.3)
    references = [some[0] for some in choices]
    b = [r if i % 40 == 0 else o for i, (o, r) in enumerate(zip(a, references))]  # a little better, not beyond doubt
    b[11] = b[51] = b[91] = "no words in common"
    _, scores = PairedTest([("a", a), ("b", b)], {"BLEU": BLEU()}, [references], test_type="bs", n_samples=1000)()
    found = paired_bootstrap(a, b, references)
    assert found.bleu_a == pytest.approx(scores["BLEU"][0].score)
    assert found.bleu_b == pytest.approx(scores["BLEU"][1].score)
    assert found.p_value == pytest.approx(scores["BLEU"][1].p_value, abs=0.05)


def test_a_good_translation_may_have_a_poor_bleu():
    """Useful but imperfect: other words for the same thing share few n-grams, a wrong word in the right ones costs
    little."""
    references = ["he hit me with a pie in front of the whole class"]
    good = translation_score(["I got a pie thrown at me while everyone in class was watching"], references)
    wrong = translation_score(["he hit me with a car in front of the whole class"], references)
    assert good.bleu < 10 and wrong.bleu > 60


def test_sacrebleu_is_only_imported_when_a_score_is_asked_for():
    code = "import sys, ensue.measure.translation; sys.exit('sacrebleu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
