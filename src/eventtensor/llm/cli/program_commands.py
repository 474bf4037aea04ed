"""`eventtensor check` and `explain`: load a program by module:function or file.py:function, and
print the report."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

import eventtensor as et

from ...errors import BadOption, BrokenProgramFile, EventTensorError
from ...ir.program import Program
from ...source_location import error_place
from ..runner.target_name import find_target

_NAME = "__program__"  # module name of a loaded file, in sys.modules for dataclasses


def check_program(name: str) -> bool:
    """Prints the report. True if the program is proved, possibly with obligations."""
    report = et.check(find_program(name))
    typer.echo(str(report))
    return report.ok


def explain_program(name: str, target: str, device: str | None, stage: str) -> None:
    """Source goes out as it is compiled, without another line end."""
    where = find_target(target, device)
    machine = 0 if device is None else device
    text = et.explain(find_program(name), target=where, device=machine, stage=stage)
    typer.echo(text, nl=not text.endswith("\n"))


def find_program(name: str) -> Any:
    home, _, function = name.rpartition(":")
    if not home:
        raise BadOption(f"{name!r} names no function", hint="as in examples/mlp.py:mlp")
    found = getattr(_module(home), function, None)
    if not callable(found):
        raise BadOption(f"{home} has no function {function!r}", hint="as in examples/mlp.py:mlp")
    with _user_file_errors(home):
        program = found()
    if not isinstance(program, et.Program | Program):
        raise BadOption(f"{home}:{function} gives a {type(program).__name__}, and not a program",
                        hint="as in examples/mlp.py:mlp")
    return program


@contextmanager
def _user_file_errors(home: str) -> Iterator[None]:
    """Turns exceptions of a user's file into one error. Errors of its program pass unchanged."""
    try:
        yield
    except (EventTensorError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as e:  # SystemExit must not end the check with success
        text = f"{home} raises {type(e).__name__}: {str(e)[:200]}"
        raise BrokenProgramFile(text, place=error_place(e)) from e


def _module(home: str) -> Any:
    if not home.endswith(".py"):
        if not all(part.isidentifier() for part in home.split(".")):
            raise BadOption(f"there is no module {home!r}", hint="a module, or file.py")
        sys.path.insert(0, "")  # as `python -m` does
        with _user_file_errors(home):
            try:
                return importlib.import_module(home)
            except ModuleNotFoundError as e:
                raise BadOption(f"there is no module {e.name}", hint="a module, or file.py") from e
    path = Path(home)
    found = importlib.util.spec_from_file_location(_NAME, path) if path.is_file() else None
    if found is None or found.loader is None:
        raise BadOption(f"there is no file {home}", hint="a module, or file.py")
    sys.path.insert(0, str(path.parent))  # as `python file.py` does
    module = sys.modules[_NAME] = importlib.util.module_from_spec(found)
    with _user_file_errors(home):
        found.loader.exec_module(module)
    return module
