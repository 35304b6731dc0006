"""`ensue cost`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli.options import Json, NoVerify, Preset, Set, attention_names
from ensue.cli.output import print_json, print_line, print_table
from ensue.core.errors import InputError
from ensue.core.escapes import escape_controls
from ensue.core.sizes import size_in_words as size

DAY, YEAR = 86_400.0, 31_557_600.0
TIMES = ((DAY, "days"), (3600.0, "hours"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def cost(
    system: Annotated[
        str, Argument(help="system, run, `layers` to compare kinds of layers, or `attention` to compare attentions")
    ],
    vocabulary: Annotated[
        int | None, Option(min=2, help="vocabulary size", show_default="the preset's, or 10000")
    ] = None,
    preset: Preset = "",
    set_: Set = [],
    batch: Annotated[int, Option(min=0, help="batch size, over all ranks", show_default="train.batch")] = 0,
    length: Annotated[
        int, Option(min=0, help="sequence length, also when generating", show_default="the context, or 64")
    ] = 0,
    precision: Annotated[
        str, Option(help="float32 or bf16", show_default="train.precision; auto: bf16 if the hardware has it")
    ] = "",
    recompute: Annotated[
        bool, Option("--recompute", help="recompute activations in the backward pass, as --set train.recompute=blocks")
    ] = False,
    ranks: Annotated[int, Option(min=0, help="number of ranks to shard over", show_default=False)] = 0,
    hardware: Annotated[str, Option(help="hardware of each rank: a100, h100 …, or `here` for this machine")] = "",
    utilisation: Annotated[
        float, Option(min=0, max=1, help="fraction of peak FLOP/s reached", show_default="0.45; here: estimated")
    ] = 0.0,
    tokens: Annotated[
        float, Option(min=0, help="number of training tokens to estimate the time for, e.g. 300e9")
    ] = 0.0,
    attention: Annotated[
        str | None, Option(metavar="NAME,…", help="with `attention`: which to compare", show_default="all")
    ] = None,
    lengths: Annotated[
        str, Option(metavar="N,N…", help="with `attention`: numbers of tokens", show_default="512,1024,2048,4096")
    ] = "",
    direction: Annotated[str, Option(help="with `attention`: causal or both")] = "causal",
    measure: Annotated[
        bool, Option("--measure", help="with `attention`: measure time and memory here", show_default=False)
    ] = False,
    out: Annotated[
        Path | None, Option(help="with --measure: chart to write (.html, .png, .svg, .json)", show_default=False)
    ] = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """estimate parameters, FLOPs, memory and time before training"""
    from ensue.cli.display import Display
    from ensue.core.settings import parse_assignments
    from ensue.verbs.cost import cost as verb

    if system == "attention":
        _attention(attention, lengths, direction, measure, set_, out, as_json)
        return
    if attention is not None or lengths or measure or out is not None:
        raise InputError("--attention, --lengths, --measure and --out are for `ensue cost attention`")

    with Display(quiet=as_json) as display:  # a large model takes a minute
        display("phase", {"name": "counting operations"})
        result = verb(
            system,
            vocabulary=vocabulary,
            preset=preset,
            settings=parse_assignments(set_),
            batch=batch,
            length=length,
            precision=precision,
            recompute="blocks" if recompute else "",
            ranks=ranks,
            hardware=hardware,
            utilisation=utilisation,
            tokens=tokens,
        )
    if as_json:
        print_json(result)
    elif "layers" in result:
        _print_layers(result)
    else:
        _print_cost(result)


def _attention(
    names: str | None, lengths: str, direction: str, measure: bool, set_: list[str], out: Path | None, as_json: bool
) -> None:
    """Print what attentions cost."""
    from ensue.cli.display import Display
    from ensue.core.settings import parse_assignments
    from ensue.verbs.cost_attention import cost_attention

    sizes: dict[str, Any] = parse_assignments(set_)
    if unknown := [name for name in sizes if name not in ("hidden", "heads")]:
        raise InputError(f"setting {unknown[0]!r} has no effect here", hint="hidden and heads have")
    try:
        numbers = [int(one) for one in lengths.split(",") if one.strip()]
        width, heads = int(sizes.get("hidden", 256)), int(sizes.get("heads", 4))
    except ValueError as error:
        raise InputError("lengths, hidden and heads are whole numbers", hint="--lengths 512,1024") from error
    with Display(quiet=as_json) as display:
        result = cost_attention(
            attention_names(names),
            lengths=numbers,
            measure=measure,
            width=width,
            heads=heads,
            direction=direction,
            out=out,
            report=display,
        )
    if as_json:
        print_json(result)
        return
    if not measure:
        print_attentions(result["attentions"])
        print_line("--measure times them on this machine")
        return
    lengths_shown = [f"{length:,}" for length in result["lengths"]]
    print_line(f"seconds of a training step of one layer (width {width}, {heads} heads, {direction}) by tokens")
    columns = ["attention", *lengths_shown, "time", "memory", "MB", "one more token", "faster than full from"]
    print_table(columns, [_growth(one) for one in result["measured"]])
    print_line("time, memory: the exponent p of n^p; MB and one more token: at the last length")
    if out is not None:
        print_line(f"wrote {escape_controls(str(out))}")


def _growth(one: dict[str, Any]) -> list[str]:
    """A row of the table of measured attentions."""
    start = one["faster_than_full_from"]
    decode = _seconds(one["decode_seconds"][-1]) if one["decode_seconds"] else "–"
    exponents = ["–" if one[key] is None else f"{one[key]:.2f}" for key in ("time_exponent", "memory_exponent")]
    speed = [f"{value:.3g}" for value in one["seconds"]]
    last = "" if one["attention"] == "full" else "–" if start is None else f"{start:,.0f}"
    return [one["attention"], *speed, *exponents, f"{one['bytes'][-1] / 1e6:,.0f}", decode, last]


def print_attentions(attentions: list[dict[str, Any]]) -> None:
    """Print the table of attentions."""
    rows = [
        [one["attention"], one["complexity"], one["decoding"], " ".join(one["directions"]), one["paper"]]
        for one in attentions
    ]
    print_table(["attention", "time and memory", "one more token", "directions", "paper"], rows)


def _print_cost(result: dict[str, Any]) -> None:
    parameters, active = result["parameters"], result["parameters_active"]
    sparse = f" ({active:,} active per token)" if active != parameters else ""
    print_line(f"{result['system']}, vocabulary {result['vocabulary']:,}: {parameters:,} parameters{sparse}")
    for part, count in result["parts"].items():
        print_line(f"  {part:<12} {count:>18,}")
    print_line(f"\nforward pass: {result['flops_per_token']:,} FLOPs per token")
    step, decode = result["training"], result["generating"]
    if step is not None:
        _print_training(result, step)
    if decode is not None:
        print_line(f"\ngenerating one token after {decode['context'] - 1:,}")
        sizes = {"state": "state", "state growth": "state_per_token", "memory traffic": "bytes_per_token"}
        rows = [[name, size(decode[key])] for name, key in sizes.items()]
        print_table(["", "per token"], [["FLOPs", f"{decode['flops']:,}"], *rows])
    if result["depth"]:
        print_line("\nsequential operations")
        cells = ([d["length"], d["sequential"], d["path"]] for d in result["depth"])
        rows = [["–" if value is None else f"{value:,}" for value in row] for row in cells]
        print_table(["tokens", "sequential", "path from first token to last"], rows)
    if "ranks" in result:
        _print_ranks(result)
    if "time" in result:
        _print_time(result)
    if "time" in result or "ranks" in result:
        _print_assumptions(result)


def _print_training(result: dict[str, Any], step: dict[str, Any]) -> None:
    recompute = ", with recomputation" if step["recompute"] == "blocks" else ""
    print_line(f"training: {result['train_flops_per_token']:,} FLOPs per token{recompute}")
    if "ranks" in result:  # memory is printed per rank
        return
    print_line(f"\na training step of {_step(step)}")
    memory = step["memory"]
    rows = [[name, size(memory[name])] for name in ("weights", "gradients", "optimiser", "activations")]
    print_table(["", "memory"], [*rows, ["peak", size(memory["peak"])]])
    if "fits" in step:
        _print_fit(result, step["fits"])


def _step(step: dict[str, Any]) -> str:
    """Batch, optimiser and precision of a step."""
    precision = "float32" if step["precision"] == "float32" else "float32, matmuls in bf16"
    return f"{step['rows']:,} × {step['length']:,} tokens, {step['optimiser']}, {precision}"


def _print_ranks(result: dict[str, Any]) -> None:
    ranks = result["ranks"]
    step = _step(result["training"])
    print_line(f"\n{ranks['ranks']:,} ranks, {ranks['groups']:,} groups (FSDP2); a step of one rank: {step}")
    names = {"gathered": "gathered at a time", "total": "total"}
    rows = [[names.get(name, name), size(value)] for name, value in ranks["memory"].items()]
    print_table(["", "memory per rank"], rows)
    if "fits" in ranks:
        _print_fit(result, ranks["fits"])


def _print_fit(result: dict[str, Any], fits: bool) -> None:
    memory = size(result["hardware"]["memory"])
    hint = "; see --recompute and --batch" if result["training"]["recompute"] == "none" else "; see --batch"
    verdict, hint = ("fits", "") if fits else ("does not fit", hint)
    print_line(f"{verdict} into {memory} of {result['hardware']['name']}{hint}")


def _print_time(result: dict[str, Any]) -> None:
    time, device, step = result["time"], result["hardware"], result["training"]
    peak = f"{device['flops'][step['precision']] / 1e12:,.3g} TFLOP/s in {step['precision']}"
    bandwidth = f"{size(device['bandwidth'])}/s"
    print_line(f"\n{device['name']}: {peak}, {size(device['memory'])}, {bandwidth} ({device['source']})")
    how = "assumed" if time["assumed"] else "estimated from the speed of each matmul and memory pass"
    speed = f"{_seconds(time['seconds_per_step'])} per step, {time['tokens_per_second']:,.0f} tokens per second"
    print_line(f"{time['utilisation']:.0%} utilisation ({how}): {speed}")
    if "generated_per_second_at_most" in time:
        rate = f"{time['generated_per_second_at_most']:,.4g} tokens per second"
        print_line(f"generating one text: at most {rate} (memory bandwidth)")
    if "days" in time:
        print_line(f"{time['tokens']:,.0f} tokens: {time['flops']:.3g} FLOPs, {_seconds(time['days'] * DAY)}")


def _print_assumptions(result: dict[str, Any]) -> None:
    step, sharded = result["training"], "ranks" in result
    print_line("\nassumptions:")
    if "time" in result and result["time"]["assumed"]:
        print_line(f"  {result['time']['utilisation']:.0%} of peak FLOP/s, including communication (--utilisation)")
    each = [step["memory"][name] // result["parameters"] for name in ("weights", "gradients", "optimiser")]
    parts = f"weight {each[0]}, gradient {each[1]}, {step['optimiser']} {each[2]}"
    print_line(f"  {sum(each)} bytes per parameter, all float32: {parts}")
    recomputed = step["recompute"] == "blocks"
    how = "recomputed block by block (train.recompute)" if recomputed else "kept (unless --recompute)"
    print_line(f"  activations are {how}, with the kernels of this machine")
    if "time" in result and "generated_per_second_at_most" in result["time"]:
        print_line("  generating a token reads all active weights in float32, and the state")
    if sharded and result["ranks"]["rows"] != result["ranks"]["asked"]:
        rows, asked = (result["ranks"][name] for name in ("rows", "asked"))
        print_line(f"  all ranks have the same batch size, so a step has {rows:,} rows, not {asked:,} (--batch)")
    if sharded:
        print_line("  besides its shard, a rank holds the full weights of two groups and the gradients of one")


def _seconds(value: float) -> str:
    """
    >>> _seconds(2.7e6), _seconds(7200), _seconds(0.02), _seconds(3e-6), _seconds(1e30)
    ('31.2 days', '2.0 hours', '20.0 ms', '3.0 µs', '3.17e+22 years')
    """
    if value >= 1000 * DAY:
        return f"{value / YEAR:,.3g} years"
    unit, name = next(((unit, name) for unit, name in TIMES if value >= unit), TIMES[-1])
    return f"{value / unit:,.1f} {name}"


def _print_layers(result: dict[str, Any]) -> None:
    settings = result["settings"]
    sizes = f"n = {settings['length']:,} tokens, d = {settings['hidden']:,} hidden size"
    print_line(f"{sizes}, k = {settings['kernel']} kernel, r = {settings['span']} span")
    rows = []
    for layer in result["layers"]:
        flops = [f"{layer['flops']:.3g}", f"{layer['constant']:.3g} {layer['order']}"]
        rows.append([layer["layer"], *flops, *(f"{layer[name]:,}" for name in ("sequential", "path", "layers"))])
    columns = ["layer", "FLOPs", "in terms of", "sequential", "path from first token to last", "layers for that path"]
    print_table(columns, rows)
