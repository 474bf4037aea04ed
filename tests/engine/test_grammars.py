"""Grammars of answers: which texts they let pass, and what is refused before it costs anything."""

from __future__ import annotations

import json
import time

import pytest

from eventtensor import SamplingParams
from eventtensor.errors import BadGrammar
from eventtensor.llm.engine.grammar import Grammar
from tests.engine.grammar_texts import CALL, EOS, TAG, allowed, passes
from tests.engine.tiny_chat import END

LARK = """
start: greeting (", " NAME)* END
greeting: "hello" | "good " ("morning" | "night")
NAME: /[A-Z][a-z]{1,5}/
END: "!"
"""
GBNF = """root ::= sum # of numbers
sum ::= num | num "+" sum
num ::= [0-9]+
"""
MANY = json.dumps({"grammars": [{"lark_grammar": 'start: "<" @value ">"'},
                                {"name": "value", "json_schema": {"enum": [1, "a"]}}]})


@pytest.mark.parametrize(("params", "fine", "wrong"), [
    ({"grammar": LARK}, ["hello!", "good night, Ada, Grace!"], ["hello", "good!", "hello, ada!"]),
    ({"grammar": GBNF}, ["1", "12+3+456"], ["", "+", "1+"]),
    ({"grammar": MANY}, ["<1>", '<"a">'], ["<2>", "1"]),
    ({"grammar": 'start: %json {"type": "integer"} " of"'}, ["7 of"], ["a of"]),
    ({"choice": ["a", "ab", "no / \\d \"yes\" ü\n"]}, ["a", "ab", 'no / \\d "yes" ü\n'],
     ["", "b", "aa", "no"]),
    ({"choice": ["one"]}, ["one"], ["one!", "on"]),
])
def test_an_answer_is_a_text_of_the_grammar(grammars, tokenizer, params, fine, wrong):
    assert [t for t in fine if not passes(grammars, tokenizer, t, **params)] == []
    assert [t for t in wrong if passes(grammars, tokenizer, t, **params)] == []


@pytest.mark.parametrize("token", [CALL, TAG])
def test_tokens_of_their_own_stand_in_rules_by_name_or_number(grammars, tokenizer, token):
    """Free text has none of them, and the answer may end behind them."""
    number = tokenizer.encode(token)[0]
    for written in (token, f"<[{number}]>"):
        rules = f'start: TEXT | TEXT call\nTEXT: /(.|\\n)*/\ncall: {written} "f" | {written} "g"'
        grammar = grammars.compile(SamplingParams(grammar=rules))
        assert number in allowed(grammar) and EOS in allowed(grammar)
        grammar.accept(tokenizer.encode("x")[0])
        grammar.accept(number)
        assert allowed(grammar) == {tokenizer.encode(c)[0] for c in "fg"}
        grammar.accept(tokenizer.encode("g")[0])
        assert grammar.is_over or allowed(grammar) == {EOS}
        other = grammars.compile(SamplingParams(grammar="start: /(.|\\n)*/"))
        assert number not in allowed(other)


def test_a_rule_may_name_the_end_itself(grammars, tokenizer):
    grammar = grammars.compile(SamplingParams(grammar=f'start: "a" {END}'))
    grammar.accept(tokenizer.encode("a")[0])
    assert allowed(grammar) == {EOS}


WRONG = {
    "no rule": "start: other",
    "no way": "start: a\na: b\nb: a",
    "no token": "start: <nope>",
    "no such number": "start: <[99999]>",
    "not Lark": "hello",
    "not GBNF": "root ::= (",
    "no root": "rule ::= \"a\"",
    "no JSON": '{"grammars": [',
    "other JSON": '{"type": "object"}',
    "no schema": "start: %json {",
    "deep schema": "start: %json " + "[" * 50_000,
    "deep Lark": "start: " + "(" * 60_000 + '"a"' + ")" * 60_000,
    "deep GBNF": "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000,
    "long GBNF": "".join(f"a{k} ::= a{k + 1}\n" for k in range(5000)),
    "a file": "%import ...etc.passwd\nstart: \"a\"",
    "a multiple": 'start: %json {"type": "integer", "multipleOf": 9999991}',
    "a multiple in letters": r'start: %json {"type": "integer", "multiple\u004ff": 9999991}',
    "multiples": "start: " + " | ".join(
        f'%json {{"type":"integer","multipleOf":{n}}}' for n in range(9001, 9031)),
    "a multiple within": json.dumps({"grammars": [
        {"json_schema": {"type": "integer", "multipleOf": 9999991}}]}),
    "a multiple within rules": json.dumps({"grammars": [
        {"lark_grammar": 'start: %json {"type": "integer", "multipleOf": 9999991}'}]}),
    "many grammars": json.dumps({"grammars": [
        {"name": f"a{k}", "lark_grammar": f'start: @a{(k + 1) % 1500} | "x"'}
        for k in range(1500)]}),
    "many schemas": "start: " + " | ".join(["%json {}"] * 300),
    "many rules": "start: " + " | ".join(f"a{k}" for k in range(5000)) + "\n" + "".join(
        f'a{k}: "x" a{k * 7 % 5000} | "y"\n' for k in range(5000)),
    "a large text": 'start: %regex {"substring_chars": "' + "ab" * 60_000 + '"}',
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_used_is_refused_in_words(grammars, name):
    began = time.thread_time()
    with pytest.raises(BadGrammar) as caught:
        grammars.compile(SamplingParams(grammar=WRONG[name]))
    assert len(caught.value.message) < 400
    assert time.thread_time() - began < 20  # without the limits some take minutes


@pytest.mark.parametrize("params", [
    {"regex": "(("}, {"json_schema": {"type": "string", "pattern": "(("}}])
def test_a_wrong_regular_expression_has_its_reason(grammars, params):
    with pytest.raises(BadGrammar, match="regex parse error: unclosed group"):
        grammars.compile(SamplingParams(**params))


HOSTILE = {
    "repetitions": "start: a\n" + "".join(
        f"{chr(97 + k)}: {chr(98 + k)}{{0,1000}}\n" for k in range(10)) + 'k: "x"',
    "repeated terms": "start: A\n" + "".join(
        f"{chr(65 + k)}: {chr(66 + k)}{{0,1000}}\n" for k in range(5)) + 'F: "x"',
    "a long rule": 'start: a{1000000000}\na: "x"',
    "left recursion": 'start: start start | "x" | ""',
    "any tokens": "start: start start | <[*]>",
    "stars": "start: " + "(<tool_call>|<[*]>)* " * 1000,
    "a long text": 'start: "' + "x" * 100_000 + '"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_answer_holds_the_engine(grammars, tokenizer, name):
    """It is over, or has its tokens for little time."""
    letter, began, count = tokenizer.encode("x")[0], time.thread_time(), 0
    try:
        grammar = grammars.compile(SamplingParams(grammar=HOSTILE[name]))
        while count < 1000 and not grammar.is_over and letter in allowed(grammar):
            grammar.accept(letter)
            count += 1
    except BadGrammar:
        count += 1
    assert count and time.thread_time() - began < 20


class Slow:
    """A parser that works for long."""

    def is_error(self):
        return False

    def get_error(self):
        return ""

    def compute_bitmask(self):
        began = time.thread_time()
        while time.thread_time() - began < 0.05:
            pass
        return bytes([255] * 4)

    def consume_token(self, token):
        return True


def test_a_grammar_that_is_slow_with_every_token_is_given_up():
    grammar, count = Grammar(Slow(), 32), 0
    with pytest.raises(BadGrammar, match="takes too long"):
        while count < 100:
            grammar.allowed()
            grammar.accept(3)
            count += 1
    assert 5 <= count <= 12
