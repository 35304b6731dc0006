"""All English text of the data folder as one corpus: a text a line, words between white space, about ten million.

Texts come from text/, from the English sides of translation/, from the texts of labelled/, from the sentences of
tagged/, from the passages and questions of answers/, from probes/lambada.jsonl.gz and from the captions of
pictures/flickr8k. A text that comes again word for word is left out (a review stands beside each question about it).
Words that language-model programs reserve (<s>, </s>, <unk>) are written with round brackets. Every tenth line is held
out.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

RESERVED = {"<s>": "(s)", "</s>": "(/s)", "<unk>": "(unk)", "<UNK>": "(unk)"}
HELD_OUT = 10
"""One line of so many is held out."""
PLAIN = (
    "text/ptb/train.txt.gz",
    "text/brown.txt.gz",
    "text/wikitext2.valid.txt.gz",
    "text/tinyshakespeare.txt.gz",
    "translation/multi30k/train.en.gz",
    "translation/multi30k/valid.en.gz",
    "probes/agreement/linzen_testset.subj_agr_filtered.text.gz",
)
COLUMNS = {
    "translation/tatoeba.fra-eng.tsv.gz": (0,),
    "labelled/imdb/train.tsv.gz": (1,),
    "labelled/imdb/test5k.tsv.gz": (1,),
    "labelled/sst2/train.tsv.gz": (0,),
    "labelled/sst2/train_tail.tsv.gz": (0,),
    "labelled/cola/train.tsv.gz": (3,),
    "labelled/rte/train.tsv.gz": (1, 2),
    "labelled/mrpc/msr-para-train.tsv.gz": (3, 4),
    "labelled/stsb/train.csv.gz": (5, 6),
    "pictures/flickr8k/Flickr8k.token.txt.gz": (1,),
}
TAGGED = {
    "tagged/conll2003/train.txt.gz": 0,
    "tagged/conll2000/train.txt.gz": 0,
    "tagged/ud_ewt/en_ewt-ud-train.conllu.gz": 1,
}


def _opened(path: Path) -> IO[str]:
    return io.TextIOWrapper(gzip.open(path), encoding="utf-8", errors="replace", newline="\n")


def english(data: Path) -> Iterator[str]:
    """Every text, in a fixed order."""
    for name in PLAIN:
        with _opened(data / name) as file:
            yield from file
    for name, columns in COLUMNS.items():
        with _opened(data / name) as file:
            for line in file:
                fields = line.rstrip("\n").split("\t")
                yield from (fields[column] for column in columns if column < len(fields))
    for name, column in TAGGED.items():
        with _opened(data / name) as file:
            yield from _sentences(file, column)
    for path in sorted((data / "answers" / "subjqa").glob("*.csv.gz")):
        with _opened(path) as file:
            for row in csv.DictReader(file):
                yield row["question"]
                yield row["review"].removesuffix("ANSWERNOTFOUND")
    with _opened(data / "answers" / "xquad.en.json.gz") as file:
        for article in json.load(file)["data"]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                yield from (asked["question"] for asked in paragraph["qas"])
    for path in sorted((data / "answers" / "nq_open").glob("NQ-open*.jsonl.gz")):
        with _opened(path) as file:
            yield from (json.loads(line)["question"] for line in file)
    with _opened(data / "probes" / "lambada.jsonl.gz") as file:
        yield from (json.loads(line)["text"] for line in file)


def _sentences(file: IO[str], column: int) -> Iterator[str]:
    """The sentences of a file with a word a line."""
    words: list[str] = []
    for line in file:
        fields = line.split()
        if fields and not line.startswith("#"):
            words.append(fields[column])
        elif words:
            yield " ".join(words)
            words = []
    yield " ".join(words)


def write_english(data: Path, train: Path, held: Path) -> tuple[int, int]:
    """One text a line into two files; answers the words of each."""
    words, seen, number = [0, 0], set(), 0
    with train.open("w", encoding="utf-8") as most, held.open("w", encoding="utf-8") as few:
        for line in english(data):
            split = [RESERVED.get(word, word) for word in line.replace("\0", " ").split()]
            text = " ".join(split)
            if text and text not in seen:
                seen.add(text)
                number += 1
                out = number % HELD_OUT == HELD_OUT - 1
                words[out] += len(split)
                (few if out else most).write(text + "\n")
    return words[0], words[1]
