"""Ask a run all questions of an evaluation task: one record for each, with prompt, options, numbers and answer.

Questions are asked in batches of about equal length, and the answers of each batch are kept as soon as it is answered.
Batches depend on the questions alone, so an evaluation that was interrupted and continued has the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ensue.core.events import Report, silent
from ensue.data.evaluation.prompts import Prompt
from ensue.data.evaluation.task import EvalTask
from ensue.measure.task_scores import choose, plain_answer
from ensue.runs.prompts import Prompter, Question
from ensue.verbs.eval_answers import Records, SavedAnswers

UNCONDITIONAL = "unconditional"
"""The group of options without a context."""
BATCH = 64
"""Questions that are asked, and kept, together."""


def ask(
    prompter: Prompter,
    task: EvalTask,
    prompts: Sequence[Prompt],
    report: Report = silent,
    saved: SavedAnswers | None = None,
) -> Records:
    """Return the records of a task's prompts; those that are saved are not asked again."""
    saved = SavedAnswers() if saved is None else saved
    order = sorted(
        prompts, key=lambda one: (one.shots, sum(len(context) + len(option) for context, option in one.pairs))
    )
    batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
    records: dict[int, dict[str, Any]] = {}
    left = sum(len(batch) for batch in batches if saved.get([one.index for one in batch]) is None)
    paced = _paced(report, len(prompts), left)
    saved.start()
    for batch in batches:
        numbers = [one.index for one in batch]
        found = saved.get(numbers)
        if found is None:
            found = ASK[task.kind](prompter, task, batch, paced(len(records), len(batch)))
            saved.add(numbers, found)
        records |= zip(numbers, found)
    return [records[one.index] for one in prompts]


def _record(prompt: Prompt) -> dict[str, Any]:
    """What was asked."""
    contexts: Any = prompt.contexts[0] if len(prompt.contexts) == 1 else list(prompt.contexts)
    group = {"group": prompt.example.group} if prompt.example.group else {}
    record = {"index": prompt.index, **group, "shots": list(prompt.shots), "prompt": contexts}
    return {**record, "options": list(prompt.options)}


def _ask_choice(prompter: Prompter, task: EvalTask, prompts: Sequence[Prompt], report: Report) -> Records:
    """log P of each option after the context, and by itself."""
    pairs = [Question(context, option, one.shots) for one in prompts for context, option in one.pairs]
    alone = [Question("", option, UNCONDITIONAL) for one in prompts for option in one.options]
    scores = prompter.log_probs([*pairs, *alone], report=report)
    given, by_itself = iter(scores[: len(pairs)]), iter(scores[len(pairs) :])
    records = []
    for one in prompts:
        here = [next(given) for _ in one.options]
        log_probs, unconditional = [score.log_prob for score in here], [next(by_itself).log_prob for _ in one.options]
        sizes = [len(option.encode()) for option in one.example.options]
        chosen = choose(log_probs, sizes, unconditional)
        numbers = {"log_probs": log_probs, "unconditional": unconditional, "bytes": sizes}
        right = {name: int(option == one.example.gold) for name, option in chosen.items()}
        cut = any(score.cut for score in here)
        records.append(
            {**_record(one), "gold": one.example.gold, **numbers, "chosen": chosen, "right": right, "cut": cut}
        )
    return records


def _ask_cloze(prompter: Prompter, task: EvalTask, prompts: Sequence[Prompt], report: Report) -> Records:
    """log P of the last words, and whether each of their tokens is the most probable one."""
    questions = [Question(one.contexts[0], one.options[0], one.shots) for one in prompts]
    scores = prompter.log_probs(questions, greedy=True, report=report)
    return [
        {**_record(one), "log_probs": [score.log_prob], "right": {"acc": int(bool(score.greedy))}, "cut": score.cut}
        for one, score in zip(prompts, scores)
    ]


def _ask_match(prompter: Prompter, task: EvalTask, prompts: Sequence[Prompt], report: Report) -> Records:
    """The greedy answer to each context."""
    contexts = [(one.contexts[0], one.shots) for one in prompts]
    answers = prompter.answers(contexts, stop=task.style.stop, max_tokens=task.style.max_tokens, report=report)
    return [
        {**_record(one), "answer": answer, "right": {"exact_match": int(_matches(answer, one.example.options))}}
        for one, answer in zip(prompts, answers)
    ]


def _matches(answer: str, accepted: Sequence[str]) -> bool:
    return plain_answer(answer) in {plain_answer(one) for one in accepted}


def _ask_perplexity(prompter: Prompter, task: EvalTask, prompts: Sequence[Prompt], report: Report) -> Records:
    """log P of whole texts."""
    texts = [one.example.options[0] for one in prompts]
    scores = prompter.log_probs([Question("", text, number) for number, text in enumerate(texts)], report=report)
    return [
        {
            "index": one.index,
            "text": text,
            "log_prob": score.log_prob,
            "bytes": len(text.encode()),
            "words": _words(text),
        }
        for one, text, score in zip(prompts, texts, scores)
    ]


def _words(text: str) -> int:
    """The number of words, at least one."""
    return max(1, len(text.split()))


ASK: dict[str, Callable[[Prompter, EvalTask, Sequence[Prompt], Report], Records]] = {
    "choice": _ask_choice,
    "cloze": _ask_cloze,
    "match": _ask_match,
    "perplexity": _ask_perplexity,
}
"""How a kind of task is asked. Tasks of the kind code are run by ``ensue.verbs.eval_code``."""


def _paced(report: Report, total: int, left: int) -> Callable[[int, int], Report]:
    """Make the report of each batch, whose progress counts the questions of all.

    It says how many questions are answered a second, and how long the rest takes.
    """
    begun, saved = time.monotonic(), total - left

    def make(before: int, size: int) -> Report:
        def paced(kind: str, values: dict[str, Any]) -> None:
            if kind == "progress" and values["done"]:
                done = before + size * values["done"] / values["total"]
                speed = max(1e-9, done - saved) / max(1e-9, time.monotonic() - begun)
                values = {"done": int(done), "total": total, "counts": "questions", "per_second": speed}
                values["left"] = (total - done) / speed
            report(kind, values)

        return paced

    return make
