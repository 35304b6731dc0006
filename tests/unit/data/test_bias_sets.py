"""Files that measure bias, in every form; and the built-in material."""

import gzip
import json

import pytest

from ensue.core.errors import InputError
from ensue.data.bias_material import builtin_pairs, group_prompts, material, pronoun_frames, stop_words
from ensue.data.bias_sets import read_bias_sets
from ensue.measure.sentiment import WordList

CSV = ',sent_more,sent_less,bias_type\n0,"The old man, slow.","The young man, slow.",age\n1,She wept.,He wept.,gender\n'
PRO = "1 [The nurse] thanked the pilot because [she] was early.\n2 The nurse met [the pilot] and saw [his] hat.\n"
ANTI = "1 [The nurse] thanked the pilot because [he] was early.\n2 The nurse met [the pilot] and saw [her] hat.\n"
SENTENCES = (
    "sentid\tsentence\n"
    "nurse.patient.0.male.txt\tThe nurse told the patient that he would be back.\n"
    "nurse.patient.0.female.txt\tThe nurse told the patient that she would be back.\n"
    "nurse.patient.0.neutral.txt\tThe nurse told the patient that they would be back.\n"
    "pilot.someone.1.male.txt\tThe pilot told someone that his bag was lost.\n"
)
STATS = "occupation\tbergsma_pct_female\tbls_pct_female\nnurse\t80\t90.1\npilot\t5\t7.5\n"
PROMPTS = {"Actors": {"A_B": ["A B is an actor who "]}, "Dancers": {"C_D": ["C D  danced ", " "]}}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "gz"])
def test_crows_pairs_in_every_form(form, tmp_path):
    rows = [("The old man, slow.", "The young man, slow.", "age"), ("She wept.", "He wept.", "gender")]
    names = ("sent_more", "sent_less", "bias_type")
    if form == "gz":
        path = tmp_path / "pairs.csv.gz"
        path.write_bytes(gzip.compress(CSV.encode()))
    else:
        tsv = "".join("\t".join(row) + "\n" for row in [names, *rows])
        jsonl = "".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows)
        path = write(tmp_path / f"pairs.{form}", {"csv": CSV, "tsv": tsv, "jsonl": jsonl}[form])
    (found,) = read_bias_sets(path)
    assert found.name == "CrowS-Pairs"
    assert [(pair.more, pair.less, pair.category) for pair in found.pairs] == rows


def test_winobias_reads_both_files_and_finds_the_other_person(tmp_path):
    write(tmp_path / "pro_stereotyped_type1.txt.dev", PRO)
    write(tmp_path / "anti_stereotyped_type1.txt.dev", ANTI)
    write(tmp_path / "README.txt", "about these files\n")
    for source in (tmp_path, tmp_path / "anti_stereotyped_type1.txt.dev"):
        (found,) = read_bias_sets(source)
        assert found.name == "WinoBias" and len(found.pairs) == 2
        assert found.pairs[0].more == "The nurse thanked the pilot because she was early."
        assert found.pairs[0].less == "The nurse thanked the pilot because he was early."
        first, second = found.references[:2]
        assert (first.answer, first.other, first.pronoun, first.gender) == ("nurse", "pilot", "she", "female")
        assert (second.answer, second.other, second.side, second.kind) == ("pilot", "nurse", "pro", "type 1")
        assert [one.number for one in found.references] == [0, 1, 0, 1]


def test_several_files_of_winobias_are_one_set(tmp_path):
    for kind in ("type1", "type2"):
        write(tmp_path / f"pro_stereotyped_{kind}.txt", PRO)
        write(tmp_path / f"anti_stereotyped_{kind}.txt", ANTI)
    (found,) = read_bias_sets(tmp_path)
    assert {pair.category for pair in found.pairs} == {"type 1", "type 2"}
    assert sorted({one.number for one in found.references}) == [0, 1, 2, 3]


def test_winogender_knows_the_stereotype_where_the_shares_are_beside_it(tmp_path):
    path = write(tmp_path / "all_sentences.tsv", SENTENCES)
    (alone,) = read_bias_sets(path)
    assert alone.pairs == [] and {one.side for one in alone.references} == {""}
    write(tmp_path / "occupations-stats.tsv", STATS)
    (found,) = read_bias_sets(tmp_path)
    assert [one.side for one in found.references] == ["anti", "pro", "", "anti"]
    assert [(one.answer, one.other) for one in found.references[2:]] == [("nurse", "patient"), ("someone", "pilot")]
    assert found.references[3].pronoun == "his"
    (pair,) = found.pairs
    assert "she" in pair.more and " he " in pair.less


def test_bold_prompts(tmp_path):
    (found,) = read_bias_sets(write(tmp_path / "bold_gender_prompt.json", json.dumps(PROMPTS)))
    shown = [(prompt.axis, prompt.group, prompt.text) for prompt in found.prompts]
    assert shown == [("BOLD gender", "Actors", "A B is an actor who"), ("BOLD gender", "Dancers", "C D danced")]


BAD = {
    "x.txt": ("just a text\n", "is not a set that measures bias"),
    "empty.txt": ("", "the file is empty"),
    "x.csv": ("sent_more,sent_less\nsame,same\n", "x.csv:2: the two sentences are the same"),
    "y.csv": ("sent_more,sent_less\nsame,\n", "y.csv:2: a sentence is missing"),
    "z.csv": ("sent_more,sent_less\na,b,c\n", "z.csv:2: 3 columns where the first line has 2"),
    "x.json": ("[1, 2", "not JSON"),
    "y.json": ('{"a": {"b": "text"}}', "'b' has no list of texts"),
    "z.json": ("{}", "there is no prompt in this file"),
    "a.tsv": (
        "sentid\tsentence\nnurse.male.txt\tA nurse.\n",
        "a.tsv:2: 'nurse.male.txt' is not the name of a sentence",
    ),
    "b.tsv": ("sentid\tsentence\nnurse.x.0.male.txt\tA nurse.\n", "b.tsv:2: there is no male pronoun"),
    "wino.txt": (PRO, "cannot tell whether these sentences are stereotyped"),
    "pro_alone.txt": (PRO, "anti_alone.txt is missing"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_line(name, tmp_path):
    text, message = BAD[name]
    with pytest.raises(InputError) as caught:
        read_bias_sets(write(tmp_path / name, text))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_winobias_files_must_fit_together(tmp_path):
    path = write(tmp_path / "pro_x.txt", PRO)
    write(tmp_path / "anti_x.txt", ANTI.splitlines()[0] + "\n")
    with pytest.raises(InputError, match=r"2 sentences, but 1 in anti_x\.txt"):
        read_bias_sets(path)
    write(tmp_path / "anti_x.txt", ANTI.replace("[her]", "her"))
    with pytest.raises(InputError, match=r"anti_x\.txt:2: no person and pronoun in brackets"):
        read_bias_sets(path)


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path, caplog):
    write(tmp_path / "bold_gender_prompt.json", json.dumps(PROMPTS))
    write(tmp_path / "winomt.txt", "male\t1\tThe developer argued.\tdeveloper\n")
    assert len(read_bias_sets(tmp_path)) == 1
    assert "not read" in caplog.text and "winomt.txt" in caplog.text and "bold" not in caplog.text


def test_a_folder_without_a_set_is_refused(tmp_path):
    write(tmp_path / "x.txt", "text\n")
    with pytest.raises(InputError, match="no file in this folder measures bias"):
        read_bias_sets(tmp_path)
    with pytest.raises(InputError, match="there is no such file"):
        read_bias_sets(tmp_path / "none.csv")


def test_every_group_of_an_axis_has_equally_many_prompts():
    counts = {}
    for prompt in group_prompts():
        counts[prompt.axis, prompt.group] = counts.get((prompt.axis, prompt.group), 0) + 1
        assert "{" not in prompt.text + prompt.neutral and prompt.text[0].isupper()
    for axis in {axis for axis, _ in counts}:
        assert len({count for (own, _), count in counts.items() if own == axis}) == 1


def test_the_word_list_scores_no_prompt_and_lists_no_word_twice():
    words = WordList.built_in()
    assert not words.positive & words.negative
    assert not words.scores([prompt.text for prompt in group_prompts()]).any()


def test_built_in_pairs_differ_in_a_few_words():
    for pair in builtin_pairs():
        more, less = pair.more.split(), pair.less.split()
        assert len(more) == len(less) and 1 <= sum(a != b for a, b in zip(more, less)) <= 2


def test_pronoun_frames_have_a_gap_and_no_pronoun_besides():
    frames = pronoun_frames()
    assert len(frames) == 44 * len(material()["pronouns"]["templates"])
    for frame in frames:
        assert not {"he", "she", "they", "his", "her"} & set(f"{frame.before} {frame.after}".lower().split())


def test_stop_words_have_the_words_of_the_groups():
    assert {"muslim", "the", "described", "she"} <= stop_words("religion")
    assert "muslim" not in stop_words("age")
