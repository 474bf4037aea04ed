"""Arguments of public functions that are gone: accepted for one release, ignored, with a warning.

Arguments of language models that have a new name are in llm/engine/argument_aliases.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def ignore_arguments(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`names`: keyword arguments that the function had."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in [n for n in names if n in kwargs]:
                warnings.warn(f"{name} has no effect any more", DeprecationWarning, stacklevel=2)
                del kwargs[name]
            return function(*args, **kwargs)

        return cast(Callable[P, R], wrapper)

    return decorate
