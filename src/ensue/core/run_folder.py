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
from ensue.core.files import read_json, write_json

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

    def claim(self, force: bool, resume: bool) -> bool:
        """Make the folder ready for a new run; True where an old one is to be resumed."""
        if self.path.is_file():
            raise InputError("is a file, not a folder", where=str(self.path), mend="choose another --out")
        there = self.path.exists() and any(self.path.iterdir())
        if resume:
            if not self.settings.exists():
                raise InputError("holds no run to resume", where=str(self.path), mend="leave out --resume to begin one")
            return True
        if there and not force:
            raise InputError(
                "is there already", where=str(self.path), mend="--resume goes on with it, --force replaces it, --out names another"
            )
        if there and not (self.settings.exists() or self.config.exists()):
            raise InputError("is not a run, so --force will not delete it", where=str(self.path), mend="choose another --out")
        if there:
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        return False

    def write_config(self, system: str, config: Any, version: str, **more: Any) -> None:
        """Write config.json."""
        write_json(self.config, {"ensue": version, "format": FORMAT, "system": system, "model": asdict(config), **more})

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
                "was not made by ensue", where=str(self.config), mend="`ensue convert` reads folders of other tools"
            )
        if config["format"] > FORMAT:
            raise InputError(
                f"was made by a newer version of ensue ({config.get('ensue', '?')})", where=str(self.path), mend="upgrade ensue"
            )
        return config
