"""Old argument names of public functions: they work for one release, with a warning.

A call that uses an old name gets a DeprecationWarning, which names the new one. Options of the
command line are not here, but in llm/cli/option_aliases.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def accept_old_names(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`new_names`: the new name of an argument, by its old one. Both at once are a TypeError."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in new_names.keys() & kwargs.keys():
                new = new_names[old]
                if new in kwargs:
                    raise TypeError(f"{old} and {new} are both given: {old} is the old name")
                warnings.warn(f"{old} is called {new} now", DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return cast(Callable[P, R], wrapper)

    return decorate
