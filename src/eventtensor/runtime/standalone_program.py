"""Runs a kernel as a standalone program: the generated source with a main that reads a file.

Tests find races with it, because ThreadSanitizer cannot be loaded into Python.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codegen.cpp import Flavour, generate
from ..config import Environment, environment
from ..ir.plan import Plan
from ..ir.tensor import Role
from ..ir.walk import evaluate
from .cpp_build import DEVICE, build_program

Array = npt.NDArray[Any]
THREAD_SANITIZER = ("-O1", "-g", "-fsanitize=thread")
_RACE = "WARNING: ThreadSanitizer: data race"


@dataclass(frozen=True, slots=True)
class LaunchOutput:
    """The exit status and output of the program, and the tensors after each launch."""

    status: int
    log: str
    tensors: list[dict[str, Array]]

    @property
    def races(self) -> int:
        return self.log.count(_RACE)


def run_standalone(
    plan: Plan,
    launches: Sequence[tuple[Mapping[str, int], Mapping[str, Array]]],
    *,
    workers: int,
    flags: tuple[str, ...] = THREAD_SANITIZER,
    env: Environment | None = None,
    source: str | None = None,
    debug: bool = False,
) -> LaunchOutput:
    """Launch one pool of `workers` threads once for each (dims, arrays). Arrays are not changed. A
    test may replace the generated source by `source`."""
    env = env or environment()
    text = source or generate(plan, Flavour(debug=debug))
    main = (DEVICE / "runner.cpp").read_text()
    built = build_program(f"{text}\n{main}", f"{plan.program.name}_main", env, flags)
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "arguments", Path(folder) / "results"
        given.write_bytes(b"".join(_pack(plan, launches, workers)))
        command = [*_fixed_addresses(), str(built.path), str(given), str(result)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "TSAN_OPTIONS": "halt_on_error=0 exitcode=66"},
        )
        data = result.read_bytes() if result.exists() else b""
    return LaunchOutput(done.returncode, done.stdout + done.stderr, _unpack(plan, launches, data))


def _fixed_addresses() -> list[str]:
    """A command prefix without address randomization, which older sanitizers do not support."""
    tool = which("setarch")
    return [tool, "-R"] if tool else []


def _arrays(plan: Plan, dims: Mapping[str, int], given: Mapping[str, Array]) -> list[Array]:
    """All tensors in program order, with new memory for scratch."""
    out = []
    for t in plan.program.tensors:
        if t.role is Role.scratch:
            shape = tuple(evaluate(s, dims) for s in t.shape)
            out.append(np.zeros(shape, t.dtype.numpy))
        else:
            out.append(given[t.name])
    return out


def _pack(
    plan: Plan, launches: Sequence[tuple[Mapping[str, int], Mapping[str, Array]]], workers: int
) -> list[bytes]:
    dims = plan.program.dims
    parts = [np.array([workers, len(launches), len(dims), len(plan.program.tensors)], np.int64)]
    for sizes, given in launches:
        parts.append(np.array([sizes[d.name] for d in dims], np.int64))
        for x in _arrays(plan, sizes, given):
            parts += [np.array([x.nbytes], np.int64), np.ascontiguousarray(x)]
    return [p.tobytes() for p in parts]


def _unpack(
    plan: Plan, launches: Sequence[tuple[Mapping[str, int], Mapping[str, Array]]], data: bytes
) -> list[dict[str, Array]]:
    found: list[dict[str, Array]] = []
    at = 0
    for sizes, given in launches:
        tensors = {}
        for t, x in zip(plan.program.tensors, _arrays(plan, sizes, given), strict=True):
            if at + x.nbytes > len(data):
                return found
            flat = np.frombuffer(data, x.dtype, x.size, at)
            tensors[t.name] = flat.reshape(x.shape).copy()
            at += x.nbytes
        found.append(tensors)
    return found
