"""The console of all commands. It prints tables and lines, and never interprets user text."""

from __future__ import annotations

from rich.console import Console


def terminal(stderr: bool = False) -> Console:
    """Lines are not wrapped. Brackets and colons of a path are not markup."""
    return Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)
