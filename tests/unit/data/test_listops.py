"""ListOps: values, lengths, and the built-in corpus that labelling tasks read."""

from itertools import islice

from ensue.data.lines import read_lines
from ensue.data.listops import EXAMPLES, LEAST, MOST, listops, listops_lines


def evaluated(text):
    """The value of a text, by a stack instead of a tree."""
    results = {"[MIN": min, "[MAX": max, "[SM": lambda values: sum(values) % 10}
    stack = [[]]
    for token in text.split():
        if token.startswith("["):
            stack.append([token])
        elif token == "]":
            operation, *values = stack.pop()
            ordered, half = sorted(values), len(values) // 2
            middle = ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) // 2
            stack[-1].append(middle if operation == "[MED" else results[operation](values))
        else:
            stack[-1].append(int(token))
    ((found,),) = stack
    return found


def test_labels_are_the_values_of_texts_of_the_asked_length():
    for least, most in ((3, 20), (60, 90)):
        rows = list(listops(200, least, most, seed=1))
        assert len({text for text, _ in rows}) == 200
        for text, label in rows:
            assert least <= len(text.split()) <= most and evaluated(text) == label


def test_one_seed_gives_one_corpus_and_all_digits_occur():
    assert list(islice(listops(seed=4), 50)) == list(islice(listops(seed=4), 50))
    assert list(islice(listops(seed=4), 50)) != list(islice(listops(seed=5), 50))
    assert {label for _, label in listops(400)} == set(range(10))


def test_the_corpus_is_read_as_a_table():
    lines = list(read_lines("listops"))
    assert tuple(lines) == listops_lines() and len(lines) == EXAMPLES + 1
    assert lines[0] == "label\ttext"
    assert all(LEAST <= len(line.split("\t")[1].split()) <= MOST for line in lines[1:100])
