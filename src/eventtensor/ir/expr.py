"""Index expressions: integers over dims, coordinates and run-time data, in a canonical form.

The operators and constructors below sort sums and fold constants, so that equal expressions are
equal values. Nodes are frozen. Values of a task body are not here, but in ir/tile.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from ..errors import BadDim, NonAffine


class Expr:
    """The base of the closed union `Node`, with its operators."""

    __slots__ = ()

    def __add__(self, other: ExprLike) -> Node:
        return add(wrap(self), wrap(other))

    def __radd__(self, other: ExprLike) -> Node:
        return add(wrap(other), wrap(self))

    def __sub__(self, other: ExprLike) -> Node:
        return add(wrap(self), mul(Const(-1), wrap(other)))

    def __rsub__(self, other: ExprLike) -> Node:
        return add(wrap(other), mul(Const(-1), wrap(self)))

    def __neg__(self) -> Node:
        return mul(Const(-1), wrap(self))

    def __mul__(self, other: ExprLike) -> Node:
        return mul(wrap(self), wrap(other))

    def __rmul__(self, other: ExprLike) -> Node:
        return mul(wrap(other), wrap(self))

    def __floordiv__(self, other: int) -> Node:
        return floordiv(self, other)

    def __mod__(self, other: int) -> Node:
        return mod(self, other)

    def __le__(self, other: ExprLike) -> Node:
        return compare("<=", self, wrap(other))

    def __lt__(self, other: ExprLike) -> Node:
        return compare("<=", add(wrap(self), Const(1)), wrap(other))

    def __ge__(self, other: ExprLike) -> Node:
        return compare("<=", wrap(other), self)

    def __gt__(self, other: ExprLike) -> Node:
        return compare("<=", add(wrap(other), Const(1)), self)

    def __bool__(self) -> bool:
        if isinstance(self, Const):
            return bool(self.value)
        raise NonAffine(
            f"the truth of '{self}' is not known when the program is built",
            hint="use et.min, et.max or a grid extent instead of `if` on dims and coordinates",
        )

    def __index__(self) -> int:
        if isinstance(self, Const):
            return self.value
        raise NonAffine(f"'{self}' is not a constant", hint="a plain integer is needed here")

    def tiles(self, size: int) -> Node:
        """Number of tiles of `size` that cover this extent: ceil(self / size)."""
        return floordiv(add(wrap(self), Const(size - 1)), size)

    def __str__(self) -> str:
        return text(wrap(self))

    def __repr__(self) -> str:
        return text(wrap(self))


ExprLike = Expr | int


@dataclass(frozen=True, slots=True, repr=False)
class Const(Expr):
    value: int


@dataclass(frozen=True, slots=True, repr=False)
class Dim(Expr):
    """A symbolic size, bound at launch to a value in min..max (max None: no upper end)."""

    name: str
    min: int = 1
    max: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Var(Expr):
    """A grid coordinate, loop variable, cell coordinate, or (as `%7`) a scalar of a tile body."""

    name: str


@dataclass(frozen=True, slots=True, repr=False)
class Sum(Expr):
    """sum(coefficient * atom) + const. Terms are sorted by the text of the atom; none is zero."""

    terms: tuple[tuple[Node, int], ...]
    const: int


@dataclass(frozen=True, slots=True, repr=False)
class Prod(Expr):
    """A product of non-constant factors. It occurs in counts and sizes, never in an index map."""

    factors: tuple[Node, ...]


@dataclass(frozen=True, slots=True, repr=False)
class FloorDiv(Expr):
    a: Node
    b: int


@dataclass(frozen=True, slots=True, repr=False)
class Mod(Expr):
    a: Node
    b: int


@dataclass(frozen=True, slots=True, repr=False)
class Min(Expr):
    a: Node
    b: Node


@dataclass(frozen=True, slots=True, repr=False)
class Max(Expr):
    a: Node
    b: Node


@dataclass(frozen=True, slots=True, repr=False)
class Load(Expr):
    """One element of an integer tensor, read at run time."""

    tensor: str
    index: tuple[Node, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Compare(Expr):
    """1 if a <= b (or a == b), else 0; `and` is Min, `or` is Max, `not` is 1 - x."""

    op: str
    a: Node
    b: Node


@dataclass(frozen=True, slots=True, repr=False)
class Select(Expr):
    cond: Node
    a: Node
    b: Node


Node = (
    Const | Dim | Var | Sum | Prod | FloorDiv | Mod | Min | Max | Load | Compare | Select
)


def wrap(value: ExprLike) -> Node:
    if isinstance(value, Expr):
        return value  # type: ignore[return-value]
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        as_expr = getattr(value, "as_expr", None)
        if as_expr is not None:
            return as_expr()  # type: ignore[no-any-return]
        raise NonAffine(f"{value!r} is not an integer or an index expression")
    return Const(value.__index__())


def dim(name: str, min: int = 1, max: int | None = None) -> Dim:
    """A symbolic size of a program."""
    if not isinstance(name, str) or not name.isidentifier():
        raise BadDim(f"{name!r} is not a name for a dim")
    if min < 0 or (max is not None and max < min):
        raise BadDim(f"dim {name} has the empty or negative range {min}..{max}")
    return Dim(name, min, max)


# ---- canonical constructors ----------------------------------------------------------------


def _parts(e: Node) -> tuple[dict[Node, int], int]:
    match e:
        case Const(v):
            return {}, v
        case Sum(terms, const):
            return dict(terms), const
        case _:
            return {e: 1}, 0


def _from_parts(terms: Mapping[Node, int], const: int) -> Node:
    nonzero = [(t, c) for t, c in terms.items() if c != 0]
    if not nonzero:
        return Const(const)
    if len(nonzero) == 1 and nonzero[0][1] == 1 and const == 0:
        return nonzero[0][0]
    return Sum(tuple(sorted(nonzero, key=lambda tc: text(tc[0]))), const)


def add(a: Node, b: Node) -> Node:
    ta, ca = _parts(a)
    tb, cb = _parts(b)
    out = dict(ta)
    for t, c in tb.items():
        out[t] = out.get(t, 0) + c
    return _from_parts(out, ca + cb)


def mul(a: Node, b: Node) -> Node:
    if isinstance(b, Const):
        a, b = b, a
    if isinstance(a, Const):
        terms, const = _parts(b)
        return _from_parts({t: c * a.value for t, c in terms.items()}, const * a.value)
    scale = 1
    factors: list[Node] = []
    for e in (a, b):
        if isinstance(e, Prod):
            factors.extend(e.factors)
        elif isinstance(e, Sum) and len(e.terms) == 1 and e.const == 0:
            scale *= e.terms[0][1]
            inner = e.terms[0][0]
            factors.extend(inner.factors if isinstance(inner, Prod) else (inner,))
        else:
            factors.append(e)
    product = Prod(tuple(sorted(factors, key=text)))
    return product if scale == 1 else _from_parts({product: scale}, 0)


def product(values: list[Node] | tuple[Node, ...]) -> Node:
    out: Node = Const(1)
    for v in values:
        out = mul(out, v)
    return out


def _positive(k: ExprLike, what: str) -> int:
    if isinstance(k, Const):
        k = k.value
    if not isinstance(k, int) or k <= 0:
        raise NonAffine(f"{what} by '{k}', which is not a positive constant")
    return k


def floordiv(a: ExprLike, k: ExprLike) -> Node:
    e, k = wrap(a), _positive(k, "division")
    if k == 1:
        return e
    terms, const = _parts(e)
    whole = {t: c // k for t, c in terms.items() if c % k == 0}
    rest = {t: c for t, c in terms.items() if c % k != 0}
    outer = _from_parts(whole, const // k)
    if not rest:
        return outer
    inner = _from_parts(rest, const % k)
    if isinstance(inner, FloorDiv):
        return add(outer, floordiv(inner.a, inner.b * k))
    return add(outer, FloorDiv(inner, k))


def mod(a: ExprLike, k: ExprLike) -> Node:
    e, k = wrap(a), _positive(k, "remainder")
    if k == 1:
        return Const(0)
    terms, const = _parts(e)
    rest = {t: c % k for t, c in terms.items() if c % k != 0}
    inner = _from_parts(rest, const % k)
    return Const(inner.value % k) if isinstance(inner, Const) else Mod(inner, k)


def minimum(a: ExprLike, b: ExprLike) -> Node:
    x, y = wrap(a), wrap(b)
    gap = add(x, mul(Const(-1), y))
    if isinstance(gap, Const):
        return x if gap.value <= 0 else y
    return Min(*sorted((x, y), key=text))


def maximum(a: ExprLike, b: ExprLike) -> Node:
    x, y = wrap(a), wrap(b)
    gap = add(x, mul(Const(-1), y))
    if isinstance(gap, Const):
        return x if gap.value >= 0 else y
    return Max(*sorted((x, y), key=text))


def compare(op: str, a: ExprLike, b: ExprLike) -> Node:
    x, y = wrap(a), wrap(b)
    gap = add(x, mul(Const(-1), y))
    if isinstance(gap, Const):
        return Const(int(gap.value <= 0 if op == "<=" else gap.value == 0))
    return Compare(op, x, y)


def equal(a: ExprLike, b: ExprLike) -> Node:
    """The condition a == b (the operator == compares expressions, not values)."""
    return compare("==", a, b)


def select(cond: ExprLike, a: ExprLike, b: ExprLike) -> Node:
    c, x, y = wrap(cond), wrap(a), wrap(b)
    if isinstance(c, Const):
        return x if c.value else y
    return x if x == y else Select(c, x, y)


def load(tensor: str, index: tuple[ExprLike, ...]) -> Node:
    return Load(tensor, tuple(wrap(i) for i in index))


# ---- text ----------------------------------------------------------------------------------


def text(e: Node) -> str:
    """Text with Python's precedence, which ir/parse_expr.py reads back."""
    match e:
        case Const(v):
            return str(v)
        case Dim(name, _, _) | Var(name):
            return name
        case Sum(terms, const):
            return _sum_text(terms, const)
        case Prod(factors):
            return "*".join(_atom(f) for f in factors)
        case FloorDiv(a, k):
            return f"{_atom(a)}//{k}"
        case Mod(a, k):
            return f"{_atom(a)}%{k}"
        case Min(a, b):
            return f"min({text(a)}, {text(b)})"
        case Max(a, b):
            return f"max({text(a)}, {text(b)})"
        case Load(t, index):
            return f"{t}[{', '.join(text(i) for i in index)}]"
        case Compare(op, a, b):
            return f"({text(a)} {op} {text(b)})"
        case Select(c, a, b):
            return f"select({text(c)}, {text(a)}, {text(b)})"
        case _:
            assert_never(e)


def _atom(e: Node) -> str:
    simple = isinstance(e, Const | Dim | Var | Min | Max | Load | Compare | Select)
    return text(e) if simple else f"({text(e)})"


def _sum_text(terms: tuple[tuple[Node, int], ...], const: int) -> str:
    out = ""
    for t, c in terms:
        body = text(t) if c == 1 and not isinstance(t, Prod) else _atom(t)
        if abs(c) != 1:
            body = f"{body}*{abs(c)}"
        sign = " - " if c < 0 else " + "
        out += sign + body if out else ("-" if c < 0 else "") + body
    if const:
        out += f" {'-' if const < 0 else '+'} {abs(const)}"
    return out
