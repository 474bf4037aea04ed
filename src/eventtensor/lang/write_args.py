"""Write and accumulate arguments of a task body.

A body assigns to them, or adds to them, and cannot read them. A use that reads is an error with a
hint. Read arguments are tiles (lang/symbolic_tile.py).
"""

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


class _OutputArg:
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
        self._refuse_read()

    def __bool__(self) -> bool:
        self._refuse_read()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse_read()

    def _refuse_read(self) -> NoReturn:
        raise NotTraceable(
            f"'{self._name}' is written by this task and cannot be read",
            hint="name the region in reads= too, and use that argument; arguments come in the"
            " order reads, accumulates, writes; += is for accumulates=",
        )

    def _refuse(self, other: object) -> Any:
        self._refuse_read()

    def __add__(self, other: object) -> Any:
        self._refuse_read()

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse


def _extent(e: Node) -> Any:
    value = getattr(e, "value", None)
    return value if isinstance(value, int) else Scalar(e)


class WriteArg(_OutputArg):
    """`out[:] = v`, `out[a:b, c] = v`."""

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse_read()

    def __setitem__(self, key: object, value: object) -> None:
        tr = self._tracer
        axes, added = split_key(key, self._type.shape)
        if added:
            raise NotTraceable("None in the index of an assignment")
        type_ = TileType(self._type.dtype, sub_shape(axes, self._type.shape))
        new = values.fit_to_type(tr, lift(tr, value, type_.dtype), type_, f"'{self._name}'")
        tr.scope.stmts.append(Store(self._number, axes, new.id))
        tr.assigned_args.add(self._number)


@dataclass(frozen=True, eq=False)
class _PendingSum:
    """The right-hand side of `acc[:] += value`, before Python assigns it back to `acc[:]`."""

    arg: AccumulateArg
    value: object = None

    def __iadd__(self, value: object) -> Any:
        if self.value is not None:
            self.arg._refuse_use()
        return _PendingSum(self.arg, value)

    def __getattr__(self, name: str) -> Any:
        self.arg._refuse_use()

    def _refuse(self, other: object) -> Any:
        self.arg._refuse_use()

    def __add__(self, other: object) -> Any:
        self.arg._refuse_use()

    __radd__ = __isub__ = __imul__ = __sub__ = __mul__ = __itruediv__ = _refuse


class AccumulateArg(_OutputArg):
    """`acc[:] += v` is the only use."""

    def _refuse_use(self) -> NoReturn:
        raise NotTraceable(
            f"'{self._name}' is an accumulate argument, for which only {self._name}[:] += value"
            " is allowed", hint=f"write {self._name}[:] += value; arguments come in the"
            " order reads, accumulates, writes",
        )

    def __getitem__(self, key: object) -> _PendingSum:
        axes, added = split_key(key, self._type.shape)
        if added or not is_whole(axes, self._type.shape):
            self._refuse_use()
        return _PendingSum(self)

    def __setitem__(self, key: object, value: object) -> None:
        if not isinstance(value, _PendingSum) or value.arg is not self or value.value is None:
            self._refuse_use()
        tr = self._tracer
        new = values.fit_to_type(
            tr, lift(tr, value.value, self._type.dtype), self._type, f"'{self._name}'"
        )
        tr.scope.stmts.append(Accumulate(self._number, new.id))
        tr.assigned_args.add(self._number)

    def __iadd__(self, value: object) -> Any:
        self._refuse_use()
