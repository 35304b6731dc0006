"""Draws the pictures of the documentation: one SVG a system, by hand, with nothing but Python.

python docs/pictures/draw.py            writes docs/pictures/*.svg
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path

INK, GREY, FAINT = "#1f2328", "#6b7280", "#d1d5db"
FILLS = {  # fill and outline
    "blue": ("#dbeafe", "#2563eb"),
    "orange": ("#ffedd5", "#c2410c"),
    "green": ("#dcfce7", "#15803d"),
    "purple": ("#ede9fe", "#6d28d9"),
    "grey": ("#f3f4f6", "#9ca3af"),
    "white": ("#ffffff", "#6b7280"),
}
FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"


class Picture:
    """Shapes on a white sheet with round corners, so that it reads on a dark page too."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: int = 15,
        colour: str = INK,
        anchor: str = "middle",
        bold: bool = False,
    ) -> None:
        """Text centred on (x, y); ``h_t`` and ``h_{t-1}`` get subscripts."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y + 0.35 * size:g}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}"{weight}>'
            f"{subscripts(words, size)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        fill: str = "white",
        size: int = 15,
        colour: str = INK,
        dashed: bool = False,
        round_: float = 6,
    ) -> None:
        """A box centred on (x, y)."""
        inside, outline = FILLS[fill]
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}" rx="{round_:g}" '
            f'fill="{inside}" stroke="{outline}" stroke-width="1.5"{dash}/>'
        )
        if words:
            self.text(x, y, words, size, colour)

    def dot(self, x: float, y: float, words: str, fill: str = "white", radius: float = 14, size: int = 17) -> None:
        """A circle with a sign in it: × or +."""
        inside, outline = FILLS[fill]
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{inside}" stroke="{outline}" stroke-width="1.5"/>'
        )
        self.text(x, y, words, size)

    def line(
        self,
        *points: tuple[float, float],
        colour: str = INK,
        head: bool = True,
        dashed: bool = False,
        width: float = 1.6,
    ) -> None:
        """A line through points, with an arrow head at its end."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dash}/>'
        )
        if head:
            (x0, y0), (x, y) = points[-2:]
            length = max(((x - x0) ** 2 + (y - y0) ** 2) ** 0.5, 1e-9)
            u, v = (x - x0) / length, (y - y0) / length
            left, right = (x - 9 * u - 4.5 * v, y - 9 * v + 4.5 * u), (x - 9 * u + 4.5 * v, y - 9 * v - 4.5 * u)
            corners = " ".join(f"{a:g},{b:g}" for a, b in ((x, y), left, right))
            self.parts.append(f'<polygon points="{corners}" fill="{colour}"/>')

    def svg(self) -> str:
        """The whole file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" font-family="{FONT}">',
                f"<title>{escape(self.title)}</title>",
                f'<rect width="{self.width}" height="{self.height}" rx="14" fill="#ffffff"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def subscripts(words: str, size: int) -> str:
    """``_x`` and ``_{xy}`` as lowered, smaller text."""
    result, low = "", round(0.25 * size, 1)
    after = False
    for piece in re.split(r"(_\{[^}]*\}|_[A-Za-z0-9])", words):
        if not piece:
            continue
        if piece.startswith("_") and len(piece) > 1:
            result += f'<tspan dy="{low:g}" font-size="{0.72 * size:.4g}">{escape(piece[1:].strip("{}"))}</tspan>'
            after = True
        else:
            result += f'<tspan dy="-{low:g}">{escape(piece)}</tspan>' if after else escape(piece)
            after = False
    return result


def ngram() -> Picture:
    """A trie of n-grams with the lecture's counts, and the shorter context that answers for what was never seen."""
    p = Picture(880, 380, "An n-gram model: a trie of counted n-grams, and back-off to a shorter context")
    p.text(24, 28, "P(books | students opened their) = 400 / 1000 = 0.4", 16, anchor="start", bold=True)
    p.text(24, 54, "only the last n − 1 = 3 words count; what stood before them is forgotten", 13, GREY, "start")
    for x, word in zip((60, 124, 188), ("…", "the", "clock")):
        p.text(x, 100, word, 14, FAINT)
    row = [(268, "students"), (388, "opened"), (496, "their")]
    for x, word in row:
        p.box(x, 100, 92, 34, word, "blue")
    p.line((314, 100), (342, 100))
    p.line((434, 100), (450, 100))
    p.text(496, 131, "seen 1000 times", 12, GREY)
    for y, word, count in ((70, "books", 400), (110, "exams", 100), (150, "… others", 500)):
        p.line((542, 100), (608, y))
        p.box(664, y, 108, 32, word, "green")
        p.text(732, y, f"C = {count}", 14, anchor="start")
    p.line((268, 118), (268, 196), (340, 196), dashed=True, colour=FILLS["orange"][1])
    p.text(276, 166, "never seen? drop the first word", 12, FILLS["orange"][1], "start")
    for x, word in ((388, "opened"), (496, "their")):
        p.box(x, 196, 92, 34, word, "orange")
    p.line((434, 196), (450, 196))
    p.line((542, 196), (608, 196))
    p.box(664, 196, 108, 32, "laptops", "green")
    p.text(732, 196, "× weight b(c)", 13, GREY, "start")
    p.text(24, 250, "The same trie as sorted arrays:", 14, anchor="start", bold=True)
    for y, name, cells in (
        (284, "words", ["…", "books", "exams", "…", "…"]),
        (318, "log p", ["…", "−0.92", "−2.30", "…", "…"]),
        (352, "suffix", ["…", "↓", "↓", "…", "…"]),
    ):
        p.text(104, y, name, 13, GREY, "end")
        for i, cell in enumerate(cells):
            p.box(160 + 84 * i, y, 82, 28, cell, "grey" if name != "words" else "green", 12, round_=2)
    p.text(566, 284, "children of one context stand together,", 13, GREY, "start")
    p.text(566, 306, "sorted: a binary search finds a word;", 13, GREY, "start")
    p.text(566, 328, "offsets say where they begin, suffix is", 13, GREY, "start")
    p.text(566, 350, "the n-gram without its first word", 13, GREY, "start")
    return p


def window() -> Picture:
    """Four embeddings side by side, each with weights of its own."""
    p = Picture(820, 400, "A fixed-window neural language model")
    words = ["the", "students", "opened", "their"]
    for x, word in ((56, "proctor"), (128, "started"), (192, "…")):
        p.text(x, 362, word, 14, FAINT)
    fills = ["blue", "orange", "green", "purple"]
    for i, (word, fill) in enumerate(zip(words, fills), 1):
        x = 160 + 110 * i
        p.text(x, 362, word, 15)
        p.line((x, 350), (x, 322))
        p.box(x, 302, 106, 36, f"e_{i}", fill, round_=2)
        p.line((x, 284), (x, 228), colour=FILLS[fill][1])
        p.text(x + 20, 256, f"W_{i}", 14, FILLS[fill][1])
    p.box(435, 206, 436, 40, "h = f(W e + b_1)", "grey")
    p.line((435, 186), (435, 142))
    p.text(452, 164, "U", 15)
    p.box(435, 120, 436, 40, "ŷ = softmax(U h + b_2)", "white")
    for x, height, word in ((300, 42, "books"), (380, 24, "laptops"), (460, 8, "a"), (540, 5, "zoo")):
        p.box(x, 100 - height / 2, 34, height, "", "green", round_=1)
        p.text(x, 46 if word == "books" else 92 - height, word, 12, GREY)
    p.text(24, 28, "n = 4 tokens, and no more", 16, anchor="start", bold=True)
    p.text(24, 302, "e = [e_1; e_2; e_3; e_4]", 15, anchor="start")
    p.text(24, 206, "hidden layer", 14, GREY, "start")
    p.text(24, 120, "next token", 14, GREY, "start")
    p.text(670, 232, "each place has its", 13, GREY, "start")
    p.text(670, 252, "own part of W", 13, GREY, "start")
    return p


def rnn() -> Picture:
    """A recurrent network, folded and unrolled over "hell"."""
    p = Picture(880, 380, "A recurrent network, folded and unrolled")
    p.text(24, 28, "One network, used at every step", 16, anchor="start", bold=True)
    p.text(96, 348, "x_t", 16)
    p.line((96, 332), (96, 296))
    p.box(96, 276, 60, 36, "e_t", "orange")
    p.line((96, 258), (96, 208))
    p.text(118, 234, "W_e", 14)
    p.box(96, 186, 60, 40, "h_t", "blue")
    p.line((126, 178), (158, 178), (158, 136), (96, 136), (96, 165))
    p.text(176, 158, "W_h", 14)
    p.line((66, 186), (42, 186), (42, 92), (66, 92))
    p.text(26, 140, "U", 14)
    p.box(96, 92, 60, 36, "ŷ_t", "green")
    p.text(228, 186, "=", 28)
    p.text(286, 186, "h_0 = 0", 15, GREY)
    p.line((322, 186), (374, 186))
    p.text(347, 170, "W_h", 13)
    for i, (word, target) in enumerate(zip("hell", "ello"), 1):
        x = 288 + 120 * i
        p.text(x, 348, f"“{word}”", 16)
        p.line((x, 332), (x, 296))
        p.box(x, 276, 64, 36, f"e_{i}", "orange")
        p.line((x, 258), (x, 208))
        p.text(x + 21, 234, "W_e", 13)
        p.box(x, 186, 64, 40, f"h_{i}", "blue")
        p.line((x, 166), (x, 112))
        p.text(x + 14, 140, "U", 13)
        p.box(x, 92, 64, 36, f"ŷ_{i}", "green")
        p.text(x, 58, f"target “{target}”", 13, GREY)
        if i < 4:
            p.line((x + 32, 186), (x + 86, 186))
            p.text(x + 58, 170, "W_h", 13)
    p.line((800, 186), (848, 186), dashed=True)
    return p


def _gru_half(p: Picture, top: int, title: str, after: bool) -> None:
    """One form of the unit; ``after`` resets after the product."""
    up, down = top + 66, top + 156
    keep, new = ("z_t", "1 − z_t") if after else ("1 − u_t", "u_t")
    p.text(24, top + 22, title, 16, anchor="start", bold=True)
    p.text(58, up, "h_{t-1}", 16)
    p.line((90, up), (606, up))
    p.line((120, up), (120, down), (148, down))
    first, second = (("U ·", "grey"), ("×", "white")) if after else (("×", "white"), ("W_h ·", "grey"))
    if after:
        p.box(174, down, 52, 36, *first)
        p.line((200, down), (256, down))
        p.dot(270, down, second[0])
        gate = 270
    else:
        p.dot(162, down, first[0])
        p.line((176, down), (244, down))
        p.box(270, down, 52, 36, *second)
        gate = 162
    p.box(gate, down + 62, 52, 34, "r_t", "orange")
    p.line((gate, down + 45), (gate, down + 14))
    p.line((284 if after else 296, down), (366, down))
    p.dot(380, down, "+")
    p.box(380, down + 62, 108, 34, "W x_t + b" if after else "U_h x_t + b_h", "grey", 13)
    p.line((380, down + 45), (380, down + 14))
    p.line((394, down), (448, down))
    p.box(480, down, 64, 36, "tanh", "blue")
    p.line((512, down), (606, down))
    p.text(556, down - 16, "candidate", 12, GREY)
    p.dot(620, up, "×")
    p.dot(620, down, "×")
    p.box(620, top + 111, 60, 34, "z_t" if after else "u_t", "orange")
    p.line((620, top + 94), (620, up + 14))
    p.line((620, top + 128), (620, down - 14))
    p.text(640, up + 20, keep, 13, GREY, "start")
    p.text(640, down - 20, new, 13, GREY, "start")
    p.line((634, up), (726, up))
    p.dot(740, up, "+")
    p.line((634, down), (740, down), (740, up + 14))
    p.line((754, up), (800, up))
    p.text(822, up, "h_t", 16)


def gru() -> Picture:
    """Both gated recurrent units, one above the other."""
    p = Picture(880, 560, "Two gated recurrent units: reset after and before the product")
    _gru_half(p, 10, "gru: the product first, then the reset gate; z keeps", True)
    p.line((24, 276), (856, 276), colour=FAINT, head=False)
    _gru_half(p, 290, "gru-cho: the reset gate first, then the product; u replaces", False)
    return p


def lstm() -> Picture:
    """Long short-term memory: a line for the cell, three gates."""
    p = Picture(880, 400, "Long short-term memory")
    p.text(24, 28, "The cell runs straight through: only f_t stands in its way", 16, anchor="start", bold=True)
    p.text(56, 84, "c_{t-1}", 16)
    p.line((88, 84), (206, 84), width=2.6)
    p.dot(220, 84, "×")
    p.line((234, 84), (406, 84), width=2.6)
    p.dot(420, 84, "+")
    p.line((434, 84), (800, 84), width=2.6)
    p.text(826, 84, "c_t", 16)
    p.box(220, 250, 78, 40, "f_t = σ", "orange")
    p.line((220, 230), (220, 98))
    p.text(228, 206, "forget", 12, GREY, "start")
    p.box(350, 250, 78, 40, "i_t = σ", "orange")
    p.box(490, 250, 110, 40, "c̃_t = tanh", "blue")
    p.line((350, 230), (350, 166), (406, 166))
    p.line((490, 230), (490, 166), (434, 166))
    p.text(344, 206, "input", 12, GREY, "end")
    p.text(498, 206, "new content", 12, GREY, "start")
    p.dot(420, 166, "×")
    p.line((420, 152), (420, 98))
    p.box(640, 250, 78, 40, "o_t = σ", "orange")
    p.line((640, 230), (640, 166), (706, 166))
    p.text(634, 206, "output", 12, GREY, "end")
    p.line((720, 84), (720, 106))
    p.box(720, 122, 60, 30, "tanh", "blue", 14)
    p.line((720, 137), (720, 152))
    p.dot(720, 166, "×")
    p.line((734, 166), (800, 166))
    p.text(826, 166, "h_t", 16)
    p.line((100, 324), (640, 324), head=False)
    for x in (220, 350, 490, 640):
        p.line((x, 324), (x, 271))
    p.text(58, 324, "h_{t-1}, x_t", 15)
    p.text(
        24,
        370,
        "all four read W x_t + U h_{t-1} + b, each with weights of its own;   ∂c_t / ∂c_{t-1} = diag(f_t)",
        14,
        GREY,
        "start",
    )
    return p


def bilm() -> Picture:
    """Two directions that meet at the word between them."""
    p = Picture(880, 420, "A two-directional language model that does not see the word it predicts")
    p.text(24, 28, "P(was | the movie ▢ terribly exciting)", 16, anchor="start", bold=True)
    words = ["the", "movie", "was", "terribly", "exciting"]
    at = [120 + 155 * i for i in range(5)]
    for i, (x, word) in enumerate(zip(at, words), 1):
        hidden = word == "was"
        p.box(x, 378, 104, 36, word, "grey" if hidden else "orange", colour=GREY if hidden else INK, dashed=hidden)
        if i < 3:
            p.box(x, 296, 72, 38, f"→h_{i}", "blue")
            p.line((x, 360), (x, 316))
        if i > 3:
            p.box(x, 226, 72, 38, f"←h_{i}", "purple")
            p.line((x, 360), (x, 246), colour=FILLS["purple"][1])
    p.line((at[0] + 36, 296), (at[1] - 37, 296))
    p.line((at[4] - 36, 226), (at[3] + 37, 226), colour=FILLS["purple"][1])
    join = at[2]
    p.box(join, 136, 190, 40, "[→h_2; ←h_4]", "white")
    p.line((at[1], 277), (at[1], 136), (join - 96, 136), colour=FILLS["blue"][1])
    p.line((at[3], 207), (at[3], 136), (join + 96, 136), colour=FILLS["purple"][1])
    p.line((join, 116), (join, 88))
    p.box(join, 68, 190, 36, "softmax → “was”", "green")
    p.text(24, 136, "joined one place off,", 13, GREY, "start")
    p.text(24, 156, "so nothing leaks", 13, GREY, "start")
    return p


def gpt() -> Picture:
    """A stack of blocks on the left, the causal mask on the right."""
    p = Picture(880, 580, "GPT: blocks of masked self-attention, and the causal mask")
    p.text(24, 28, "Decoder-only Transformer", 16, anchor="start", bold=True)
    x = 240
    p.text(x, 550, "tokens x_1 … x_T", 14)
    p.line((x, 536), (x, 516))
    p.box(x, 496, 230, 38, "h_0 = x W_e + W_p", "orange")
    p.line((x, 477), (x, 433))
    p.parts.append(
        f'<rect x="70" y="158" width="340" height="308" rx="10" fill="none" stroke="{FILLS["blue"][1]}" '
        'stroke-width="1.5" stroke-dasharray="6 4"/>'
    )
    p.text(82, 176, "Block, L times", 13, FILLS["blue"][1], "start")
    p.box(x, 414, 150, 30, "layer norm", "grey", 14)
    p.line((x, 399), (x, 384))
    p.box(x, 364, 230, 38, "masked self-attention", "blue")
    p.line((x, 345), (x, 328))
    p.dot(x, 314, "+")
    p.line((x, 456), (386, 456), (386, 314), (254, 314))
    p.line((x, 300), (x, 280))
    p.box(x, 264, 150, 30, "layer norm", "grey", 14)
    p.line((x, 249), (x, 236))
    p.box(x, 217, 230, 36, "FFN: D → 4D → D", "purple")
    p.line((x, 199), (x, 190))
    p.dot(x, 176, "+")
    p.line((x, 290), (386, 290), (386, 176), (254, 176))
    p.line((x, 162), (x, 138))
    p.box(x, 122, 150, 30, "layer norm", "grey", 14)
    p.line((x, 107), (x, 92))
    p.box(x, 72, 230, 38, "softmax(h_L W_eᵀ)", "green")
    p.text(120, 310, "residual", 12, GREY)
    p.line((154, 311), (222, 313), colour=FAINT)
    words = ["the", "students", "opened", "their", "books"]
    left, top, cell = 570, 150, 46
    p.text(left - 80, 84, "The causal mask", 16, anchor="start", bold=True)
    p.text(left - 80, 108, "a row attends to itself and to what came before", 13, GREY, "start")
    for i, word in enumerate(words):
        p.text(left - 10, top + cell * i + cell / 2, word, 14, anchor="end")
        for j in range(len(words)):
            seen = j <= i
            p.box(left + cell * j + cell / 2, top + cell * i + cell / 2, cell - 4, cell - 4,
                  "" if seen else "−∞", "blue" if seen else "grey", 13, GREY, round_=3)  # fmt: skip
    p.text(left - 80, 420, "Past the context the window slides", 16, anchor="start", bold=True)
    p.text(left - 80, 444, "full? its newer half is read again, then it goes on", 13, GREY, "start")
    for n, (start, kept) in enumerate(((0, 0), (4, 4), (8, 4))):
        y = 472 + 30 * n
        for k in range(8):
            fill = "purple" if k < kept else "blue"
            p.box(left - 70 + 22 * (start + k), y, 20, 20, "", fill, round_=2)
    p.text(left - 80, 562, "purple: read again, only to be remembered", 12, FILLS["purple"][1], "start")
    return p


def seq2seq() -> Picture:
    """Two recurrent networks: one reads, the other writes and looks back at each step."""
    p = Picture(880, 500, "Sequence to sequence: an encoder, a decoder, and attention between them")
    blue, orange = FILLS["blue"][1], FILLS["orange"][1]
    p.text(24, 28, "One network reads, another writes and looks back", 16, anchor="start", bold=True)
    read = [(84, "il", 0.05), (184, "a", 0.05), (284, "m’", 0.2), (384, "entarté", 0.7)]
    for i, (x, word, weight) in enumerate(read, 1):
        p.text(x, 466, word, 15)
        p.line((x, 452), (x, 420))
        p.box(x, 398, 64, 40, f"h_{i}", "blue")
        if i < 4:
            p.line((x + 32, 390), (x + 67, 390))
            p.line((x + 100 - 32, 406), (x + 33, 406))
        p.box(x, 320 - 60 * weight, 30, 120 * weight, "", "orange", round_=1)
        p.text(x, 304 - 120 * weight, f"{weight:g}", 12, orange)
        p.line((x, 378), (x, 324), colour=FAINT)
    p.text(24, 180, "α_2 = softmax score(s_2, h_i):", 14, orange, "start")
    p.text(24, 200, "where to look, adds up to 1", 13, GREY, "start")
    write = [(560, "⟨start⟩", "he"), (670, "he", "hit"), (780, "hit", "me")]
    p.line((416, 398), (526, 398), colour=blue, width=2.6)
    p.text(471, 420, "s_0: the bottleneck", 12, blue)
    for i, (x, word, said) in enumerate(write, 1):
        p.text(x, 466, word, 15)
        p.line((x, 452), (x, 420))
        p.box(x, 398, 64, 40, f"s_{i}", "green")
        p.line((x, 378), (x, 152 if i == 2 else 104), colour=INK if i == 2 else FAINT)
        p.text(x, 76 if i != 2 else 60, f"“{said}”", 15, INK if i == 2 else GREY)
        if i < 3:
            p.line((x + 32, 398), (x + 77, 398))
    p.line((638, 384), (600, 384), (600, 282), (410, 282), dashed=True, colour=orange)
    p.text(505, 268, "asks with s_2", 12, orange)
    p.box(384, 132, 170, 38, "a_2 = Σ_i α_{2,i} h_i", "orange")
    p.line((384, 206), (384, 153), colour=orange)
    p.line((469, 132), (585, 132), colour=orange)
    p.box(670, 132, 168, 38, "tanh(W_c [a_2; s_2])", "white", 14)
    p.line((670, 113), (670, 78))
    p.text(658, 96, "softmax(U · + b)", 12, GREY, "end")
    return p


def _block(p: Picture, x: float, bottom: float, name: str, fill: str, width: float = 200) -> float:
    """Layer norm, a part and its residual path, upwards from ``bottom``; answers where it ends."""
    p.line((x, bottom), (x, bottom - 18))
    p.box(x, bottom - 31, 120, 26, "layer norm", "grey", 13)
    p.line((x, bottom - 44), (x, bottom - 56))
    p.box(x, bottom - 73, width, 34, name, fill, 14)
    p.line((x, bottom - 90), (x, bottom - 98))
    p.dot(x, bottom - 110, "+", radius=12, size=15)
    side = x + width / 2 + 14
    p.line((x, bottom - 6), (side, bottom - 6), (side, bottom - 110), (x + 12, bottom - 110))
    return bottom - 122


def transformer() -> Picture:
    """Encoder and decoder blocks side by side, and how a beam shares one source."""
    p = Picture(930, 660, "The Transformer: an encoder, a decoder, and attention from one to the other")
    blue, orange = FILLS["blue"][1], FILLS["orange"][1]
    p.text(24, 28, "Encoder and decoder of attention alone", 16, anchor="start", bold=True)
    left, right = 140, 430
    for x, top, height, name in ((left, 282, 264, "L times"), (right, 162, 384, "L times")):
        p.parts.append(
            f'<rect x="{x - 122}" y="{top}" width="244" height="{height}" rx="10" fill="none" stroke="{blue}" '
            'stroke-width="1.5" stroke-dasharray="6 4"/>'
        )
        p.text(x - 114, top + 14, name, 12, blue, "start")
    for x, words, tokens in ((left, "√D E_x x + PE", "source x_1 … x_S"), (right, "√D E_y y + PE", "target y_1 … y_T")):
        p.text(x, 634, tokens, 14)
        p.line((x, 621), (x, 606))
        p.box(x, 588, 190, 34, words, "orange", 14)
        p.line((x, 571), (x, 536), head=False)
    end = _block(p, left, 536, "self-attention", "blue")
    end = _block(p, left, end, "FFN: D → 4D → D", "purple")
    p.line((left, end), (left, 262))
    p.box(left, 248, 120, 28, "layer norm", "grey", 13)
    p.line((left, 234), (left, 222))
    p.box(left, 204, 200, 34, "keys and values of h_L", "orange", 14)
    end = _block(p, right, 536, "masked self-attention", "blue")
    middle = end - 73
    end = _block(p, right, end, "attention to the source", "orange")
    end = _block(p, right, end, "FFN: D → 4D → D", "purple")
    p.line((left + 100, 204), (284, 204), (284, middle), (right - 101, middle), colour=orange, width=2.2)
    p.line((right, end), (right, 140))
    p.box(right, 126, 120, 28, "layer norm", "grey", 13)
    p.line((right, 112), (right, 98))
    p.box(right, 80, 190, 34, "softmax(g_L E_yᵀ)", "green", 14)
    x = 610
    p.text(x, 176, "Three hypotheses, one source", 16, anchor="start", bold=True)
    p.text(x, 200, "a beam has k rows of each sentence, (B, T);", 13, GREY, "start")
    for row, pair in enumerate((("he", "hit"), ("he", "struck"), ("I", "was"))):
        for t, word in enumerate(pair):
            p.box(x + 36 + 74 * t, 232 + 34 * row, 70, 28, word, "blue", 13, round_=3)
    p.text(x, 334, "attention to a source has no order among", 13, GREY, "start")
    p.text(x, 352, "its queries, so they stand side by side as", 13, GREY, "start")
    p.text(x, 370, "one longer row, (N, k·T):", 13, GREY, "start")
    for t in range(6):
        p.box(x + 20 + 42 * t, 402, 38, 28, "", "blue", round_=3)
        p.line((x + 20 + 42 * t, 416), (x + 125, 466), colour=FAINT, head=False)
    p.box(x + 125, 482, 230, 34, "keys and values, once", "orange", 14)
    p.text(x, 524, "Nothing of the source is copied", 13, GREY, "start")
    p.text(x, 542, "for a hypothesis.", 13, GREY, "start")
    return p


def t5() -> Picture:
    """A row with spans left out, what is written for them, and the bias of distances."""
    p = Picture(
        930, 420, "T5: spans left out of a text, what the decoder writes, and a bias for each bucket of distances"
    )
    blue, orange = FILLS["blue"][1], FILLS["orange"][1]
    p.text(24, 28, "Every task is text to text", 16, anchor="start", bold=True)
    words = ("thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week")
    lost = {2: "⟨0⟩", 3: "⟨0⟩", 8: "⟨1⟩"}
    for t, word in enumerate(words):
        p.box(64 + 84 * t, 66, 80, 30, word, "orange" if t in lost else "blue", 13, round_=3)
    source = ("thank", "you", "⟨0⟩", "me", "to", "your", "party", "⟨1⟩", "week", "⟨/s⟩")
    for t, word in enumerate(source):
        p.box(50 + 56 * t, 150, 52, 28, word, "orange" if word.startswith("⟨") else "blue", 12, round_=3)
    for t in range(10):
        kept = [n for n in range(10) if n not in (3,)].index(t) if t != 3 else 2
        p.line((64 + 84 * t, 81), (50 + 56 * kept, 135), colour=orange if t in lost else FAINT)
    p.text(630, 154, "source: each span is one sentinel", 13, GREY, "start")
    p.box(302, 214, 250, 34, "encoder, L blocks", "blue", 14)
    p.line((302, 165), (302, 196))
    p.line((428, 214), (520, 214), colour=orange, width=2.2)
    p.box(640, 214, 238, 34, "decoder, L blocks", "orange", 14)
    p.line((640, 197), (640, 186), head=False)
    for t, word in enumerate(("⟨0⟩", "for", "inviting", "⟨1⟩", "last", "⟨/s⟩")):
        p.box(486 + 64 * t, 280, 60, 28, word, "orange" if word.startswith("⟨") else "green", 12, round_=3)
    p.line((640, 232), (640, 265))
    p.text(486, 316, "target: what was left out, and the end", 13, GREY, "start")
    p.text(24, 276, "Bias of a score, by the distance t − s", 16, anchor="start", bold=True)
    for k in range(16):
        wide = 14 if k < 8 else 10 + 3 * (k - 7)
        left = 30 + (14 * k if k < 8 else 112 + sum(10 + 3 * (n - 7) for n in range(8, k)))
        p.box(left + wide / 2, 306, wide, 26, "", "purple" if k % 2 else "grey", round_=1)
    p.text(30, 340, "a bucket each for 0 … 7, then wider ones, up to 128;", 13, blue, "start")
    p.text(30, 358, "as many again for what comes after. All layers of a", 13, blue, "start")
    p.text(30, 376, "stack share the numbers, one a bucket and head.", 13, blue, "start")
    return p


def deberta() -> Picture:
    """The three terms of a score as matrices, and the mask decoder beside the last block."""
    p = Picture(930, 534, "DeBERTa: content and distance compared apart, and absolute positions at the end")
    orange, purple = FILLS["orange"][1], FILLS["purple"][1]
    p.text(24, 28, "A score is a sum of three", 16, anchor="start", bold=True)
    size, side = 4, 26
    terms = (
        (40, "Q_i · K_j", "content by content", lambda i, j: "blue"),
        (200, "Q_i · K’_{i−j}", "content by position", lambda i, j: ("orange", "green", "purple")[(i - j) % 3]),
        (360, "K_j · Q’_{i−j}", "position by content", lambda i, j: ("orange", "green", "purple")[(i - j) % 3]),
    )
    for left, words, name, fill in terms:
        p.text(left + size * side / 2, 64, words, 15)
        for i in range(size):
            for j in range(size):
                p.box(left + side * (j + 0.5), 84 + side * (i + 0.5), side - 3, side - 3, "", fill(i, j), round_=3)
        p.text(left + size * side / 2, 206, name, 13, GREY)
    p.text(172, 136, "+", 18)
    p.text(332, 136, "+", 18)
    for line, words in enumerate((
        "K’ and Q’ have a vector for each distance, so a term",
        "has one along each diagonal. The products of a query",
        "with all distances are a row of one matrix; the term is",
        "a view of it, shifted row by row:",
    )):  # fmt: skip
        p.text(24, 240 + 18 * line, words, 13, GREY, "start")
    for i in range(size):
        for m in range(2 * size - 1):
            seen = size - 1 - i <= m < 2 * size - 1 - i
            fill = ("orange", "green", "purple")[(size - 1 - m) % 3] if seen else "white"
            p.box(60 + 30 * m, 336 + 28 * i, 27, 25, "", fill, round_=3, dashed=not seen)
        p.text(30, 336 + 28 * i, f"Q_{i + 1}", 13)
    for m, words in ((0, "3"), (3, "0"), (6, "−3")):
        p.text(60 + 30 * m, 452, words, 12, GREY)
    p.text(150, 472, "distance i − j", 12, GREY)
    x = 640
    p.text(530, 28, "The enhanced mask decoder", 16, anchor="start", bold=True)
    p.text(x, 486, "tokens x̂, some masked", 14)
    p.line((x, 474), (x, 458))
    p.box(x, 440, 190, 34, "LN(E_x), no positions", "grey", 14)
    p.line((x, 423), (x, 404))
    p.box(x, 384, 190, 40, "blocks 1 … L − 1", "blue", 14)
    p.line((x, 364), (x, 330), head=False)
    p.text(x - 14, 346, "h_{L−1}", 14, anchor="end")
    p.line((x, 330), (x, 250))
    p.dot(x, 236, "+", radius=12, size=15)
    p.box(x - 118, 236, 110, 30, "positions E_p", "orange", 13)
    p.line((x - 63, 236), (x - 13, 236), colour=orange)
    p.line((x, 224), (x, 200))
    p.text(x - 14, 212, "q_0", 14, anchor="end")
    p.box(x, 180, 170, 38, "block L: queries", "purple", 14)
    p.line((x, 161), (x, 140))
    p.text(x - 14, 150, "q_1", 14, anchor="end")
    p.box(x, 120, 170, 38, "block L again", "purple", 14)
    p.line((x, 101), (x, 84))
    p.box(x, 66, 190, 34, "softmax, masked tokens", "green", 14)
    p.line((x, 318), (812, 318), (812, 120), (x + 86, 120), colour=purple, width=2)
    p.line((812, 180), (x + 86, 180), colour=purple, width=2)
    p.text(822, 232, "keys and", 13, GREY, "start")
    p.text(822, 250, "values", 13, GREY, "start")
    p.text(560, 510, "Tasks read block L once, with queries of h_{L−1}.", 13, GREY, "start")
    return p


def convs2s() -> Picture:
    """Gated convolutions that read and write, with attention in every decoder layer."""
    p = Picture(900, 520, "ConvS2S: gated convolutions and attention in every layer")
    orange = FILLS["orange"][1]
    p.text(24, 28, "Convolutions that read and write", 16, anchor="start", bold=True)
    p.text(24, 52, "width 3: the encoder looks to both sides, the decoder to the left only", 13, GREY, "start")
    read = [(80 + 74 * i, word) for i, word in enumerate(("il", "a", "m’", "entarté", "⟨end⟩"))]
    write = [(540 + 82 * i, word) for i, word in enumerate(("⟨start⟩", "he", "hit", "me"))]
    for x, word in read + write:
        p.text(x, 494, word, 14)
        p.box(x, 456, 54, 30, "e + p", "orange", 13)
    for level, y in enumerate((372, 288), 1):
        for i, (x, _) in enumerate(read):
            for j in (i - 1, i, i + 1):
                if 0 <= j < len(read):
                    p.line((read[j][0], (441, 356)[level - 1]), (x, y + 17), colour=FAINT, head=False, width=1.2)
            p.box(x, y, 54, 32, "GLU", "blue", 13)
    for i, (x, _) in enumerate(write):
        for j in (i - 2, i - 1, i):
            if j >= 0:
                p.line((write[j][0], 441), (x, 389), colour=FAINT, head=False, width=1.2)
        p.box(x, 372, 54, 32, "GLU", "green", 13)
        p.line((x, 356), (x, 318))
        p.dot(x, 304, "+", "orange")
        p.line((x - 27, 334), (x - 27, 304), (x - 15, 304), colour=orange)
        p.line((x, 290), (x, 262))
        p.text(x, 248, "…", 16)
    p.text(663, 226, "the next layer, with attention of its own", 12, GREY)
    p.box(228, 206, 350, 34, "z_i, and z_i + e_i: what is looked up and what is seen", "orange", 13)
    for x, _ in read:
        p.line((x, 271), (x, 226), colour=FAINT)
    p.line((404, 206), (476, 206), (476, 334), (write[-1][0] - 27, 334), colour=orange, width=2.2, head=False)
    p.text(492, 190, "c_t = √m Σ_i α_{t,i} (z_i + e_i), in each decoder layer", 13, orange, "start")
    p.text(24, 96, "GLU: a ∘ σ(b)", 16, anchor="start", bold=True)
    p.text(24, 120, "a convolution makes twice the width; one half is the gate of the other,", 13, GREY, "start")
    p.text(24, 140, "and the input is added: (a ∘ σ(b) + x) · √½ keeps the variance", 13, GREY, "start")
    return p


def bytenet() -> Picture:
    """Dilated convolutions: the decoder stands on the encoder, place by place."""
    p = Picture(930, 560, "ByteNet: a dilated decoder stacked on a dilated encoder")
    orange = FILLS["orange"][1]
    p.text(24, 28, "The decoder stands on the encoder, character by character", 16, anchor="start", bold=True)
    at = [96 + 76 * i for i in range(9)]
    rows = [500, 442, 384, 326]  # the source, and its layers with rates 1, 2, 4

    def cone(levels: list[int], sides: tuple[int, ...], place: int) -> None:
        """What a place of the top row depends on."""
        here = {place}
        for level, rate in zip(range(len(levels) - 1, 0, -1), (4, 2, 1)):
            below = {i + rate * side for i in here for side in sides}
            for i in here:
                for side in sides:
                    j = i + rate * side
                    if 0 <= j < len(at):
                        p.line((at[j], levels[level - 1] - 13), (at[i], levels[level] + 13), colour=orange, head=False)
            here = {i for i in below if 0 <= i < len(at)}

    cone(rows, (-1, 0, 1), 4)
    for level, y in enumerate(rows):
        for i, x in enumerate(at):
            p.box(x, y, 30, 26, "3. April "[i] if level == 0 else "", "orange" if level == 0 else "blue", 14, round_=3)
    for y, rate in zip(rows[1:], (1, 2, 4)):
        p.text(752, y, f"rate {rate}, both sides", 13, GREY, "start")
    p.text(752, 500, "source", 13, GREY, "start")
    top = [252, 200, 148, 96]
    for x in at:
        p.line((x, 313), (x, 267), colour=FAINT)
    cone(top, (-2, -1, 0), 8)
    for level, y in enumerate(top):
        for x in at:
            p.box(x, y, 30, 26, "", "white" if level == 0 else "green", 14, round_=3)
    for y, rate in zip(top[1:], (1, 2, 4)):
        p.text(752, y, f"rate {rate}, left only", 13, GREY, "start")
    p.text(752, 244, "E_y y_t + x_{L,t}: token t", 13, GREY, "start")
    p.text(752, 262, "on column t of the source", 13, GREY, "start")
    p.text(
        24,
        60,
        "rates 1, 2, 4, 8, 16 see far with few layers, and nothing is looked up: there is no attention",
        13,
        GREY,
        "start",
    )
    return p


def beam() -> Picture:
    """The lecture's search tree: beam size 2, scores log P."""
    p = Picture(940, 430, "Beam search with k = 2: candidates, what is kept, and the best hypothesis")
    p.text(24, 28, "Beam search, k = 2: of all candidates of a step the 2 best go on", 16, anchor="start", bold=True)
    nodes = {  # name: column, height, word, log P so far, fate
        "he": (1, 150, "he", -0.7, "best"),
        "I": (1, 330, "I", -0.9, "kept"),
        "hit": (2, 110, "hit", -1.7, "best"),
        "struck": (2, 190, "struck", -2.9, "pruned"),
        "was": (2, 300, "was", -1.6, "kept"),
        "got": (2, 370, "got", -1.8, "pruned"),
        "a": (3, 80, "a", -2.5, "kept"),
        "me": (3, 150, "me", -2.8, "best"),
        "was hit": (3, 280, "hit", -2.9, "pruned"),
        "was struck": (3, 340, "struck", -3.8, "pruned"),
        "pie1": (4, 60, "pie", -3.9, "pruned"),
        "tart1": (4, 110, "tart", -4.0, "pruned"),
        "with": (4, 160, "with", -3.3, "best"),
        "on": (4, 230, "on", -3.5, "kept"),
        "a2": (5, 130, "a", -3.7, "best"),
        "one": (5, 180, "one", -4.3, "kept"),
        "on a": (5, 230, "a", -4.5, "pruned"),
        "on one": (5, 280, "one", -5.0, "pruned"),
        "pie": (6, 110, "pie", -4.3, "best"),
        "tart": (6, 160, "tart", -4.6, "kept"),
        "one pie": (6, 210, "pie", -5.0, "pruned"),
        "one tart": (6, 260, "tart", -5.3, "pruned"),
        "end": (7, 110, "⟨end⟩", -4.4, "best"),
        "end2": (7, 160, "⟨end⟩", -4.8, "kept"),
    }
    edges = """he hit|he struck|I was|I got|hit a|hit me|was was hit|was was struck|a pie1|a tart1|me with|me on
        |with a2|with one|on on a|on on one|a2 pie|a2 tart|one one pie|one one tart|pie end|tart end2"""
    fills, xs = {"best": "green", "kept": "blue", "pruned": "grey"}, [46, 148, 268, 388, 508, 628, 748, 868]
    p.box(xs[0], 240, 62, 28, "⟨start⟩", "white", 12)

    def join(left: tuple[float, float], right: tuple[float, float], fate: str) -> None:
        colour = FILLS["green"][1] if fate == "best" else INK if fate == "kept" else FAINT
        p.line(left, right, colour=colour, head=False, width=2.6 if fate == "best" else 1.4)

    for name in ("he", "I"):
        join((xs[0] + 31, 240), (xs[1] - 35, nodes[name][1]), nodes[name][4])
    for edge in edges.split("|"):
        words = edge.split()
        parent = next(name for name in (" ".join(words[:n]) for n in (1, 2)) if " ".join(words).startswith(name + " "))
        child = " ".join(words)[len(parent) + 1 :]
        (a, y, *_), (b, z, *_, fate) = nodes[parent], nodes[child]
        join((xs[a] + 35, y), (xs[b] - 35, z), fate)
    for column, y, word, total, fate in nodes.values():
        p.box(xs[column], y, 70, 28, word, fills[fate], 14, GREY if fate == "pruned" else INK, dashed=fate == "pruned")
        p.text(xs[column], y + 22, f"{total:.1f}".replace("-", "−"), 11, GREY)
    p.text(24, 412, "il m’a entarté: greedy search goes on with “a” (−2.5) and cannot take it back", 13, GREY, "start")
    return p


PICTURES: list[Callable[[], Picture]] = [
    ngram, window, rnn, gru, lstm, bilm, gpt, seq2seq, transformer, t5, deberta, convs2s, bytenet, beam,
]  # fmt: skip


def main() -> None:
    """Write all pictures beside this file."""
    for draw in PICTURES:
        (Path(__file__).parent / f"{draw.__name__}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
