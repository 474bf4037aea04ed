"""Parameters of requests: what makes no sense is an error that names it."""

from __future__ import annotations

import pytest

from eventtensor import SamplingParams
from eventtensor.errors import BadParameter
from eventtensor.llm.engine.sampling_params import _RULES

NAN = float("nan")
WRONG = [
    ("max_tokens", (0, -1, 1.5, "3", True, 1 << 31)),
    ("min_tokens", (-1, 1.5, None, True, 1 << 31)),
    ("temperature", (-0.1, NAN, float("inf"), "hot", None, 101)),
    ("top_k", (-2, -1.0, 2.0, 1 << 31)),
    ("top_p", (0, -1, 1.01, NAN)),
    ("min_p", (-0.1, 1.1, NAN)),
    ("seed", (-2, -1.0, 1 << 64, 1.0)),
    ("stop", (5, [""], ["a", 3], ["x"] * 17, None)),
    ("stop_token_ids", (7, [-1], ["a"], [True])),
    ("ignore_eos", (1, "yes", None)),
    ("skip_special_tokens", (1, "yes", None)),
    ("logprobs", (-1, 21, 1.0)),
    ("prompt_logprobs", (-1, 21, 1.0, True)),
    ("repetition_penalty", (0, -1, 11, NAN)),
    ("presence_penalty", (-2.1, 2.1, NAN)),
    ("frequency_penalty", (-2.1, 2.1, NAN)),
    ("logit_bias", (5, [3], {"7": 1}, {-1: 1}, {3: 101}, {3: NAN}, {3: None}, {True: 1},
                    dict.fromkeys(range(1025), 1))),
    ("json_schema", (5, "{", "[]", {"a": {1, 2}}, "[" * 100000)),
    ("regex", (5, "")),
    ("choice", (5, "ab", [], [""], [3], ["x" * 1025], ["x"] * 1025, ["x" * 1000] * 132)),
    ("grammar", (5, "", "x" * ((1 << 18) + 1))),
]


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WRONG for v in vs])
def test_a_value_out_of_range_is_an_error_that_names_it(name, value):
    with pytest.raises(BadParameter, match=name) as caught:
        SamplingParams(**{name: value})
    assert "must be" in caught.value.hint


@pytest.mark.parametrize(("name", "value"), [
    ("grammar", "ab" * (1 << 18)), ("choice", ["ab"] * 5000), ("stop", "ab" * 5000),
    ("logit_bias", dict.fromkeys(range(5000), 1))])
def test_an_error_shows_the_begin_of_a_long_value(name, value):
    with pytest.raises(BadParameter, match=f"{name} is .*(ab|0: 1)") as caught:
        SamplingParams(**{name: value})
    assert len(caught.value.message) < 300 and caught.value.message.endswith(" ..")


def test_every_parameter_has_a_rule_and_is_tested_and_documented():
    names = set(SamplingParams.__dataclass_fields__)
    assert names == set(_RULES) == {n for n, _ in WRONG}
    doc = SamplingParams.__doc__
    assert {n for n in names if n not in doc} == set()


def test_ends_of_ranges_are_allowed():
    SamplingParams(max_tokens=1, min_tokens=1, temperature=0, top_k=0, top_p=1e-9, min_p=1,
                   seed=(1 << 64) - 1, stop="x", stop_token_ids=[0], logprobs=20,
                   repetition_penalty=10, presence_penalty=-2, frequency_penalty=2, ignore_eos=True)


@pytest.mark.parametrize("two", [
    {"regex": "a", "json_schema": {}}, {"regex": "a", "ignore_eos": True},
    {"json_schema": "{}", "ignore_eos": True}, {"choice": ["a"], "grammar": 'start: "a"'},
    {"choice": ["a"], "ignore_eos": True}, {"grammar": "start:", "regex": "a"},
])
def test_a_grammar_stands_alone(two):
    with pytest.raises(BadParameter, match="are both given"):
        SamplingParams(**two)


def test_minus_one_is_the_other_name_of_all_tokens_and_of_no_seed():
    assert SamplingParams(top_k=-1, seed=-1) == SamplingParams(top_k=0, seed=None)


def test_biases_do_not_change_and_none_are_none():
    given = {3: 1, 5: -100.0}
    p = SamplingParams(logit_bias=given)
    given[9] = 5
    assert p == SamplingParams(logit_bias={3: 1, 5: -100.0}) != SamplingParams()
    assert hash(p) is not None and SamplingParams(logit_bias={}) == SamplingParams()
    SamplingParams(logit_bias=dict.fromkeys(range(1024), 100))


def test_an_unknown_parameter_is_refused():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)


def test_one_stop_may_stand_alone_and_params_do_not_change():
    p = SamplingParams(stop="ab", stop_token_ids=[3], json_schema={"type": "null"})
    assert (p.stops, p.stop_token_ids) == (("ab",), (3,))
    assert hash(p) == hash(SamplingParams(stop=["ab"], stop_token_ids=(3,),
                                          json_schema='{"type": "null"}'))


@pytest.mark.parametrize(("params", "penalises"), [
    ({}, False), ({"min_p": 0.1}, False), ({"choice": ["a"]}, False), ({"logprobs": 0}, False),
    ({"repetition_penalty": 1.1}, True), ({"presence_penalty": -1}, True),
    ({"frequency_penalty": 1}, True),
])
def test_only_penalties_look_at_the_tokens_before(params, penalises):
    assert SamplingParams(**params).penalises is penalises
