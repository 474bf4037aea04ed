"""The list of tool-call syntaxes, and the choice of one for a model."""

from __future__ import annotations

from collections.abc import Collection

from ....errors import BadOption
from .call_syntax import CallSyntax
from .hermes import Hermes
from .llama3_json import Llama3Json
from .prompted_tools import PromptedTools

# The first syntax that fits the template is chosen. The last one fits every template.
SYNTAXES: tuple[type[CallSyntax], ...] = (Hermes, Llama3Json, PromptedTools)


def find_syntax(
    name: str, template: str, control_tokens: Collection[str] = ()
) -> CallSyntax:
    """The syntax of this name; `auto`: the first that fits the template."""
    if name == "auto":
        return next(s for s in SYNTAXES if s.fits(template))(template, control_tokens)
    found = {s.name: s for s in SYNTAXES}.get(name)
    if found is None:
        names = ", ".join(["auto", *(s.name for s in SYNTAXES)])
        raise BadOption(f"--tool-parser is {name[:80]!r}", hint=f"one of {names}")
    return found(template, control_tokens)
