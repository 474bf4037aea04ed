"""The server end to end: the command in one process, the `openai` client in another, and a real
kernel of a tiny model."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

import eventtensor as et
from tests.serve.server_process import running

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def server(folder):
    with running([sys.executable, "-m", "eventtensor.cli", "serve", str(folder),
                  "--served-model-name", "tiny", "--port", "0", "--target", "cpu",
                  "--dtype", "f32", "--max-model-len", "512",
                  "--max-num-seqs", "8", "--cache-gb", "0.01"]) as made:
        yield made
        made.at_rest()


@pytest.fixture
def client(server):
    return server.client()


def test_a_chat_is_answered_whole_and_as_a_stream(client):
    asked = {"model": "tiny", "messages": CHAT, "seed": 3, "max_tokens": 40,
             "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(**asked)
    (choice,) = whole.choices
    assert choice.finish_reason == "length" and choice.message.role == "assistant"
    assert whole.usage.completion_tokens == 40
    assert whole.usage.total_tokens == 40 + whole.usage.prompt_tokens
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == choice.message.content
    assert chunks[0].choices[0].delta.role == "assistant" and len(chunks) > 1
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert {c.id for c in chunks} == {chunks[0].id} != {whole.id}


def test_a_stream_tells_its_usage_if_asked(client):
    chunks = list(client.completions.create(
        model="tiny", prompt="abc", max_tokens=5, stream=True, extra_body={"ignore_eos": True},
        stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 5
    assert all(c.usage is None for c in chunks[:-1])


def test_several_prompts_and_choices_come_in_order(client):
    both = client.completions.create(model="tiny", prompt=["ab", "xyz"], n=2, seed=5, max_tokens=8)
    assert [c.index for c in both.choices] == [0, 1, 2, 3] and both.usage.prompt_tokens == 5
    one = client.completions.create(model="tiny", prompt="xyz", seed=6, max_tokens=8)
    assert both.choices[3].text == one.choices[0].text != both.choices[2].text
    tokens = httpx.post(str(client.base_url).replace("/v1/", "/tokenize"),
                        json={"prompt": "xyz"}).json()["tokens"]
    same = client.completions.create(model="tiny", prompt=tokens, seed=6, max_tokens=8)
    assert same.choices[0].text == one.choices[0].text
    texts = ["", ""]
    for chunk in client.completions.create(model="tiny", prompt=["ab", "xyz"], seed=6,
                                           max_tokens=8, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts[1] == one.choices[0].text


def test_log_probabilities_come_in_both_shapes(client):
    chat = client.chat.completions.create(model="tiny", messages=CHAT, temperature=0, max_tokens=4,
                                          logprobs=True, top_logprobs=3)
    content = chat.choices[0].logprobs.content
    assert len(content) == chat.usage.completion_tokens
    for entry in content:
        assert len(entry.top_logprobs) == 3 and entry.logprob == entry.top_logprobs[0].logprob
        assert entry.bytes is None or bytes(entry.bytes).decode() == entry.token
    plain = client.completions.create(model="tiny", prompt="abc", temperature=0, max_tokens=4,
                                      logprobs=2)
    found = plain.choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset)
    assert found.text_offset[0] == 0


def test_penalties_and_stops_change_an_answer(client):
    def text(**more):
        return client.completions.create(model="tiny", prompt="abc", temperature=0, max_tokens=30,
                                         extra_body={"ignore_eos": True} | more).choices[0]

    plain = text()
    assert text(frequency_penalty=2.0).text != plain.text
    stop = plain.text[3:5]
    cut = text(stop=[stop])
    assert (cut.text, cut.finish_reason) == (plain.text[: plain.text.index(stop)], "stop")


def test_answers_keep_to_a_response_format(client):
    def answer(form, **more):
        return client.chat.completions.create(model="tiny", messages=CHAT, response_format=form,
                                              max_tokens=200, seed=1, **more).choices[0]

    schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
              "additionalProperties": False}
    found = answer({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert json.loads(found.message.content)["yes"] in (True, False)
    assert found.finish_reason == "stop"
    assert answer({"type": "regex", "pattern": "[ab]{7}c"}).message.content[-1] == "c"
    assert answer({"type": "json_object"}).message.content.startswith("{")
    assert answer({"type": "text"}).message.content
    for wrong in ({"type": "poem"}, {"type": "regex"}, {"type": "regex", "pattern": "["},
                  {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "y"}}}):
        with pytest.raises(openai.BadRequestError):
            answer(wrong)


def test_many_clients_at_a_time_get_what_they_get_alone(server):
    def ask(k):
        found = server.client().completions.create(
            model="tiny", prompt=f"{k % 3} " * 70, seed=k % 3, max_tokens=20)
        return k % 3, found.choices[0].text

    alone = dict(ask(k) for k in range(3))
    with ThreadPoolExecutor(12) as pool:
        assert all(alone[k] == text for k, text in pool.map(ask, range(36)))
    assert server.metric("prefix_cache_hits_total") > 0


def test_the_model_is_listed_and_others_are_not_found(client):
    (model,) = client.models.list().data
    assert model.id == "tiny"
    with pytest.raises(openai.NotFoundError, match="'tiny' is"):
        client.chat.completions.create(model="gpt", messages=CHAT)


def test_texts_become_tokens_and_texts_again(server):
    found = httpx.post(f"{server.url}/tokenize", json={"prompt": "Grüße"}).json()
    assert found["count"] == len(found["tokens"]) == 7 and found["max_model_len"] == 512
    back = httpx.post(f"{server.url}/detokenize", json={"tokens": found["tokens"]}).json()
    assert back == {"prompt": "Grüße"}
    chat = httpx.post(f"{server.url}/tokenize", json={"messages": CHAT}).json()
    assert chat["count"] > 20


def test_health_version_and_metrics_are_open(server):
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/version").json() == {"version": et.__version__}
    text = httpx.get(f"{server.url}/metrics").text
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                 "time_to_first_token_seconds_bucket", "time_per_output_token_seconds_count",
                 "prompt_tokens_total", "generation_tokens_total"):
        assert f"\neventtensor:{name}{{" in text


BAD = [
    ({"temprature": 1}, "temprature"), ({"temperature": 200}, "temperature is 200"),
    ({"temperature": "hot"}, "temperature"), ({"top_p": 0}, "top_p is 0"), ({"n": 0}, "n"),
    ({"n": 17}, "n"), ({"max_tokens": 0}, "max_tokens is 0"), ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 9999}, "context"), ({"logprobs": 99}, "logprobs"), ({"stop": [""]}, "stop"),
    ({"stop": 5}, "stop"), ({"presence_penalty": 3}, "presence_penalty"),
    ({"prompt": ""}, "prompt of 0"), ({"prompt": []}, "empty"), ({"prompt": "x" * 600}, "context"),
    ({"prompt": [999]}, "tokens"), ({"prompt": [[1], "a"]}, "prompt"), ({"prompt": None}, "prompt"),
    ({"prompt": ["a"] * 65}, "65 prompts"), ({"echo": 2}, "echo"), ({"model": 5}, "model"),
    ({"stream": "yes"}, "stream"), ({"stream_options": {"x": True}}, "stream_options.x"),
    ({"best_of": 2}, "best_of is 2, but n is 1"), ({"suffix": "x"}, "suffix: only ''"),
    ({"logits_processors": ["x"]}, "logits_processors: code of clients"),
    ({"regex": "a", "guided_choice": ["b"]}, "more than one grammar"),
]


@pytest.mark.parametrize(("wrong", "shown"), BAD, ids=str)
def test_a_bad_value_is_refused_by_name(server, wrong, shown):
    body = {"model": "tiny", "prompt": "abc", "max_tokens": 4} | wrong
    found = httpx.post(f"{server.url}/v1/completions", json=body)
    assert found.status_code == 400, found.text
    error = found.json()["error"]
    assert shown in error["message"] and error["type"] == "invalid_request_error"


def test_fields_that_cannot_change_an_answer_change_none(client):
    def text(**more):
        return client.completions.create(model="tiny", prompt="abc", seed=1, max_tokens=9,
                                         extra_body=more).choices[0].text

    accepted = {"user": "u", "metadata": {"a": "b"}, "store": True, "best_of": 1, "priority": 0,
                "length_penalty": 1.0, "use_beam_search": False, "suffix": None, "tools": None,
                "n": None, "stream": None, "no_such_field": None, "prediction": {"type": "content"}}
    assert text(**accepted) == text()


def test_special_tokens_are_text_only_if_asked(client):
    def text(**more):
        return client.completions.create(
            model="tiny", prompt="abc", seed=2, max_tokens=12,
            extra_body=more).choices[0].text

    turn = {"structured_outputs": {"grammar": 'start: "a" <|turn|> "b"'}}
    assert text(**turn) == "ab"
    assert text(**turn, skip_special_tokens=False) == "a<|turn|>b"


def test_one_grammar_may_have_several_names(client):
    grammar = 'start: "yes" | "no"'
    found = client.completions.create(model="tiny", prompt="abc", max_tokens=9, extra_body={
        "guided_grammar": grammar, "structured_outputs": {"grammar": grammar},
        "guided_decoding_backend": "guidance"})
    assert found.choices[0].text in ("yes", "no")


def test_an_answer_that_is_sent_back_is_taken(client):
    first = client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=4)
    again = [*CHAT, first.choices[0].message.model_dump(), {"role": "user", "content": "More"}]
    assert client.chat.completions.create(model="tiny", messages=again, max_tokens=4).choices


def test_a_stream_tells_its_usage_in_every_chunk_if_asked(client):
    chunks = list(client.completions.create(
        model="tiny", prompt="abc", max_tokens=5, stream=True, stream_options={
            "include_usage": True, "continuous_usage_stats": True, "include_obfuscation": False}))
    counts = [c.usage.completion_tokens for c in chunks]
    assert counts == sorted(counts) and chunks[-1].choices == []


@pytest.mark.parametrize("messages", [
    [], [{"role": "robot", "content": "x"}], [{"role": "user"}], "Hi", [5],
    [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
])
def test_a_chat_that_is_none_is_refused(server, messages):
    found = httpx.post(f"{server.url}/v1/chat/completions",
                       json={"model": "tiny", "messages": messages})
    assert found.status_code == 400 and "messages" in found.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "body", "status"), [
    ("POST", "/v1/completions", b"{", 400), ("POST", "/v1/completions", b"", 400),
    ("POST", "/v1/completions", b"\xff\xfe", 400), ("POST", "/v1/completions", b"[]", 400),
    ("POST", "/v1/completions", b"[" * 100000, 400),
    ("POST", "/v1/completions", b'{"model":"tiny","prompt":"\\ud800"}', 400),
    ("POST", "/v1/completions", b" " * (5 << 20), 413), ("GET", "/v1/completions", b"", 405),
    ("POST", "/v1/models", b"", 405), ("GET", "/v1/nothing", b"", 404), ("GET", "/v2", b"", 404),
    ("POST", "/tokenize", b"{}", 400), ("POST", "/detokenize", b'{"tokens":[-1]}', 400),
])
def test_what_is_no_request_has_its_status_and_an_error(server, method, path, body, status):
    found = httpx.request(method, server.url + path, content=body,
                          headers={"Content-Type": "application/json"})
    assert found.status_code == status, found.text
    assert found.json()["error"]["message"]
