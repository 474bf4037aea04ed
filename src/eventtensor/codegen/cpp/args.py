"""The arguments of a body: views of regions, and copies where the meaning asks for them.

Reads happen at the start of a task and writes at its end. Reading through a view is the same thing
unless the task also writes that tensor; then the region is copied first. A write is staged where
the body itself loads indices from the tensor it writes, and an accumulation where rounding to
storage must happen once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...ir import tile as t
from ...ir.program import Call, Program
from ...ir.tensor import tile_shape
from ..emitter import cpp_name
from ..uses import Uses
from .dialect import Dialect
from .region import RegionWriter
from .value import STORAGE, Value, View, of_view

Temp = Callable[[str, t.TileType, str | None], View]
Fill = Callable[[View, Value], None]


@dataclass(frozen=True)
class Target:
    """Where stores of an argument go, and the real place if that is a stage."""

    view: View
    type: t.TileType
    home: View | None = None


@dataclass(frozen=True)
class ArgWriter:
    """`temp` allocates a dense tile, `fill` assigns one element by element."""

    out: Dialect
    regions: RegionWriter
    program: Program
    call: Call
    coords: tuple[str, ...]
    temp: Temp
    fill: Fill

    def name(self, k: int) -> str:
        name = self.call.body.args[k].name
        return f"arg{k}" if name in self.coords or not name.isidentifier() else cpp_name(name)

    def type(self, k: int) -> t.TileType:
        region = self.call.regions[k]
        shape = tile_shape(region, self.program.tensor(region.tensor))
        return t.TileType(self.call.body.args[k].type.dtype, shape)

    def written(self) -> set[str]:
        return {r.tensor for r in (*self.call.accumulates, *self.call.writes)}

    def read(self, k: int, storage: bool = False) -> Value:
        """Argument k at the start of the task; `storage` keeps the stored dtype in copies."""
        region, name, type = self.call.regions[k], self.name(k), self.type(k)
        self.out.comment(f"{name} = {region}")
        if region.pad is not None:
            dense = self.dense(k, storage)
            self.regions.padded(name, region, dense)
            return of_view(dense, type)
        value = of_view(self.regions.view(name, region, const=True), type)
        if region.tensor not in self.written():
            return value
        copy = self.dense(k, storage)
        self.fill(copy, value)
        return of_view(copy, type)

    def dense(self, k: int, storage: bool) -> View:
        """A temporary for argument k, of tile elements or of stored ones."""
        dtype, name = self.call.body.args[k].storage, f"{self.name(k)}_tile"
        if not storage:
            return self.temp(name, self.type(k), None)
        return replace(self.temp(name, self.type(k), STORAGE[dtype]), storage=dtype)

    def place(self, k: int) -> View:
        """Argument k, where it lies."""
        self.out.comment(f"{self.name(k)} = {self.call.regions[k]}")
        return self.regions.view(self.name(k), self.call.regions[k], const=False)

    def write(self, k: int, uses: Uses) -> Target:
        """Argument k as a target of stores or accumulation."""
        name, type = self.name(k), self.type(k)
        home = self.place(k)
        if not self._staged(k, uses):
            return Target(home, type)
        stage = self.temp(f"{name}_stage", type, None)
        self.fill(stage, of_view(home, type))
        return Target(stage, type, home)

    def _staged(self, k: int, uses: Uses) -> bool:
        arg = self.call.body.args[k]
        if self.call.regions[k].tensor in uses.loads:
            return True
        if arg.mode != t.ArgMode.accumulate or self.call.unordered:
            return False
        return arg.storage is not arg.type.dtype and _adds(self.call.body.stmts, k, 1) > 1

    def finish(self, targets: dict[int, Target]) -> None:
        for target in targets.values():
            if target.home is not None:
                self.fill(target.home, of_view(target.view, target.type))


def _adds(stmts: tuple[t.Stmt, ...], arg: int, weight: int) -> int:
    """Accumulate statements for an argument; one in a loop counts twice."""
    total = 0
    for s in stmts:
        if isinstance(s, t.Accumulate) and s.arg == arg:
            total += weight
        elif isinstance(s, t.For):
            total += _adds(s.body, arg, 2)
    return total
