"""Untrusted chat templates end in bounded memory, and everything that they raise is one error."""

from __future__ import annotations

import pytest

from eventtensor.errors import BadChat
from eventtensor.llm.text.chat_template import render

USER = {"role": "user", "content": "hi"}
GROW = "{% set n = namespace(x=SEED) %}{% for i in range(64) %}{% set n.x = STEP %}{% endfor %}"
LOOPS = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}"

ENDLESS = {
    "loops": LOOPS,
    "calls": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
             "{{ f(64) }}",
    "tilde": GROW.replace("SEED", "'ab'").replace("STEP", "n.x ~ n.x"),
    "plus": GROW.replace("SEED", "'ab'").replace("STEP", "n.x + n.x"),
    "times": GROW.replace("SEED", "'ab'").replace("STEP", "n.x * 9"),
    "nested": GROW.replace("SEED", "[1]").replace("STEP", "[n.x, n.x]") + "{{ n.x }}",
    "nested_json": GROW.replace("SEED", "[1]").replace("STEP", "[n.x, n.x]") + "{{ n.x|tojson }}",
    "nested_text": GROW.replace("SEED", "[1]").replace("STEP", "[n.x, n.x]") + "{{ '%s' % n.x }}",
    "replace": GROW.replace("SEED", "'ab'").replace("STEP", "n.x.replace('', n.x)"),
    "replace_filter": GROW.replace("SEED", "'ab'").replace("STEP", "n.x|replace('b', n.x ~ 'b')"),
    "join": GROW.replace("SEED", "'abc'").replace("STEP", "n.x.join(n.x)"),
    "output": "{% for a in range(90000) %}{{ 'x' * 9000 }}{% endfor %}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "center": "{{ 'x'|center(10 ** 10) }}",
    "ljust": "{{ 'x'.ljust(10000000000) }}",
    "format": "{{ '{:>10000000000}'.format(1) }}",
    "percent": "{{ '%10000000000d' % 1 }}",
    "star": "{{ '%*d' % (1000000000, 1) }}",
    "indent": "{{ messages|tojson(indent=10000000000) }}",
    "words": "{{ lipsum(n=10000000) }}",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_template_that_would_not_end_is_refused(kind: str) -> None:
    with pytest.raises(BadChat) as caught:
        render(ENDLESS[kind], [USER], {}, {})
    assert "trusted" in caught.value.hint


@pytest.mark.parametrize("text", [
    "{{ 1 / 0 }}", "{{ 'a'.index('b') }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 10.0 ** 400 }}", "{{ '%c' % -5 }}", "{{ cycler() }}", "{{ 'a'.encode('nope') }}",
    "{{ 'x'|wordwrap(0) }}", "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "{% include 'x' %}",
    "{% for a in 'x' %}" * 30 + "{% endfor %}" * 30, "{{ range(200000) }}",
])
def test_whatever_a_template_raises_is_one_error(text: str) -> None:
    with pytest.raises(BadChat, match="the chat template fails"):
        render(text, [USER], {}, {})


@pytest.mark.parametrize(("text", "shown"), [
    ("{{ 'a' ~ 1 ~ none }}{{ 2 ** 10 }}{{ 'ab' * 2 }}{{ [1] + [2] }}", "a1None1024abab[1, 2]"),
    ("{% for k, v in {'x': 1700000000}.items() %}{{ k }}{{ v|string }}{{ loop.last }}{% endfor %}",
     "x1700000000True"),
    ("{% for i in range(9) if i % 2 %}{{ i }}{% if i == 5 %}{% break %}{% endif %}{% endfor %}",
     "135"),
    ("{% macro f(n) %}<{{ n }}>{% endmacro %}{{ f(1700000000) }}{% set x %}q{{ 3 }}{% endset %}"
     "{{ x|upper }}{{ 'a,b'.split(',')|join('-') }}{{ '%s-%d' % ('a', 3) }}", "<1700000000>Q3a-b"
     "a-3"),
    ("{% for m in messages recursive %}{{ m.role|capitalize }}{% endfor %}", "User"),
])
def test_what_templates_do_is_as_before(text: str, shown: str) -> None:
    assert render(text, [USER], {}, {}) == shown


def test_a_long_chat_goes_through_a_template_that_asks_for_all_of_it() -> None:
    text = ("{% for m in messages %}{% if loop.index0 == messages|length - 1 %}!{% endif %}"
            "{% if (messages|last).role == m.role and m.content is string %}"
            "{{ '<' ~ m.role ~ '>' + m['content']|trim + '\\n' }}{% endif %}{% endfor %}")
    chat = [{"role": "user", "content": "word " * 500}] * 2000
    assert len(render(text, chat, {}, {})) == 2000 * (len("<user>\n") + 2499) + 1
