"""The format of a run: a folder that says all about a trained model.

config.json          the system, the model's settings, the version of this format
model.safetensors    the weights
tokenizer.json       the tokenizer
run.toml             every setting, resolved, with its meaning
metrics.jsonl        what training measured; events/ is the same for TensorBoard
README.md            the model card: data, figures, command
checkpoints/         what is needed to go on to the bit
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import disk_errors, read_json, write_json

FORMAT = 1


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run, and the reading and writing of its config.json."""

    path: Path

    @property
    def config(self) -> Path:
        """The system and its settings."""
        return self.path / "config.json"

    @property
    def weights(self) -> Path:
        """The weights."""
        return self.path / "model.safetensors"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer."""
        return self.path / "tokenizer.json"

    @property
    def settings(self) -> Path:
        """Every setting, resolved."""
        return self.path / "run.toml"

    @property
    def card(self) -> Path:
        """The model card."""
        return self.path / "README.md"

    @property
    def checkpoints(self) -> Path:
        """Where training can go on."""
        return self.path / "checkpoints"

    def check_free(self, force: bool) -> None:
        """Refuse to write over what is there, unless it is a run and ``force`` says so."""
        if self.path.is_file():
            raise InputError("is a file, not a folder", where=str(self.path), mend="choose another --out")
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        if not force:
            mend = "--resume goes on with it, --force replaces it, --out names another"
            raise InputError("is there already", where=str(self.path), mend=mend)
        if not (self.settings.exists() or self.config.exists()):
            mend = "choose another --out"
            raise InputError("is not a run, so --force will not delete it", where=str(self.path), mend=mend)

    def make(self, force: bool) -> None:
        """An empty folder for a new run."""
        self.check_free(force)
        with disk_errors(self.path):
            if self.path.exists():
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True)

    def check_resumable(self) -> None:
        """There must be a run to go on with."""
        if not self.settings.exists():
            mend = "leave out --resume to begin one"
            raise InputError("holds no run to resume", where=str(self.path), mend=mend)

    def write_config(self, system: str, config: Any, version: str, **more: Any) -> None:
        """Write config.json."""
        write_json(
            self.config,
            {"ensue": version, "format": FORMAT, "system": system, "model": asdict(config), **more},
        )

    def read_config(self) -> dict[str, Any]:
        """config.json, once it is known to be ours and not from the future."""
        if not self.path.exists():
            raise InputError("there is no such run", where=str(self.path), mend="`ensue fit` makes one")
        if not self.config.exists():
            unfinished = self.settings.exists()
            mend = "go on with `ensue fit … --resume`" if unfinished else "name a folder that `ensue fit` made"
            raise InputError("is not a finished run (no config.json)", where=str(self.path), mend=mend)
        config = read_json(self.config)
        if not isinstance(config, dict) or not {"format", "system", "model"} <= config.keys():
            raise InputError(
                "was not made by ensue",
                where=str(self.config),
                mend="`ensue convert` reads folders of other tools",
            )
        if config["format"] > FORMAT:
            raise InputError(
                f"was made by a newer version of ensue ({config.get('ensue', '?')})",
                where=str(self.path),
                mend="upgrade ensue",
            )
        return config
