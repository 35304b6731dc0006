"""The task of translation: pairs in, a corpus and figures out."""

import math
from pathlib import Path

import pytest
import torch

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.data.pairs import Pairs
from ensue.data.tables import parse_columns
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.runs.build_model import build_model
from ensue.runs.settings_resolution import resolve
from ensue.search.beam import Search
from ensue.search.translator import Translator
from ensue.tasks import translation
from ensue.tasks.table import task_of
from ensue.tasks.translation import PairSettings, PairTokenizerSettings

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
SMALL = {"hidden": 8, "layers": 1, "train.steps": 1, "tokenizer.kind": "word", "tokenizer.min_count": 1}


@pytest.fixture
def files(tmp_path):
    """Twelve words and their squares, ten words each, in two files."""
    source, target = tmp_path / "train.en", tmp_path / "train.num"
    rows = [[(7 * i + j) % 12 for j in range(3 + i % 3)] for i in range(24)]
    source.write_text("".join(" ".join(NUMBERS[n] for n in row) + "\n" for row in rows), encoding="utf-8")
    target.write_text("".join(" ".join(str((n % 4) ** 2) for n in row) + "\n" for row in rows), encoding="utf-8")
    return str(source), str(target)


def settled(system, files, **settings):
    flat = {**SMALL, **({"heads": 2} if system == "transformer" else {}), **settings}
    return resolve(system, layers=[{"data.files": files, **{k.replace("__", "."): v for k, v in flat.items()}}])


def said(into):
    return lambda kind, values: into.append((kind, values))


def ready(files, system="seq2seq", **settings):
    chosen = settled(system, files, **settings)
    corpus = translation.TASK.read_corpus(chosen, None, said([]))
    return chosen, corpus, build_model(chosen, corpus)


def test_both_systems_translate_by_default():
    for system in ("seq2seq", "transformer"):
        assert task_of(resolve(system, layers=[{}])) is translation.TASK


@pytest.mark.parametrize("text", ["source", "source=", "source=1,target", "1,2"])
def test_malformed_columns_are_refused(text):
    with pytest.raises(InputError, match="columns are named as source=2,target=1"):
        parse_columns(text)


def test_columns_are_parsed():
    assert parse_columns("") == {} and parse_columns("source=2,") == {"source": "2"}


def test_pairs_are_held_out_if_there_are_no_validation_files(files):
    train, valid = translation.read_parts(PairSettings(files=files, holdout=0.25), [])
    assert (len(train), len(valid)) == (18, 6) and not set(train.numbers) & set(valid.numbers)
    assert translation.read_parts(PairSettings(files=files, holdout=0.0), [])[1] is None
    train, valid = translation.read_parts(PairSettings(files=files, valid=files), [])
    assert train == valid


def test_one_vocabulary_or_two(files):
    _, joint, _ = ready(files)
    _, apart, model = ready(files, tokenizer__joint=False)
    assert joint.joint and joint.tokenizer is joint.source_tokenizer
    assert not apart.joint and apart.source_tokenizer.size > apart.tokenizer.size
    assert (model.config.source_vocabulary, model.config.vocabulary) == (
        apart.source_tokenizer.size,
        apart.tokenizer.size,
    )
    assert joint.hash != apart.hash


def test_tied_embeddings_follow_from_the_vocabularies(files):
    assert ready(files, "transformer")[2].config.tied == "all"
    assert ready(files, "transformer", tokenizer__joint=False)[2].config.tied == "target"
    assert ready(files, "transformer", tied="none")[2].config.tied == "none"
    with pytest.raises(InputError, match="needs one vocabulary for both languages"):
        ready(files, "transformer", tied="all", tokenizer__joint=False)


@pytest.mark.parametrize("joint", [True, False])
def test_tokenizers_of_a_run_are_loaded(files, tmp_path, joint):
    chosen, corpus, _ = ready(files, tokenizer__joint=joint)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    translation.TASK.save_tokenizers(corpus, folder)
    assert folder.source_tokenizer.exists() != joint
    again = translation.TASK.read_corpus(chosen, folder, said([]))
    assert again.hash == corpus.hash and again.joint == joint
    for kind in (str(folder.tokenizer), str(folder.path)):  # as --tokenizer RUN/tokenizer.json, for an ensemble
        source, target = translation.choose_tokenizers(PairTokenizerSettings(kind=kind), None)
        assert source.state() == corpus.source_tokenizer.state() and target.state() == corpus.tokenizer.state()


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
@pytest.mark.parametrize("joint", [True, False])
def test_completed_settings_give_the_same_tokenizers(files, kind, joint):
    """run.toml has one size for both vocabularies, so it must not be too small for either."""
    chosen, corpus, model = ready(files, tokenizer__joint=joint, tokenizer__kind=kind)
    written = translation.TASK.complete_settings(chosen, model, corpus)
    again = translation.TASK.read_corpus(written, None, said([]))
    assert again.hash == corpus.hash
    assert again.source_tokenizer.state() == corpus.source_tokenizer.state()


def test_completed_settings_have_no_auto_and_no_zero(files):
    chosen, corpus, model = ready(files, tokenizer__kind="auto")
    written = translation.TASK.complete_settings(chosen, model, corpus)
    assert written.tokenizer.kind == "bpe" and written.tokenizer.vocabulary == corpus.tokenizer.size
    assert written.train.threads > 0 and written.data.eval_pairs > 0 and written.run.device == "cpu"


def test_notes_describe_the_pairs_and_those_left_out(files):
    heard = []
    chosen = settled("seq2seq", files, context=5, data__holdout=0.0)
    corpus = translation.TASK.read_corpus(chosen, None, said(heard))
    notes = [values["text"] for kind, values in heard if kind == "note"]
    assert notes[0] == "two parallel files, 24 lines each: 24 to learn from, 0 to validate with"
    assert notes[1].startswith("pairs to learn from: left out 8 pairs with more than 5 tokens on a side (line")
    assert len(corpus.train) == 16 and corpus.valid is None


def test_an_error_names_the_part_of_the_pairs(files, tmp_path):
    long = tmp_path / "long.tsv"
    long.write_text("one two three four\t1 4 9 0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^pairs to validate with: there is nothing but 1 pair with more than 4"):
        ready(files, context=4, data__valid=(str(long),))


def test_log_probabilities_add_up(files):
    _, corpus, model = ready(files)
    model.eval()
    total, count = translation.pair_log_prob(model, corpus.train, corpus.tokenizer.end)
    assert count == len(corpus.train.target)
    expected = 0.0
    with torch.no_grad():
        for place in range(len(corpus.train)):
            source, target = (torch.from_numpy(side).long()[None] for side in corpus.train.pair(place))
            read = torch.cat([torch.tensor([[corpus.tokenizer.end]]), target[:, :-1]], dim=1)
            logits = model(read, model.start(source)).logits.log_softmax(-1)
            expected += logits.gather(-1, target[..., None]).sum().item()
    assert total == pytest.approx(expected, rel=1e-5)


def test_the_first_pairs_can_be_evaluated(files):
    _, corpus, model = ready(files)
    _, count = translation.pair_log_prob(model, corpus.train.first(2), corpus.tokenizer.end)
    assert count == sum(len(corpus.train.pair(place)[1]) for place in range(2))


def test_evaluation_switches_dropout_off(files):
    """Also where training stopped between two evaluations, and left the model as it trains."""
    chosen, corpus, model = ready(files, dropout=0.5)
    evaluate = translation.TASK.evaluator(chosen, model, corpus)
    expected = evaluate(lambda: False)
    model.train()
    assert evaluate(lambda: False) == expected
    total, tokens = translation.pair_log_prob(model.train(), corpus.valid, corpus.tokenizer.end)
    assert expected["valid_loss"] == pytest.approx(-total / tokens)


def test_there_is_nothing_to_evaluate_without_validation(files):
    chosen, corpus, model = ready(files, data__holdout=0.0)
    assert translation.TASK.evaluator(chosen, model, corpus) is None
    assert translation.TASK.sampler(chosen, model, corpus, torch.device("cpu")) is None
    assert translation.TASK.final_figures(chosen, model, corpus, None, said([])) is None


def test_samples_during_training_use_no_random_numbers_of_training(files):
    chosen, corpus, model = ready(files)
    write = translation.TASK.sampler(chosen, model, corpus, torch.device("cpu"))
    before = torch.get_rng_state()
    text = write()
    assert torch.equal(before, torch.get_rng_state())
    assert text.startswith(f"{corpus.valid_text.source[0]} → ")


def test_all_figures_of_pairs(files):
    _, corpus, model = ready(files)
    translator = Translator(model.eval(), corpus.source_tokenizer, corpus.tokenizer)
    figures, outputs = translation.score_pairs(translator, corpus.valid_text, Search(beam=2), said([]))
    assert len(outputs) == figures["sentences"] == len(corpus.valid_text)
    assert {"bleu", "bleu_signature", "chrf", "exact", "bits_per_byte", "nll", "unknown"} <= figures.keys()
    total, tokens = translation.pair_log_prob(model, corpus.valid, corpus.tokenizer.end)
    assert figures["perplexity"]["token"] == pytest.approx(math.exp(-total / tokens))
    assert figures["tokens"] == tokens and type(figures["tokens"]) is int


def test_notes_name_pairs_that_are_left_out_and_sources_that_are_cut(files):
    _, corpus, model = ready(files, context=6)
    translator = Translator(model.eval(), corpus.source_tokenizer, corpus.tokenizer)
    long = Pairs(["one two", "one " * 9], ["1 4", "1 " * 9], [1, 7], "")
    heard = []
    figures, outputs = translation.score_pairs(translator, long, Search(beam=1), said(heard))
    assert len(outputs) == 2 and figures["sentences"] == 2 and figures["tokens"] == 3
    notes = [values["text"] for kind, values in heard if kind == "note"]
    assert notes == [
        "perplexity: left out 1 pair with more than 6 tokens on a side (line 7)",
        "translations: cut 1 source with more than 6 tokens (line 7)",
    ]


def test_facts_of_the_pairs_for_the_model_card(files):
    _, corpus, _ = ready(files, data__holdout=0.25)
    facts = translation.TASK.describe_corpus(corpus)
    assert facts["train_pairs"] == 18 and facts["valid_pairs"] == 6 and facts["joint"] is True


def test_tokenizers_of_a_run_are_files_of_the_hub(files, tmp_path):
    _, corpus, _ = ready(files)
    folder = RunFolder(Path(tmp_path))
    translation.TASK.save_tokenizers(corpus, folder)
    assert load_tokenizer(tmp_path / "tokenizer.json").size == corpus.tokenizer.size
