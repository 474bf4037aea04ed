"""What commands show: tables and lines, in which words of a user stay as they are."""

from __future__ import annotations

from rich.console import Console


def terminal(stderr: bool = False) -> Console:
    """Lines are not broken, and brackets and colons of a path are no markup."""
    return Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)
