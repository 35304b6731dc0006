"""metrics.jsonl and TensorBoard events: one record a line, with ``step``; truncated to the checkpoint on resume."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ensue.core.errors import read_errors
from ensue.core.files import disk_errors, write_text
from ensue.core.schema import Fields, Number, Whole


class Metrics:
    """Writes metrics records; records after ``step`` are removed first."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        self._remove_after(step)
        self.file = self.path.open("a", encoding="utf-8")
        self.board = self._tensorboard(step)

    def _tensorboard(self, step: int) -> Any:
        """Return a TensorBoard writer that hides events after ``step``; None if TensorBoard is not installed."""
        if not find_spec("tensorboard"):
            return None
        from torch.utils.tensorboard import SummaryWriter

        folder = self.path.parent / "events"
        # event files are read in the order of their names, which have whole seconds: wait for a new second
        while any(folder.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
            time.sleep(0.05)
        return SummaryWriter(str(folder), purge_step=step + 1)

    def _remove_after(self, step: int) -> None:
        """Remove records after a step, and a half-written last line."""
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

    def truncate(self, step: int) -> None:
        """Remove records after a step that training was rolled back to."""
        self.file.close()
        self._remove_after(step)
        self.file = self.path.open("a", encoding="utf-8")
        if self.board is not None:
            self.board.close()
            self.board = self._tensorboard(step)

    def write(self, record: dict[str, Any]) -> None:
        """Write a record."""
        with disk_errors(self.path):
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()
        if self.board is not None:
            for name, value in record.items():
                if name != "step" and isinstance(value, (int, float)):
                    self.board.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        if self.board is not None:
            self.board.close()


NUMBERS = (
    "loss",
    "lr",
    "norm",
    "norm_top",
    "clipped",
    "seconds",
    "valid_loss",
    "bits_per_byte",
    "accuracy",
    "f1",
    "mase",
)
RECORD_SCHEMA = Fields({"step": Whole(0)}, optional=dict.fromkeys(NUMBERS, Number(finite=False)))
"""What a record must be for charts."""


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read all records of a run; damaged lines are left out."""
    path = folder / "metrics.jsonl"
    with read_errors(path, "is damaged"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return [record for line in lines if (record := _record(line)) is not None]


def _record(line: str) -> dict[str, Any] | None:
    """Parse a line; None if it is damaged or half written."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return None if RECORD_SCHEMA.find(record, "") else record
