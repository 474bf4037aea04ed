"""A Jinja sandbox with bounded time and memory, because templates come from untrusted files. Each
step of a template, and each character that it makes, is charged to a budget. chat_template.py
renders.
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

MAX_CHARACTERS = 1 << 28
_STEP_CHARACTERS = 1024  # the charge of a step
_MAX_WIDTH = 100_000  # of a width or count argument
_WIDTH_FUNCTIONS = {  # with such an argument
    "do_center", "do_indent", "do_wordwrap", "do_truncate", "do_batch", "do_slice", "_tojson",
    "generate_lorem_ipsum",
}
# Filters that make no text. A template may call them often, as for the number of messages.
_FREE_FILTERS = {
    "attr", "count", "d", "default", "dictsort", "first", "groupby", "items", "last", "length",
    "list", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "select",
    "selectattr", "sort", "unique",
}
_FORMAT_WIDTH = re.compile(r"\d{6}|\*")
_SPENT: ContextVar[list[int] | None] = ContextVar("spent", default=None)


class BudgetExceeded(Exception):
    """A template that does not end or makes too much text."""


@contextmanager
def budget() -> Iterator[None]:
    """The context of one template, with a fresh budget."""
    token = _SPENT.set([0])
    try:
        yield
    finally:
        _SPENT.reset(token)


def charge(characters: int = 0) -> None:
    spent = _SPENT.get()
    if spent is None:
        return
    spent[0] += characters + _STEP_CHARACTERS
    if spent[0] > MAX_CHARACTERS:
        raise BudgetExceeded("it does not come to an end, or makes too long a text")


def measure(value: Any) -> Any:
    """Charges the text of a value and returns the value."""
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
    if isinstance(value, int) and abs(value) > _MAX_WIDTH:
        raise BudgetExceeded("it asks for very wide text, or very large numbers")


def _charge_call(function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Charges a bound of the result of a call before it."""
    name = getattr(function, "__name__", "")
    own = _subject(function)
    subject = [own] if isinstance(own, str) else []
    if subject or name in _WIDTH_FUNCTIONS:
        for x in (*arguments, *named.values()):
            _check_width(x)
    for x in (*subject, *arguments, *named.values()):
        measure(x)
    texts = [x for x in (*subject, *arguments, *named.values()) if isinstance(x, str)]
    if "replace" in name and len(texts) >= 3:
        charge(texts[0].count(texts[1]) * len(texts[2]))
    if "format" in name and texts and _FORMAT_WIDTH.search(texts[0]):
        raise BudgetExceeded("a format asks for very wide text")
    if "join" in name:
        parts = max([0, *(len(x) for x in arguments if hasattr(x, "__len__"))])
        charge(sum(map(len, texts)) * parts)
    if "indent" in name:
        charge(sum(map(len, texts)) * max([0, *(x.count("\n") + 1 for x in texts)]))


def _subject(function: Any) -> object:
    """The object of a method; the sandbox wraps methods that format."""
    return getattr(getattr(function, "__wrapped__", function), "__self__", None)


def _charged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def inner(*arguments: Any, **named: Any) -> Any:
        if name in _FREE_FILTERS:
            charge()
            return function(*arguments, **named)
        _charge_call(function, arguments, named)
        return measure(function(*arguments, **named))

    return inner


class _ChargeSteps(NodeTransformer):
    """Charges each turn of loops, and the results of `~`."""

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
    """The environment of a template; it needs `budget`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=measure, **options)

    def charge_filters(self) -> None:
        """Charges all filters; call it after the last one is added."""
        self.filters = {name: _charged(name, f) for name, f in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _ChargeSteps().visit(super()._parse(source, name, filename))
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
        if isinstance(_subject(__obj), str) or name in _WIDTH_FUNCTIONS:
            _charge_call(__obj, arguments, named)
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
                if _FORMAT_WIDTH.search(left):
                    raise BudgetExceeded("a format asks for very wide text")
                measure(right)
        charge()
        return super().call_binop(context, operator, left, right)
