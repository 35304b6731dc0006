"""Pre-training and inference of ``bert`` against transformers' BERT of the same size, in turns.

python -m benchmarks.speed.bert [--short] [--only training|inference]

Pre-training: both do forward, loss, backward, clipping and fused AdamW on the same batches of hidden tokens, 4 layers
of width 256, dropout 0.1. Theirs gets its labels as its users give them, −100 where nothing is hidden, with its fastest
attention (sdpa). Inference: both classify the same sentences of 8 to 128 tokens with the same weights, of the size of
BERT-base; theirs in batches of 32 as they come, and again sorted by length, which is the stronger peer; ours in float32
and in eight bits, and CTranslate2 in both where it is installed.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from benchmarks import descent
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.data.labelled_rows import LabelledRows, make_rows
from ensue.data.masking import DocumentTokens, MaskedBatch, MaskedBatches, MaskingOptions
from ensue.data.tokenizers.special_tokens import SpecialTokens
from ensue.exchange.huggingface import build_model, read_folder
from ensue.kernels.int8 import quantise
from ensue.tasks.labels.labeller import compute_logits
from ensue.train.masked_objectives import masked_language_loss

SMALL = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
LENGTH, ROWS = 128, 32
FIRST, LAST, MASK, PAD = 2, 3, 4, 0
"""Marks; tokens of the text begin behind them."""
PEER = f"transformers {transformers.__version__}"
PADDED, SORTED = f"{PEER}, batches as they come", f"{PEER}, sorted by length"


def as_ours(model: Any) -> Any:
    """A model of theirs as one of ours, by the folder it saves."""
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return build_model(read_folder(folder)).model


def batches(vocabulary: int) -> MaskedBatches:
    """Sentences of random tokens, rare ones rarer, hidden as pre-training hides them."""
    chance = np.random.default_rng(0)
    tokens = np.minimum(5 + chance.zipf(1.3, size=400_000), vocabulary - 1).astype(np.int32)
    ends = np.arange(0, len(tokens) + 1, 20)
    documents = DocumentTokens(tokens, ends, np.arange(0, len(ends), 100))
    marks = SpecialTokens(start=FIRST, separator=LAST, end=LAST, double_separator=False, mask=MASK, pad=PAD)
    return MaskedBatches(documents, marks, vocabulary, rows=ROWS, length=LENGTH, pairs="none", masking=MaskingOptions())


def ours_loss(model: Any, batch: MaskedBatch) -> torch.Tensor:
    return masked_language_loss(model, batch, None)[0]


def theirs_loss(model: Any, batch: MaskedBatch) -> torch.Tensor:
    labels = torch.full_like(batch.tokens, -100)
    row = torch.arange(len(labels))[:, None].expand_as(batch.positions)
    labels[row[batch.is_masked], batch.positions[batch.is_masked]] = batch.targets
    real = (torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]).long()
    loss: torch.Tensor = model(input_ids=batch.tokens, attention_mask=real, labels=labels).loss
    return loss


def training(who: str, vocabulary: int, steps: int) -> Work:
    """So many steps a round on that round's batches; ours with what ``ensue fit`` does to its process."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=vocabulary, max_position_embeddings=LENGTH, attn_implementation="sdpa", **SMALL)
    model: Any = BertForMaskedLM(config)
    loss_of, update = theirs_loss, descent.theirs
    if who == "ours":
        keep_freed_memory()
        model, loss_of, update = as_ours(model), ours_loss, descent.ours
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rows = batches(vocabulary)
    first = loss_of(model.eval(), rows.batch(0)).item()  # without dropout both must come to the same
    model.train()

    def work(turn: int) -> Round:
        tokens, begun = 0, time.perf_counter()
        for number in range(turn * steps, (turn + 1) * steps):
            batch = rows.batch(number)
            optimiser.zero_grad(set_to_none=True)
            update(model, optimiser, loss_of(model, batch))
            tokens += batch.size
        return Round(tokens, time.perf_counter() - begun, first)

    return work


def sentences(count: int) -> list[np.ndarray]:
    """Random tokens, 8 to 128 of them."""
    chance = np.random.default_rng(1)
    return [chance.integers(1000, 30_000, int(length)) for length in chance.integers(8, 129, count)]


def theirs_logits(model: Any, texts: list[np.ndarray], ordered: bool) -> np.ndarray:
    """In batches of 32, padded to the longest of each."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place])) if ordered else list(range(len(texts)))
    found = np.zeros((len(texts), 2), dtype=np.float32)
    with torch.inference_mode():
        for at in range(0, len(order), 32):
            places = order[at : at + 32]
            rows = [torch.from_numpy(texts[place]) for place in places]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            real = (torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]).long()
            found[places] = model(input_ids=ids, attention_mask=real).logits.numpy()
    return found


def ours_logits(model: Any, rows: LabelledRows) -> np.ndarray:
    return np.stack(compute_logits(model, rows))


def classifying(who: str, count: int, layers: int) -> Work:
    """All sentences once a round."""
    torch.manual_seed(0)
    theirs: Any = BertForSequenceClassification(
        BertConfig(attn_implementation="sdpa", **{**BASE, "num_hidden_layers": layers})
    ).eval()
    theirs.classifier.weight.data.normal_(std=0.2)  # so that answers differ from each other
    texts = sentences(count)
    run: Any
    if who.startswith("ours"):
        keep_freed_memory()
        model = as_ours(theirs).eval()
        del theirs
        held = make_rows([(text, np.zeros(len(text))) for text in texts], np.zeros(count, dtype=np.int64))
        run = partial(ours_logits, quantise(model) if who == "ours int8" else model, held)
    elif who.startswith("CTranslate2"):
        run = ctranslate2(theirs, texts, "int8" if "int8" in who else "float32")
    else:
        run = partial(theirs_logits, theirs, texts, who == SORTED)

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        logits = run()
        return Round(count, time.perf_counter() - begun, logits)

    return work


def ctranslate2(theirs: Any, texts: list[np.ndarray], kind: str) -> Any:
    """CTranslate2's encoder with the same weights, in batches of 32 sorted by length; the last layer in numpy."""
    import ctranslate2 as library
    from ctranslate2.converters.transformers import BertLoader

    with TemporaryDirectory() as folder:
        spec = BertLoader().get_model_spec(theirs.bert)
        spec.register_vocabulary([str(number) for number in range(theirs.config.vocab_size)])
        spec.config.unk_token, spec.config.layer_norm_epsilon = "0", theirs.config.layer_norm_eps
        spec.validate()
        spec.optimize(quantization=None)
        spec.save(folder)
        model = library.Encoder(folder, compute_type=kind, inter_threads=1, intra_threads=torch.get_num_threads())
    weight, bias = (one.detach().numpy() for one in (theirs.classifier.weight, theirs.classifier.bias))
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))

    def run() -> np.ndarray:
        found = np.zeros((len(texts), 2), dtype=np.float32)
        for at in range(0, len(order), 32):
            places = order[at : at + 32]
            pooled = np.array(model.forward_batch([texts[place].tolist() for place in places]).pooler_output)
            found[places] = pooled @ weight.T + bias
        return found

    return run


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether both begin with the same loss."""
    first = {who: rounds[0].result for who, rounds in done.items()}
    assert max(first.values()) - min(first.values()) < 1e-3, first
    return {"first_losses": {who: round(loss, 4) for who, loss in first.items()}}


def flops(vocabulary: int) -> float:
    """Of a token, forward and twice that on the way back; the head and the last block are for hidden tokens only."""
    D, L, share = SMALL["hidden_size"], SMALL["num_hidden_layers"], 0.15
    return 6.0 * (12 * L * D * D + 2 * L * D * LENGTH + share * vocabulary * D)


def compare_training(rounds: int, steps: int, short: bool) -> None:
    peer = f"{PEER} BertForMaskedLM, sdpa"
    for vocabulary in (30_522, 8192):
        programs = {who: partial(training, who, vocabulary, steps) for who in ("ours", peer)}
        hold(
            Contest(
                result="bert_speed",
                work="masked pre-training",
                size=f"4 layers, width 256, {vocabulary:,} tokens, {ROWS} rows of {LENGTH}, dropout 0.1",
                unit="tokens",
                programs=programs,
                marks=(Mark("ours", peer, 1.6),),
                flops=flops(vocabulary),
                facts={} if short else descent.possible(programs[peer], (*descent.PRODUCTS, *descent.ATTENTION)),
            ),
            rounds,
            agree,
        )


def agree_on_labels(done: dict[str, list[Round]]) -> dict[str, Any]:
    """How far each is from transformers: the share of labels, and the largest difference of a probability."""
    exact, facts = probabilities(done[PADDED][0].result), {}
    for who, rounds in done.items():
        found = probabilities(rounds[0].result)
        same, apart = float((found.argmax(1) == exact.argmax(1)).mean()), float(np.abs(found - exact).max())
        facts[who] = {"same_label": round(same, 4), "largest_difference": float(f"{apart:.2g}")}
    assert facts["ours"]["largest_difference"] < 1e-4, facts
    return {"beside_transformers": facts}


def compare_inference(rounds: int, count: int, layers: int) -> None:
    names = [
        "ours",
        "ours int8",
        PADDED,
        SORTED,
        *(("CTranslate2", "CTranslate2 int8") if find_spec("ctranslate2") else ()),
    ]
    marks = [
        Mark("ours", PADDED, 1.6),
        Mark("ours", SORTED),
        Mark("ours int8", PADDED, 2.0),
        Mark("ours", "CTranslate2", 1.0),
        Mark("ours int8", "CTranslate2 int8", 1.0),
    ]
    contest = Contest(
        result="bert_speed",
        work="BERT-base inference, mixed lengths",
        size=f"{layers} layers, width 768, {count} sentences of 8 to 128 tokens",
        unit="sentences",
        programs={who: partial(classifying, who, count, layers) for who in names},
        marks=[mark for mark in marks if mark.peer in names],
        flops=2.0 * 68 * layers * 12 * BASE["hidden_size"] ** 2,  # 68 tokens on average
    )
    hold(contest, rounds, agree_on_labels)


def probabilities(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).double().softmax(-1).numpy()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=("training", "inference"), help="one half of it")
    typed = parser.parse_args()
    if typed.only != "inference":
        compare_training(*((3, 2) if typed.short else (5, 3)), typed.short)
    if typed.only != "training":
        compare_inference(*((2, 32, 3) if typed.short else (3, 192, 12)))


if __name__ == "__main__":
    main()
