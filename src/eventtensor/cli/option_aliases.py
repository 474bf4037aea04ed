"""Old option names of the command line: they work for one release, with a note on stderr.

The group replaces them before its commands see them, so no help text shows them."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

OLD_OPTIONS = {
    "--context": "--max-model-len",
    "--cors-origin": "--allow-origin",
    "--max-running": "--max-num-seqs",
    "--name": "--served-model-name",
    "--prompt-rows": "--max-prefill-tokens",
    "--same-bits": "--batch-invariant",
}


class AliasGroup(TyperGroup):
    """A group whose commands also take the options by their old names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, replace_old_options(args))


def replace_old_options(args: list[str]) -> list[str]:
    """The words of a command line with new option names. What stands after `--` is no option."""
    end = args.index("--") if "--" in args else len(args)
    return [_replace(word) for word in args[:end]] + args[end:]


def _replace(word: str) -> str:
    name, equals, value = word.partition("=")
    new = OLD_OPTIONS.get(name)
    if new is None:
        return word
    typer.echo(f"eventtensor: {name} is called {new} now", err=True)
    return new + equals + value
