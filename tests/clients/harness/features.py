"""What a script of a client is made of: features, each run as a user of the client would write it.

A script gets two addresses: of a server with SmolLM2, and of one whose model says what
`scripted_rules.py` says. It prints a line of JSON for each feature."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

SMOLLM2, SCRIPTED = sys.argv[1:3]  # such as http://127.0.0.1:8000, without /v1
MODEL = "smollm2"  # the name of the model on both servers
KEY = "none"  # the servers want no key, but some clients do

_features: list[tuple[str, Callable[[], Any]]] = []


def feature(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Adds a function, plain or async, that raises if the feature does not work."""

    def add(run: Callable[[], Any]) -> Callable[[], Any]:
        _features.append((name, run))
        return run

    return add


def main() -> None:
    for name, run in _features:
        line: dict[str, Any] = {"feature": name, "ok": True, "error": None}
        try:
            if inspect.iscoroutinefunction(run):
                asyncio.run(run())
            else:
                run()
        except BaseException as e:
            traceback.print_exc()
            line |= {"ok": False, "error": f"{type(e).__name__}: {e}"[:500]}
        print("\n" + json.dumps(line), flush=True)
