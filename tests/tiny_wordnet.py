"""A WordNet of a few synsets, written in the format of the database files, with the right offsets."""

LICENCE = "  1 This is no licence; WordNet 3.0 has one here  \n  2 of twenty-nine lines  \n"

SYNSETS = {
    "noun": {
        "entity": (["entity"], [], "that which exists"),
        "animal": (["animal", "beast"], ["@ entity"], 'a living thing; "the animal ran"; "it is a beast"'),
        "pet": (["pet"], ["@ entity"], "an animal kept at home"),
        "goose": (["goose"], ["@ animal", "@ pet"], "a water bird"),
        "gander": (["gander", "goose"], ["@ goose"], 'a male bird; "what is sauce"- Swift'),
        "good": (["good", "goodness"], ["@ entity"], '"well" made into a thing'),
        "Rex": (["Rex"], ["@i goose"], "a goose of ours"),
        "ice_cream": (["ice_cream"], ["@ entity"], "frozen food"),
        "ax": (["ax", "axe"], ["@ entity"], "a tool"),
        "axis": (["axis"], ["@ entity"], "a line"),
        "class": (["class"], ["@ entity"], "a group"),
    },
    "verb": {"run": (["run"], [], "go fast"), "goose": (["goose"], [], "pinch")},
    "adj": {
        "good": (["good"], [], "of the right kind"),
        "skilled": (["adept(p)", "good", "proficient"], ["& good"], 'able; "a good hand"'),
    },
    "adv": {"well": (["well", "good"], [], "in a good way")},
}
"""File → key → (words, pointers with their targets' keys, gloss)."""

EXCEPTIONS = {"noun": "axes ax axis\ngeese goose\n", "verb": "ran run\n", "adj": "", "adv": "best well\n"}
WORDS = sorted({word.partition("(")[0] for file in SYNSETS.values() for entry in file.values() for word in entry[0]})
LETTERS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


def build(folder):
    """Write the files and answer the folder."""
    for name, synsets in SYNSETS.items():
        lines = {key: line(name, key, dict.fromkeys(synsets, 0)) for key in synsets}
        offsets, at = {}, len(LICENCE)
        for key, text in lines.items():  # offsets have eight digits, so lengths stand before the numbers do
            offsets[key], at = at, at + len(text)
        data = "".join(line(name, key, offsets) for key in synsets)
        (folder / f"data.{name}").write_text(LICENCE + data, encoding="utf-8")
        (folder / f"index.{name}").write_text(LICENCE + index(name, offsets), encoding="utf-8")
        (folder / f"{name}.exc").write_text(EXCEPTIONS[name], encoding="utf-8")
    return folder


def line(name, key, offsets):
    """A synset's line in its data file."""
    words, pointers, gloss = SYNSETS[name][key]
    letter = "s" if any(pointer.startswith("&") for pointer in pointers) else LETTERS[name]
    members = " ".join(f"{word} 0" for word in words)
    others = "".join(
        f" {kind} {offsets[target]:08d} {LETTERS[name]} 0000" for kind, target in (one.split() for one in pointers)
    )
    frames = " 01 + 02 00" if name == "verb" else ""
    head = f"{offsets[key]:08d} 03 {letter} {len(words):02x} {members}"
    return f"{head} {len(pointers):03d}{others}{frames} | {gloss}  \n"


def index(name, offsets):
    """The lines of an index file, sorted."""
    senses = {}
    for key, (words, _, _) in SYNSETS[name].items():
        for word in words:
            senses.setdefault(word.partition("(")[0].lower(), []).append(offsets[key])
    lines = []
    for word, found in senses.items():
        places = " ".join(f"{offset:08d}" for offset in found)
        lines.append(f"{word} {LETTERS[name]} {len(found)} 1 @ {len(found)} 0 {places}  \n")
    return "".join(sorted(lines))
