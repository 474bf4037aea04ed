"""The kernels of a model: compiled, or from a folder that has an artifact for each of them, and
model.json, which says what they were made for. Who asks for something else gets an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import BadArtifact
from ..runtime.described import FACTS as KERNEL_FACTS
from ..runtime.described import read_file
from ..runtime.store import write_once
from .attention_decode_batch import decode_variants
from .decoder_tasks import Weights
from .llama import llama
from .model_config import ModelConfig
from .runner_kernels import KernelShape, RunnerKernels

_FACTS, _VERSION = "model.json", 5
_HINT = "eventtensor compile MODEL -o FOLDER writes one"


def takes_one_row(target: str, rows: int, batch_invariant: bool) -> bool:
    """True if some kernel of a runner of so many rows takes one and no more."""
    return rows == 1 or (target == "cuda" and not batch_invariant)


@dataclass(frozen=True)
class KernelSetSpec:
    """What decides the programs of a runner."""

    config: ModelConfig
    target: str
    dtype: str
    rows: int
    sampling: bool
    batch_invariant: bool

    @property
    def kernels(self) -> tuple[KernelShape, ...]:
        """What each of them takes, the one first that takes all."""
        if not takes_one_row(self.target, self.rows, self.batch_invariant):
            return (KernelShape(self.rows),)
        variants = decode_variants(self.config) if self.dtype == "bf16" else ()
        most = {min(a.most, self.rows) for a in variants if a.least <= self.rows} - {1}
        more = (KernelShape(rows, decode_only=True) for rows in sorted(most))
        return tuple(dict.fromkeys((KernelShape(self.rows), *more, KernelShape(1))))

    def facts(self) -> dict[str, Any]:
        """As JSON gives them back."""
        found: dict[str, Any] = json.loads(json.dumps({"version": _VERSION, **asdict(self)}))
        return found


def compiled(made: KernelSetSpec, weights: Weights, options: Mapping[str, Any]) -> RunnerKernels:
    programs = {s: llama(made.config, weights, tokens=s.rows, sampling=made.sampling,
                         batch_invariant=made.batch_invariant, decode_only=s.decode_only)
                for s in made.kernels}
    return RunnerKernels(programs, made.target, options)


def loaded(made: KernelSetSpec, folder: Path, options: Mapping[str, Any]) -> RunnerKernels:
    check_spec(made, folder)
    folders = _folders(made, folder)
    if _digests(folders.values()) != _facts(folder).get("kernels"):
        raise BadArtifact(f"{folder} has other kernels than {_FACTS} says: a compile into it did "
                          "not come to its end", hint="compile it again")
    return RunnerKernels.load(folders, options)


def save(made: KernelSetSpec, kernels: RunnerKernels, folder: Path) -> None:
    """The facts last, so that a folder which has them is whole. They vouch for the kernels, whose
    own facts vouch for their code."""
    folders = _folders(made, folder)
    kernels.save(folders)
    facts = {**made.facts(), "kernels": _digests(folders.values())}
    write_once(folder / _FACTS, (json.dumps(facts, indent=1) + "\n").encode())


def _folders(made: KernelSetSpec, folder: Path) -> dict[KernelShape, Path]:
    return {s: folder / f"rows_{s.rows}{'_decode' if s.decode_only else ''}" for s in made.kernels}


def _digests(folders: Iterable[Path]) -> dict[str, str]:
    return {f.name: hashlib.sha256(read_file(f, KERNEL_FACTS)).hexdigest() for f in folders}


def _facts(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / _FACTS).read_text())
    except (OSError, ValueError, RecursionError) as e:
        raise BadArtifact(f"{folder} is no artifact of a model: {e}", hint=_HINT) from e
    if not isinstance(found, dict):
        raise BadArtifact(f"{folder / _FACTS} holds no table", hint=_HINT)
    return found


def check_spec(made: KernelSetSpec, folder: Path) -> None:
    """An error that names what differs."""
    found = _facts(folder)
    there = _flat({k: v for k, v in found.items() if k != "kernels"})
    here = _flat(made.facts())
    for key in sorted(here.keys() | there.keys()):
        if here.get(key) != there.get(key):
            raise BadArtifact(
                f"{folder} was made with {key} = {there.get(key)!r}; this runner has "
                f"{here.get(key)!r}", hint="compile it again, or ask for what it was made for")


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    config = facts.get("config")
    inner = config if isinstance(config, dict) else {"config": config}
    return {k: v for k, v in facts.items() if k != "config"} | inner
