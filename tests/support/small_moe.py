"""examples/moe.py with small constants, routings for it, and its facts taken away one by one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from eventtensor.ir.program import Program
from tests.support.backends import Arrays, make_arrays

EXAMPLE = Path(__file__).parents[2] / "examples" / "moe.py"
SMALL = {"EXPERTS": 3, "TOP": 2, "WIDTH": 4, "HIDDEN": 4, "ROWS": 2, "COLS": 2}


def _module() -> ModuleType:
    """A copy of the example's module: its constants are read when the program is made."""
    spec = importlib.util.spec_from_file_location("small_moe_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in SMALL.items():
        assert hasattr(module, name)
        setattr(module, name, value)
    return module


def small_moe() -> Program:
    built: Program = _module().moe().build()
    return built


def routed(program: Program, n: int, seed: int) -> Arrays:
    """Arrays with real numbers, so that tokens go to different experts."""
    rng = np.random.default_rng(seed)
    arrays = make_arrays(program, {"n": n}, seed)
    return {k: rng.normal(size=a.shape).astype(np.float32) for k, a in arrays.items()}


def without_facts(program: Program) -> Iterator[tuple[str, Program]]:
    """The program with one thing less known of its run-time data."""
    less: list[tuple[str, str, Any]] = [
        ("pos", "distinct", ()), ("expert", "bound", None), ("indptr", "monotone", False),
        ("pos", "bound", None), ("indptr", "bound", None), ("tiles", "bound", None),
    ]
    for name, what, value in less:
        tensors = tuple(
            replace(t, **{what: value}) if t.name == name else t for t in program.tensors
        )
        yield f"{what} of {name}", replace(program, tensors=tensors)
    for k in range(len(program.facts)):
        facts = program.facts[:k] + program.facts[k + 1 :]
        yield f"fact {program.facts[k].cond}", replace(program, facts=facts)
