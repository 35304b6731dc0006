# %% [markdown]
# # From n-grams to GPT
#
# A language model predicts the next word. Given the words so far, it gives every word of its vocabulary a probability:
#
# $$P(x_{t+1} \mid x_1, \ldots, x_t)$$
#
# This tutorial builds four of them on the same text: counts, smoothed counts, a recurrent network and a small GPT.
# Each solves a problem of the previous one, and each is scored on held-out sentences.
#
# It takes about 20 seconds on one core. To see more, increase `STEPS` and `SENTENCES`, or set `TEXT` to a text of your
# own.

# %%
import math
import pydoc_data.topics
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch

import ensue
from ensue.verbs.look import look

FOLDER = Path("runs/ngrams_to_gpt")
"""All output goes here."""
SENTENCES = 3000
STEPS = {"lstm": 900, "gpt": 300}
"""Training steps."""
TEXT, HELD = FOLDER / "train.txt", FOLDER / "held.txt"

torch.set_num_threads(1)
FOLDER.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A text with known rules
#
# For a real text the best possible prediction is unknown. So we start with a generated one: a person, optionally a
# place and a time, a verb, and a thing that belongs to the person.

# %%
PEOPLE = {
    "her": ["the girl", "the queen", "my aunt"],
    "his": ["the boy", "the king", "my uncle"],
    "their": ["the students", "the girls", "the kings"],
}
PLACES = ["in the garden", "near the old school", "at the end of the street", "on the train"]
THINGS = {
    "opened": ["books", "letters", "laptops", "bags"],
    "forgot": ["keys", "homework", "umbrellas", "bags"],
    "read": ["books", "letters", "papers", "homework"],
}
TIMES = ["last week", "after the rain", "in the morning"]
OPTIONAL = 0.6
"""Probability of a place, and of a time."""


def optional(chance, phrases):
    return [chance.choice(phrases)] if chance.random() < OPTIONAL else []


def sentence(chance):
    whose = chance.choice(list(PEOPLE))
    verb = chance.choice(list(THINGS))
    start = [chance.choice(PEOPLE[whose]), *optional(chance, PLACES), *optional(chance, TIMES)]
    return " ".join([*start, verb, whose, chance.choice(THINGS[verb]), "."])


chance = random.Random(0)
train, held = ([sentence(chance) for _ in range(count)] for count in (SENTENCES, 300))
TEXT.write_text("\n".join(train) + "\n", encoding="utf-8")
HELD.write_text("\n".join(held) + "\n", encoding="utf-8")
print("\n".join(train[:5]))

# %% [markdown]
# The rules give the entropy of a sentence, and so the best possible **perplexity**: the average number of words
# that an ideal model chooses between. Only some words are a real choice (who, where, what); most are determined by
# those before them.

# %%
presence = -OPTIONAL * math.log(OPTIONAL) - (1 - OPTIONAL) * math.log(1 - OPTIONAL)
choices = math.log(9) + OPTIONAL * math.log(len(PLACES)) + OPTIONAL * math.log(len(TIMES)) + math.log(3) + math.log(4)
nats = choices + 2 * presence
tokens = sum(len(one.split()) + 1 for one in held) / len(held)  # the end of the line is a token too
best = math.exp(nats / tokens)
print(f"{nats:.2f} nats per sentence of {tokens:.1f} tokens: the best perplexity is {best:.2f}")

# %% [markdown]
# ## Counting
#
# The simplest model counts how often each word followed the previous words. A **bigram** uses one
# word,
#
# $$P(w \mid v) = \frac{\mathrm{count}(v\,w)}{\mathrm{count}(v)}$$
#
# which takes a few lines of Python.

# %%
words = " </s> ".join(train).split()
pairs, firsts = Counter(pairwise(words)), Counter(words[:-1])
by_hand = {w: count / firsts["opened"] for (v, w), count in pairs.items() if v == "opened"}
print(by_hand)

# %% [markdown]
# ensue's `ngram` does the same. `order` is n; the mode `mle` is plain relative frequencies.

# %%
common = {"valid": HELD, "tokenizer": "word", "force": True}
bigram = ensue.fit("ngram", TEXT, out=FOLDER / "bigram", order=2, mode="mle", **common)
print(bigram.next("the students opened", top=3))

for word, p in bigram.next("the students opened", top=3):
    assert abs(p - by_hand[word]) < 1e-6

# %% [markdown]
# After *the students opened*, *her*, *his* and *their* are equally probable: the bigram sees only *opened*.
#
# ## Longer contexts
#
# Every order gets two models: relative frequencies, and counts with Kneser–Ney smoothing, which reserves probability
# for unseen n-grams.

# %%
orders = {}
for order in (1, 2, 3, 4, 6):
    orders[order] = [
        ensue.fit("ngram", TEXT, out=FOLDER / f"{mode}{order}", order=order, mode=mode, **common)
        for mode in ("mle", "kneser-ney")
    ]
    plain, smooth = (run.score(HELD).perplexity["token"] for run in orders[order])
    print(f"order {order}: perplexity {plain:8.2f} from frequencies, {smooth:6.2f} smoothed; the best is {best:.2f}")

# %% [markdown]
# The first orders help a lot. Then the score stops improving, while the table grows:

# %%
look("ngrams", [TEXT])

# %% [markdown]
# On such a small language frequencies score about as well as smoothed counts, because nearly all possible n-grams have
# been seen. Unseen ones fail: nobody opened umbrellas in our text, so their relative frequency is 0 (ensue uses
# $10^{-12}$ to stay finite), and so is the probability of the whole sentence. A smoothed model is surprised, but not
# that much.

# %%
odd = "my uncle on the train opened his umbrellas ."
for name, run in zip(("frequencies", "smoothed"), orders[4]):
    costs = [(word, round(-value / math.log(2), 1)) for word, value in run.per_token(text=odd)]
    print(f"{name:12}", costs)
worst, mild = (max(-value for _, value in run.per_token(text=odd)) for run in orders[4])
assert worst > 2 * mild

# %%
orders[4][1].look.surprise(odd)

# %% [markdown]
# ## The limit of n-grams
#
# After *the girl near the old school after the rain opened* comes *her*. The word that decides it is eight
# words back. An n-gram that long needs a count for every person × place × time × verb.

# %%
far = "the girl near the old school after the rain opened"
ngram = orders[3][1]
ngram.look.next(far, top=4)

# %%
guess = dict(ngram.next(far, top=5))
print({word: round(p, 2) for word, p in guess.items()})
assert guess["her"] < 0.6 and guess["his"] > 0.2  # it has forgotten the girl

# %% [markdown]
# ## A recurrent network
#
# A **recurrent network** has a hidden state that it updates at each word: $h_t = f(h_{t-1}, x_t)$. It can carry
# information over any distance. The LSTM has gates that decide what is kept. `fit` trains it by gradient descent;
# only the name of the system changes.

# %%
training = {"train.batch": 16, "train.length": 32, "train.eval_every": 50}
lstm = ensue.fit(
    "lstm",
    TEXT,
    out=FOLDER / "lstm",
    hidden=64,
    layers=1,
    dropout=0.0,
    settings={**training, "train.steps": STEPS["lstm"], "train.lr": 1e-2},
    **common,
)
print(f"{lstm.config['figures']['parameters']:,} parameters, perplexity {lstm.score(HELD).perplexity['token']:.3f}")
print(lstm.next(far, top=3))
assert dict(lstm.next(far, top=1)).keys() == {"her"}

# %% [markdown]
# It remembers the girl. A forget gate near 1 (dark) keeps the value of a unit's cell, one near 0 erases it.
# In the cells below, some units keep their colour from *girl* until *opened*; others change with every word.

# %%
lstm.look.gates(far + " her", units=12)

# %% [markdown]
# ## Attention
#
# A **GPT** has no summary of the past. It keeps all words so far and attends to them: each word has a query, which is
# compared with the keys of the words before it; the better they match, the more of that word's value is added. A stack
# of such layers with feed-forward networks in between is a Transformer.

# %%
gpt = ensue.fit(
    "gpt",
    TEXT,
    out=FOLDER / "gpt",
    hidden=64,
    layers=1,
    heads=4,
    context=64,
    dropout=0.0,
    settings={**training, "train.steps": STEPS["gpt"], "train.lr": 5e-3},
    **common,
)
print(f"{gpt.config['figures']['parameters']:,} parameters, perplexity {gpt.score(HELD).perplexity['token']:.3f}")
print(gpt.next(far, top=3))
assert dict(gpt.next(far, top=1)).keys() == {"her"}

# %% [markdown]
# What *opened* attends to, one colour per head:

# %%
gpt.look.attention(far, layer=1, word="opened")

# %%
seen = gpt.look.attention(far, layer=1).numbers
position, most = seen["tokens"].index("opened"), {}
for head, weights in enumerate(seen["layers"]["1"], start=1):
    share, word = max(zip(weights[position], seen["tokens"]))
    most[word] = max(share, most.get(word, 0))
    print(f"head {head} gives {share:.2f} of its attention to {word!r}")
assert most["girl"] > 0.5

# %% [markdown]
# Heads have learned to find the person, however far back, only because that improves the prediction.

# %% [markdown]
# ## Comparison
#
# All models on the same held-out sentences. Perplexity per token can be compared here because all use the same tokens;
# bits per byte can always be compared.

# %%
models = {"bigram, smoothed": orders[2][1], "n-gram of order 3": ngram, "n-gram of order 6": orders[6][1]}
models |= {"lstm": lstm, "gpt": gpt}
scores = {name: run.score(HELD) for name, run in models.items()}
for name, score in scores.items():
    print(f"{name:18} perplexity {score.perplexity['token']:.3f}   {score.bits_per_byte:.4f} bits per byte")
print(f"{'the rules':18} perplexity {best:.3f}")

assert scores["lstm"].perplexity["token"] < scores["n-gram of order 3"].perplexity["token"]

# %%
lstm.look.curves(beside=[gpt])

# %% [markdown]
# Now each model generates text, and we count the sentences that the rules allow. The n-grams fail where the
# subject is far away.

# %%
allowed = {
    " ".join([name, *place, *time, verb, whose, thing, "."])
    for whose, people in PEOPLE.items()
    for name in people
    for place in [[], *([one] for one in PLACES)]
    for time in [[], *([one] for one in TIMES)]
    for verb, things in THINGS.items()
    for thing in things
}
right = {}
for name, run in models.items():
    written = [one.text.splitlines() for one in run.generate(tokens=120, n=8, seed=1)]
    whole = [line.strip() for lines in written for line in lines[:-1]]  # the last one is incomplete
    right[name] = sum(line in allowed for line in whole) / len(whole)
    wrong = next((line for line in whole if line not in allowed), "none")
    print(f"{name:18} {right[name]:4.0%} of {len(whole)} sentences are allowed; one that is not: {wrong}")

assert right["lstm"] > right["n-gram of order 3"] > right["bigram, smoothed"]

# %% [markdown]
# ## On a real text
#
# Our text was made to reward memory. `race` compares systems on any text with the same time and the
# same tokenizer. Here the text is Python's language reference, with one second each.

# %%
reference = FOLDER / "reference.txt"
topics = pydoc_data.topics.topics
reference.write_text("".join(topics[name] for name in sorted(topics))[:60_000], encoding="utf-8")
race = ensue.race(
    reference,
    systems=("ngram", "lstm", "gpt"),
    budget="1s",
    out=FOLDER / "race",
    settings={"lstm.hidden": 128, "gpt.hidden": 64, "gpt.layers": 2, "data.eval_tokens": 2000},
    force=True,
)
for entrant in race.ranked():
    print(f"{entrant.system:6} {entrant.bits_per_byte:.2f} bits per byte after {entrant.seconds:.1f} s")
assert race.ranked()[0].system == "ngram"

# %%
look("race", [FOLDER / "race"])

# %% [markdown]
# Counting wins: it sees the whole text in a moment, and one second is not enough for a network to learn how words
# are spelt. With minutes and a larger text the ranking may differ: `ensue.race("pydoc", budget="10m")`.
# Race on your own text.
#
# Next: [from seq2seq to the Transformer](seq2seq_to_transformer.py), where a model translates sentences.
