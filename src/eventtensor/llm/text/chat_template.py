"""Renders a chat by the Jinja template of its model. Templates come from untrusted files, so they
run in the sandbox of template_sandbox.py, with the few functions that transformers provides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from ...errors import BadChat
from ..optional_packages import need

Message = Mapping[str, Any]


def render(
    template: str, messages: Sequence[Message], special: Mapping[str, str], options: dict[str, Any]
) -> str:
    """The text up to the begin of the answer. `special` has bos_token and the like, which options
    cannot change."""
    need("jinja2")
    from .template_sandbox import BudgetExceeded, budget

    values = {"add_generation_prompt": True, **options, **special, "messages": list(messages)}
    try:
        with budget():
            return str(_compile(template).render(values))
    except BudgetExceeded as e:
        raise BadChat(f"the chat template fails: {e}", hint="its file is not to be trusted") from e
    except Exception as e:  # code of a template may raise anything
        text = str(e) if isinstance(e, need("jinja2").TemplateError) else f"{type(e).__name__}: {e}"
        raise BadChat(f"the chat template fails: {text[:400]}") from e


@lru_cache(8)
def _compile(template: str) -> Any:
    jinja2 = need("jinja2")
    from .template_sandbox import TemplateSandbox

    env = TemplateSandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    env.filters["tojson"] = _tojson
    env.charge_filters()
    env.globals["strftime_now"] = _strftime_now

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    env.globals["raise_exception"] = raise_exception
    return env.from_string(template)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:
    """Replaces the filter of Jinja, which escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
