"""The response store bounds number and bytes, and no chain has a text twice."""

from __future__ import annotations

import json

import pytest

from eventtensor.errors import BadParameter
from eventtensor.llm.serve.error_responses import RefusedRequest
from eventtensor.llm.serve.responses import stored_chats
from eventtensor.llm.serve.responses.response_store import ResponseStore
from eventtensor.llm.serve.responses.responses_body import ResponsesBody
from eventtensor.llm.serve.responses.stored_chats import load_chat


def put(store, id, previous=None, text="hello", answer="yes"):
    body = ResponsesBody.model_validate(
        {"model": "m", "input": text, "previous_response_id": previous})
    chat = load_chat(body, store, True)
    message = {"id": f"msg_{id}", "type": "message", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": answer, "annotations": []}]}
    chat.store_callback(store)({"id": id, "previous_response_id": previous, "output": [message]})
    return chat


def texts(chat):
    return [item["content"][0]["text"] for item in chat.items]


def test_a_chain_is_one_chat_and_each_link_has_its_own_texts_only():
    store = ResponseStore(100)
    put(store, "a", text="one " * 1000)
    before = store.num_bytes
    for k, id in enumerate("bcdefgh"):
        put(store, id, previous="abcdefg"[k], text=id)
    assert store.num_bytes < 2 * before + 8 * 2048
    chat = put(store, "i", previous="h", text="last")
    assert texts(chat)[:3] == ["one " * 1000, "yes", "b"]
    assert texts(chat)[-3:] == ["h", "yes", "last"] and len(chat.items) == 17


def test_the_number_of_responses_is_bounded_and_what_was_used_stays():
    store = ResponseStore(3)
    for id in "abc":
        put(store, id)
    store.chain("a")
    put(store, "d")
    assert [store.get(id) is not None for id in "abcd"] == [True, False, True, True]
    assert len(store) == 3


def test_bytes_are_bounded_and_items_go_with_their_response():
    store = ResponseStore(1000, max_bytes=20_000)
    for k in range(20):
        put(store, f"r{k}", text="x" * 3000)
    assert store.num_bytes <= 20_000 and 2 <= len(store) < 6
    assert store.find_owner("msg_r19").id == "r19"
    with pytest.raises(RefusedRequest, match="Item with id 'msg_r0' not found"):
        store.find_owner("msg_r0")
    put(store, "huge", text="x" * 30_000)
    assert len(store) == store.num_bytes == 0


def test_a_missing_response_gets_openais_error():
    store = ResponseStore(10)
    put(store, "a")
    put(store, "b", previous="a")
    assert store.delete("a") and not store.delete("a")
    for id in ("nothing", "b"):
        with pytest.raises(RefusedRequest) as found:
            store.chain(id)
        assert found.value.code == "previous_response_not_found"
        assert found.value.param == "previous_response_id"
    assert found.value.detail == "Previous response with id 'a' not found."


def test_references_give_the_items_of_stored_responses():
    store = ResponseStore(10)
    put(store, "a", answer="the answer")
    question = {"role": "user", "content": "more?"}
    body = ResponsesBody.model_validate(
        {"model": "m", "input": [{"type": "item_reference", "id": "msg_a"}, question]})
    chat = load_chat(body, store, True)
    assert texts(chat) == ["the answer", "more?"]
    assert [item["id"] for item in json.loads(chat.new)] == chat.new_ids
    unknown = ResponsesBody.model_validate({"model": "m", "input": [{"id": "msg_x"}, question]})
    with pytest.raises(RefusedRequest, match="msg_x"):
        load_chat(unknown, store, True)


def test_a_request_reads_so_much_of_the_store(monkeypatch):
    monkeypatch.setattr(stored_chats, "_MAX_READ_BYTES", 10_000)
    store = ResponseStore(100)
    put(store, "a", text="x" * 4000)
    put(store, "b", previous="a", text="x" * 4000)
    with pytest.raises(BadParameter, match="the stored chat has"):
        put(store, "c", previous="b")


def test_a_store_of_none_keeps_nothing():
    store = ResponseStore(0)
    assert not store.is_enabled
    body = ResponsesBody.model_validate({"model": "m", "input": "x"})
    assert load_chat(body, store, False).new == b""
