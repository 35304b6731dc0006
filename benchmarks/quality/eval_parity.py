"""Log-likelihoods of ``ensue eval`` against lm-evaluation-harness with transformers' Llama of the same weights.

python -m benchmarks.quality.eval_parity --file MODEL.gguf --data FOLDER [--limit 20]

Needs lm-eval 0.4.13 and transformers. FOLDER has arc_easy, piqa, hellaswag, lambada, boolq and winogrande as JSONL.
Both get the same contexts and continuations as text and tokenise them themselves; compared are log P and whether a
continuation is greedy, without shots, with two shots, with empty contexts and cut on the left. Their log-softmax is in
float64, as ours is; in float32 it is off by about 1e-5 a token, in one direction, which adds up. ``plain`` are our
requests that don't ask whether they are greedy, as those of multiple choice.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer

import ensue
from benchmarks.quality.smollm2_parity import their_model
from benchmarks.record import record
from ensue.data.evaluation.catalogue import find_task
from ensue.data.evaluation.prompts import ShotDrawer, make_prompts, select
from ensue.runs.prompts import Prompter, Question
from ensue.verbs.convert import convert

TASKS = ("arc-easy", "piqa", "lambada", "boolq", "hellaswag", "winogrande")


def their_scores(model: HFLM, questions: list[Question]) -> list[tuple[float, bool]]:
    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=(one.context, one.continuation), idx=n)
        for n, one in enumerate(questions)
    ]
    return model.loglikelihood(requests, disable_tqdm=True)


def compare(prompter: Prompter, theirs: HFLM, questions: list[Question]) -> dict[str, Any]:
    ours, plain = prompter.log_probs(questions, greedy=True), prompter.log_probs(questions)
    others = their_scores(theirs, questions)
    differences = [abs(mine.log_prob - value) for mine, (value, _) in zip(ours, others, strict=True)]
    sizes = [len(prompter.request(one).continuation) for one in questions]
    greedy = sum(mine.greedy == bool(other) for mine, (_, other) in zip(ours, others))
    return {
        "requests": len(questions),
        "largest_difference": max(differences),
        "largest_difference_per_token": max(one / size for one, size in zip(differences, sizes)),
        "largest_difference_plain": max(abs(one.log_prob - value) for one, (value, _) in zip(plain, others)),
        "same_greedy": greedy,
    }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=20)
    chosen = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        run = ensue.load(convert(chosen.file, out=Path(name) / "run"))
        described = run.config["chat"]
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(json.dumps(run.tokenizer.state()["library"])),
            bos_token=described["begin"],
            eos_token=described["end"],
            pad_token=described["end"],
        )
        model = their_model(chosen.file)
        theirs = HFLM(pretrained=model, tokenizer=fast, batch_size=8, max_length=8192, softmax_dtype="float64")
        prompter = Prompter(run)
        for task in (find_task(name, chosen.data) for name in TASKS):
            asked = select(task.size, chosen.limit, 0)
            for shots in (0, 2):
                prompts = make_prompts(task, ShotDrawer(task.examples, shots, 0), asked)
                questions = [Question(*pair, one.shots) for one in prompts for pair in one.pairs]
                figures[f"{task.name}, {shots} shots"] = compare(prompter, theirs, questions)
        alone = [Question("", option) for one in prompts for option in one.options]
        figures["empty context"] = compare(prompter, theirs, alone)
        run.model.config = replace(run.model.config, context=48)
        short = HFLM(pretrained=model, tokenizer=fast, batch_size=8, max_length=48, softmax_dtype="float64")
        figures["cut to 48 tokens"] = compare(prompter, short, questions)
    versions = {"transformers": transformers.__version__, "lm_eval": __import__("lm_eval").__version__}
    names = ("largest_difference", "largest_difference_per_token", "largest_difference_plain")
    largest = {name: max(one[name] for one in figures.values()) for name in names}
    record("eval_parity", {**largest, "by": figures, **versions})


if __name__ == "__main__":
    main()
