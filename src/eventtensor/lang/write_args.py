"""Write and accumulate arguments of a task body: places to assign to, not values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import NotTraceable
from ..ir.expr import Node
from ..ir.tensor import DType
from ..ir.tile import Accumulate, Store, TileType
from . import values
from .shapes import is_whole, split_key, sub_shape
from .symbolic_tile import Scalar, lift
from .tracer import Tracer


class _Place:
    def __init__(self, tracer: Tracer, number: int, name: str, type_: TileType) -> None:
        self._tracer = tracer
        self._number = number
        self._name = name
        self._type = type_

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(_extent(s) for s in self._type.shape)

    @property
    def dtype(self) -> DType:
        return self._type.dtype

    def __iter__(self) -> Iterator[object]:
        self._no_read()

    def __bool__(self) -> bool:
        self._no_read()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._no_read()

    def _no_read(self) -> NoReturn:
        raise NotTraceable(
            f"'{self._name}' is written by this task and cannot be read",
            hint="name the region in reads= too, and use that argument; arguments come in the"
            " order reads, accumulates, writes; += is for accumulates=",
        )

    def _refuse(self, other: object) -> Any:
        self._no_read()

    def __add__(self, other: object) -> Any:
        self._no_read()

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse


def _extent(e: Node) -> Any:
    value = getattr(e, "value", None)
    return value if isinstance(value, int) else Scalar(e)


class WriteArg(_Place):
    """`out[:] = v`, `out[a:b, c] = v`."""

    def __getitem__(self, key: object) -> NoReturn:
        self._no_read()

    def __setitem__(self, key: object, value: object) -> None:
        tr = self._tracer
        axes, added = split_key(key, self._type.shape)
        if added:
            raise NotTraceable("None in the index of an assignment")
        place = TileType(self._type.dtype, sub_shape(axes, self._type.shape))
        new = values.fitted(tr, lift(tr, value, place.dtype), place, f"'{self._name}'")
        tr.scope.stmts.append(Store(self._number, axes, new.id))
        tr.written.add(self._number)


@dataclass(frozen=True, eq=False)
class _Sum:
    """`acc[:]` with something added to it, on its way back into `acc[:] = ..`."""

    place: AccumulateArg
    value: object = None

    def __iadd__(self, value: object) -> Any:
        if self.value is not None:
            self.place._only_add()
        return _Sum(self.place, value)

    def __getattr__(self, name: str) -> Any:
        self.place._only_add()

    def _refuse(self, other: object) -> Any:
        self.place._only_add()

    def __add__(self, other: object) -> Any:
        self.place._only_add()

    __radd__ = __isub__ = __imul__ = __sub__ = __mul__ = __itruediv__ = _refuse


class AccumulateArg(_Place):
    """`acc[:] += v`, and nothing else."""

    def _only_add(self) -> NoReturn:
        raise NotTraceable(
            f"'{self._name}' is an accumulate argument, for which only {self._name}[:] += value"
            " is allowed", hint=f"write {self._name}[:] += value; arguments come in the"
            " order reads, accumulates, writes",
        )

    def __getitem__(self, key: object) -> _Sum:
        axes, added = split_key(key, self._type.shape)
        if added or not is_whole(axes, self._type.shape):
            self._only_add()
        return _Sum(self)

    def __setitem__(self, key: object, value: object) -> None:
        if not isinstance(value, _Sum) or value.place is not self or value.value is None:
            self._only_add()
        tr = self._tracer
        new = values.fitted(
            tr, lift(tr, value.value, self._type.dtype), self._type, f"'{self._name}'"
        )
        tr.scope.stmts.append(Accumulate(self._number, new.id))
        tr.written.add(self._number)

    def __iadd__(self, value: object) -> Any:
        self._only_add()
