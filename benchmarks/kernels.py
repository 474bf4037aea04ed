"""The kernels that decode.py measures, each compiled by a process of its own and handed over as an
artifact: many at a time, and also without any cache, to say what a cold compile takes.

A child is started as `kernels.py MODEL TOKENS SAMPLING ALONE FOLDER` and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import eventtensor as et
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.step_limits import MAX_TOKENS
from eventtensor.llm.runner import model_artifact
from eventtensor.llm.runner.runner_kernels import KernelShape, select_kernel

SECONDS = 240  # that a compile may take


class Compiled(Protocol):
    """A kernel that a child compiles: `script`, started with `words` and a folder."""

    def program(self) -> et.Program: ...

    def options(self) -> dict[str, Any]: ...

    def words(self) -> tuple[str, ...]: ...

    def script(self) -> Path: ...


W = TypeVar("W", bound=Compiled)


@dataclass(frozen=True)
class Wanted:
    """A kernel for up to `tokens` rows a step; `decode_only`: that have a request each."""

    model: str
    tokens: int
    sampling: bool = False
    decode_only: bool = False

    def program(self) -> et.Program:
        return llama(PRESETS[self.model], Weights("cuda", et.bf16), tokens=self.tokens,
                     sampling=self.sampling, decode_only=self.decode_only)

    def options(self) -> dict[str, Any]:
        """Of the compile."""
        return {}

    def words(self) -> tuple[str, ...]:
        return (self.model, str(self.tokens), str(int(self.sampling)), str(int(self.decode_only)))

    def script(self) -> Path:
        return Path(__file__)


def for_requests(model: str, count: int, sampling: bool = False) -> Wanted:
    """The kernel that a runner takes for a step of so many requests that decode."""
    runner = model_artifact.KernelSetSpec(PRESETS[model], "cuda", "bf16", MAX_TOKENS, sampling,
                                          False)
    steps = select_kernel(runner.kernels, KernelShape(count, decode_only=True))
    return Wanted(model, steps.rows, sampling, steps.decode_only)


@dataclass(frozen=True)
class Made:
    """The folder of an artifact and how it was made, or what went wrong."""

    folder: Path
    seconds: float = 0.0
    from_cache: bool = False
    error: str = ""

    def load(self) -> Any:
        if self.error:
            raise RuntimeError(self.error)
        return et.load(self.folder)


def make(wanted: Compiled, folder: Path, env: Mapping[str, str]) -> Made:
    """By a child; what it says on its way is kept for the error."""
    place = folder / "_".join(wanted.words())
    command = [sys.executable, str(wanted.script()), *wanted.words(), str(place)]
    try:
        done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True,
                              timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Made(place, error=f"the compile takes longer than {SECONDS} s")
    if done.returncode != 0:
        last = " ".join(done.stderr.strip().splitlines()[-3:])  # cause, place and hint
        return Made(place, error=f"the compile fails: {last[-600:]}")
    return Made(place, **json.loads(done.stdout.splitlines()[-1]))


def make_all(
    wanted: Iterable[W], folder: Path, pool: ThreadPoolExecutor,
    env: Mapping[str, str] | None = None,
) -> dict[W, Made]:
    """All of them, as many at a time as the pool has threads."""
    running = {w: pool.submit(make, w, folder, env or {}) for w in dict.fromkeys(wanted)}
    return {w: r.result() for w, r in running.items()}


def no_caches(folder: Path) -> dict[str, str]:
    """An environment in which nothing is compiled yet: ours, and the one of NVRTC."""
    return {"ET_CACHE_DIR": str(folder), "CUDA_CACHE_DISABLE": "1",
            "CUDA_CACHE_PATH": str(folder / "nv")}


def child(model: str, tokens: str, sampling: str, decode_only: str, folder: str) -> dict[str, Any]:
    wanted = Wanted(model, int(tokens), bool(int(sampling)), bool(int(decode_only)))
    return compiled(wanted, folder)


def compiled(wanted: Compiled, folder: str) -> dict[str, Any]:
    """What a child does."""
    started = time.perf_counter()
    kernel = et.compile(wanted.program(), target="cuda", **wanted.options())
    took = time.perf_counter() - started
    kernel.save(folder)
    return {"seconds": took, "from_cache": kernel.backend.from_cache}


if __name__ == "__main__":
    print(json.dumps(child(*sys.argv[1:])))
