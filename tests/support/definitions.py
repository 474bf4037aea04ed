"""The names that a source file defines, for what documents say of it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path


@cache
def defined_names(path: Path) -> frozenset[str]:
    """Functions, classes, variables, attributes and parameters of a Python file, not its imports.
    Of other files all words, because a definition in C++ has no one form."""
    text = path.read_text()
    if path.suffix != ".py":
        return frozenset(re.findall(r"\w+", text))
    names = set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.arg(arg=name):
                names.add(name)
    return frozenset(names)
