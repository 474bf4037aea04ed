"""Bodies of the messages API: the conversion of blocks, tools and fields."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from eventtensor.errors import BadParameter
from eventtensor.llm.serve.messages import message_blocks
from eventtensor.llm.serve.messages.messages_body import CountBody, MessagesBody

TOOLS = [{"name": "f", "description": "d", "input_schema": {"type": "object"}},
         {"type": "custom", "name": "g", "input_schema": {"type": "object"}, "strict": True}]
USER = {"role": "user", "content": "hi"}


def asked(messages=(USER,), **more):
    return MessagesBody.model_validate(
        {"model": "m", "max_tokens": 5, "messages": list(messages), **more}).to_chat_request()


def text(value, **more):
    return {"type": "text", "text": value, **more}


def test_a_system_prompt_is_text_or_blocks():
    system = [text("a", cache_control={"type": "ephemeral"}), text("b")]
    assert asked(system="be short").messages == [{"role": "system", "content": "be short"}, USER]
    assert asked(system=system).messages[0] == {"role": "system", "content": "a\nb"}
    assert asked(system="").messages == asked(system=[]).messages == [USER]


def test_turns_of_one_role_are_one_turn():
    found = asked([USER, {"role": "user", "content": [text("a"), text("b")]},
                   {"role": "assistant", "content": [text("c")]},
                   {"role": "assistant", "content": "d"}, USER]).messages
    assert found == [{"role": "user", "content": "hi\na\nb"},
                     {"role": "assistant", "content": "c\nd"}, USER]


def test_many_turns_of_one_role_are_joined_once(monkeypatch):
    """Each text is copied twice, and not once for each turn after it."""
    copied, plain = [], message_blocks._message

    def counted(role, texts, calls, reasoning):
        copied.extend(map(len, texts))
        return plain(role, texts, calls, reasoning)

    monkeypatch.setattr(message_blocks, "_message", counted)
    (found,) = asked([{"role": "user", "content": "x" * 100}] * 1000).messages
    assert len(found["content"]) == 1000 * 101 - 1 and sum(copied) == 2 * 1000 * 100


def test_uses_of_tools_and_their_results_are_messages_of_their_own():
    use = [{"type": "tool_use", "id": f"t{k}", "name": "f", "input": {"a": k}} for k in (1, 2)]
    found = asked([
        USER,
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"}, text("wait"), *use]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "t2", "is_error": True,
             "content": [text("two"), text("three")]},
            text("and?")]},
    ]).messages
    calls = [{"id": f"t{k}", "type": "function",
              "function": {"name": "f", "arguments": {"a": k}}} for k in (1, 2)]
    assert found == [
        USER,
        {"role": "assistant", "content": "wait", "tool_calls": calls, "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: two\nthree"},
        {"role": "user", "content": "and?"}]
    alone = asked([USER, {"role": "assistant", "content": use[:1]}, USER]).messages[1]
    assert alone == {"role": "assistant", "content": None, "tool_calls": calls[:1]}


@pytest.mark.parametrize(("choice", "kind", "name"), [
    (None, "auto", None), ({"type": "auto"}, "auto", None), ({"type": "any"}, "required", None),
    ({"type": "none"}, "none", None), ({"type": "tool", "name": "g"}, "named", "g"),
])
def test_a_tool_choice_has_other_names(choice, kind, name):
    found = asked(tools=TOOLS, tool_choice=choice)
    assert (found.tool_choice.kind, found.tool_choice.name) == (kind, name)
    assert [(t.name, t.strict) for t in found.tools] == [("f", False), ("g", True)]
    assert found.tool_choice.parallel
    if choice and kind != "none":
        one = asked(tools=TOOLS, tool_choice=choice | {"disable_parallel_tool_use": True})
        assert not one.tool_choice.parallel


def test_without_tools_nothing_is_chosen():
    for choice in (None, {"type": "auto"}, {"type": "any"}, {"type": "none"}):
        assert asked(tool_choice=choice).tool_choice.kind == "none"
    with pytest.raises(BadParameter, match="not in tools"):
        asked(tool_choice={"type": "tool", "name": "f"})


def test_params_and_options_come_from_their_fields():
    schema = {"type": "object", "properties": {}}
    found = asked(max_tokens=7, temperature=0.5, top_p=0.9, top_k=3, stop_sequences=["a", "b"],
                  thinking={"type": "enabled", "budget_tokens": 2000},
                  output_config={"effort": "low", "format": {"type": "json_schema",
                                                             "schema": schema}})
    (params,) = found.params
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (7, 0.5, 0.9, 3)
    assert params.stops == ("a", "b") and params.has_grammar
    assert found.template_options == {"enable_thinking": True, "reasoning_effort": "low"}
    assert asked(thinking={"type": "disabled"}).template_options == {"enable_thinking": False}


@pytest.mark.parametrize(("wrong", "why"), [
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
     "the model reads text"),
    ({"messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}]}]},
     "the model reads text"),
    ({"messages": []}, "at least 1"), ({"messages": [{"role": "user"}]}, "required"),
    ({"max_tokens": None}, "valid integer"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "no tools of its own"),
    ({"mcp_servers": []}, "no tools of its own"), ({"nonsense": 1}, "no such field"),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "clear_thinking"),
])
def test_what_cannot_be_done_is_refused_with_the_reason(wrong, why):
    with pytest.raises(ValidationError, match=why):
        MessagesBody.model_validate({"model": "m", "max_tokens": 5, "messages": [USER], **wrong})


def test_the_client_cannot_start_the_answer():
    with pytest.raises(BadParameter, match="of the assistant"):
        asked([USER, {"role": "assistant", "content": "The answer is ("}])


def test_fields_that_change_no_answer_are_accepted():
    asked(metadata={"user_id": "u"}, service_tier="auto", cache_control={"type": "ephemeral"},
          context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
          thinking={"type": "adaptive", "display": "summarized"}, stop_sequences=None)
    CountBody.model_validate({"model": "m", "messages": [USER]}).to_chat_request()


def test_a_template_is_given_no_messages_by_its_options():
    with pytest.raises(BadParameter, match="chat_template_kwargs has 'messages'"):
        asked(chat_template_kwargs={"messages": []})
    assert asked(chat_template_kwargs={"a": 1}).template_options == {"a": 1}
