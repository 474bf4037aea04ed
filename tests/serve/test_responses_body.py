"""Bodies of the responses API: the conversion of items, tools and fields."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from eventtensor.errors import BadParameter
from eventtensor.llm.serve.responses.item_messages import build_messages
from eventtensor.llm.serve.responses.responses_body import ResponsesBody

TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}, "strict": None}
         for name in ("f", "g")]


def asked(input="hi", **more):
    body = ResponsesBody.model_validate({"model": "m", "input": input, **more})
    return body.to_chat_request(body.items())


def user(text):
    return {"role": "user", "content": text}


def test_a_text_is_a_message_of_the_user():
    assert asked().messages == [user("hi")]
    assert asked(instructions="be short").messages == [
        {"role": "system", "content": "be short"}, user("hi")]


def test_messages_have_texts_or_parts_and_need_no_type():
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
              "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []},
                          {"type": "refusal", "refusal": "d"}]}
    assert asked([{"role": "user", "content": parts}, answer, user("e")]).messages == [
        user("ab"), {"role": "assistant", "content": "cd"}, user("e")]


def test_system_messages_that_lead_become_one():
    found = asked([{"role": "developer", "content": "b"}, {"role": "system", "content": "c"},
                   user("d"), {"role": "system", "content": "e"}], instructions="a").messages
    assert found == [{"role": "system", "content": "a\n\nb\n\nc"}, user("d"),
                     {"role": "system", "content": "e"}]


def call(number, **more):
    return {"type": "function_call", "call_id": f"call_{number}", "name": "f",
            "arguments": '{"a": 1}', **more}


def test_reasoning_text_and_calls_of_an_answer_are_one_message_again():
    found = asked([
        user("q"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x",
         "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": "wait"}, call(1), call(2, status="completed", id="fc_1"),
        {"type": "function_call_output", "call_id": "call_1", "output": "one"},
        {"type": "function_call_output", "call_id": "call_2",
         "output": [{"type": "input_text", "text": "two"}]},
    ]).messages
    calls = [{"id": f"call_{k}", "type": "function",
              "function": {"name": "f", "arguments": {"a": 1}}} for k in (1, 2)]
    assert found == [
        user("q"),
        {"role": "assistant", "content": "wait", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"}]


def test_calls_without_a_text_are_a_message():
    found = asked([user("q"), call(1), user("r")]).messages
    assert found[1]["content"] is None
    assert found[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}


def test_cut_arguments_of_a_stored_answer_stay_text():
    message = build_messages([call(1, arguments='{"a')])[0]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a'


@pytest.mark.parametrize(("choice", "kind", "name", "tools"), [
    (None, "auto", None, ["f", "g"]), ("auto", "auto", None, ["f", "g"]),
    ("none", "none", None, ["f", "g"]), ({"type": "required"}, "required", None, ["f", "g"]),
    ("required", "required", None, ["f", "g"]),
    ({"type": "function", "name": "g"}, "named", "g", ["f", "g"]),
    ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
     "required", None, ["g"]),
])
def test_a_tool_choice_says_which_tools_may_be_called(choice, kind, name, tools):
    found = asked(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    assert (found.tool_choice.kind, found.tool_choice.name) == (kind, name)
    assert [t.name for t in found.tools] == tools and not found.tool_choice.parallel


def test_without_tools_nothing_is_chosen():
    for choice in (None, "auto", "none", "required"):
        assert asked(tool_choice=choice).tool_choice.kind == "none"
    with pytest.raises(BadParameter, match="not in tools"):
        asked(tool_choice={"type": "function", "name": "f"})


def test_params_and_options_come_from_their_fields():
    schema = {"type": "object", "properties": {}}
    found = asked(max_output_tokens=5, temperature=0, top_p=0.5, seed=-1, top_logprobs=2,
                  text={"format": {"type": "json_schema", "name": "n", "schema": schema},
                        "verbosity": "low"}, reasoning={"effort": "low", "summary": "auto"})
    (params,) = found.params
    assert (params.max_tokens, params.temperature, params.top_p) == (5, 0, 0.5)
    assert (params.seed, params.logprobs) == (None, 2) and params.has_grammar
    assert found.template_options == {"reasoning_effort": "low", "verbosity": "low"}
    assert asked(include=["message.output_text.logprobs"]).params[0].logprobs == 0
    assert asked(text={"format": {"type": "json_object"}}).params[0].has_grammar
    assert not asked(text={"format": {"type": "text"}}).params[0].has_grammar


@pytest.mark.parametrize(("wrong", "why"), [
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
     "images, files and audio are refused"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
     "images, files and audio are refused"),
    ({"input": [{"type": "computer_call", "id": "x"}]}, "items have type"),
    ({"input": []}, "at least 1"), ({"input": None}, "valid list"),
    ({"tools": [{"type": "web_search"}]}, "runs no tools of its own"),
    ({"tool_choice": {"type": "file_search"}}, "runs no tools of its own"),
    ({"background": True}, "only False"), ({"truncation": "auto"}, "only 'disabled'"),
    ({"conversation": "conv_1"}, "previous_response_id"),
    ({"messages": []}, "its name is input"), ({"max_tokens": 3}, "max_output_tokens"),
    ({"metadata": {str(k): "" for k in range(17)}}, "at most 16"),
    ({"metadata": {"a": "x" * 513}}, "at most 512"),
    ({"prompt": {"id": "x"}}, "no stored prompts"), ({"nonsense": 1}, "no such field"),
])
def test_what_cannot_be_done_is_refused_with_the_reason(wrong, why):
    with pytest.raises(ValidationError, match=why):
        ResponsesBody.model_validate({"model": "m", "input": "hi", **wrong})


def test_fields_that_change_no_answer_are_accepted():
    asked(user="u", service_tier="auto", prompt_cache_key="k", background=False, truncation=None,
          include=["reasoning.encrypted_content"], stream_options={"include_obfuscation": False},
          store=False, metadata={}, safety_identifier="s", max_tool_calls=None)


def test_a_template_is_given_no_messages_by_its_options():
    with pytest.raises(BadParameter, match="chat_template_kwargs has 'messages'"):
        asked(chat_template_kwargs={"messages": []})
    assert asked(chat_template_kwargs={"a": 1}).template_options == {"a": 1}
