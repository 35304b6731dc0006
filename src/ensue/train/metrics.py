"""metrics.jsonl and TensorBoard events: one line a record, with ``step``; cut back to the checkpoint on resume."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ensue.core.files import disk_errors, write_text


class Metrics:
    """Writes records as they come."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        self._cut_back(step)
        self.file = self.path.open("a", encoding="utf-8")
        self.board = self._board(step)

    def _board(self, step: int) -> Any:
        """TensorBoard's writer, where it is installed; what it wrote after a step is forgotten."""
        if not find_spec("tensorboard"):
            return None
        from torch.utils.tensorboard import SummaryWriter

        folder = self.path.parent / "events"
        # files are read in the order of their names, which tell whole seconds: two of one second may change places
        while any(folder.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
            time.sleep(0.05)
        return SummaryWriter(str(folder), purge_step=step + 1)

    def _cut_back(self, step: int) -> None:
        """Forget what a broken run wrote after its last checkpoint; a half-written last line goes too."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            record = _record(line)
            if record is None:
                break
            if record["step"] <= step:
                kept.append(line + "\n")
        write_text(self.path, "".join(kept))

    def cut_back(self, step: int) -> None:
        """Forget what was written after a step: training has gone back to it."""
        self.file.close()
        self._cut_back(step)
        self.file = self.path.open("a", encoding="utf-8")
        if self.board is not None:
            self.board.close()
            self.board = self._board(step)

    def write(self, record: dict[str, Any]) -> None:
        """Add a record."""
        with disk_errors(self.path):
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()
        if self.board is not None:
            for name, value in record.items():
                if name != "step" and isinstance(value, (int, float)):
                    self.board.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Finish the files."""
        self.file.close()
        if self.board is not None:
            self.board.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All records of a run."""
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return [record for line in lines if (record := _record(line)) is not None]


def _record(line: str) -> dict[str, Any] | None:
    """A line of metrics; None where it is damaged or half written."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None
