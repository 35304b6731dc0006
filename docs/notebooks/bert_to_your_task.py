# %% [markdown]
# # From BERT to your task
#
# Labels are scarce, but text without labels is plentiful. BERT (Devlin et al., 2019) first learns from the text, by
# predicting masked words, and then from the labels.
#
# This tutorial does both from scratch: it pre-trains a very small BERT on messages to a shop, inspects what it has
# learned, and then classifies messages by department, with nine labels.
#
# It takes about 20 seconds on one core. To see more, increase `STEPS` and `CUSTOMERS`; to use your own text set `TEXT`
# to its file, with blank lines between documents.

# %%
import random
from pathlib import Path

import numpy as np
import torch

import ensue

FOLDER = Path("runs/bert_to_your_task")
"""All output goes here."""
CUSTOMERS = 3000
STEPS = {"pre-training": 380, "task": 60}
TEXT, FEW, TEST = FOLDER / "messages.txt", FOLDER / "few.tsv", FOLDER / "test.tsv"

torch.set_num_threads(1)
FOLDER.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Messages without labels
#
# Each customer writes two messages about things of one department, which is not named. A blank
# line separates customers.

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
# A quarter of the tokens is masked (BERT masks 15 %; with so little text more is better), and the model predicts
# them from the words to the left *and* right, unlike a causal language model. It also
# learns whether two messages belong together: half of the pairs are from two different customers.

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
print(f"masked tokens of held-out messages: {valid['accuracy']:.0%} correct")
print(f"{valid['masked_loss']:.2f} nats each; guessing by frequency: {valid['unigram_loss']:.2f}")
print(f"next-sentence prediction: {valid['next_accuracy']:.0%} correct")
assert valid["masked_loss"] < 0.6 * valid["unigram_loss"]

# %%
bert.look.curves()

# %% [markdown]
# ## What has it learned?
#
# Grammar alone would allow any of the eighteen things in the mask:

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
# It has learned that a flute goes with a drum and not with a spade, without being told about departments. It
# has not learned that no thing is named twice. Embeddings of things that occur in the same messages have become
# similar:

# %%
words = [word for goods in GOODS.values() for word in goods]
vectors = np.stack([bert.vectors.matrix[bert.vectors.index_of(word)] for word in words])
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
alike, same = vectors @ vectors.T, np.kron(np.eye(3), np.ones((6, 6))) - np.eye(18)
inside, across = alike[same == 1].mean(), alike[np.kron(np.eye(3), np.ones((6, 6))) == 0].mean()
print(f"mean cosine within a department {inside:.2f}, between departments {across:.2f}")
assert inside > across + 0.1

# %%
bert.look.words(" ".join(words))

# %% [markdown]
# The mask attends to the other things of the message:

# %%
bert.look.attention("the guitar, flute and [MASK] came.", layer=2, word="[MASK]")

# %% [markdown]
# ## Generation
#
# BERT does not predict the next word, so it cannot generate as GPT does. But it can fill many masks in rounds: all get
# a word, and the least certain ones are masked again and re-predicted.

# %%
written = bert.fill("my [MASK], [MASK] and [MASK] [MASK].", rounds=4, temperature=0.7, seed=3)
for step in written.steps:
    print(step["text"])

# %% [markdown]
# ## Nine labels
#
# The task is to predict the department of a message. We label three messages per department, and make it hard: the
# labelled ones name only three things of a department, the test messages only the *other* three.

# %%
few = [(one, message(chance, one, slice(0, 3))) for one in GOODS for _ in range(3)]
test = [(one, message(chance, one, slice(3, 6))) for one in GOODS for _ in range(60)]
for path, rows in ((FEW, few), (TEST, test)):
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
print(FEW.read_text(encoding="utf-8"))

# %% [markdown]
# We train the same network twice: from random weights, and from our BERT. A new linear layer on the
# token `[CLS]` has one output per label; all weights are trained.

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
# From random weights accuracy is near chance (one third): no thing in the test messages was ever labelled. With
# pre-trained weights *bowl* is already close to *pan*, so what is learned for one holds for the other.

# %%
for text in ("where is my trumpet?", "the mower broke.", "an oven, please."):
    (prediction,) = tuned.predict([text])
    probabilities = {label: round(p, 2) for label, p in prediction["probabilities"].items()}
    print(f"{text:24}", prediction["label"], probabilities)

# %% [markdown]
# It is confident even with other words around. For things of an unknown department it would be just as confident, and
# wrong: a classifier can only choose among its labels. What [CLS] attends to:

# %%
tuned.look.attention("send one oven, bowl and spoon.", layer=2, word="[CLS]")

# %% [markdown]
# The confusion matrix; `ensue score RUN test.tsv --out confusion.png` draws it.

# %%
figures = tuned.score(TEST).figures
for label, row in zip(figures["labels"], figures["confusion"]):
    print(f"{label:8}", row)

# %% [markdown]
# ## Another task on the same BERT
#
# Tagging: which words are things? The file has two columns, and a blank line after each sentence.

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
(prediction,) = tagger.predict(["where are trumpet , mower and bowl ?"])
entities = [entity["text"] for entity in prediction["entities"]]
print(entities)
assert entities == ["trumpet", "mower", "bowl"]

# %% [markdown]
# ## Your task
#
# - A table with a text and a label: `ensue.fit("classify", "mine.tsv", begin_with=run)`; columns are detected, or set:
#   `settings={"data.columns": "text=2,label=1"}`.
# - Pairs of texts, numbers, several choices, tags, answers in a text: `pair`, `regress`, `choose`, `tag`, `answer`.
# - A model pre-trained on much more text is usually better than your own small BERT: `ensue convert path/to/hf-model
#   --out runs/minilm`, then `begin_with="runs/minilm"`: 90.0 % on SST-2 after 20 minutes on two cores.
# - Accuracy against the number of labels:
#   `ensue.race("mine.tsv", task="classify", begin_with=run, labels=(100, 300, 1000))`.
