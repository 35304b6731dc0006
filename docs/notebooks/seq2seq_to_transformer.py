# %% [markdown]
# # From seq2seq to the Transformer
#
# A translation model is a conditional language model: it generates the target word by word, and every word
# depends on the source and on the words before it,
#
# $$P(y \mid x) = \prod_t P(y_t \mid y_1, \ldots, y_{t-1}, x)$$
#
# This tutorial trains three: two recurrent networks connected by one vector, the same with attention, and the
# Transformer, which uses only attention.
#
# It takes about 20 seconds on one core. To see more, increase `STEPS` and `PAIRS`. The text is generated; the end shows
# how to continue with a real one.

# %%
import random
from pathlib import Path

import torch

import ensue
from ensue.look.tree_text import tree_text
from ensue.search.beam import Search
from ensue.verbs.translate import trace_of

FOLDER = Path("runs/seq2seq_to_transformer")
"""All output goes here."""
PAIRS = 6000
STEPS = {"plain": 400, "attending": 250, "transformer": 300}
"""Training steps."""
TRAIN, HELD = FOLDER / "train.tsv", FOLDER / "held.tsv"

torch.set_num_threads(1)
FOLDER.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A little French
#
# The language is small enough to be learned in seconds, but translation is more than looking up words: an
# adjective comes *after* its noun, and article and adjective agree with the noun's gender. *The* is *le* or *la*,
# depending on the noun, which comes later.

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
    """Return a noun phrase in English and in French, as words."""
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
# Training sentences have one or two clauses, held-out ones up to three.
#
# ## Two networks and one vector
#
# The encoder reads the source. The decoder is a language model that starts from the encoder's last state, so
# all information about the sentence passes through one vector.

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
    print(f"{english}\n    {plain.translate([english])[0].text}\n    {french} (reference)")

# %% [markdown]
# The French is good: articles agree and adjectives are in the right position. But for longer sentences it is not always
# a translation of the source. **BLEU** measures how many n-grams of one to four words also occur in the
# reference, from 0 to 100; `exact` is the share of completely correct sentences.

# %%
scores = {"one vector": plain.score(HELD)}
figures = scores["one vector"].figures
print(f"BLEU {figures['bleu']:.1f}, {figures['exact']:.0%} exact")
for part in scores["one vector"].by_length:
    print(f"sources of about {part['words']:4.1f} words: BLEU {part['bleu']:5.1f}")
first, *_, last = (part["bleu"] for part in scores["one vector"].by_length)
assert first > last + 20

# %% [markdown]
# The longer the sentence, the worse: one vector can hold a short sentence, but not a long one. This is the bottleneck.
#
# ## Greedy and beam search
#
# The model gives probabilities; a search chooses words. Greedy search takes the most probable word each time and
# cannot revise a choice. Beam search keeps several hypotheses and returns the best sentence. `log P` is
# the sum over words; higher is better.

# %%
greedy, beam = Search(beam=1, length="none"), Search(beam=5, length="none")
sources = [english for english, _ in held]
by_greed, by_beam = (plain.translate(sources, search=how) for how in (greedy, beam))
gains = [(b.log_prob - a.log_prob, a, b) for a, b in zip(by_greed, by_beam)]
better = sum(gain > 1e-4 for gain, _, _ in gains)
print(f"beam search finds a more probable translation for {better} of {len(gains)} sentences")
gain, one, other = max(gains, key=lambda found: found[0])
print(f"{one.source}\n  greedy: {one.text} ({one.log_prob:.2f})\n  beam:   {other.text} ({other.log_prob:.2f})")
assert gain > 0

# %% [markdown]
# A search can record a trace: each expanded word, its log-probability, and whether it was kept. In
# a terminal `ensue translate RUN --text "…" --trace tree.html` writes it as a page.

# %%
short = "the girl wants a red car"
how = Search(beam=2)
(traced,) = plain.translate([short], search=how, trace=True)
print("\n".join(tree_text(trace_of(traced, plain.tokenizer, how))))

# %% [markdown]
# ## Attention
#
# With attention the decoder has access to the encoder's state of *every* word. At each step it compares its own state
# with all of them, and reads a weighted mean. Only the setting `attention` changes.

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
# A smaller network, fewer steps, and a much better score. The weights show where it attended. A row is a word of the
# translation:

# %%
crossing = "the white cat finds a heavy table"
attending.look.alignment(crossing)

# %%
seen = attending.look.alignment(crossing).numbers
attended = {
    word: seen["source"][max(range(len(row)), key=row.__getitem__)]
    for word, row in zip(seen["target"], seen["weights"])
}
print(attended)
assert (attended["chat"], attended["blanc"]) == ("cat", "white")

# %% [markdown]
# Where French exchanges adjective and noun, the weights cross. This alignment was learned from sentence pairs alone.
# The encoder is bidirectional, so its state at *a* depends on *table*; that is why the decoder can choose *une*.
#
# ## Attention only
#
# The **Transformer** has no recurrence. Source words attend to each other (self-attention), target words to those
# before them, and target words to the source (cross-attention). All positions of a sentence are computed in
# parallel, and the order of words is given by position embeddings.

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
# Two of its three attentions, on the same sentence: first self-attention of the source, for the word *heavy*; then
# attention from target to source, one chart per head. To choose *le* and *une*, some heads attend to
# the article and some to the noun, which has the gender.

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
# Encoding and decoding step by step, as a page:

# %%
transformer.look.steps(crossing)

# %% [markdown]
# ## BLEU by length
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
# On lengths seen in training, both models with attention are far better, and the one without gets worse with length. On
# longer sentences all three suffer: attention removes the bottleneck but does not generalise to a third clause.
# On such a small task the Transformer and the recurrent network with attention are about equal. On the captions of
# Multi30k the Transformer reaches 39.9 BLEU, the recurrent network 34.7.
#
# Next steps:
#
# - `ensue.fit("transformer", "dates", out="runs/dates")`: built in, dates in forty languages to ISO 8601, some
#   minutes;
# - `ensue.fit("transformer", ["train.en", "train.de"], preset="multi30k", out="runs/ende")`: your own pairs;
# - [from BERT to your task](bert_to_your_task.py), which pre-trains the encoder of a Transformer.
