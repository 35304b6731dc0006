"""`ensue score`, `ensue generate` and `ensue next`: what a trained model answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import Columns, Data, Field, Int8, Json, RunPath, Seed
from ensue.cli.output import emit, say
from ensue.cli.probes import score_probe
from ensue.cli.scores import show_figures
from ensue.core.errors import InputError


def score(
    run: RunPath,
    data: Data = None,
    text: Annotated[str | None, typer.Option(help="A text instead of files.")] = None,
    field: Field = "",
    columns: Columns = "",
    per_token: Annotated[bool, typer.Option(help="Say what each token costs, in bits.")] = False,
    streams: Annotated[int, typer.Option(help="Parallel streams; 1 reads the text in one go (0: by its length).")] = 0,
    int8: Int8 = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Also draw the confusion of labels, or with --probe accuracy: x.html, x.png or x.svg."),
    ] = None,
    probe: Annotated[
        Path | None,
        typer.Option(help="A file or folder of minimal pairs (.jsonl, .gold with .text, .tsv): which one is likelier?"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how well a model predicts a text, translates or labels."""
    from math import log

    from ensue.cli.display import Display
    from ensue.runs.load import load

    if probe is not None:
        if data or text is not None or field or columns or per_token or streams or int8:
            raise InputError("--probe is scored alone", hint="leave out files and other options, but --out and --json")
        score_probe(run, probe, out, as_json)
        return
    if (text is None) == (not data):
        raise InputError("score what?", hint="name files or give --text, not both; --probe takes pairs")
    with Display(quiet=as_json) as display:
        held = load(run)
        how: dict[str, Any] = {"columns": columns, "field": field, "streams": streams, "text": text, "int8": int8}
        how = {name: value for name, value in how.items() if value or (name == "text" and value is not None)}
        held.check_options([*how, *(["per_token"] if per_token else []), *(["out"] if out else [])])
        display("phase", {"name": "scoring"})
        found = held.score(*(data or []), report=display, **how)
        result = found.as_dict()
        read = held.per_token(*(data or []), **how) if per_token else []
    if out is not None:
        from ensue.verbs.look import draw_confusion

        draw_confusion(result, out)
    if as_json:
        if per_token:
            result["per_token"] = [{"token": token, "bits": -value / log(2)} for token, value in read]
        emit({name: value for name, value in result.items() if name != "pseudo" or value})
        return
    for token, value in read:
        say(f"{-value / log(2):8.3f}  {token}")
    show_figures(held.task, result)


def generate(
    run: RunPath,
    prompt: Annotated[str, typer.Option(help="What the text begins with (a backward model: ends with).")] = "",
    tokens: Annotated[int, typer.Option(help="At most so many tokens.")] = 100,
    temperature: Annotated[float, typer.Option(help="Below 1 safer, above 1 bolder, 0 always the likeliest.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from the k likeliest tokens (0: all).")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that make up this mass.")] = 1.0,
    n: Annotated[int, typer.Option(help="How many tries; all are shown, with scores.")] = 1,
    seed: Seed = 0,
    int8: Int8 = False,
    as_json: Json = False,
) -> None:
    """Let a model write."""
    from ensue.runs.load import load

    held = load(run)
    how = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "n": n, "seed": seed}
    texts = held.generate(prompt, int8=int8, **how)
    if as_json:
        emit({"system": held.system, "prompt": prompt, **how, "samples": [text.as_dict() for text in texts]})
        return
    for number, text in enumerate(texts, 1):
        if n > 1:
            mean, whole = text.sample.mean_log_prob, text.sample.log_prob
            say(f"— {number} of {n}: log P = {whole:.2f}, {mean:.3f} a token")
        say(text.text if held.direction == "backward" else prompt + text.text)


def next_(
    run: RunPath,
    text: Annotated[str, typer.Argument(help="What comes before.")],
    top: Annotated[int, typer.Option(min=1, help="How many to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Show what a model expects next."""
    from ensue.runs.load import load

    held = load(run)
    found = held.next(text, top)
    if as_json:
        emit({"system": held.system, "text": text, "next": [{"token": t, "probability": p} for t, p in found]})
        return
    for token, p in found:
        say(f"{p:7.4f}  {'█' * max(1, round(40 * p / found[0][1]))}  {token}")
