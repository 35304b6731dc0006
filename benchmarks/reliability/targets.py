"""What fuzzing opens: run folders, folders and files of other tools, and every reader of data.

A target has files that may be damaged and a function that opens and uses them. The function may raise ``InputError``
and nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ensue
from benchmarks.reliability import samples
from benchmarks.reliability.gguf_samples import gguf_files
from ensue.core import run_files
from ensue.core.errors import InputError
from ensue.core.manifest import MANIFEST, damaged_files, read_manifest
from ensue.core.run_folder import RunFolder
from ensue.data.choices import read_choices
from ensue.data.conll import read_tagged, read_untagged
from ensue.data.documents import read_documents, read_sentences
from ensue.data.labelled import ReadOptions, read_labelled, read_texts
from ensue.data.minimal_pairs import read_minimal_pairs
from ensue.data.pairs import read_pairs
from ensue.data.reading import read_pieces
from ensue.data.series import read_series
from ensue.data.series_columns import SeriesOptions
from ensue.data.squad import read_questions
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.word_benchmarks import read_analogies, read_contexts, read_similarities
from ensue.exchange.arpa import read_arpa
from ensue.exchange.word2vec import read_word2vec
from ensue.look.views import show
from ensue.runs.run import Run
from ensue.runs.settings_resolution import read_settings, resolve
from ensue.search.beam import Search
from ensue.verbs.racing.folder import open_race, runs_of

RUN_FILES = (*run_files.NEEDED, run_files.METRICS)
TEXT = "the students opened their books"
VIEWS: dict[str, dict[str, Any]] = {
    "curves": {},
    "training": {},
    "next": {"text": "the students"},
    "surprise": {"text": TEXT},
    "attention": {"text": TEXT},
    "positions": {},
    "gates": {"text": TEXT},
    "words": {"words": "the clock books rain"},
    "alignment": {"text": TEXT},
}
"""Views of a run, with their options."""


@dataclass(frozen=True)
class Target:
    """Files that are damaged, one at a time, and what is then done with them."""

    name: str
    files: tuple[Path, ...]
    use: Callable[[], Any]
    named: tuple[Path, ...]
    """Files and folders that the call names, so that they may be opened."""
    whole: Path | None = None
    """A folder that the call changes, so that it is restored as a whole."""


def open_run(path: Path) -> Run:
    """Open a run as it is, without its digests, which would refuse any change."""
    return ensue.load(path, verify=False)


def compare_digests(path: Path) -> None:
    """Compare the files of a run with its manifest."""
    list(damaged_files(path, read_manifest(path, (run_files.CONFIG,))))


class Workshop:
    """A folder with good files of every format, and the targets that read them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("data", "hub", "exchange", "races", "cache", "out"):
            (folder / name).mkdir(parents=True)
        os.environ["ENSUE_CACHE"] = str(folder / "cache")
        self.canary = folder / "canary.txt"
        self.canary.write_text("a file that nobody named\n", encoding="utf-8")
        self.data = samples.data_files(folder / "data")
        self.runs = samples.old_runs(folder / "runs")
        self.tokenizers = samples.tokenizer_files(folder / "tokenizers")
        self.hub = samples.hub_folders(self.runs, folder / "hub")
        self.exchanged = samples.exchange_files(self.runs, folder / "exchange")
        self.gguf = gguf_files(folder / "gguf")
        self.races = samples.races(self.runs, folder / "races")

    def targets(self) -> list[Target]:
        """Return all targets."""
        return [*self.run_targets(), *self.view_targets(), *self.exchange_targets(), *self.data_targets()]

    def run_targets(self) -> list[Target]:
        """Return a target for each run: it is opened and used for its task; some are resumed or written out."""
        found = []
        for name, path in self.runs.items():
            if name.startswith("stopped-"):
                found.append(self._resumed(name, path))
            else:
                found.append(self._on_run(f"run {name}", path, lambda path=path: self.use_run(open_run(path))))
        for name, to in (("bert", "hf"), ("ngram", "arpa"), ("word2vec", "word2vec")):
            path = self.runs[name]
            found.append(self._on_run(f"{name} to {to}", path, lambda path=path, to=to: self._written(path, to)))
        path = self.runs["lstm"]
        found.append(self._on_run("cost of lstm", path, lambda path=path: ensue.cost(str(path))))
        path = self.runs["seq2seq"]
        RunFolder(path).write_manifest()
        found.append(Target("manifest", (path / MANIFEST,), partial(compare_digests, path), (path,)))
        return found

    def view_targets(self) -> list[Target]:
        """Return a target for each view of a run and for the views of a race."""
        found = []
        runs = {"positions": "bert", "gates": "lstm", "words": "word2vec", "alignment": "seq2seq"}
        for view, options in VIEWS.items():
            path = self.runs[runs.get(view, "gpt")]
            found.append(self._on_run(f"look {view}", path, partial(drawn_run, path, view, **options)))
        path, options = self.runs["forecast-gru"], {"data": [self.data["series.csv"]]}
        found.append(self._on_run("look forecast", path, partial(drawn_run, path, "forecast", **options)))
        for name, path in self.races.items():
            files = (path / "race.json", *sorted(path.glob("*/metrics.jsonl")))
            found.append(Target(name, files, partial(drawn_race, path), (path,)))
        return found

    def exchange_targets(self) -> list[Target]:
        """Return a target for each file and folder of other tools, and for each tokenizer."""
        found = []
        for name, path in self.hub.items():
            files = tuple(sorted(file for file in path.iterdir() if file.suffix != ".md"))
            found.append(
                Target(f"hub {name}", files, lambda path=path: self._converted(path), (path, *self.data.values()))
            )
        for name, path in self.exchanged.items():
            read = read_arpa if "arpa" in name else read_word2vec
            found.append(Target(name, (path,), lambda path=path, read=read: read(path), (path,)))
        for name, path in self.gguf.items():
            found.append(Target(f"gguf {name}", (path,), lambda path=path: self._converted(path), (path,)))
        for name, path in self.tokenizers.items():
            found.append(Target(f"tokenizer {name}", (path,), lambda path=path: use_tokenizer(path), (path.parent,)))
        return found

    def data_targets(self) -> list[Target]:
        """Return a target for each reader of data and each format that it reads."""
        labels = ReadOptions()
        readers: dict[str, Callable[[Path], Any]] = {
            "text.txt": lambda path: list(read_pieces([path])),
            "text.txt.gz": lambda path: list(read_pieces([path])),
            "text.jsonl": lambda path: list(read_pieces([path])),
            "documents.txt": lambda path: (read_documents([path]), read_sentences([path])),
            **dict.fromkeys(("classify.tsv", "classify.csv", "classify.jsonl", "classify.tsv.gz"), read_classified),
            "headless.tsv": lambda path: read_labelled([path], "classify", labels, []),
            "pair.tsv": lambda path: read_labelled([path], "pair", labels, []),
            "regress.tsv": lambda path: read_labelled([path], "regress", labels, []),
            **dict.fromkeys(("tag.conll", "tag.conllu"), read_tags),
            **{f"choose.{end}": lambda path: read_choices([path], labels, []) for end in ("jsonl", "csv")},
            **{f"answer.{end}": lambda path: read_questions([path], labels, []) for end in ("json", "jsonl")},
            **{f"pairs.{end}": lambda path: read_pairs([path]) for end in ("tsv", "csv", "jsonl", "tsv.gz")},
            "series.csv": lambda path: read_series([path], SeriesOptions(), []),
            "dated.csv": lambda path: read_series([path], SeriesOptions(order="sort", fill="interpolate"), []),
            "keyed.csv": lambda path: read_series([path], SeriesOptions(key="id"), []),
            "blimp.jsonl": read_minimal_pairs,
            "pairs_minimal.tsv": read_minimal_pairs,
            "similar.tsv": read_similarities,
            "analogies.txt": read_analogies,
            "contexts.txt": lambda path: read_contexts(path, "the"),
            "run.toml": lambda path: resolve("lstm", layers=[read_settings(path, "lstm")]),
        }
        found = [
            Target(f"data {name}", (self.data[name],), partial(read, self.data[name]), (self.data[name],))
            for name, read in readers.items()
        ]
        two = (self.data["parallel.en"], self.data["parallel.de"])
        found.append(Target("data parallel", two, lambda: read_pairs(two), two))
        gold = (self.data["agree.gold"], self.data["agree.text"])
        found.append(Target("data agreement", gold, lambda: read_minimal_pairs(gold[0]), gold))
        return found

    def use_run(self, run: Run) -> None:
        """Use a run for its task."""
        task = run.task
        if task == "language":
            run.score(text=TEXT)
            if run.system != "bilm":
                run.generate("the", tokens=2)
                run.next("the students")
        elif task == "translation":
            run.score(self.data["few.tsv"], search=Search(beam=1))
        elif task == "forecast":
            run.prediction_lines(run.predict(file=self.data["series.csv"]))
            run.score(self.data["series.csv"])
        elif task == "masked":
            run.fill("The film was [MASK] great." if run.system == "bert" else "The film was <mask> great.")
            run.score(self.data["documents.txt"])
        elif task == "contexts":
            run.score(self.data["text.txt"])
        elif task == "words":
            run.neighbours("the")
            run.embed(["the clock"])
        elif run.labels:
            file = {"answer": "answer.json", "tag": "tag.conll", "choose": "choose.jsonl"}.get(task, f"{task}.tsv")
            run.prediction_lines(run.predict(file=self.data[file]))
            run.score(self.data[file])

    def _on_run(self, name: str, path: Path, use: Callable[[], Any]) -> Target:
        files = tuple(path / file for file in RUN_FILES if (path / file).exists())
        return Target(name, files, use, (path, *self.data.values()))

    def _resumed(self, name: str, path: Path) -> Target:
        """Return the target of a run that is resumed for a step, or where its settings are damaged for a second."""
        settings = path / "run.toml"
        text = settings.read_text(encoding="utf-8").replace("steps = 300", "steps = 21", 1)
        settings.write_text(text, encoding="utf-8")
        (path / "config.json").unlink(missing_ok=True)
        files = tuple(sorted(file for file in path.rglob("*") if file.is_file() and file.name != "metrics.jsonl"))
        named = (path, path.parent / "text.txt", path.parent / "pairs.tsv")
        use = partial(ensue.fit, str(path), resume=True, budget="1s")
        return Target(f"resume {name}", files, use, named, whole=path)

    def _converted(self, path: Path) -> None:
        self.use_run(open_run(ensue.convert(path, out=self._out())))

    def _written(self, path: Path, to: str) -> None:
        ensue.convert(path, to=to, out=self._out())

    def _out(self) -> Path:
        """Return a free path to write to."""
        out = self.folder / "out" / "new"
        if out.is_dir():
            shutil.rmtree(out)
        out.unlink(missing_ok=True)
        return out


def read_classified(path: Path) -> None:
    """Read labelled texts, and the same file as texts to predict."""
    read_labelled([path], "classify", ReadOptions(), [])
    read_texts(path, "", 1)


def read_tags(path: Path) -> None:
    """Read tagged sentences, and the same file as sentences to predict."""
    read_tagged([path], ReadOptions(), [])
    read_untagged(path)


def drawn_run(path: Path, view: str, **options: Any) -> None:
    """Draw a view of a run."""
    drawn(view, [open_run(path)], **options)


def drawn_race(path: Path) -> None:
    """Draw a race, and list its runs."""
    drawn("race", [open_race(path)])
    runs_of(path)


def drawn(view: str, subjects: list[Any], **options: Any) -> None:
    """Compute a view and draw it, as it is written to a file."""
    chart = show(view, subjects, **options).draw()
    if not isinstance(chart, str):
        chart.to_dict()


def use_tokenizer(path: Path) -> None:
    """Load a tokenizer, and encode and decode a text."""
    tokenizer = load_tokenizer(path)
    try:
        ids = tokenizer.encode("the Clock fell ½\n")
    except InputError:
        return
    tokenizer.decode(ids)
    tokenizer.surcharge("the Clock fell ½\n")
    [tokenizer.name(int(token)) for token in ids]
