"""A sandbox of Jinja whose templates come to an end, in bounded memory. Templates come from files
that others made: each step of one, and each character that it makes, is charged to a budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST = 1 << 28  # characters
_STEP = 1024  # characters that a step counts as
_WIDEST = 100_000  # a width, or a count, that is an argument
_WIDE = {"do_center", "do_indent", "do_wordwrap", "do_truncate", "do_batch", "do_slice", "_tojson",
         "generate_lorem_ipsum"}  # by function: those with such an argument
# Filters that make no text: a template may ask again and again how many messages there are.
_PASSING = {"attr", "count", "d", "default", "dictsort", "first", "groupby", "items", "last",
            "length", "list", "map", "max", "min", "random", "reject", "rejectattr", "reverse",
            "select", "selectattr", "sort", "unique"}
_WIDTH = re.compile(r"\d{6}|\*")  # in a format
_SPENT: ContextVar[list[int] | None] = ContextVar("spent", default=None)


class BudgetExceeded(Exception):
    """A template that does not end, or makes more than memory should hold."""


@contextmanager
def budget() -> Iterator[None]:
    """What one template may do."""
    token = _SPENT.set([0])
    try:
        yield
    finally:
        _SPENT.reset(token)


def charge(characters: int = 0) -> None:
    spent = _SPENT.get()
    if spent is None:
        return
    spent[0] += characters + _STEP
    if spent[0] > MOST:
        raise BudgetExceeded("it does not come to an end, or makes too long a text")


def measure(value: Any) -> Any:
    """Charges what a value is as text, and gives it back."""
    match value:
        case str():
            charge(len(value))
        case Mapping():
            for key, part in value.items():
                measure(key)
                measure(part)
        case list() | tuple():
            for part in value:
                measure(part)
        case _:
            charge()
    return value


def _check_width(value: object) -> None:
    if isinstance(value, int) and abs(value) > _WIDEST:
        raise BudgetExceeded("it asks for very wide text, or very large numbers")


def _before(function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Charges what the result of a call may be made of."""
    name = getattr(function, "__name__", "")
    own = _subject(function)
    subject = [own] if isinstance(own, str) else []
    if subject or name in _WIDE:
        for x in (*arguments, *named.values()):
            _check_width(x)
    for x in (*subject, *arguments, *named.values()):
        measure(x)
    texts = [x for x in (*subject, *arguments, *named.values()) if isinstance(x, str)]
    if "replace" in name and len(texts) >= 3:
        charge(texts[0].count(texts[1]) * len(texts[2]))
    if "format" in name and texts and _WIDTH.search(texts[0]):
        raise BudgetExceeded("a format asks for very wide text")
    if "join" in name:
        parts = max([0, *(len(x) for x in arguments if hasattr(x, "__len__"))])
        charge(sum(map(len, texts)) * parts)
    if "indent" in name:
        charge(sum(map(len, texts)) * max([0, *(x.count("\n") + 1 for x in texts)]))


def _subject(function: Any) -> object:
    """What a method is of; the sandbox wraps those that format."""
    return getattr(getattr(function, "__wrapped__", function), "__self__", None)


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def inner(*arguments: Any, **named: Any) -> Any:
        if name in _PASSING:
            charge()
            return function(*arguments, **named)
        _before(function, arguments, named)
        return measure(function(*arguments, **named))

    return inner


class _Steps(NodeTransformer):
    """Loops charge each turn, and what `~` makes is charged."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("step", []), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", node.nodes)


def _call(name: str, arguments: list[nodes.Expr]) -> nodes.Expr:
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Works inside of `budget`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=measure, **options)

    def bound_filters(self) -> None:
        """Once it has all of them."""
        self.filters = {name: _bounded(name, f) for name, f in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Steps().visit(super()._parse(source, name, filename))
        tree.set_lineno(1, override=False)
        tree.set_environment(self)
        return tree

    def step(self) -> str:
        charge()
        return ""

    def joined(self, *parts: Any) -> str:
        return "".join(str(measure(part)) for part in parts)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        return "".join(measure(part) for part in parts)

    def call(self, __context: Any, __obj: Any, *arguments: Any, **named: Any) -> Any:
        name = getattr(__obj, "__name__", "")
        if isinstance(_subject(__obj), str) or name in _WIDE:
            _before(__obj, arguments, named)
        charge()
        return super().call(__context, __obj, *arguments, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [x if isinstance(x, int) else len(x) for x in (left, right)
                 if isinstance(x, int | str | list | tuple)]
        numbers = isinstance(left, int) and isinstance(right, int)
        match operator:
            case "**" if numbers:
                _check_width(left.bit_length() * right)
            case "*" if numbers:
                _check_width(left.bit_length() + right.bit_length())
            case "*" if len(sizes) == 2:
                charge(max(sizes[0] * sizes[1], 0))
            case "+" if len(sizes) == 2 and not numbers:
                charge(sum(sizes))
            case "%" if isinstance(left, str):
                if _WIDTH.search(left):
                    raise BudgetExceeded("a format asks for very wide text")
                measure(right)
        charge()
        return super().call_binop(context, operator, left, right)
