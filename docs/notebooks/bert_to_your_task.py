# %% [markdown]
# # From BERT to your task
#
# You have a task and few labels: nobody likes to label. But you have plenty of text without any. BERT's idea (Devlin
# et al., 2019) is to learn from the text first, by filling in masked words, and from the labels afterwards.
#
# This tutorial does both from scratch: it pre-trains a very small BERT on messages to a shop, looks at what it has
# understood, and then sorts messages by department, with nine labels.
#
# It takes about 20 seconds on one core. To see more, raise `STEPS` and `CUSTOMERS`; for a text of your own put its
# file into `TEXT`, documents apart by blank lines.

# %%
import random
from pathlib import Path

import numpy as np
import torch

import ensue

FOLDER = Path("runs/bert_to_your_task")
"""Everything that is made here goes there."""
CUSTOMERS = 3000
STEPS = {"pre-training": 380, "task": 60}
TEXT, FEW, TEST = FOLDER / "messages.txt", FOLDER / "few.tsv", FOLDER / "test.tsv"

torch.set_num_threads(1)
FOLDER.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Messages without labels
#
# Each customer writes two messages about things of one department. The departments are not written anywhere; a blank
# line stands between customers.

# %%
GOODS = {
    "kitchen": ["pan", "knife", "kettle", "oven", "spoon", "bowl"],
    "garden": ["rake", "spade", "hose", "seed", "fence", "mower"],
    "music": ["guitar", "drum", "violin", "flute", "piano", "trumpet"],
}
MESSAGES = [
    "my {}, {} and {} broke.",
    "the {}, {} and {} came.",
    "send one {}, {} and {}.",
    "where are {}, {} and {}?",
]


def message(chance, department, words=slice(None)):
    return chance.choice(MESSAGES).format(*chance.sample(GOODS[department][words], 3))


chance = random.Random(0)
customers = [[message(chance, one) for _ in range(2)] for one in chance.choices(list(GOODS), k=CUSTOMERS)]
TEXT.write_text("\n\n".join("\n".join(lines) for lines in customers) + "\n", encoding="utf-8")
print("\n\n".join("\n".join(lines) for lines in customers[:3]))

# %% [markdown]
# ## Pre-training
#
# A quarter of the tokens is masked (BERT masks 15 %; on so little text more is better), and the model has to say what
# they were. It sees what stands left *and* right of a gap, which a language model that writes from left to right may
# not. It also learns to tell whether two messages belong together: half of the pairs are from two different
# customers.

# %%
bert = ensue.fit(
    "bert",
    TEXT,
    out=FOLDER / "bert",
    hidden=128,
    layers=2,
    heads=4,
    context=64,
    dropout=0.0,
    seed=1,
    settings={
        "train.steps": STEPS["pre-training"],
        "train.batch": 32,
        "train.length": 32,
        "train.lr": 2e-3,
        "train.warmup": 40,
        "train.mask": 0.25,
        "train.eval_every": 95,
        "train.checkpoint_every": 1000,
    },
    force=True,
)
valid = bert.config["figures"]["valid"]
print(f"{bert.config['figures']['parameters']:,} parameters")
print(f"hidden tokens on messages that were held out: {valid['accuracy']:.0%} right")
print(f"{valid['masked_loss']:.2f} nats each; guessing by frequency costs {valid['unigram_loss']:.2f}")
print(f"do two messages belong together: {valid['next_accuracy']:.0%} right")
assert valid["masked_loss"] < 0.6 * valid["unigram_loss"]

# %%
bert.look.curves()

# %% [markdown]
# ## What does it know?
#
# Hide a word and ask. Grammar alone would allow any of the eighteen things:

# %%
for text in (
    "the guitar, flute and [MASK] came.",
    "the knife, bowl and [MASK] came.",
    "where [MASK] rake, hose and seed?",
):
    gap = bert.fill(text).gaps[0]
    print(f"{text:38}", ", ".join(f"{word} {p:.2f}" for word, p in gap))

guesses = [word for word, _ in bert.fill("the guitar, flute and [MASK] came.").gaps[0]]
assert sum(word in GOODS["music"] for word in guesses) >= 3

# %% [markdown]
# It knows that a flute goes with a drum and not with a spade, though nobody told it that there are departments. It
# has not noticed that nobody names a thing twice. The words have moved: every token has a vector, and things that
# stand in the same messages have come together.

# %%
words = [word for goods in GOODS.values() for word in goods]
vectors = np.stack([bert.vectors.matrix[bert.vectors.index_of(word)] for word in words])
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
alike, same = vectors @ vectors.T, np.kron(np.eye(3), np.ones((6, 6))) - np.eye(18)
inside, across = alike[same == 1].mean(), alike[np.kron(np.eye(3), np.ones((6, 6))) == 0].mean()
print(f"mean cosine of two things of one department {inside:.2f}, of two {across:.2f}")
assert inside > across + 0.1

# %%
bert.look.words(" ".join(words))

# %% [markdown]
# And where does the gap look, when it is filled in? At the other things of the message, which are what it depends on.

# %%
bert.look.attention("the guitar, flute and [MASK] came.", layer=2, word="[MASK]")

# %% [markdown]
# ## Can it write?
#
# It has no next word to say, so it cannot write as GPT does. But it can fill many gaps, in rounds: all get a word,
# the ones it is least sure of are masked again and filled again.

# %%
written = bert.fill("my [MASK], [MASK] and [MASK] [MASK].", rounds=4, temperature=0.7, seed=3)
for step in written.steps:
    print(step["text"])

# %% [markdown]
# ## Nine labels
#
# Now the task: which department is a message for? We label three messages each, and make it hard: the labelled ones
# name only three things of a department, and those that we ask about later only the *other* three.

# %%
few = [(one, message(chance, one, slice(0, 3))) for one in GOODS for _ in range(3)]
test = [(one, message(chance, one, slice(3, 6))) for one in GOODS for _ in range(60)]
for path, rows in ((FEW, few), (TEST, test)):
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
print(FEW.read_text(encoding="utf-8"))

# %% [markdown]
# The same network twice: once from random weights, once from those of our BERT. On top of the mark before the text,
# `[CLS]`, comes one new layer with an output a label, and everything is trained.

# %%
training = {"train.steps": STEPS["task"], "train.lr": 1e-3, "train.eval_every": 1000, "train.checkpoint_every": 1000}
scratch = ensue.fit(
    "classify",
    FEW,
    valid=TEST,
    model="bert",
    out=FOLDER / "scratch",
    hidden=128,
    layers=2,
    heads=4,
    context=64,
    tokenizer=str(FOLDER / "bert" / "tokenizer.json"),
    settings=training,
    force=True,
)
tuned = ensue.fit("classify", FEW, valid=TEST, begin_with=bert, out=FOLDER / "tuned", settings=training, force=True)
accuracy = {name: run.score(TEST).figures["accuracy"] for name, run in (("scratch", scratch), ("pre-trained", tuned))}
print({name: f"{share:.0%}" for name, share in accuracy.items()})
assert accuracy["pre-trained"] > accuracy["scratch"] + 0.2

# %% [markdown]
# From random weights it is a matter of luck (a third is chance): no word of these messages was ever labelled. From
# BERT's weights, *bowl* is already where *pan* is, and what was learned of one holds for the other. That is what
# pre-training buys.

# %%
for text in ("where is my trumpet?", "the mower broke.", "an oven, please."):
    (said,) = tuned.predict([text])
    print(f"{text:24}", said["label"], {label: round(p, 2) for label, p in said["probabilities"].items()})

# %% [markdown]
# It is sure, even where the words around are new to it. With another department in the world it would be just as
# sure, and wrong: a classifier can only choose among its labels. What [CLS], by which it decides, attends to:

# %%
tuned.look.attention("send one oven, bowl and spoon.", layer=2, word="[CLS]")

# %% [markdown]
# Which labels are taken for which stands in the score; `ensue score RUN test.tsv --out confusion.png` draws it.

# %%
figures = tuned.score(TEST).figures
for label, row in zip(figures["labels"], figures["confusion"]):
    print(f"{label:8}", row)

# %% [markdown]
# ## Another task on the same BERT
#
# A label for every word: which words are things? Two columns, a blank line after each sentence.

# %%
TAGS = FOLDER / "tags.conll"
goods = set(words)
labelled = [message(chance, one, slice(0, 3)) for one in GOODS for _ in range(4)]
spaced = [text.replace(",", " ,").replace(".", " .").replace("?", " ?").split() for text in labelled]
TAGS.write_text(
    "\n\n".join("\n".join(f"{word} {'B-THING' if word in goods else 'O'}" for word in line) for line in spaced) + "\n",
    encoding="utf-8",
)
tagger = ensue.fit(
    "tag", TAGS, begin_with=bert, out=FOLDER / "tagger", settings={**training, "data.holdout": 0}, force=True
)
(said,) = tagger.predict(["where are trumpet , mower and bowl ?"])
print([found["text"] for found in said["entities"]])
assert [found["text"] for found in said["entities"]] == ["trumpet", "mower", "bowl"]

# %% [markdown]
# ## Your task
#
# - A table with a text and a label: `ensue.fit("classify", "mine.tsv", begin_with=run)`; columns are found, or said:
#   `settings={"data.columns": "text=2,label=1"}`.
# - Pairs of texts, numbers, several choices, tags, answers in a text: `pair`, `regress`, `choose`, `tag`, `answer`.
# - A small BERT of your own is rarely the best start. `ensue convert path/to/hf-model --out runs/minilm` takes one
#   that has read much more, and `begin_with="runs/minilm"` begins with it: 90.0 % on SST-2 after 20 minutes on two
#   cores.
# - How many labels are worth it: `ensue.race("mine.tsv", task="classify", begin_with=run, labels=(100, 300, 1000))`.
