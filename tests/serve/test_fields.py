"""Every field of a request body is honoured, accepted without effect, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from eventtensor.errors import BadTool
from eventtensor.llm.serve.chat.chat_body import ChatBody
from eventtensor.llm.serve.completions.completion_body import CompletionBody
from eventtensor.llm.serve.messages.messages_body import MessagesBody
from eventtensor.llm.serve.responses.responses_body import ResponsesBody
from eventtensor.llm.serve.strict_body import NoEffect
from tools import fields_doc

ROOT = Path(__file__).parents[2]
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}


def test_the_page_of_fields_is_that_of_the_bodies():
    assert (ROOT / "docs" / "fields.md").read_text() == fields_doc.page(), "run make fields"


@pytest.mark.parametrize("body", [ChatBody, CompletionBody, ResponsesBody, MessagesBody])
def test_no_field_is_in_two_lists(body):
    lists = [body.model_fields.keys(), body.accepted.keys(), body.refused.keys()]
    assert sum(map(len, lists)) == len(set().union(*lists))


def test_every_accepted_value_is_taken_and_others_are_not():
    for name, neutral in ChatBody.accepted.items():
        for value in neutral.values or ("x",):
            ChatBody.model_validate(CHAT | {name: value})
        if neutral.values:
            with pytest.raises(ValidationError, match="only"):
                ChatBody.model_validate(CHAT | {name: "something else"})


def test_one_is_not_true_and_null_is_nothing():
    assert not NoEffect("", (1,)).accepts(True) and NoEffect("", (1,)).accepts(1)
    ChatBody.model_validate(CHAT | {"nothing": None, "logits_processors": None})
    for name in ("nothing", "logits_processors"):
        with pytest.raises(ValidationError):
            ChatBody.model_validate(CHAT | {name: 0})


def test_tools_become_a_choice():
    tool = {"type": "function", "function": {"name": "f"}}

    def choice(**more):
        found = ChatBody.model_validate(CHAT | more).to_chat_request()
        return found.tool_choice.kind, found.tool_choice.name, found.tool_choice.parallel

    assert choice() == choice(tools=[]) == choice(tool_choice="auto") == ("none", None, True)
    assert choice(tool_choice="required") == ("none", None, True)
    assert choice(tools=[tool], parallel_tool_calls=False) == ("auto", None, False)
    named = {"type": "function", "function": {"name": "f"}}
    assert choice(tools=[tool], tool_choice=named) == ("named", "f", True)
    assert choice(tools=[tool], tool_choice="none")[0] == "none"


def test_a_history_of_calls_is_as_templates_take_it():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    bare = {"id": "b", "type": "function", "function": {"name": "f", "arguments": ""}}
    messages = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call, bare], "refusal": None},
        {"role": "tool", "tool_call_id": "a", "content": "2"},
    ]
    system, assistant, result = ChatBody.model_validate(
        CHAT | {"messages": messages}).to_chat_request().messages
    assert system == {"role": "system", "content": "Be brief."}
    assert assistant["content"] is None and result["tool_call_id"] == "a"
    assert [c["function"]["arguments"] for c in assistant["tool_calls"]] == [{"x": 1}, {}]


CUT = ["{", '{"x": ', '{"x": 1}}', "x", " ", "[" * 100_000, '{"a": "\\u12"}']


@pytest.mark.parametrize("arguments", CUT, ids=lambda text: text[:10])
def test_calls_with_cut_arguments_are_refused_by_place(arguments):
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    with pytest.raises(ValidationError, match="cut or wrong") as found:
        ChatBody.model_validate(CHAT | {"messages": [*CHAT["messages"], answer]})
    place = ("messages", 1, "tool_calls", 0, "function", "arguments")
    assert found.value.errors()[0]["loc"] == place
    item = {"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments}
    with pytest.raises(ValidationError, match="cut or wrong"):
        ResponsesBody.model_validate({"model": "tiny", "input": [item]})


def test_what_clients_add_to_answers_is_taken_when_they_send_them_back():
    added = {"refusal": None, "annotations": [], "audio": None, "function_call": None,
             "provider_specific_fields": {"refusal": None}}
    call = {"id": "a", "type": "function", "index": 0, "provider_specific_fields": {"x": "y"},
            "function": {"name": "f", "arguments": "{}"}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]} | added
    found = ChatBody.model_validate(CHAT | {"messages": [*CHAT["messages"], answer]})
    assert set(found.messages[1].to_message()) == {"role", "content", "tool_calls"}


def test_the_description_of_a_body_has_its_fields_and_no_other():
    found = ChatBody.model_json_schema()
    assert found["additionalProperties"] is False
    assert found["properties"].keys() == ChatBody.model_fields.keys() | ChatBody.accepted.keys()
    assert found["properties"]["modalities"] == {"enum": [["text"], None]}


def test_two_tools_of_one_name_are_refused_by_name():
    def tools(*names):
        some = [{"type": "function", "function": {"name": name}} for name in names]
        return ChatBody.model_validate(CHAT | {"tools": some}).to_chat_request().tools

    assert [t.name for t in tools("f", "g")] == ["f", "g"]
    with pytest.raises(BadTool, match="two tools have the name 'g'"):
        tools("g", "f", "g")


@pytest.mark.parametrize("field", ["max_tokens", "seed", "top_k", "n"])
def test_a_whole_number_may_be_written_with_a_fraction_of_zero(field):
    def read(text):
        body = json.dumps(CHAT)[:-1] + f', "{field}": {text}}}'
        return getattr(ChatBody.model_validate_json(body), field)

    assert read("4.0") == read("4") == 4 and type(read("4.0")) is int
    for wrong in ("4.5", '"4"', "true", "1e999", "NaN"):
        with pytest.raises(ValidationError) as told:
            read(wrong)
        assert told.value.errors()[0]["loc"] == (field,)


def test_the_bounds_of_a_whole_number_hold_for_each_way_to_write_it():
    for wrong in (17, 17.0, 0.0):
        with pytest.raises(ValidationError, match="n\n"):
            ChatBody.model_validate(CHAT | {"n": wrong})
