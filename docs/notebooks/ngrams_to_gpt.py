# %% [markdown]
# # From n-grams to GPT
#
# A language model says what comes next. Given the words so far, it gives every word of its vocabulary a probability:
#
# $$P(x_{t+1} \mid x_1, \ldots, x_t)$$
#
# This tutorial builds four of them on the same text: counts, smoothed counts, a recurrent network and a small GPT.
# Each solves a problem that the one before it has, and each is measured on sentences that it never saw.
#
# It takes about 20 seconds on one core. To see more, raise `STEPS` and `SENTENCES`, or put a text of your own into
# `TEXT`.

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
"""Everything that is made here goes there."""
SENTENCES = 3000
STEPS = {"lstm": 900, "gpt": 300}
"""Of training."""
TEXT, HELD = FOLDER / "train.txt", FOLDER / "held.txt"

torch.set_num_threads(1)
FOLDER.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A text whose rules we know
#
# With a real text nobody knows how well it could be predicted. So we begin with one that we make ourselves: somebody,
# perhaps somewhere and at some time, did something with a thing of their own.

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
SAID = 0.6
"""How often a place is said, and how often a time."""


def perhaps(chance, phrases):
    return [chance.choice(phrases)] if chance.random() < SAID else []


def sentence(chance):
    whose = chance.choice(list(PEOPLE))
    verb = chance.choice(list(THINGS))
    start = [chance.choice(PEOPLE[whose]), *perhaps(chance, PLACES), *perhaps(chance, TIMES)]
    return " ".join([*start, verb, whose, chance.choice(THINGS[verb]), "."])


chance = random.Random(0)
train, held = ([sentence(chance) for _ in range(count)] for count in (SENTENCES, 300))
TEXT.write_text("\n".join(train) + "\n", encoding="utf-8")
HELD.write_text("\n".join(held) + "\n", encoding="utf-8")
print("\n".join(train[:5]))

# %% [markdown]
# Since we know the rules, we know how many choices a sentence holds, and so the best **perplexity** that any model
# can have: the number of words it hesitates between, on average, if it makes no mistake at all. One word in several
# is a real choice (who, where, what); most are settled by those before them.

# %%
said = -SAID * math.log(SAID) - (1 - SAID) * math.log(1 - SAID)
nats = (
    math.log(9) + said + SAID * math.log(len(PLACES)) + said + SAID * math.log(len(TIMES)) + math.log(3) + math.log(4)
)
tokens = sum(len(one.split()) + 1 for one in held) / len(held)  # the end of the line is a token too
best = math.exp(nats / tokens)
print(f"{nats:.2f} nats of choice in a sentence of {tokens:.1f} tokens: a perplexity of {best:.2f} at best")

# %% [markdown]
# ## Counting
#
# The simplest model asks: after these words, what came next in the text, and how often? A **bigram** looks at one
# word,
#
# $$P(w \mid v) = \frac{\mathrm{count}(v\,w)}{\mathrm{count}(v)}$$
#
# and a few lines of Python are all it takes.

# %%
words = " </s> ".join(train).split()
pairs, firsts = Counter(pairwise(words)), Counter(words[:-1])
by_hand = {w: count / firsts["opened"] for (v, w), count in pairs.items() if v == "opened"}
print(by_hand)

# %% [markdown]
# ensue's `ngram` counts the same. `order` is n, and the mode `mle` means these plain frequencies.

# %%
common = {"valid": HELD, "tokenizer": "word", "force": True}
bigram = ensue.fit("ngram", TEXT, out=FOLDER / "bigram", order=2, mode="mle", **common)
print(bigram.next("the students opened", top=3))

for word, p in bigram.next("the students opened", top=3):
    assert abs(p - by_hand[word]) < 1e-6

# %% [markdown]
# After *the students opened* it hesitates evenly between *her*, *his* and *their*: it looks at *opened* alone.
#
# ## More words, and the price
#
# Look further back, then. Every order gets two models: plain frequencies, and counts smoothed by Kneser–Ney, which
# keep something for what was never seen.

# %%
orders = {}
for order in (1, 2, 3, 4, 6):
    orders[order] = [
        ensue.fit("ngram", TEXT, out=FOLDER / f"{mode}{order}", order=order, mode=mode, **common)
        for mode in ("mle", "kneser-ney")
    ]
    plain, smooth = (run.score(HELD).perplexity["token"] for run in orders[order])
    print(f"order {order}: perplexity {plain:8.2f} from frequencies, {smooth:6.2f} smoothed; at best {best:.2f}")

# %% [markdown]
# The first steps help a lot. Then it stops getting better, while the table grows:

# %%
look("ngrams", [TEXT])

# %% [markdown]
# In so small a world frequencies do about as well as smoothed counts: nearly all that can happen has happened. Step
# outside it once, and they fail. Nobody opened an umbrella in our text, so frequencies say that it cannot be: its
# probability is 0 (ensue keeps $10^{-12}$, so that a sum stays a number), and so is that of the whole sentence. A
# smoothed model is surprised, and goes on.

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
# ## What no n-gram sees
#
# *The girl near the old school after the rain opened* … whose? You know: *her*. The word that decides it is eight
# words back, and the words between are the same whoever it was. To see so far, an n-gram needs a count for every
# person × place × time × verb.

# %%
far = "the girl near the old school after the rain opened"
ngram = orders[3][1]
ngram.look.next(far, top=4)

# %%
guess = dict(ngram.next(far, top=5))
print({word: round(p, 2) for word, p in guess.items()})
assert guess["her"] < 0.6 and guess["his"] > 0.2  # it has forgotten the girl

# %% [markdown]
# ## A network that remembers
#
# A **recurrent network** keeps a vector, the state, and rewrites it at each word: $h_t = f(h_{t-1}, x_t)$. Whatever
# it needs later it can carry along. The LSTM has gates that decide what is kept. `fit` trains it by gradient descent;
# nothing but the name of the system changes.

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
# It remembers the girl. Where? A forget gate near 1 (dark) keeps what a unit's cell holds, one near 0 erases it.
# Below, in the cells, some units keep their colour from *girl* until *opened*; others change with every word.

# %%
lstm.look.gates(far + " her", units=12)

# %% [markdown]
# ## A model that looks back
#
# A **GPT** keeps no summary. It keeps all words so far and looks back at them: each word asks (a query), each word
# before it answers (a key), and the better they match, the more of that word's value flows in. This is attention, and
# a stack of it with small networks in between is a Transformer.

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
# What does *opened* attend to, when it has to predict whose? One colour per head:

# %%
gpt.look.attention(far, layer=1, word="opened")

# %%
seen = gpt.look.attention(far, layer=1).numbers
place, most = seen["tokens"].index("opened"), {}
for head, weights in enumerate(seen["layers"]["1"], start=1):
    share, word = max(zip(weights[place], seen["tokens"]))
    most[word] = max(share, most.get(word, 0))
    print(f"head {head} gives {share:.2f} of its attention to {word!r}")
assert most["girl"] > 0.5

# %% [markdown]
# Heads have learned to find the person, however far back. Nobody told them to: it made the text less surprising, and
# that is all that they were trained for.

# %% [markdown]
# ## Which one is best?
#
# All on the same held-out sentences. Perplexity per token can be compared here because all read the same words; bits
# per byte can be compared always.

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
# Figures are one thing, what a model writes is another. We let each write and ask of every sentence: is it one that
# the rules allow? The n-grams go wrong where the subject is far away.

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
    whole = [line.strip() for lines in written for line in lines[:-1]]  # the last one is cut short
    right[name] = sum(line in allowed for line in whole) / len(whole)
    wrong = next((line for line in whole if line not in allowed), "none")
    print(f"{name:18} {right[name]:4.0%} of {len(whole)} sentences are allowed; one that is not: {wrong}")

assert right["lstm"] > right["n-gram of order 3"] > right["bigram, smoothed"]

# %% [markdown]
# ## On a real text
#
# Our text was made so that memory pays. Is it so in general? `race` gives systems the same text, the same time and
# the same tokenizer, and asks. Here it is Python's language reference, and one second each.

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
# Counting wins. It has seen the whole text in a moment, and one second is not enough for a network to learn how words
# are spelt. With minutes instead of a second, and a larger text, the order may well be another one:
# `ensue.race("pydoc", budget="10m")`. This is why one races on one's own text instead of believing a tutorial.
#
# Next: [from seq2seq to the Transformer](seq2seq_to_transformer.py), where a model reads one sentence and writes
# another.
