"""`ensue cost`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ensue.cli.options import Json, Set
from ensue.cli.output import emit, say, table
from ensue.core.sizes import size_in_words as size

DAY, YEAR = 86_400.0, 31_557_600.0
TIMES = ((DAY, "days"), (3600.0, "hours"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def cost(
    system: Annotated[str, typer.Argument(help="A system, a run, or layers: the table of kinds of layers.")],
    vocabulary: Annotated[
        int | None, typer.Option(min=2, help="How many different tokens.", show_default="the preset's, or 10000")
    ] = None,
    preset: Annotated[str, typer.Option(help="Settings to begin with.")] = "",
    set_: Set = [],
    batch: Annotated[int, typer.Option(min=0, help="Rows of a step, over all ranks.", show_default="train.batch")] = 0,
    length: Annotated[
        int, typer.Option(min=0, help="Tokens of a row, and of what is generated.", show_default="the context, or 64")
    ] = 0,
    precision: Annotated[
        str,
        typer.Option(help="float32 or bf16.", show_default="train.precision; auto: bf16 where the hardware has it"),
    ] = "",
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute", help="The same as --set train.recompute=blocks: a block is run again on the way back."
        ),
    ] = False,
    ranks: Annotated[int, typer.Option(min=0, help="Shard among so many ranks.")] = 0,
    hardware: Annotated[str, typer.Option(help="What each rank runs on: a100, h100 …, or here: this machine.")] = "",
    utilisation: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="The share of its best speed that is reached.", show_default="0.45; here: counted"
        ),
    ] = 0.0,
    tokens: Annotated[float, typer.Option(min=0, help="Say how long training on so many takes, e.g. 300e9.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Count what a system costs before training it: parameters, FLOPs, memory, and time on a machine."""
    from ensue.core.settings import parse_assignments
    from ensue.verbs.cost import cost as verb

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
        emit(result)
    elif "layers" in result:
        _show_layers(result)
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    parameters, active = result["parameters"], result["parameters_active"]
    meets = f" ({active:,} that a token meets)" if active != parameters else ""
    say(f"{result['system']}, {result['vocabulary']:,} tokens: {parameters:,} parameters{meets}")
    for part, count in result["parts"].items():
        say(f"  {part:<12} {count:>18,}")
    say(f"\n{result['flops_per_token']:,} FLOPs to read a token and predict the next")
    step, after = result["training"], result["generating"]
    if step is not None:
        _show_training(result, step)
    if after is not None:
        say(f"\ngenerating a token with the state of {after['context'] - 1:,} before it")
        lines = [["FLOPs", f"{after['flops']:,}"], ["state", size(after["state"])]]
        lines += [["state, each token more", size(after["state_per_token"])]]
        table(["", "a token"], [*lines, ["bytes to pass over", size(after["bytes_per_token"])]])
    if result["depth"]:
        say("\nchains of operations")
        rows = [[f"{d['length']:,}", f"{d['sequential']:,}", _maybe(d["path"])] for d in result["depth"]]
        table(["tokens", "one after the other", "first token to last"], rows)
    if "ranks" in result:
        _show_ranks(result)
    if "time" in result:
        _show_time(result)
    if "time" in result or "ranks" in result:
        _show_assumptions(result)


def _maybe(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _show_training(result: dict[str, Any], step: dict[str, Any]) -> None:
    again = ", blocks computed again" if step["recompute"] == "blocks" else ""
    say(f"{result['train_flops_per_token']:,} FLOPs to train on one{again}")
    if "ranks" in result:  # what one of them holds is said there
        return
    say(f"\na step of {_work(step)}")
    memory = step["memory"]
    rows = [[name, size(memory[name])] for name in ("weights", "gradients", "optimiser", "activations")]
    table(["", "memory"], [*rows, ["at the most at once", size(memory["peak"])]])
    if "fits" in step:
        _show_room(result, step["fits"])


def _work(step: dict[str, Any]) -> str:
    """What a step does."""
    kind = "float32" if step["precision"] == "float32" else "float32, products in bf16"
    return f"{step['rows']:,} × {step['length']:,} tokens, {step['optimiser']}, {kind}"


def _show_ranks(result: dict[str, Any]) -> None:
    found = result["ranks"]
    memory = found["memory"]
    say(f"\n{found['ranks']:,} ranks, {found['groups']:,} groups (FSDP2); a rank's step of {_work(result['training'])}")
    names = {"gathered": "gathered at a time", "total": "all"}
    table(["", "memory a rank"], [[names.get(name, name), size(value)] for name, value in memory.items()])
    if "fits" in found:
        _show_room(result, found["fits"])


def _show_room(result: dict[str, Any], fits: bool) -> None:
    room = size(result["hardware"]["memory"])
    kept = result["training"]["recompute"] == "none"
    hint = "; see --recompute and --batch" if kept else "; see --batch"
    say(f"{'fits' if fits else 'does not fit'} into {room} of {result['hardware']['name']}{'' if fits else hint}")


def _show_time(result: dict[str, Any]) -> None:
    time, device, step = result["time"], result["hardware"], result["training"]
    best = device["flops"][step["precision"]]
    say(f"\n{device['name']}: {best / 1e12:,.3g} TFLOP/s in {step['precision']}, {size(device['memory'])}, ", end="")
    say(f"{size(device['bandwidth'])}/s ({device['source']})")
    how = "assumed" if time["assumed"] else "from the speed of products and passes of each size"
    say(f"{time['utilisation']:.0%} of that ({how}): {_seconds(time['seconds_per_step'])} a step", end="")
    say(f", {time['tokens_per_second']:,.0f} tokens a second")
    if "generated_per_second_at_most" in time:
        say(f"generating one text: at most {time['generated_per_second_at_most']:,.4g} tokens a second (memory)")
    if "days" in time:
        told = _seconds(time["days"] * 86400)
        say(f"{time['tokens']:,.0f} tokens: {time['flops']:.3g} FLOPs, {told}")


def _show_assumptions(result: dict[str, Any]) -> None:
    step, many = result["training"], "ranks" in result
    say("\nassumed:")
    if "time" in result and result["time"]["assumed"]:
        share = result["time"]["utilisation"]
        say(f"  {share:.0%} of the best speed is reached, communication included (--utilisation)")
    each = [step["memory"][name] // result["parameters"] for name in ("weights", "gradients", "optimiser")]
    apart = f"weight {each[0]}, gradient {each[1]}, {step['optimiser']} {each[2]}"
    say(f"  {sum(each)} bytes a parameter, all float32: {apart}")
    again = step["recompute"] == "blocks"
    how = "computed again, block by block (train.recompute)" if again else "kept (unless --recompute)"
    say(f"  activations are {how}, with the kernels of this machine")
    if "time" in result and "generated_per_second_at_most" in result["time"]:
        say("  generating passes over all weights that a token meets, in float32, and over its state")
    if many and result["ranks"]["rows"] != result["ranks"]["asked"]:
        rows, asked = (result["ranks"][name] for name in ("rows", "asked"))
        say(f"  every rank has as many rows, so that a step has {rows:,} and not {asked:,} (--batch)")
    if many:
        say("  besides its part a rank holds the weights of two groups and the gradients of one, whole")


def _seconds(value: float) -> str:
    """
    >>> _seconds(2.7e6), _seconds(7200), _seconds(0.02), _seconds(3e-6), _seconds(1e30)
    ('31.2 days', '2.0 hours', '20.0 ms', '3.0 µs', '3.17e+22 years')
    """
    if value >= 1000 * DAY:
        return f"{value / YEAR:,.3g} years"
    unit, name = next(((unit, name) for unit, name in TIMES if value >= unit), TIMES[-1])
    return f"{value / unit:,.1f} {name}"


def _show_layers(result: dict[str, Any]) -> None:
    chosen = result["settings"]
    say(f"n = {chosen['length']:,} tokens, d = {chosen['hidden']:,} wide, k = {chosen['kernel']}, r = {chosen['span']}")
    rows = [
        [
            one["layer"],
            f"{one['flops']:.3g}",
            f"{one['constant']:.3g} {one['order']}",
            f"{one['sequential']:,}",
            f"{one['path']:,}",
            f"{one['layers']:,}",
        ]
        for one in result["layers"]
    ]
    table(["layer", "FLOPs", "that is", "one after the other", "first token to last", "layers for that"], rows)
