"""NumPy functions that a body calls on tiles.

NumPy hands the call to the tile. An operator with a NumPy scalar works; anything else is an error
that says what to write.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..errors import UnknownName
from ..public_names import BODY_NAMES
from .numpy_hints import hint_for_numpy

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "divide": operator.truediv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "power": operator.pow, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq,
    "not_equal": operator.ne,
}  # fmt: skip


def refuse_array() -> NoReturn:
    raise UnknownName("a NumPy array meets a tile",
                      hint="declare it as p.weight(..) and pass it through reads=; et.iota(n)"
                      " counts 0..n-1")


def numpy_call(name: str, args: tuple[object, ...]) -> Any:
    """`np.float32(2) * x` is a product. Any other function is an error with a hint."""
    if name in _OPERATORS and len(args) == 2 and isinstance(args[0], np.generic):
        return _OPERATORS[name](args[0].item(), args[1])
    if name in _OPERATORS and any(isinstance(a, np.ndarray) for a in args):
        refuse_array()
    from .symbolic_tile import Tile

    methods = frozenset(n for n in dir(Tile) if not n.startswith("_"))
    hint = hint_for_numpy(name, BODY_NAMES, methods)
    raise UnknownName(f"NumPy's {name} is used on a tile", hint=hint)
