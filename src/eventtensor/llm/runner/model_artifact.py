"""The kernels of a model, compiled or loaded from a folder. The folder has an artifact for each
kernel and model.json, which holds their KernelSetSpec; a runner with another one gets an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import BadArtifact
from ...runtime.interface_json import FACTS as KERNEL_FACTS
from ...runtime.interface_json import read_file
from ...runtime.store import write_atomically
from ..model.attention_decode_batch import decode_variants
from ..model.decoder_tasks import Weights
from ..model.llama import llama
from ..model.model_config import ModelConfig
from .runner_kernels import KernelShape, RunnerKernels

_FACTS, _VERSION = "model.json", 7
_HINT = "eventtensor compile MODEL -o FOLDER writes one"


def takes_one_row(target: str, rows: int, batch_invariant: bool) -> bool:
    """True if a runner for `rows` tokens has a kernel for a single token."""
    return rows == 1 or (target == "cuda" and not batch_invariant)


@dataclass(frozen=True)
class KernelSetSpec:
    """Everything that decides the programs of a runner."""

    config: ModelConfig
    target: str
    dtype: str
    rows: int
    sampling: bool
    batch_invariant: bool

    @property
    def kernels(self) -> tuple[KernelShape, ...]:
        """The shapes of the kernels, first the one that includes all steps."""
        if not takes_one_row(self.target, self.rows, self.batch_invariant):
            return (KernelShape(self.rows),)
        variants = decode_variants(self.config) if self.dtype == "bf16" else ()
        most = {min(a.most, self.rows) for a in variants if a.least <= self.rows} - {1}
        more = (KernelShape(rows, decode_only=True) for rows in sorted(most))
        return tuple(dict.fromkeys((KernelShape(self.rows), *more, KernelShape(1))))

    def facts(self) -> dict[str, Any]:
        """The fields as JSON returns them."""
        found: dict[str, Any] = json.loads(json.dumps({"version": _VERSION, **asdict(self)}))
        return found


def compile_kernels(
    spec: KernelSetSpec, weights: Weights, options: Mapping[str, Any]
) -> RunnerKernels:
    programs = {s: llama(spec.config, weights, tokens=s.rows, sampling=spec.sampling,
                         batch_invariant=spec.batch_invariant, decode_only=s.decode_only)
                for s in spec.kernels}
    return RunnerKernels(programs, spec.target, options)


def load_kernels(
    spec: KernelSetSpec, folder: Path, options: Mapping[str, Any]
) -> RunnerKernels:
    check_spec(spec, folder)
    folders = _folders(spec, folder)
    if _digests(folders.values()) != _facts(folder).get("kernels"):
        raise BadArtifact(f"{folder} has other kernels than {_FACTS} says: a compile into it did "
                          "not come to its end", hint="compile it again")
    return RunnerKernels.load(folders, options)


def save_kernels(spec: KernelSetSpec, kernels: RunnerKernels, folder: Path) -> None:
    """Writes the spec last, so that a folder with a spec is complete. It has digests of the
    kernels' facts, which have digests of the code."""
    folders = _folders(spec, folder)
    kernels.save(folders)
    facts = {**spec.facts(), "kernels": _digests(folders.values())}
    write_atomically(folder / _FACTS, (json.dumps(facts, indent=1) + "\n").encode())


def _folders(spec: KernelSetSpec, folder: Path) -> dict[KernelShape, Path]:
    return {s: folder / f"rows_{s.rows}{'_decode' if s.decode_only else ''}" for s in spec.kernels}


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


def check_spec(spec: KernelSetSpec, folder: Path) -> None:
    """Raises an error that names the difference, also for artifacts of an earlier version."""
    found = _facts(folder)
    saved = _flat({k: v for k, v in found.items() if k != "kernels"})
    wanted = _flat(spec.facts())
    for key in sorted(wanted.keys() | saved.keys()):
        if wanted.get(key) != saved.get(key):
            raise BadArtifact(
                f"{folder} was compiled with {key} = {saved.get(key)!r}; this runner has "
                f"{wanted.get(key)!r}",
                hint="compile it again, or ask for what it was compiled for")


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    config = facts.get("config")
    inner = config if isinstance(config, dict) else {"config": config}
    return {k: v for k, v in facts.items() if k != "config"} | inner
