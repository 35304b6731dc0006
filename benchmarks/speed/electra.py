"""Pre-training of ``electra`` against a generator and a discriminator of transformers, in turns.

python -m benchmarks.speed.electra [--short]

Both do the same step: the generator fills in masks, tokens are drawn from it, the discriminator tells which were
replaced, then backward, clipping and fused AdamW, on the same batches. Theirs is written as their users do it, with
``ElectraForMaskedLM`` (labels of −100 where nothing is masked) and ``ElectraForPreTraining``, which share embeddings,
with the only attention that they have (eager); it draws by ``multinomial`` from the logits at masked positions. In
"masked only" their generator's head, too, is computed at masked positions only, which is the stronger peer. 4 layers of
width 256, a generator of a quarter of that width, embeddings of 128, dropout 0.1.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from benchmarks import descent
from benchmarks.speed.bert import LENGTH, PEER, ROWS, batches
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.data.masking import MaskedBatch
from ensue.exchange.huggingface import build_model, read_folder
from ensue.train.masked_objectives import replace_tokens, replaced_token_loss

LARGE = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
SMALL = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256}
WEIGHT = 50.0
WHOLE, MASKED = f"{PEER} ElectraForMaskedLM + ElectraForPreTraining", f"{PEER}, masked only"


class Theirs(torch.nn.Module):
    """A generator and a discriminator of theirs that share their embeddings."""

    def __init__(self, vocabulary: int, masked_only: bool) -> None:
        super().__init__()
        shared = {"vocab_size": vocabulary, "max_position_embeddings": LENGTH}
        self.discriminator: Any = ElectraForPreTraining(ElectraConfig(**shared, **LARGE))
        self.generator: Any = ElectraForMaskedLM(ElectraConfig(**shared, **SMALL))
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.tie_weights()
        self.masked_only = masked_only

    def forward(self, batch: MaskedBatch) -> torch.Tensor:
        """The loss of both."""
        real = (torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]).long()
        rows = torch.arange(len(batch.tokens))[:, None].expand_as(batch.positions)
        where = rows[batch.is_masked], batch.positions[batch.is_masked]
        if self.masked_only:
            hidden = self.generator.electra(input_ids=batch.tokens, attention_mask=real).last_hidden_state[where]
            logits = self.generator.generator_lm_head(self.generator.generator_predictions(hidden))
            fill = torch.nn.functional.cross_entropy(logits, batch.targets)
        else:
            labels = torch.full_like(batch.tokens, -100)
            labels[where] = batch.targets
            found = self.generator(input_ids=batch.tokens, attention_mask=real, labels=labels)
            fill, logits = found.loss, found.logits[where]
        drawn = torch.multinomial(logits.detach().softmax(-1), 1)[:, 0]
        tokens, replaced = replace_tokens(batch, drawn)
        detect = self.discriminator(input_ids=tokens, attention_mask=real, labels=replaced.float()).loss
        loss: torch.Tensor = fill + WEIGHT * detect
        return loss


def as_ours(theirs: Theirs) -> Any:
    """Both models of theirs as one of ours, by the folders that they save."""
    with TemporaryDirectory() as folder:
        theirs.discriminator.save_pretrained(folder)
        theirs.generator.save_pretrained(f"{folder}/generator")
        return build_model(read_folder(folder)).model


def training(who: str, vocabulary: int, steps: int) -> Work:
    """So many steps a round on that round's batches; ours with what ``ensue fit`` does to its process."""
    torch.manual_seed(0)
    theirs = Theirs(vocabulary, who == MASKED)
    model: Any = theirs
    loss_of: Any = lambda model, batch: model(batch)  # noqa: E731
    update = descent.theirs
    rows = batches(vocabulary)
    if who == "ours":
        keep_freed_memory()
        model, update = as_ours(theirs), descent.ours
        loss_of = lambda model, batch: replaced_token_loss(model, batch, None)[0]  # noqa: E731
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    first = loss_of(model.eval(), rows.batch(0)).item()  # nearly the same: the draws differ
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


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether all begin with nearly the same loss."""
    first = {who: rounds[0].result for who, rounds in done.items()}
    assert max(first.values()) - min(first.values()) < 0.2, first
    return {"first_losses": {who: round(loss, 3) for who, loss in first.items()}}


def flops(vocabulary: int) -> float:
    """Of a token, forward and twice that backward; the generator's head is for masked tokens only."""
    large, small, E = LARGE["hidden_size"], SMALL["hidden_size"], 128
    layers = sum(4 * (12 * D * D + 2 * D * LENGTH) + E * D for D in (large, small))
    return 6.0 * (layers + large * large + 0.15 * (vocabulary + small) * E)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    typed = parser.parse_args()
    rounds, steps = (3, 2) if typed.short else (5, 3)
    for vocabulary in (30_522, 8192):
        programs = {who: partial(training, who, vocabulary, steps) for who in ("ours", WHOLE, MASKED)}
        hold(
            Contest(
                result="electra_speed",
                work="ELECTRA pre-training",
                size=f"4 layers, width 256 and 64, {vocabulary:,} tokens, {ROWS} rows of {LENGTH}, dropout 0.1",
                unit="tokens",
                programs=programs,
                marks=(Mark("ours", WHOLE, 1.6), Mark("ours", MASKED)),
                flops=flops(vocabulary),
            ),
            rounds,
            agree,
        )


if __name__ == "__main__":
    main()
