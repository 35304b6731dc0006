"""Figures come from here: run as modules, e.g. ``python -m benchmarks.speed.gpt``; results stand in results/*.jsonl."""
