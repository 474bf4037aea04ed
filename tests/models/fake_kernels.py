"""Fake kernels in device memory: the successor of each token is its id plus one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from eventtensor.lang.program_builder import Program
from eventtensor.llm.runner import runner_kernels as kernels_module
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.cuda.device_arrays import DeviceArray
from eventtensor.runtime.interface import interface_of


class FakeKernel:
    """`rows`: the most that it takes; `decode_only`: if they have a request each; `failure`: what a
    launch of it leads to."""

    def __init__(self, program: Program) -> None:
        self._program, self.bindings, self.launches = program.build(), 0, 0
        self.interface = interface_of(self._program)
        dims = {d.name: d for d in self._program.dims}
        self.decode_only = "S" in dims and "P" not in dims
        self.rows = dims["P"].max + 1 if "P" in dims else dims["S"].max if self.decode_only else 1
        self.closed = False
        self.failure: Exception | None = None
        self.dims: dict[str, int] = {}
        self.arrays: dict[str, Any] = {}

    def bind(self, **arguments: Any) -> Callable[..., int]:
        self.bindings += 1
        self.dims, self.arrays = bind(self.interface, arguments)
        assert all(isinstance(a, DeviceArray) for a in self.arrays.values())
        arrays = self.arrays

        def launch(stream: int, dependent: bool) -> int:
            assert stream and dependent
            self.launches += 1
            chosen = arrays["chosen"]
            chosen[:] = arrays["token"][: len(chosen)] + 1
            return self.launches

        return launch

    def has_ended(self, number: int) -> bool:
        self.check()
        return number <= self.launches

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        self.closed = True


@contextmanager
def fake_kernels(
    build: Callable[[FakeKernel], None] = lambda kernel: None,
    plan: Callable[[FakeKernel], None] = lambda kernel: None,
) -> Iterator[list[FakeKernel]]:
    """All kernels that were planned; `plan` and `build` are called where that happens to one."""
    made: list[FakeKernel] = []

    def planned(
        program: Program, target: str, options: Mapping[str, Any]
    ) -> Callable[[], FakeKernel]:
        kernel = FakeKernel(program)
        plan(kernel)
        made.append(kernel)

        def built() -> FakeKernel:
            build(kernel)
            return kernel

        return built

    with patch.object(kernels_module, "planned", planned):
        yield made
