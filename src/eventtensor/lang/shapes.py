"""Shape rules of tiles: broadcasting, sub-tiles, reshapes. Extents are index expressions.

Where two extents differ in form, the tracer records that the proof must show them equal.
"""

from __future__ import annotations

from ..errors import BadDType, BadShape
from ..ir.expr import Const, Node, Sum, add, maximum, minimum, mul, product, wrap
from ..ir.interval import at_least_zero
from ..ir.tensor import Point, Slice, extent
from ..ir.tile import SubAxis
from .index_ops import is_index
from .tracer import Tracer, current

ONE = Const(1)
Shape = tuple[Node, ...]


def shape_text(shape: Shape) -> str:
    return f"({', '.join(str(s) for s in shape)})"


def common_shape(tr: Tracer, a: Shape, b: Shape) -> Shape:
    """The common shape of two tiles under NumPy's rules."""
    rank = max(len(a), len(b))
    left, right = (ONE,) * (rank - len(a)) + a, (ONE,) * (rank - len(b)) + b
    return tuple(_join_axis(tr, x, y, a, b) for x, y in zip(left, right, strict=True))


def _join_axis(tr: Tracer, x: Node, y: Node, a: Shape, b: Shape) -> Node:
    if x in (y, ONE):
        return y
    if y == ONE:
        return x
    hint = None
    if len(a) != len(b):
        hint = "axes meet from the last one on: add one with x[:, None] or x[None, :]"
    require_equal(tr, x, y, f"shapes {shape_text(a)} and {shape_text(b)}", hint)
    return y if isinstance(y, Const) else x


def require_equal(tr: Tracer, x: Node, y: Node, what: str, hint: str | None = None) -> None:
    """Require x == y: by form, or as a pair for the proof. Unequal constants are an error."""
    if x == y:
        return
    if isinstance(add(x, wrap(-1) * y), Const):
        raise BadShape(f"{what} do not fit: {x} is not {y}", hint=hint)
    tr.require_equal_extents(x, y)


def fit_into(tr: Tracer, value: Shape, target: Shape) -> None:
    """Require that a value of shape `value` can be assigned to the shape `target`."""
    what = f"a value of shape {shape_text(value)} and a place of shape {shape_text(target)}"
    if len(value) > len(target):
        more = len(value) - len(target)
        raise BadShape(f"{what} do not fit", hint=f"the value has {more} axes more: pick with x[0],"
                       " reduce with x.sum(axis), or name a larger region")
    for x, y in zip(value, target[len(target) - len(value) :], strict=True):
        if x != ONE:
            require_equal(tr, x, y, what)


def normal_axis(axis: object, rank: int) -> int:
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise BadShape(f"axis {axis!r} is not an integer", hint="axes are Python integers")
    k = int(axis.__index__())
    if not -rank <= k < rank:
        raise BadShape(f"axis {k} is outside a tile of {rank} axes",
                       hint=f"axes are {-rank} to {rank - 1}" if rank else "the tile has no axes")
    return k % rank


def normal_axes(axis: object, rank: int) -> tuple[int, ...]:
    """None means all axes; a tuple names several."""
    if axis is None:
        return tuple(range(rank))
    found = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(normal_axis(a, rank) for a in found)
    if len(set(axes)) != len(axes):
        raise BadShape(f"axes {axes} repeat")
    return axes


# ---- sub-tiles -----------------------------------------------------------------------------


def split_key(key: object, shape: Shape) -> tuple[tuple[SubAxis, ...], tuple[int, ...]]:
    """The sub-tile axes of `x[key]`, and the positions in the result where None adds an axis."""
    keys = key if isinstance(key, tuple) else (key,)
    keys = expand_key(keys, len(shape))
    axes: list[SubAxis] = []
    added: list[int] = []
    rank = 0
    for item in keys:
        if item is None:
            added.append(rank)
            rank += 1
            continue
        axis = _sub_axis(item, shape[len(axes)])
        rank += isinstance(axis, Slice)
        axes.append(axis)
    return tuple(axes), tuple(added)


def expand_key(keys: tuple[object, ...], rank: int) -> tuple[object, ...]:
    """Replace `...` and missing last axes by full slices."""
    used = sum(1 for k in keys if k is not None and k is not Ellipsis)
    dots = [n for n, k in enumerate(keys) if k is Ellipsis]
    if rank == 0 and used == 1 and not dots and any(_is_full(k) for k in keys):
        return tuple(k for k in keys if k is None)
    if used > rank or len(dots) > 1:
        raise BadShape(f"a tile of {rank} axes is indexed with {used}",
                       hint="give an index or slice for each axis at most; None adds an axis")
    fill = (slice(None),) * (rank - used)
    at = dots[0] if dots else len(keys)
    return keys[:at] + fill + keys[at + len(dots) :]


def _is_full(item: object) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _sub_axis(item: object, size: Node) -> SubAxis:
    if isinstance(item, slice):
        if item.step not in (None, 1):
            raise BadShape("a slice that is assigned to has a step",
                           hint="assign slices without steps: et.where chooses, and"
                           " et.stack([even, odd], axis=-1).reshape(..) joins")
        start = Const(0) if item.start is None else _bound(item.start, size)
        stop = size if item.stop is None else _bound(item.stop, size)
        if isinstance(stop, Const) and isinstance(size, Const) and stop.value > size.value:
            stop = size
        found = Slice(start, stop)
        if isinstance(found.nominal, Const) and found.nominal.value <= 0:
            raise BadShape(f"the slice {start}:{stop} of a tile is empty")
        return found
    index = _bound(item, size)
    if isinstance(index, Const) and isinstance(size, Const) and not 0 <= index.value < size.value:
        raise BadShape(f"index {index} is outside an axis of extent {size}")
    return Point(index)


def _bound(value: object, size: Node) -> Node:
    """An index; a negative constant counts from the end, as in NumPy."""
    e = index_expr(value)
    if isinstance(e, Const) and e.value < 0:
        e = add(size, e)
        if isinstance(e, Const) and e.value < 0:
            raise BadShape(f"index {value} is outside an axis of extent {size}")
    return e


def index_expr(value: object) -> Node:
    """An int, index expression or 0-d integer tile as an expression."""
    if not is_index(value):
        hint = "indices are integers, coordinates and 0-d integer tiles"
        if isinstance(value, list):
            hint += "; et.stack([x[2], x[0]]) picks several"
        raise BadDType(f"{value!r} is used as an index or extent and is not an integer", hint=hint)
    return current().check_expr(wrap(value))  # type: ignore[arg-type]


def sub_shape(axes: tuple[SubAxis, ...], shape: Shape) -> Shape:
    found = (_sub_extent(a, s) for a, s in zip(axes, shape, strict=True))
    return tuple(e for e in found if e is not None)


def _sub_extent(axis: SubAxis, size: Node) -> Node | None:
    """Every back end clamps a start that the body computes to the tile. The extent is then
    clamped to what is left after that start."""
    if not isinstance(axis, Slice) or not current().is_computed(axis.start):
        return extent(axis, size, padded=False)
    left = at_least_zero(add(size, mul(Const(-1), at_least_zero(axis.start))))
    return minimum(maximum(axis.nominal, 0), left)


def is_whole(axes: tuple[SubAxis, ...], shape: Shape) -> bool:
    return all(a == Slice(Const(0), s) for a, s in zip(axes, shape, strict=True))


def insert_ones(shape: Shape, added: tuple[int, ...]) -> Shape:
    out = list(shape)
    for k in added:
        out.insert(k, ONE)
    return tuple(out)


# ---- reshapes ------------------------------------------------------------------------------


def reshape_shape(shape: Shape, wanted: tuple[object, ...]) -> Shape:
    """The shape that a reshape gives; one entry may be -1. The element counts are equal by form."""
    entries = [None if isinstance(w, int) and w == -1 else index_expr(w) for w in wanted]
    known = [e for e in entries if e is not None]
    if len(entries) - len(known) > 1:
        raise BadShape("a reshape has more than one -1")
    if len(known) < len(entries):
        rest = _exact_quotient(product(shape), product(known))
        entries = [rest if e is None else e for e in entries]
    result = tuple(e for e in entries if e is not None)
    if product(result) != product(shape):
        raise BadShape(f"a tile of shape {shape_text(shape)} cannot become {shape_text(result)}")
    return result


def _exact_quotient(total: Node, part: Node) -> Node:
    if isinstance(part, Const) and part.value > 0:
        match total:
            case Const(v) if v % part.value == 0:
                return Const(v // part.value)
            case Sum(terms, const) if all(c % part.value == 0 for _, c in terms):
                if const % part.value == 0:
                    return total // part.value
            case _ if part == ONE:
                return total
            case _:
                pass
    if total == part:
        return ONE
    raise BadShape(f"-1 in a reshape: {total} elements do not divide into {part}")
