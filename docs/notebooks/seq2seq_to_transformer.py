# %% [markdown]
# # From seq2seq to the Transformer
#
# A model that translates is a language model with something to say: it writes the target word by word, and every word
# depends on the source as well as on what is written already,
#
# $$P(y \mid x) = \prod_t P(y_t \mid y_1, \ldots, y_{t-1}, x)$$
#
# Three of them follow, each an answer to what the one before could not do: two recurrent networks with one vector in
# between, the same with attention, and the Transformer, which has nothing but attention.
#
# It takes about 20 seconds on one core. To see more, raise `STEPS` and `PAIRS`; the text is made here, and at the end
# stands how to go on with a real one.

# %%
import random
from pathlib import Path

import torch

import ensue
from ensue.look.tree_text import tree_text
from ensue.search.beam import Search
from ensue.verbs.translate import trace_of

FOLDER = Path("runs/seq2seq_to_transformer")
"""Everything that is made here goes there."""
PAIRS = 6000
STEPS = {"plain": 400, "attending": 250, "transformer": 300}
"""Of training."""
TRAIN, HELD = FOLDER / "train.tsv", FOLDER / "held.tsv"

torch.set_num_threads(1)
FOLDER.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A little French
#
# Small enough to be learned in seconds, and with two things that make translation more than looking words up: an
# adjective stands *after* its noun, and article and adjective agree with the noun's gender. *The* is *le* or *la*,
# which only the noun can tell, and the noun comes later.

# %%
NOUNS = {
    "dog": ("chien", "m"),
    "cat": ("chat", "m"),
    "book": ("livre", "m"),
    "garden": ("jardin", "m"),
    "boy": ("garçon", "m"),
    "house": ("maison", "f"),
    "car": ("voiture", "f"),
    "table": ("table", "f"),
    "girl": ("fille", "f"),
    "flower": ("fleur", "f"),
}
ADJECTIVES = {
    "red": ("rouge", "rouge"),
    "green": ("vert", "verte"),
    "black": ("noir", "noire"),
    "white": ("blanc", "blanche"),
    "blue": ("bleu", "bleue"),
    "heavy": ("lourd", "lourde"),
}
VERBS = {"sees": "voit", "likes": "aime", "wants": "veut", "finds": "trouve", "paints": "peint"}
ARTICLES = {"the": ("le", "la"), "a": ("un", "une")}


def phrase(chance):
    """The same thing in English and in French, as words."""
    article, noun = chance.choice(list(ARTICLES)), chance.choice(list(NOUNS))
    adjectives = chance.sample(list(ADJECTIVES), chance.choice([0, 1, 1]))
    french, gender = NOUNS[noun]
    form = "mf".index(gender)
    return [article, *adjectives, noun], [ARTICLES[article][form], french, *(ADJECTIVES[a][form] for a in adjectives)]


def pair(chance, clauses):
    english, french = [], []
    for number in range(clauses):
        (subject, sujet), (thing, chose), verb = phrase(chance), phrase(chance), chance.choice(list(VERBS))
        english += ["and"] * (number > 0) + [*subject, verb, *thing]
        french += ["et"] * (number > 0) + [*sujet, VERBS[verb], *chose]
    return " ".join(english), " ".join(french)


chance = random.Random(0)
train = [pair(chance, chance.choice([1, 1, 2])) for _ in range(PAIRS)]
known = set(train)
held = [one for number in range(200) if (one := pair(random.Random(f"held {number}"), 1 + number % 3)) not in known]
for path, pairs in ((TRAIN, train), (HELD, held)):
    path.write_text("".join(f"{english}\t{french}\n" for english, french in pairs), encoding="utf-8")
for english, french in held[:3]:
    print(f"{english}\n    {french}")

# %% [markdown]
# Sentences to learn from have one clause or two. Those held out have up to three: longer than anything in training.
#
# ## Two networks and one vector
#
# The encoder reads the source; its last state is all that the decoder gets. The decoder is a language model that
# begins with that state. Everything about the sentence has to go through one vector.

# %%
common = {"valid": HELD, "tokenizer": "word", "dropout": 0.0, "force": True}
training = {
    "train.batch_tokens": 500,
    "train.warmup": 20,
    "train.label_smoothing": 0.0,
    "train.eval_every": 1000,
    "train.checkpoint_every": 1000,
}
plain = ensue.fit(
    "seq2seq",
    TRAIN,
    out=FOLDER / "plain",
    cell="gru",
    attention="none",
    hidden=128,
    embedding=48,
    settings={**training, "train.steps": STEPS["plain"], "train.lr": 1e-2},
    **common,
)
for english, french in held[:3]:
    print(f"{english}\n    {plain.translate([english])[0].text}\n    {french} (as it should be)")

# %% [markdown]
# It writes good French: articles agree, adjectives stand in their place. But on longer sentences it is not always
# *this* sentence. How good it is in figures: **BLEU** counts how many runs of one to four words also stand in the
# reference, from 0 to 100; `exact` is the share of sentences that are right to the last word.

# %%
scores = {"one vector": plain.score(HELD)}
figures = scores["one vector"].figures
print(f"BLEU {figures['bleu']:.1f}, {figures['exact']:.0%} exact")
for part in scores["one vector"].by_length:
    print(f"sources of about {part['words']:4.1f} words: BLEU {part['bleu']:5.1f}")
first, *_, last = (part["bleu"] for part in scores["one vector"].by_length)
assert first > last + 20

# %% [markdown]
# The longer the sentence, the worse: one vector holds a short sentence and not a long one. This is the bottleneck.
#
# ## Greedy, and better than greedy
#
# The model gives probabilities; somebody must choose words. Taking the likeliest word each time (greedy search)
# cannot go back on a choice. Beam search keeps several beginnings open and takes the best whole sentence. `log P` is
# the sum over words, so the higher the better.

# %%
greedy, beam = Search(beam=1, length="none"), Search(beam=5, length="none")
sources = [english for english, _ in held]
by_greed, by_beam = (plain.translate(sources, search=how) for how in (greedy, beam))
gains = [(b.log_prob - a.log_prob, a, b) for a, b in zip(by_greed, by_beam)]
print(f"{sum(gain > 1e-4 for gain, _, _ in gains)} of {len(gains)} sentences get a likelier translation from the beam")
gain, one, other = max(gains, key=lambda found: found[0])
print(f"{one.source}\n  greedy: {one.text} ({one.log_prob:.2f})\n  beam:   {other.text} ({other.log_prob:.2f})")
assert gain > 0

# %% [markdown]
# Every search leaves a trace when it is asked to: each word that was tried, what it cost, and whether it was kept. In
# a terminal `ensue translate RUN --text "…" --trace tree.html` makes a page of it.

# %%
short = "the girl wants a red car"
how = Search(beam=2)
(traced,) = plain.translate([short], search=how, trace=True)
print("\n".join(tree_text(trace_of(traced, plain.tokenizer, how))))

# %% [markdown]
# ## Attention: look again
#
# Why should the decoder remember the sentence, if it could look at it? With attention it keeps the encoder's state of
# *every* word. At each step it compares its own state with all of them, and reads a weighted mean of those that fit.
# The one setting that changes is `attention`.

# %%
attending = ensue.fit(
    "seq2seq",
    TRAIN,
    out=FOLDER / "attending",
    cell="gru",
    attention="general",
    hidden=96,
    embedding=48,
    settings={**training, "train.steps": STEPS["attending"], "train.lr": 1e-2},
    **common,
)
scores["attention"] = attending.score(HELD)
print(f"BLEU {scores['attention'].figures['bleu']:.1f}, {scores['attention'].figures['exact']:.0%} exact")
assert scores["attention"].figures["exact"] > scores["one vector"].figures["exact"] + 0.15

# %% [markdown]
# A smaller network, fewer steps, and much better. The weights show where it attended. A row is a word of the
# translation:

# %%
crossing = "the white cat finds a heavy table"
attending.look.alignment(crossing)

# %%
seen = attending.look.alignment(crossing).numbers
looked = {
    word: seen["source"][max(range(len(row)), key=row.__getitem__)]
    for word, row in zip(seen["target"], seen["weights"])
}
print(looked)
assert (looked["chat"], looked["blanc"]) == ("cat", "white")

# %% [markdown]
# Where French turns adjective and noun around, the weights cross. Nobody said which word belongs to which: that was
# learned from pairs of sentences alone. How does it know, looking at *a*, that it is *une*? The encoder reads from both
# ends, so its state at *a* already knows of the table.
#
# ## Attention alone
#
# If any state can be looked at, what is the recurrence still for? The **Transformer** leaves it out. Source words
# attend to each other (self-attention), target words to those before them, and target words to the source
# (cross-attention). Nothing is read in order, so all positions of a sentence are computed at once, and order has to be
# told: every word gets a code of its position.

# %%
transformer = ensue.fit(
    "transformer",
    TRAIN,
    out=FOLDER / "transformer",
    hidden=64,
    layers=1,
    heads=4,
    settings={**training, "train.steps": STEPS["transformer"], "train.lr": 5e-3},
    **common,
)
scores["transformer"] = transformer.score(HELD)
print(f"BLEU {scores['transformer'].figures['bleu']:.1f}, {scores['transformer'].figures['exact']:.0%} exact")
assert scores["transformer"].figures["exact"] > scores["one vector"].figures["exact"] + 0.15

# %% [markdown]
# Two of its three attentions, on the same sentence. First the source looking at itself, here the word *heavy*; then
# the target at the source, a picture a head. Heads share the work: where *le* and *une* have to be found, some look at
# the article and some at the noun, which has the gender.

# %%
transformer.look.attention(crossing, part="source", layer=1, word="heavy")

# %%
transformer.look.alignment(crossing, layer=1)

# %%
seen = transformer.look.alignment(crossing, layer=1).numbers
article, noun = seen["target"].index("une"), seen["source"].index("table")
print("une → table, head by head:", [round(head[article][noun], 2) for head in seen["heads"]])
assert max(head[article][noun] for head in seen["heads"]) > 0.2

# %% [markdown]
# And the whole way step by step, as a page: what the encoder makes, what the decoder has at each step, what it
# chooses.

# %%
transformer.look.steps(crossing)

# %% [markdown]
# ## All three, by length
#
# In training no sentence had more than two clauses (15 words).

# %%
plain.look.bottleneck(HELD, beside=[attending, transformer])

# %%
for name, score in scores.items():
    print(f"{name:12}", *(f"{part['words']:4.1f} words: {part['bleu']:5.1f}" for part in score.by_length), sep="   ")
by_length = {name: [part["bleu"] for part in score.by_length] for name, score in scores.items()}
assert min(by_length["attention"][0], by_length["transformer"][0]) > 90

# %% [markdown]
# On lengths they know, both models with attention are far better, and the one without gets worse with every word. On
# lengths they do not know, all three suffer: attention removes the bottleneck, it does not teach what a third clause
# is. On so small a task the Transformer and the recurrent network with attention are about equal on lengths they know.
# Its strength shows on more text, since all positions run in parallel: on the captions of Multi30k it has 39.9 BLEU,
# the recurrent one 34.7.
#
# Go on with:
#
# - `ensue.fit("transformer", "dates", out="runs/dates")`: built in, days in forty languages to ISO 8601, some
#   minutes;
# - `ensue.fit("transformer", ["train.en", "train.de"], preset="multi30k", out="runs/ende")`: pairs of your own;
# - [from BERT to your task](bert_to_your_task.py), where one half of the Transformer learns to understand.
