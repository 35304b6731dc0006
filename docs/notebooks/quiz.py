# %% [markdown]
# # A quiz with executable answers
#
# Questions from lectures on sequence models. Each is answered in a few sentences, and then by code
# that would fail if the answer were wrong. Try to answer before you read on.
#
# The first seven are about Transformers and BERT, the others about language models, recurrent networks, translation
# and words, in the order of a course. The models are tiny and mostly untrained, because the answers hold
# for any weights. It takes about 10 seconds on one core.

# %%
import math
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn

import ensue
from ensue.kernels.attention import attention
from ensue.look.instruments.gradient_flow import by_distance, gradient_flow
from ensue.measure.translation import bleu_by_hand
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.seq2seq import Seq2Seq, Seq2SeqConfig
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.recurrent import ChoGRUCell, Recurrent, ReluCell, TanhCell
from ensue.nn.stacks import Bidirectional
from ensue.search.beam import Search, beam_search
from ensue.search.exhaustive import exhaustive
from ensue.search.sampling import Sampling, sample
from ensue.verbs.look import look

FOLDER = Path("runs/quiz")
"""All output goes here."""
torch.set_num_threads(1)
torch.manual_seed(0)
FOLDER.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Transformers and BERT
#
# ### 1. Why is the dot product of query and key divided by √d before the softmax?
#
# The dot product of two random vectors of width d is a sum of d terms, so its variance grows with d. Large scores
# saturate the softmax at one position, where its gradient is nearly zero. Divided by √d, the
# variance is 1 for any width.

# %%
for d in (4, 64, 1024):
    q, k = torch.randn(2, 2000, d)
    scores = (q * k).sum(-1)
    print(f"d = {d:4}: variance {scores.var():7.1f}, divided by √d {(scores / d**0.5).var():.2f}")


def saturation(scores):
    """Return the mean largest weight of a softmax of scores (N, S), and its mean gradient."""
    p = scores.softmax(-1)
    return p.max(-1).values.mean().item(), (p * (1 - p)).sum(-1).mean().item()  # ∂p_i/∂s_i = p_i (1 − p_i)


query, keys = torch.randn(500, 1, 1024), torch.randn(500, 16, 1024)
plain = (query * keys).sum(-1)
(sharp, dead), (soft, alive) = saturation(plain), saturation(plain / 1024**0.5)
print(f"unscaled: the largest of 16 weights is {sharp:.2f}, gradient {dead:.3f}; scaled: {soft:.2f}, {alive:.3f}")
assert sharp > 0.9 and soft < 0.5 and alive > 5 * dead

# %% [markdown]
# ### 2. Does the encoder–decoder use self-attention only?
#
# No. Source words attend to source words, target words to the target words before them, and every decoder block also
# attends to the source: cross-attention, with queries from the target and keys and values from
# the source. Its weights are (target × source).

# %%
transformer = Transformer(
    TransformerConfig(vocabulary=20, source_vocabulary=30, layers=2, hidden=32, heads=4, context=32, dropout=0.0)
).eval()
source, target = torch.randint(30, (1, 7)), torch.randint(20, (1, 5))
with torch.no_grad():
    output = transformer(target, transformer.start(source), want=("logits", "attention"))
print("layers:", len(output.attention), " (batch, heads, target, source):", tuple(output.attention[0].shape))
kinds = Counter(type(part).__name__ for part in transformer.modules() if type(part).__name__.endswith("Attention"))
print(dict(kinds))
assert output.attention[0].shape == (1, 4, 5, 7)
assert kinds == {"SelfAttention": 4, "CrossAttention": 2}
assert torch.allclose(output.attention[0].sum(-1), torch.ones(1, 4, 5))

# %% [markdown]
# ### 3. How does the encoder–decoder generate an output?
#
# The source is encoded once. The decoder reads the begin token and gives a distribution over the first word; the
# chosen word is its next input, and so on until the end token. Each word depends on the ones before it, so generation
# takes one call of the decoder per word.

# %%


def calls_of(module, work):
    """Return the result of ``work``, and how often it called the module."""
    calls = []
    hook = module.register_forward_hook(lambda *_: calls.append(1))
    try:
        return work(), len(calls)
    finally:
        hook.remove()


begin = 0


def write():
    return beam_search(transformer, transformer.start(source), begin, end=None, longest=6, how=Search(beam=1))


(found,), decoded = calls_of(transformer, write)
_, encoded = calls_of(transformer.encoder[0], write)
print(f"{len(found.best.tokens)} tokens: {decoded} calls of the decoder, {encoded} of the encoder")
assert (len(found.best.tokens), decoded, encoded) == (6, 6, 1)

# %% [markdown]
# ### 4. Is its log-likelihood computed one token at a time, too?
#
# No, one pass is enough. All words of the target are known and are read at once; the causal mask hides later
# words. So training is parallel although generation is not. Both give the same number.

# %%
written = torch.tensor([found.best.tokens])
inputs = torch.cat([torch.tensor([[begin]]), written[:, :-1]], 1)
with torch.no_grad():
    output, calls = calls_of(transformer, lambda: transformer(inputs, transformer.start(source)))
log_p = output.logits.log_softmax(-1).gather(2, written[..., None])
print(f"one pass: {log_p.sum():.6f} in {calls} call; one token at a time: {found.best.log_prob:.6f} in {decoded}")
assert calls == 1 and abs(log_p.sum().item() - found.best.log_prob) < 1e-5

# %% [markdown]
# ### 5. How does a Transformer language model generate?
#
# Like the decoder, without a source: read the prompt at once, sample a word from the distribution after its last
# token, append it, repeat. The keys and values of previous tokens are cached, so each step computes one new token;
# without the cache everything is read again, with the same result.

# %%
gpt = GPTLanguageModel(GPTConfig(vocabulary=50, layers=2, heads=2, hidden=32, context=64, dropout=0.0)).eval()
for weight in gpt.parameters():
    weight.data *= 3  # with small untrained weights it would only repeat itself
prompt = torch.tensor([3, 14, 15, 9])
(sampled,), calls = calls_of(gpt, lambda: sample(gpt, prompt, Sampling(tokens=10, temperature=0)))

again = prompt.tolist()
with torch.no_grad():
    for _ in range(10):
        again.append(int(gpt(torch.tensor([again])).logits[0, -1].argmax()))
print(sampled.tokens, f"in {calls} calls")
assert again[4:] == sampled.tokens and calls == 10

# %% [markdown]
# ### 6. How can BERT be used to classify a text?
#
# The token `[CLS]` is put before the text. Its last hidden state has attended to every word, and a new linear layer
# with a softmax predicts the label from it. All weights are trained on labelled texts, preferably from
# pre-trained ones.

# %%
table = FOLDER / "moods.tsv"
moods = {"good": ("great", "lovely", "funny"), "bad": ("dull", "awful", "slow")}
things = ("film", "plot", "cast")
rows = [(label, f"the {thing} was {word}") for label in moods for word in moods[label] for thing in things]
table.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
tiny = {"hidden": 32, "layers": 1, "heads": 2, "context": 32}
classifier = ensue.fit(
    "classify",
    table,
    model="bert",
    out=FOLDER / "classify",
    settings={"train.steps": 60, "train.lr": 3e-3, "train.eval_every": 1000, "data.holdout": 0.0},
    force=True,
    **tiny,
)
labels = [one["label"] for one in classifier.predict(["the film was funny", "the ending was awful"])]
print(labels)
assert labels == ["good", "bad"]

# %%
classifier.look.attention("the film was funny", layer=1, word="[CLS]")

# %% [markdown]
# ### 7. How can BERT be used to generate text?
#
# It does not predict the next word, but it can fill masks. Start with masks only, fill them all, mask the least certain
# again and re-predict them, in a few rounds. It was not trained to generate, so a causal language model is
# better.

# %%
story = FOLDER / "story.txt"
lines = [f"{text} ." for _, text in rows]
story.write_text("\n\n".join("\n".join(lines[at : at + 3]) for at in range(0, 18, 3)) + "\n", encoding="utf-8")
filler = ensue.fit(
    "bert",
    story,
    out=FOLDER / "bert",
    dropout=0.0,
    settings={"train.steps": 150, "train.lr": 3e-3, "train.length": 16, "train.eval_every": 1000, "data.holdout": 0.2},
    force=True,
    **tiny,
)
filled = filler.fill("the [MASK] [MASK] [MASK] .", rounds=3)
for step in filled.steps:
    print(step["text"], "  masked again:", step["hidden_again"])
assert len(filled.steps) == 3 and "[MASK]" not in filled.text

# %% [markdown]
# ## Language models
#
# ### 8. What is a language model used for?
#
# It predicts the next word and the probability of a text. This is enough for predictive typing
# ([recipe](../recipes/predictive_typing.md)), authorship ([recipe](../recipes/whose_text.md)), spelling correction
# ([recipe](../recipes/spelling.md)) and choosing among the hypotheses of a speech recogniser. Conditioned on a source,
# it translates and summarises.

# %%
sentences = [
    *["the students opened their books"] * 2,
    "the students opened their bags",
    "the students read",
    "the teachers opened their laptops",
    "we opened the door",
    "we read their books",
    "he hit me with a pie",
]
corpus = FOLDER / "students.txt"
corpus.write_text("\n".join(sentences) + "\n", encoding="utf-8")
words = {"tokenizer": "word", "settings": {"data.holdout": 0.0}, "force": True}
smooth = ensue.fit("ngram", corpus, order=3, out=FOLDER / "smooth", **words)
print(smooth.next("the students opened their", top=3))
heard = ["the students red there books", "the students read their books"]
bits = [smooth.score(text=text).bits_per_byte for text in heard]
print({text: f"{cost:.2f} bits per byte" for text, cost in zip(heard, bits)})
assert bits[1] < bits[0]

# %% [markdown]
# ### 9. How are n-gram probabilities estimated?
#
# By counting how often w followed the n − 1 words, divided by how often these words occurred.

# %%
plain = ensue.fit("ngram", corpus, order=4, mode="mle", out=FOLDER / "plain", **words)
after = Counter(one.split("opened their ")[1] for one in sentences if one.startswith("the students opened their "))
counted = {word: count / after.total() for word, count in after.items()}
print(counted, plain.next("the students opened their", top=2))
assert all(abs(p - counted[word]) < 1e-6 for word, p in plain.next("the students opened their", top=2))

# %% [markdown]
# ### 10. What if a word never followed these words? What if these words never occurred?
#
# Then the probability of the whole text is 0, or 0/0, which is undefined. Smoothing gives unseen n-grams some
# probability (add-δ, or Kneser–Ney's discounts); backing off drops a word of the context, as ensue's mode `mle` also
# does for unseen contexts. Both problems get worse with larger n: more n-grams are possible, and fewer of them occur.

# %%
costs = {}
for name, run in (("frequencies", plain), ("smoothed", smooth)):
    costs[name] = {
        "unseen word": -run.per_token(text="the students opened their door")[4][1],
        "unseen words": -run.per_token(text="pie students we opened the door")[3][1],
    }
    print(name, {what: f"{nats:.1f} nats" for what, nats in costs[name].items()})
assert costs["frequencies"]["unseen word"] > 20 > costs["smoothed"]["unseen word"]
assert all(math.isfinite(nats) for one in costs.values() for nats in one.values())

# %%
look("ngrams", [corpus])

# %% [markdown]
# ### 11. A network reads *hell* and should output *ello*. What must be specified, and what is the loss?
#
# An embedding for each letter, the recurrence, an output layer and a softmax, so that every step gives a distribution
# over the alphabet. The loss of a step is the cross-entropy with the next letter: $-\log \hat y_{x_{t+1}}$.
# Training minimises the mean over steps.

# %%
learning = {"train.steps": 100, "train.lr": 0.03}
hello = ensue.fit("rnn", "hello", tokenizer="char", hidden=16, out=FOLDER / "hello", settings=learning, force=True)
tokens = torch.from_numpy(hello.tokens(text="hello").tokens.astype(np.int64))[None]
with torch.no_grad():
    log_y = hello.model(tokens[:, :-1]).logits.log_softmax(-1)
losses = -log_y.gather(2, tokens[:, 1:, None])[0, :, 0]
for token, loss, best in zip(tokens[0], losses, log_y[0].argmax(-1)):
    print(f"{hello.tokenizer.name(int(token)):8} → {hello.tokenizer.name(int(best))}, loss {loss:.3f}")
reported = [-value for _, value in hello.per_token(text="hello")]
assert torch.allclose(losses, torch.tensor(reported), atol=1e-5)
assert losses.max() < 0.5
assert "".join(hello.tokenizer.name(int(y)) for y in log_y[0, 1:5].argmax(-1)) == "ello"

# %% [markdown]
# ## Gradients
#
# ### 12. What is the gradient of the loss with respect to the shared matrix, and how is it computed?
#
# The sum over all steps of the gradient with respect to the matrix at that step, by the multivariable chain rule.
# Backpropagation through time goes back over the steps and accumulates the sum.

# %%
w = torch.randn(3, 3, requires_grad=True)
xs = torch.randn(5, 3)


def loss_with(weights):
    h = torch.zeros(3)
    for x, weight in zip(xs, weights):
        h = torch.tanh(weight @ h + x)
    return h.sum()


(whole,) = torch.autograd.grad(loss_with([w] * 5), w)
copies = [w.detach().clone().requires_grad_() for _ in range(5)]
parts = torch.autograd.grad(loss_with(copies), copies)
print("norms of the parts:", [f"{part.norm():.3f}" for part in parts], f"of the whole: {whole.norm():.3f}")
assert torch.allclose(whole, sum(parts), atol=1e-6)

# %% [markdown]
# The same with every factor, as an interactive page:

# %%
look("bptt", [], steps=3)

# %% [markdown]
# ### 13. Why is a vanishing gradient a problem?
#
# The effect of distant words is dominated by that of near words, so the weights only learn short-range
# dependencies. And a gradient of zero is indistinguishable from having nothing to learn.

# %%
runs = {}
for system, own in (("rnn", {}), ("lstm", {}), ("gpt", {"layers": 2, "heads": 2, "context": 64})):
    runs[system] = ensue.fit(
        system,
        corpus,
        tokenizer="char",
        hidden=32,
        out=FOLDER / system,
        settings={"train.steps": 30},
        force=True,
        **own,
    )
flow = {}
for system, run in runs.items():
    tokens = torch.from_numpy(run.tokens(text="the students opened their books").tokens.astype(np.int64))
    flow[system] = {row["distance"]: row["mean"] for row in by_distance(gradient_flow(run.model, tokens).norms)}
    print(f"{system:4}: a gradient 15 steps back is {flow[system][15] / flow[system][1]:.1e} of that one step back")
assert flow["rnn"][15] < 0.05 * flow["rnn"][1]
assert flow["gpt"][15] / flow["gpt"][1] > 10 * flow["rnn"][15] / flow["rnn"][1]

# %%
runs["rnn"].look.gradients("the students opened their books", beside=[runs["lstm"], runs["gpt"]])

# %% [markdown]
# ### 14. Why is an exploding gradient a problem, and what helps?
#
# A step proportional to a huge gradient leaves the region where the gradient is valid, and the loss gets
# worse or even non-finite. Clipping keeps the direction and limits the step.

# %%


def one_step(clip):
    """Return the loss before and after a step of gradient descent, and the norm of the gradient."""
    torch.manual_seed(0)
    layer, head = Recurrent(ReluCell(4, 16)), nn.Linear(16, 1)
    with torch.no_grad():
        layer.cell.weight_h.mul_(1.3)  # 1.3 times the identity
    x, parameters = torch.rand(8, 30, 4), [*layer.parameters(), *head.parameters()]

    def loss():
        return (head(layer(x)[0][:, -1]) - 1).pow(2).mean()

    before = loss()
    before.backward()
    norm = nn.utils.clip_grad_norm_(parameters, clip)
    torch.optim.SGD(parameters, lr=1e-3).step()
    return before.item(), loss().item(), float(norm)


wild, tame = one_step(float("inf")), one_step(1.0)
print(f"norm {wild[2]:.1e}: loss {wild[0]:.1e} → {wild[1]:.1e}; clipped to 1: {tame[0]:.1e} → {tame[1]:.1e}")
assert wild[2] > 1e3 and not wild[1] < wild[0] and tame[1] < tame[0]

# %% [markdown]
# ### 15. How do gates prevent vanishing gradients?
#
# A plain network replaces its whole state at each step, through a matrix and a nonlinearity. A gated one interpolates:
# $h_t = (1 - u_t) \circ h_{t-1} + u_t \circ \tilde h_t$. While the update gate u is closed, the state is unchanged and
# its gradient is multiplied by 1.

# %%


def slope(cell):
    """Return the mean of the diagonal of ∂h_50/∂h_0."""
    h = torch.zeros(1, 8, requires_grad=True)
    memory = (h,)
    for _ in range(50):
        memory = cell.step(cell.bias[None], memory)
    return sum(torch.autograd.grad(memory[0][0, i], h, retain_graph=True)[0][0, i].item() for i in range(8)) / 8


plain_cell, gated = TanhCell(4, 8), ChoGRUCell(4, 8)
with torch.no_grad():
    gated.bias[8:16] = -8.0  # close the update gate
print(f"after 50 steps: plain {slope(plain_cell):.1e}, gated {slope(gated):.3f}")
assert abs(slope(plain_cell)) < 1e-3 and slope(gated) > 0.95

# %% [markdown]
# ### 16. Is it a problem of recurrent networks only?
#
# No: any deep network multiplies one Jacobian per layer. Residual (x + f(x)) and dense connections (every layer reads
# all below) help there too. Recurrent networks are affected most, because they multiply the *same* matrix
# repeatedly.

# %%


def first_gradient(residual):
    """Return the gradient norm of the lowest of thirty layers tanh(W x), without recurrence."""
    torch.manual_seed(0)
    layers = [nn.Linear(32, 32) for _ in range(30)]
    h = torch.randn(16, 32)
    for layer in layers:
        h = torch.tanh(layer(h)) + (h if residual else 0)
    h.pow(2).mean().backward()
    return layers[0].weight.grad.norm().item()


deep, residual = first_gradient(False), first_gradient(True)
print(f"the gradient of the lowest of 30 layers: plain {deep:.1e}, residual {residual:.1e}")
assert residual > 1e3 * deep

# %% [markdown]
# ### 17. What about the right context?
#
# *Terribly* has different meanings in *terribly exciting* and at the end of a complaint. A network that reads from
# the left has not seen what follows; a second one reads from the right, and the vector of a word concatenates
# both. This needs the whole text, so it suits encoding, not generation.

# %%
forward, both = Recurrent(TanhCell(6, 8)), Bidirectional(Recurrent(TanhCell(6, 8)), Recurrent(TanhCell(6, 8)))
x = torch.randn(1, 5, 6)
other = x.clone()
other[0, 4] += 1  # change the last word
with torch.no_grad():
    left = (forward(x)[0] - forward(other)[0])[0, 2].abs().max().item()
    sides = (both(x)[0] - both(other)[0])[0, 2].abs().max().item()
print(f"the third word's vector changes by {left:.3f} in one direction, {sides:.3f} in two")
assert left == 0 and sides > 1e-3

# %% [markdown]
# ## Translation
#
# ### 18. What is wrong with greedy decoding, and what helps?
#
# It takes the most probable word and cannot revise it, although the most probable sentence may start with another word.
# Exhaustive search finds the best sentence, but its cost is exponential in the length. Beam search keeps the k best
# hypotheses: it is cheap, but not guaranteed to find the best.

# %%
pies = FOLDER / "pies.txt"
hits = [
    "he hit a ball",
    "he hit a wall",
    "he hit a nail",
    "he hit a tree",
    "he hit a car",
    *["he hit me with a pie"] * 4,
]
pies.write_text("\n".join(hits) + "\n", encoding="utf-8")
model = ensue.fit("ngram", pies, order=4, mode="mle", out=FOLDER / "pies", **words)


def best(run, **how):
    """Return the best line that a search finds, and its probability."""
    end = run.tokenizer.end
    (found,) = beam_search(run.model, run.model.start(1), end, end=end, longest=6, how=Search(**how))
    return run.tokenizer.decode(found.best.tokens).strip(), round(math.exp(found.best.log_prob), 3)


greedy, beam = (best(model, beam=k, length="none") for k in (1, 2))
print("greedy:", greedy, " beam of 2:", beam)
assert greedy[0].startswith("he hit a ") and beam == ("he hit me with a pie", 0.444)

# %%
torch.manual_seed(0)
few = GPTLanguageModel(GPTConfig(vocabulary=5, layers=1, heads=2, hidden=16, context=16, dropout=0.0)).double().eval()
for weight in few.parameters():
    weight.data *= 2
totals = [
    search(few, few.start(1), 0, end=4, longest=6, how=Search(beam=k, length="none"))[0].best.log_prob
    for search, k in ((beam_search, 1), (beam_search, 2), (beam_search, 8), (exhaustive, 1))
]
print("log P of greedy, beam 2, beam 8, all:", [round(total, 3) for total in totals])
assert totals[3] >= max(totals[:3]) - 1e-9 and totals[3] > totals[0]

# %% [markdown]
# ### 19. Several hypotheses are finished. Which one is chosen?
#
# Not simply the most probable: every additional word lowers the probability, so short ones win. Dividing log P by the
# number of words makes them comparable.

# %%
lengths = FOLDER / "yes.txt"
lengths.write_text("yes\nyes\nyes\nyes it is so\nyes it is so\n", encoding="utf-8")
model = ensue.fit("ngram", lengths, order=4, mode="mle", out=FOLDER / "yes", **words)
none, mean = (best(model, beam=3, length=rule) for rule in ("none", "mean"))
print("by log P:", none, " by log P per word:", mean)
assert (none[0], mean[0]) == ("yes", "yes it is so")

# %% [markdown]
# ### 20. How is machine translation evaluated?
#
# BLEU compares it with a human translation: the share of its n-grams of one to four words that also occur there, with a
# penalty if it is too short. It is fast and correlates with human judgement over many sentences; a good translation in
# other words scores low.

# %%
reference = ["the", "cat", "is", "on", "the", "mat", "today"]
outputs = ["the cat is on the mat today", "the cat is on the mat", "a cat sits on the mat now"]
exact, short, free = (bleu_by_hand([output.split()], [[reference]]) for output in outputs)
print("\n".join(f"{bleu:6.1f}  {output}" for bleu, output in zip((exact, short, free), outputs)))
assert abs(exact - 100) < 1e-6 and abs(short - 100 * math.exp(1 - 7 / 6)) < 1e-6 and free < 20

# %% [markdown]
# ### 21. Is translation solved?
#
# No. Unknown words, domain mismatch, world knowledge, low-resource languages and bias from data remain. The first is
# easy to see: a word-level model maps every new word to the same token.

# %%
unknown = smooth.score(text="the students opened their smartphones").unknown
first, second = (smooth.tokenizer.encode(word).tolist() for word in ("smartphones", "tablets"))
print("unknown words:", unknown, " smartphones:", first, " tablets:", second)
assert unknown == 1 and first == second

# %% [markdown]
# ### 22. What is the problem of an encoder–decoder without attention?
#
# The decoder gets only the encoder's last state: as many numbers for fifty words as for five. With
# attention it has the state of every source word, which grows with the sentence.

# %%


def numbers_given(attention, words):
    """Return how many numbers the decoder has before its first word."""
    config = Seq2SeqConfig(vocabulary=20, source_vocabulary=20, layers=1, hidden=16, attention=attention, cell="gru")
    held = [Seq2Seq(config).eval().start(torch.randint(20, (1, words)))]
    count = 0
    while held:
        part = held.pop()
        if isinstance(part, torch.Tensor):
            count += part.numel() if part.is_floating_point() else 0
        else:
            held += list(part) if isinstance(part, tuple) else list(getattr(part, "__dict__", {}).values())
    return count


given = {kind: [numbers_given(kind, count) for count in (5, 50)] for kind in ("none", "general")}
print("for sources of 5 and 50 words:", given)
assert given["none"][0] == given["none"][1] and given["general"][1] > 5 * given["general"][0]

# %% [markdown]
# ## Words
#
# ### 23. How can a computer represent the meaning of a word?
#
# A dictionary such as WordNet lists synonyms and hypernyms (`ensue words wordnet good`): made by hand, never complete,
# and without degrees. One-hot vectors do not help, since all are equally far apart. Distributional vectors do: words
# with the same neighbours get similar vectors.

# %%
one_hot = torch.eye(5)
print("one-hot: cosine of any two different words", float(one_hot[0] @ one_hot[1]))
pets = FOLDER / "pets.txt"
seen = [f"the {pet} eats and the {pet} sleeps" for pet in ("cat", "dog")]
seen += [f"the {car} drives and the {car} stops" for car in ("van", "bus")]
pets.write_text("\n".join(seen * 200) + "\n", encoding="utf-8")
vectors = ensue.fit(
    "word2vec",
    pets,
    embedding=16,
    window=2,
    objective="softmax",
    out=FOLDER / "word2vec",
    force=True,
    settings={
        "train.epochs": 5,
        "train.subsample": 0.0,
        "tokenizer.min_count": 1,
        "train.threads": 1,
        "train.lr": 0.05,
    },
)
cosine = dict(vectors.neighbours("cat", top=9))
print({word: round(value, 2) for word, value in cosine.items()})
assert float(one_hot[0] @ one_hot[1]) == 0 and cosine["dog"] > cosine["van"] + 0.2

# %% [markdown]
# ### 24. How is P(w near c) computed?
#
# Every word has two vectors, v as a centre word and u as a context word. The softmax of their dot product over the
# vocabulary is a probability: $P(o \mid c) = \exp(u_o \cdot v_c) / \sum_w \exp(u_w \cdot v_c)$.

# %%
u, v = vectors.contexts.matrix.astype(float), vectors.vectors.matrix.astype(float)
index_of = vectors.vectors.index_of
scores = u @ v[index_of("cat")]
by_hand = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
print({word: round(p, 3) for word, p in vectors.likeliest("cat", top=4)}, " sum:", by_hand.sum())
assert abs(by_hand[index_of("eats")] - vectors.probability("eats", given="cat")) < 1e-9
assert vectors.probability("eats", given="cat") > vectors.probability("drives", given="cat")

# %% [markdown]
# ### 25. Attention gives access to any state. Is the recurrence necessary?
#
# No: the Transformer does without it. Every position attends to all others in parallel, and any two
# words are one step apart. But positions must be added: attention
# alone gives the same result for words in any order.

# %%
query, memory = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 6, 8)
mixed = memory[:, :, torch.randperm(6)]
alone = (attention(query, memory, memory) - attention(query, mixed, mixed)).abs().max().item()
with torch.no_grad():
    tokens, permuted = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[4, 2, 3, 1, 5]])
    positioned = (gpt(tokens).logits[0, -1] - gpt(permuted).logits[0, -1]).abs().max().item()
print(f"another order of words changes attention alone by {alone:.0e}, a GPT with positions by {positioned:.2f}")
assert alone < 1e-6 and positioned > 1e-3

# %%
look("positions", [])

# %% [markdown]
# To learn more about Transformers: [from n-grams to GPT](ngrams_to_gpt.py), [from seq2seq to the
# Transformer](seq2seq_to_transformer.py), [from BERT to your task](bert_to_your_task.py).
