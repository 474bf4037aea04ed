"""Old option names of the command line: they work for one release, with a note on stderr.

The group replaces them before its commands see them, so no help text shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
        return super().parse_args(ctx, replace_old_options(args, set(_options_with_value(self))))


def replace_old_options(args: list[str], with_value: Collection[str] = ()) -> list[str]:
    """Replaces the option names of a command line. Words after `--`, and the word after an option
    of `with_value`, are no options."""
    found, is_value = list[str](), False
    for k, word in enumerate(args):
        if word == "--" and not is_value:
            return found + args[k:]
        found.append(word if is_value else _replace(word))
        is_value = not is_value and found[-1] in with_value
    return found


def _options_with_value(command: Any) -> Iterator[str]:
    """The options with a value of a command and of its subcommands."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.is_flag:
            yield from parameter.opts
    for subcommand in getattr(command, "commands", {}).values():
        yield from _options_with_value(subcommand)


def _replace(word: str) -> str:
    name, equals, value = word.partition("=")
    new = OLD_OPTIONS.get(name)
    if new is None:
        return word
    typer.echo(f"eventtensor: {name} is called {new} now", err=True)
    return new + equals + value
