"""Pack runs that this version of the code makes, for later versions to load: ``python tests/golden/archive.py FOLDER``.

FOLDER is what ``record.py --keep FOLDER`` left. Beside finished runs there are three that were stopped by Ctrl-C.
"""

import io
import os
import re
import shutil
import signal
import sys
import tarfile
import time
from pathlib import Path

import cases
from typed import finished, started

ARCHIVE = Path(__file__).with_name("old_runs.tar.gz")
FINISHED = (
    *("ngram", "window", "rnn", "gru-cho", "lstm", "bilm", "context2vec", "gpt", "gpt-learned-post", "gpt-experts"),
    *("seq2seq", "convs2s", "bytenet", "transformer", "transformer-post", "bert", "roberta", "word2vec"),
    *("forecast-seasonal", "forecast-linear", "forecast-gru", "forecast-gpt", "forecast-quantiles"),
    *("classify-bert", "answer-bert", "tag-lstm", "classify-gpt"),
)
STOPPED = ("gpt", "lstm", "transformer")
LEFT_OUT = ("events", ".lock", "README.md")


def stop(folder, name, words):
    """Train a case for longer and stop it after its first checkpoint."""
    run = folder / f"stopped-{name}"
    shutil.rmtree(run, ignore_errors=True)
    more = ("--set", "train.steps=300", "--set", "train.checkpoint_every=20", "--force")
    process = started("fit", *words, *more, "--out", run)
    while all(path.name == "step-00000000" for path in run.glob("checkpoints/step-*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    print(finished(process).err.splitlines()[-1])


def add(archive, folder, run, checkpoints):
    """Add a run, with the newest checkpoint where that is asked for; paths in it are those of no machine."""
    newest = max(run.glob("checkpoints/step-*"), default=None)
    for path in sorted(run.rglob("*")):
        inside = path.relative_to(run)
        kept = inside.parts[0] not in LEFT_OUT and (
            inside.parts[0] != "checkpoints" or (checkpoints and newest in path.parents)
        )
        if not path.is_file() or not kept:
            continue
        data = path.read_bytes()
        if path.suffix in (".toml", ".json", ".jsonl"):
            data = re.sub(rb"(\.\.|/)*" + str(folder).encode(), b"FOLDER", data)  # also as a path from here
        entry = tarfile.TarInfo(f"{run.name}/{inside}")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def main():
    folder = Path(sys.argv[1])
    os.environ["ENSUE_CACHE"] = str(folder / "cache")
    words = cases.fits(cases.write_files(folder))
    for name in STOPPED:
        stop(folder, name, words[name])
    with tarfile.open(ARCHIVE, "w:gz") as archive:
        for name in FINISHED:
            add(archive, folder, folder / name, checkpoints=False)
        for name in STOPPED:
            add(archive, folder, folder / f"stopped-{name}", checkpoints=True)


if __name__ == "__main__":
    main()
