"""`ensue score`, `ensue generate` and `ensue next`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli.options import Columns, Data, Field, Int8, Json, KeyValueCacheType, Memory, NoVerify, RunPath, Seed
from ensue.cli.output import print_bar, print_json, print_line, print_lines, print_table
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls

MAX_ROWS = 40
"""Groups of minimal pairs with more values than this appear only with --json and --out."""


def score(
    run: RunPath,
    data: Data = None,
    text: Annotated[str | None, Option(help="text to score instead of files")] = None,
    field: Field = "",
    columns: Columns = "",
    per_token: Annotated[bool, Option(help="also print the cost of each token in bits", show_default=False)] = False,
    streams: Annotated[
        int, Option(help="number of parallel streams; 1 reads the text in order, 0 chooses by its length")
    ] = 0,
    int8: Int8 = False,
    memory: Memory = None,
    out: Annotated[
        Path | None, Option(help="also draw the confusion matrix, or with --probe the accuracy: x.html, x.png or x.svg")
    ] = None,
    probe: Annotated[
        Path | None, Option(help="score minimal pairs instead: a file or folder of .jsonl, .tsv, or .gold with .text")
    ] = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """evaluate a model on data

    Prints perplexity and bits per byte, BLEU, accuracy and F1, or forecast errors, depending on the task.
    """
    from math import log

    from ensue.cli.display import Display
    from ensue.runs.load import load

    if probe is not None:
        if data or text is not None or field or columns or per_token or streams or int8 or memory is not None:
            raise InputError("--probe takes no files and no options but --out and --json", hint="leave the others out")
        _score_probe(run, probe, out, as_json)
        return
    if (text is None) == (not data):
        raise InputError("score what?", hint="name files, or give --text or --probe")
    with Display(quiet=as_json) as display:
        loaded = load(run)
        options: dict[str, Any] = {"columns": columns, "field": field, "streams": streams, "text": text, "int8": int8}
        options = {name: value for name, value in options.items() if value or (name == "text" and value is not None)}
        loaded.check_options([*options, *(["per_token"] if per_token else []), *(["out"] if out else [])])
        loaded.use_memory(memory)
        display("phase", {"name": "scoring"})
        result = loaded.score(*(data or []), report=display, **options).as_dict()
        tokens = loaded.per_token(*(data or []), **options) if per_token else []
    if out is not None:
        from ensue.verbs.look import draw_confusion

        draw_confusion(result, out)
    if as_json:
        if per_token:
            result["per_token"] = [{"token": token, "bits": -value / log(2)} for token, value in tokens]
        result |= {"notes": display.notes} if display.notes else {}
        print_json({name: value for name, value in result.items() if name != "pseudo" or value})
        return
    for token, value in tokens:
        print_line(f"{-value / log(2):8.3f}  {escape_controls(token)}")
    print_lines(loaded.score_lines(result))


def _score_probe(run: Path, probe: Path, out: Path | None, as_json: bool) -> None:
    """Print how often the model gives the correct text of a minimal pair the higher probability."""
    from ensue.cli.display import Display
    from ensue.runs.load import load
    from ensue.verbs.probe import probe as verb

    with Display(quiet=as_json) as display:
        display("phase", {"name": "scoring pairs"})
        figures = verb(load(run), probe, out=out, report=display)
    if as_json:
        print_json(figures)
        return
    ties = f", {figures['ties']:,} ties" if figures["ties"] else ""
    print_line(f"accuracy {figures['accuracy']:.2%} on {figures['pairs']:,} pairs{ties} (chance: 50 %)")
    for name, rows in figures["by"].items():
        if 1 < len(rows) <= MAX_ROWS:
            print_line()
            cells = [[str(row["value"]), f"{row['accuracy']:.1%}", f"{row['pairs']:,}"] for row in rows]
            print_table([name, "accuracy", "pairs"], cells)
    if figures["unknown"]:
        print_line(f"\n{figures['unknown']:,} of {2 * figures['pairs']:,} texts contain unknown words")


def generate(
    run: RunPath,
    prompt: Annotated[str, Option(help="text to continue (a backward model writes what comes before it)")] = "",
    max_tokens: Annotated[int, Option(help="maximum number of tokens to generate")] = 100,
    temperature: Annotated[float, Option(help="softmax temperature; below 1 is more conservative, 0 is greedy")] = 1.0,
    top_k: Annotated[int, Option(help="sample from the k most likely tokens; 0 means all")] = 0,
    top_p: Annotated[float, Option(help="sample from the most likely tokens with this total probability")] = 1.0,
    num_samples: Annotated[int, Option(help="number of texts to generate; each is shown with its score")] = 1,
    select: Annotated[
        str, Option(help="which texts to print: all, first, or best (probable, no loop, not cut short)")
    ] = "all",
    log: Annotated[
        Path | None, Option(help="write every text to this JSON file: scores, which was chosen, and why")
    ] = None,
    seed: Seed = 0,
    int8: Int8 = False,
    kv_cache: KeyValueCacheType = "float32",
    memory: Memory = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
    tokens: Annotated[int | None, Option(hidden=True)] = None,
    n: Annotated[int | None, Option(hidden=True)] = None,
) -> None:
    """generate text with a language model"""
    from ensue.runs.load import load
    from ensue.verbs.tries import draw_tries

    tokens, n = max_tokens if tokens is None else tokens, num_samples if n is None else n  # the old names win
    loaded = load(run)
    sampling = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "n": n, "seed": seed}
    loaded.use_cache_type(kv_cache)
    loaded.use_memory(memory)
    drawn = draw_tries(loaded, prompt, select=select, log=log, int8=int8, **sampling)
    chosen = [(text, one) for text, one in zip(drawn.texts, drawn.tries) if one.chosen]
    if as_json:
        samples = [text.as_dict() for text, _ in chosen]
        selection = {} if select == "all" else {"select": select, "chosen": chosen[0][1].number}
        print_json({"system": loaded.system, "prompt": prompt, **sampling, **selection, "samples": samples})
        return
    for text, one in chosen:
        if n > 1:
            why = "" if select == "all" else f" ({one.reason})"
            print_line(f"— {one.number} of {n}: log P = {one.log_prob:.2f}, {one.mean_log_prob:.3f} per token{why}")
        print_line(text.text if loaded.direction == "backward" else prompt + text.text)


def next_(
    run: RunPath,
    text: Annotated[str, Argument(help="text to predict the next token of")],
    top: Annotated[int, Option(min=1, help="number of tokens to show")] = 10,
    memory: Memory = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """show the most likely next tokens"""
    from ensue.runs.load import load

    loaded = load(run)
    loaded.use_memory(memory)
    tokens = loaded.next(text, top)
    if as_json:
        likely = [{"token": token, "probability": p} for token, p in tokens]
        print_json({"system": loaded.system, "text": text, "next": likely})
        return
    for token, p in tokens:
        print_bar(p, tokens[0][1], token)
