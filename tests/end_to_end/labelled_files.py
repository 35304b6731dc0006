"""Small files of every task that labels, in which what is to be learnt is plain to see."""

import json
import random

KINDS = {"good": ("fine", "lovely", "great"), "bad": ("awful", "dull", "poor")}
FILLERS = ("film", "book", "meal", "song", "it", "was", "the", "really")


def phrase(chance, kind):
    words = [*chance.choices(FILLERS, k=3), *chance.choices(KINDS[kind], k=2)]
    chance.shuffle(words)
    return " ".join(words)


def write_all(folder, count=40):
    """A file for each task, and documents; answers what each is called."""
    chance = random.Random(0)
    kinds = [chance.choice(sorted(KINDS)) for _ in range(count)]
    texts = [phrase(chance, kind) for kind in kinds]
    others = [chance.choice(sorted(KINDS)) for _ in range(count)]
    seconds = [phrase(chance, kind) for kind in others]
    rows = list(zip(texts, seconds, kinds, others))
    same = ["yes" if a == b else "no" for _, _, a, b in rows]
    scores = [f"{5 * (a == b) + chance.random():.2f}" for _, _, a, b in rows]
    files = {
        "classify": "text\tlabel\n" + "".join(f"{t}\t{k}\n" for t, k in zip(texts, kinds)),
        "pair": "sentence1\tsentence2\tlabel\n" + "".join(f"{a}\t{b}\t{s}\n" for (a, b, *_), s in zip(rows, same)),
        "regress": "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{s}\n" for (a, b, *_), s in zip(rows, scores)),
        "tag": "".join(_tagged(text) for text in texts),
        "choose": "".join(_choice(chance, text, kind) for text, kind in zip(texts, kinds)),
        "answer": json.dumps({"data": [{"title": "t", "paragraphs": [_asked(n, t) for n, t in enumerate(texts)]}]}),
        "documents": _documents(chance),
    }
    endings = {"tag": "conll", "choose": "jsonl", "answer": "json", "documents": "txt"}
    found = {}
    for name, text in files.items():
        found[name] = folder / f"{name}.{endings.get(name, 'tsv')}"
        found[name].write_text(text, encoding="utf-8")
    return found


def _tagged(text):
    tags = dict.fromkeys(KINDS["good"], "B-GOOD") | dict.fromkeys(KINDS["bad"], "B-BAD")
    return "".join(f"{word} {tags.get(word, 'O')}\n" for word in text.split()) + "\n"


def _choice(chance, text, kind):
    right = chance.randrange(3)
    endings = [" ".join(chance.choices(FILLERS, k=2)) for _ in range(3)]
    endings[right] = f"so {kind}"
    return json.dumps({"context": text, "endings": endings, "label": right}) + "\n"


def _asked(number, text):
    word = next(word for word in text.split() if word not in FILLERS)
    answers = [{"text": word, "answer_start": text.index(word)}] if number % 3 else []
    asked = {"id": f"q{number}", "question": "how was it?", "answers": answers, "is_impossible": not answers}
    return {"context": text, "qas": [asked]}


def _documents(chance):
    blocks = []
    for _ in range(24):
        kind = chance.choice(sorted(KINDS))
        blocks.append("".join(phrase(chance, kind).capitalize() + ".\n" for _ in range(4)))
    return "\n".join(blocks)
