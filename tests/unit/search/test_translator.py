"""Each line gives one line in its place, whatever it holds and however long it is."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.models.seq2seq import Seq2Seq, Seq2SeqConfig
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.protocol import Output
from ensue.nn.state import State
from ensue.search import translator as translating
from ensue.search.beam import Search
from ensue.search.ensemble import Ensemble
from ensue.search.translator import Translator

GREEDY = Search(beam=1)


def tokenizer(kind, *texts):
    return fit_tokenizer_to_parts(kind, [(text, True, True) for text in texts], min_count=1)


@dataclass(frozen=True)
class Place(State):
    """Where in its source each row is."""

    source: torch.Tensor
    lengths: torch.Tensor
    at: torch.Tensor


class Turner(nn.Module):
    """Says its source backwards, word for word as ``table`` has it, surely; and looks at what it says."""

    def __init__(self, size, end, context, table=None, attends=True):
        super().__init__()
        self.config = SimpleNamespace(context=context, vocabulary=size)
        self.end, self.attends = end, attends
        self.register_parameter("sure", nn.Parameter(torch.tensor(8.0)))
        self.table = torch.arange(size)
        for source, target in (table or {}).items():
            self.table[source] = target

    def start(self, source, lengths):
        return Place(source, lengths, torch.zeros_like(lengths))

    def forward(self, tokens, state, lengths=None, want=()):
        place = (state.lengths - 2 - state.at).clamp(min=0)
        word = self.table[state.source.gather(1, place[:, None])[:, 0]]
        word = torch.where(state.at >= state.lengths - 1, self.end, word)
        logits = torch.zeros(len(word), 1, self.config.vocabulary)
        logits = logits.scatter(2, word[:, None, None], self.sure.item())
        looks = nn.functional.one_hot(place, state.source.shape[1]).float()[:, None, None]
        return Output(
            logits, None, (looks,) if self.attends else None, Place(state.source, state.lengths, state.at + 1)
        )


WORDS = "a b c d e f g h"


@pytest.fixture
def turner():
    words = tokenizer("word", WORDS)
    return Translator(Turner(words.size, words.end, context=6), words, words)


def texts(found):
    return [one.text for one in found]


def test_lines_keep_their_order(turner):
    lines = ["a b", "", "c", "   ", "d e f g", "\t", "h"]
    found = turner.translate(lines, GREEDY)
    assert texts(found) == ["b a", "", "c", "", "g f e d", "", "h"]
    assert [one.source for one in found] == lines
    assert found[1].best == [] and found[1].results == () and found[1].as_dict()["nbest"] == []
    assert found[1].log_prob == 0


def test_no_lines_give_no_lines(turner):
    assert turner.translate([], GREEDY) == [] and texts(turner.translate([""], GREEDY)) == [""]


def test_a_note_names_a_line_that_is_cut(turner):
    notes = []
    found = turner.translate(["a", "a b c d e f g", "b"], GREEDY, notes=notes)
    assert texts(found) == ["a", "e d c b a", "b"]
    assert notes == ["line 2 has 8 tokens, more than the model's 6: cut"]


def test_line_numbers_continue_from_block_to_block(turner):
    notes = []
    turner.translate(["a", "a b c d e f g"], GREEDY, notes=notes, first=2001)
    assert notes[0].startswith("line 2002 ")


def test_a_line_that_just_fits_is_whole(turner):
    notes = []
    assert texts(turner.translate(["a b c d e"], GREEDY, notes=notes)) == ["e d c b a"] and notes == []


def test_a_line_that_is_too_long_is_split_and_joined(turner):
    notes = []
    (found,) = turner.translate(["a b c d e f g h"], GREEDY, long="split", notes=notes)
    assert found.text == "e d c b a h g f" and len(found.results) == 2 and found.best == []
    assert notes == ["line 1 has 9 tokens, more than the model's 6: split"]
    assert found.log_prob == pytest.approx(sum(part.best.log_prob for part in found.results))


def test_a_line_begins_with_its_prefix_once_and_is_as_long_as_it_may_be(turner):
    lines = ["a b", "", "a b c d e f g h"]
    found = turner.translate(lines, Search(beam=2), prefix="g h", long="split")
    assert texts(found) == ["g h", "", "g h c b a h g f"]  # after two words of its own it says what is next
    assert texts(turner.translate(["a b c"], GREEDY, most=2)) == ["c b"]
    with pytest.raises(InputError, match="prefix 1 has 3 tokens, but at most 2"):
        turner.translate(["a"], GREEDY, prefix="a b c", most=2)


def test_a_part_that_translates_to_nothing_leaves_no_gap():
    words = tokenizer("word", WORDS)
    silent = dict.fromkeys(words.encode("f g h").tolist(), words.end)
    (found,) = Translator(Turner(words.size, words.end, 4, silent), words, words).translate(
        ["a b c f g h d e"], GREEDY, long="split"
    )
    assert found.text == "c b a e d" and len(found.results) == 3


SPLITS = {
    "One. Two three four. Five": ["One. Two three four.", "Five"],  # after the last sentence that fits
    "one two, three four five six": ["one two,", "three four five six"],  # else after a comma
    "one two three four five six": ["one two three four", "five six"],  # else between words
    "about 3.14159 and 2.71828": ["about 3.14159 and", "2.71828"],  # a number is no sentence end
    "A" * 45: ["A" * 20, "A" * 20, "A" * 5],  # else anywhere
    "日本語。" * 6: ["日本語。" * 5, "日本語。"],
}


@pytest.mark.parametrize("text", SPLITS)
def test_where_a_line_is_split(text):
    letters = tokenizer("char", *SPLITS)
    translator = Translator(Turner(letters.size, letters.end, context=21), letters, letters)
    assert list(translator._split(text)) == SPLITS[text]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("word", "x y z " * 30),  # unknown words are shorter than the name of the unknown
        ("word", "a   b\t c " * 20),
        ("byte", "😀é" * 25),
        ("char", "é" * 90),
        ("bpe", "aardvark, zebra. Quagga " * 9),
    ],
)
def test_every_part_fits_and_nothing_is_lost(kind, line):
    held = tokenizer(kind, WORDS, "some words to learn parts of words from")
    translator = Translator(Turner(held.size, held.end, context=12), held, held)
    parts = list(translator._split(line.strip()))
    assert all(len(translator.encode(part)) <= 12 for part in parts)
    assert "".join("".join(parts).split()) == "".join(line.split())


def test_a_very_long_line_is_split_in_time_that_grows_with_it(turner, monkeypatch):
    """Each part is looked at a few times, never the whole rest."""
    read = []
    encode = Translator.encode
    monkeypatch.setattr(Translator, "encode", lambda self, text: read.append(len(text)) or encode(self, text))
    list(turner._split("a b c d " * 2000))
    assert sum(read) < 40 * 8 * 2000


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_unseen_characters_are_no_error(kind):
    held = tokenizer(kind, WORDS)
    translator = Translator(Turner(held.size, held.end, context=64), held, held)
    (found,) = translator.translate(["a ☃ 漢字 b"], GREEDY)
    assert found.text and "\n" not in found.text


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_a_line_never_becomes_two(kind):
    """Neither by a newline in what is given, nor by one that the model writes."""
    held = tokenizer(kind, WORDS, "x\ny\r\nz" if kind == "char" else "x")
    newline = int(held.encode("\n")[0])
    back = int(held.encode("\r")[0]) if kind in ("byte", "char") else newline
    a, b = int(held.encode("d a")[-1]), int(held.encode("a b")[-1])
    table = {} if kind == "word" else {a: newline, b: back}
    translator = Translator(Turner(held.size, held.end, context=64, table=table), held, held)
    (found,) = translator.translate(["c\nd a\r\nb e"], GREEDY)
    assert not {"\n", "\r"} & set(found.text) and not {"\n", "\r"} & set(found.best[0][0])
    assert found.text[0] == "e" and found.text[-1] == "c"


def random_model(words, **settings):
    torch.manual_seed(5)
    if settings.pop("system", "transformer") == "seq2seq":
        return Seq2Seq(Seq2SeqConfig(vocabulary=words.size, source_vocabulary=words.size, hidden=8, context=12)).eval()
    config = TransformerConfig(
        vocabulary=words.size, source_vocabulary=words.size, layers=1, heads=2, hidden=8, context=12
    )
    model = Transformer(config).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


LINES = ["a b c", "d", "", "e f g h a b", "h", "c c c", "b a"]


@pytest.mark.parametrize("system", ["transformer", "seq2seq"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_batch_gives_the_translations_of_single_lines(system, beam, monkeypatch):
    words = tokenizer("word", WORDS)
    translator = Translator(random_model(words, system=system), words, words)
    how = Search(beam=beam, nbest=beam)
    alone = [translator.translate([line], how)[0] for line in LINES]
    for tokens in (3000, 10):  # in one batch, and in several
        monkeypatch.setattr(translating, "BATCH_TOKENS", tokens)
        together = translator.translate(LINES, how)
        assert texts(together) == texts(alone)
        for left, right in zip(together, alone, strict=True):
            assert [text for text, _ in left.best] == [text for text, _ in right.best]
            assert left.log_prob == pytest.approx(right.log_prob, abs=1e-4)


def test_the_n_best_are_different_and_in_order():
    words = tokenizer("word", WORDS)
    translator = Translator(random_model(words), words, words)
    (found,) = translator.translate(["a b c"], Search(beam=4, nbest=3))
    scores = [hypothesis.score for _, hypothesis in found.best]
    assert len(found.best) == 3 and scores == sorted(scores, reverse=True) and found.text == found.best[0][0]
    assert len({tuple(hypothesis.tokens) for _, hypothesis in found.best}) == 3
    shown = found.as_dict()["nbest"]
    assert [one["score"] for one in shown] == scores and shown[0].keys() == {"text", "score", "log_prob", "ended"}


def test_an_ensemble_of_one_model_twice_is_that_model():
    words = tokenizer("word", WORDS)
    model = random_model(words)
    alone = Translator(model, words, words).translate(LINES, Search(beam=3))
    twice = Translator(Ensemble([model, model]), words, words, longest=12).translate(LINES, Search(beam=3))
    assert texts(twice) == texts(alone)
    assert [one.log_prob for one in twice] == pytest.approx([one.log_prob for one in alone], abs=1e-4)


def test_an_ensemble_of_two_kinds_translates():
    words = tokenizer("word", WORDS)
    both = Ensemble([random_model(words), random_model(words, system="seq2seq")])
    found = Translator(both, words, words, longest=12).translate(LINES, Search(beam=2), attention=True)
    assert len(found) == len(LINES) and found[2].text == ""
    assert found[0].best[0][1].attention is not None


@pytest.fixture
def forgetful():
    """Knows the words a to h, and turns "c" into the unknown even so."""
    words = tokenizer("word", WORDS)
    model = Turner(words.size, words.end, context=9, table={int(words.encode("c")[0]): words.unknown})
    return Translator(model, words, words)


def test_unknown_words_become_the_words_they_attend_to(forgetful):
    """It says the source backwards, so the place of a word is not where it stands but where was looked."""
    lines = ["a Zürich b c", "Oslo", "a b", "h g f Paris Rome e d c b a"]
    assert texts(forgetful.translate(lines, GREEDY, replace_unknown=True)) == [
        "c b Zürich a",
        "Oslo",
        "b a",
        "c d e Rome Paris f g h",
    ]
    plain = forgetful.translate(lines[:2], GREEDY)
    unknown = forgetful.tokenizer.name(forgetful.tokenizer.unknown)
    assert texts(plain) == [f"{unknown} b {unknown} a", unknown]


def test_words_that_are_known_stay(forgetful):
    lines = ["a b", "d e f"]
    assert texts(forgetful.translate(lines, GREEDY, replace_unknown=True)) == texts(forgetful.translate(lines, GREEDY))


def test_unknown_words_need_words(turner):
    letters = tokenizer("char", WORDS)
    translator = Translator(Turner(letters.size, letters.end, context=9), letters, letters)
    with pytest.raises(InputError, match="only a model of --tokenizer word has them"):
        translator.translate(["a"], GREEDY, replace_unknown=True)


def test_unknown_words_need_attention():
    words = tokenizer("word", WORDS)
    translator = Translator(Turner(words.size, words.end, context=9, attends=False), words, words)
    with pytest.raises(InputError, match="this model has no attention"):
        translator.translate(["a x"], GREEDY, replace_unknown=True)


def test_progress_counts_what_is_searched(turner):
    seen = []
    turner.translate(LINES[:4], GREEDY, report=lambda kind, values: seen.append((kind, values)))
    assert seen[-1] == ("progress", {"done": 3, "total": 3})


def test_the_traces_are_of_the_lines(turner):
    found = turner.translate(["a b", "c"], Search(beam=2), trace=True)
    assert all(one.results[0].trace is not None for one in found)
    assert turner.translate(["a b"], Search(beam=2))[0].results[0].trace is None
