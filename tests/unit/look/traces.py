"""Traces of searches, to draw."""

import math
import random

NASTY = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"&'",
    "\x1b[31m",
    "",
    " ",
    "漢字",
    "a\nb",
]


def node(id, parent, step, token, log_prob, total, fate, **more):
    return {
        "id": id,
        "parent": parent,
        "step": step,
        "token": token,
        "log_prob": log_prob,
        "total": total,
        "score": total,
        "fate": fate,
        "why": "",
    } | more


def lecture():
    """Beam 2 over "il a m' entarté": he struck is ahead of he hit until it is not."""
    return {
        "method": "beam",
        "beam": 2,
        "length": "none",
        "source": "il a m' entarté",
        "nodes": [
            node(0, None, 0, "START", 0.0, 0.0, "kept", why="the start"),
            node(1, 0, 1, "he", -0.7, -0.7, "kept", why="rank 1 of 2"),
            node(2, 0, 1, "I", -0.9, -0.9, "kept", why="rank 2 of 2"),
            node(3, 1, 2, "hit", -1.0, -1.7, "kept"),
            node(4, 1, 2, "struck", -2.2, -2.9, "pruned", why="rank 4 of 4, beam 2"),
            node(5, 2, 2, "was", -0.7, -1.6, "kept"),
            node(6, 2, 2, "got", -0.9, -1.8, "pruned"),
            node(7, 3, 3, "me", -0.6, -2.3, "best"),
            node(8, 5, 3, "</s>", -1.5, -3.1, "ended"),
        ],
    }


def beam_trace(beam, steps, tokens, seed=0):
    """A trace as beam search leaves it, with made-up log-probabilities."""
    chance, nodes = random.Random(seed), [node(0, None, 0, "<s>", 0.0, 0.0, "kept")]
    live = [nodes[0]]
    for step in range(1, steps + 1):
        new = []
        for parent in live:
            for token in chance.choices(tokens, k=beam):
                p = math.log(chance.uniform(0.01, 1))
                new.append(node(len(nodes) + len(new), parent["id"], step, token, p, parent["total"] + p, "pruned"))
        nodes += new
        live = sorted(new, key=lambda n: -n["total"])[:beam]
        for kept in live:
            kept["fate"] = "kept"
    live[0]["fate"] = "best"
    return {"method": "beam", "beam": beam, "length": "none", "nodes": nodes}
