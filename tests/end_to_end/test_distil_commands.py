import pytest
from typed import ensue

SHORT = ("--set", "train.steps=4", "--set", "hidden=16", "--set", "train.eval_every=4")
ENCODER = ("--set", "heads=2", "--set", "context=16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Labelled examples, texts without labels, and a teacher."""
    folder = tmp_path_factory.mktemp("distil")
    lines = [f"a {word} film number {place}" for place in range(12) for word in ("good", "bad")]
    rows = [f"{line}\t{'yes' if 'good' in line else 'no'}" for line in lines]
    (folder / "train.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (folder / "plain.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = ensue("fit", "classify", folder / "train.tsv", *SHORT, *ENCODER, "--out", folder / "teacher", "--json")
    assert answer.code == 0, answer.err
    return folder


def test_a_student_is_distilled_asked_and_converted(folder, tmp_path):
    given = ("--unlabelled", folder / "plain.txt", "--labelled", folder / "train.tsv", "--out", tmp_path / "small")
    answer = ensue("distil", folder / "teacher", "bert", *given, *SHORT, *ENCODER, "--set", "layers=1", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["system"] == "bert" and answer.json["steps"] == 4
    assert answer.json["valid"]["teacher"]["parameters"] > answer.json["parameters"]
    said = ensue("predict", tmp_path / "small", "--text", "a good film", "--json")
    assert said.json["predictions"][0]["label"] in ("yes", "no")
    assert ensue("convert", tmp_path / "small", "--to", "hf", "--out", tmp_path / "hf").code == 0
    card = (tmp_path / "small" / "README.md").read_text(encoding="utf-8")
    assert "ensue distil" in card and "24 texts without labels" in card


def test_printed_lines_name_the_teacher(folder, tmp_path):
    given = ("--unlabelled", folder / "plain.txt", "--valid", folder / "train.tsv", "--out", tmp_path / "small")
    answer = ensue("distil", folder / "teacher", "lstm", *given, *SHORT, "--set", "layers=1")
    assert answer.code == 0, answer.err
    assert "the teacher has answered about 24 texts" in answer.err
    assert "teacher: accuracy" in answer.out


def test_an_unsuitable_teacher_is_a_one_line_error(folder, tmp_path):
    answer = ensue("distil", folder / "plain.txt", "bert", "--unlabelled", folder / "plain.txt")
    assert answer.code == 2 and answer.err.count("\n") == 1
