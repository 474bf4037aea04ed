"""Completions that repeat their prompt, and log probabilities of prompts in the formats of OpenAI
and vLLM."""

from __future__ import annotations

import json
import sys

import httpx
import openai
import pytest

from tests.serve.server_process import running

TEXT = "Grüße, world"


@pytest.fixture(scope="module")
def server(folder):
    with running([sys.executable, "-m", "eventtensor.cli", "serve", str(folder),
                  "--served-model-name", "tiny", "--port", "0", "--target", "cpu",
                  "--dtype", "f32", "--max-model-len", "300",
                  "--max-num-seqs", "4", "--cache-gb", "0.01"]) as made:
        yield made
        made.at_rest()


@pytest.fixture
def client(server):
    return server.client()


def ask(server, path="/v1/completions", **body):
    url = str(server.client().base_url).replace("/v1/", "")
    return httpx.post(f"{url}{path}", json={"model": "tiny"} | body, timeout=60)


def complete(server, **body):
    answer = ask(server, **{"prompt": TEXT, "temperature": 0, "max_tokens": 5,
                            "ignore_eos": True} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def tokens_of(server, text):
    return ask(server, "/tokenize", prompt=text).json()["tokens"]


def test_an_echo_begins_with_the_prompt(server):
    (plain,), (echo,) = complete(server), complete(server, echo=True)
    assert echo["text"] == TEXT + plain["text"] and echo["logprobs"] is None
    (of_tokens,) = complete(server, echo=True, prompt=tokens_of(server, TEXT))
    assert of_tokens["text"] == echo["text"]
    several = complete(server, echo=True, prompt=["ab", TEXT], n=2, temperature=1, seed=3)
    assert [c["text"][:2] for c in several] == ["ab", "ab", "Gr", "Gr"]
    assert all(c["text"].startswith(TEXT) for c in several[2:])
    assert len({c["text"] for c in several}) == 4


def test_an_echo_has_the_log_probabilities_of_the_prompt(server):
    """The log probabilities of the answer follow, as they are without an echo."""
    ids = tokens_of(server, TEXT)
    (plain,), (echo,) = complete(server, logprobs=3), complete(server, logprobs=3, echo=True)
    found = echo["logprobs"]
    assert {len(some) for some in found.values()} == {len(ids) + 5}
    assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
    assert found["text_offset"][0] == 0 == plain["logprobs"]["text_offset"][0]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert found[name][len(ids) :] == plain["logprobs"][name]
    for text, logp, top in list(zip(found["tokens"], found["token_logprobs"],
                                    found["top_logprobs"], strict=True))[1:]:
        assert logp <= 0 and len(top) + ("\ufffd" in top) * 3 >= 3 and top[text] >= logp


def test_without_an_answer_the_prompt_alone_is_scored(server):
    ids = tokens_of(server, TEXT)
    (one,) = complete(server, echo=True, logprobs=2, max_tokens=5)
    for prompt in (TEXT, ids):
        (none,) = complete(server, prompt=prompt, echo=True, logprobs=2, max_tokens=0)
        assert (none["text"], none["finish_reason"]) == (TEXT, "length")
        for name, values in none["logprobs"].items():
            assert values == one["logprobs"][name][: len(ids)]
    (bare,) = complete(server, echo=True, max_tokens=0)
    assert (bare["text"], bare["logprobs"]) == (TEXT, None)
    used = ask(server, prompt=TEXT, echo=True, max_tokens=0).json()["usage"]
    assert (used["prompt_tokens"], used["completion_tokens"]) == (len(ids), 0)


def test_the_token_that_ends_an_answer_has_its_place_in_the_lists(server):
    """Lists have one entry per generated token, which is one here."""
    (plain,) = complete(server, max_tokens=1, echo=True, logprobs=1)
    ends = [complete(server, max_tokens=1, echo=True, logprobs=1, stop_token_ids=some)[0]
            for some in ([*range(k, k + 64)] for k in range(0, 256, 64))]
    (found,) = [c for c in ends if c["finish_reason"] == "stop"]
    assert found["text"] == TEXT and found["logprobs"] == plain["logprobs"]
    assert len(found["logprobs"]["tokens"]) == len(tokens_of(server, TEXT)) + 1


@pytest.mark.parametrize("logprobs", [None, 2])
def test_a_stream_with_an_echo_is_the_whole_in_pieces(client, logprobs):
    prompts = ["ab" * 70, TEXT]
    asked = {"model": "tiny", "prompt": prompts, "echo": True, "logprobs": logprobs, "n": 2,
             "max_tokens": 4, "seed": 2, "extra_body": {"ignore_eos": True}}
    whole = client.completions.create(**asked).choices
    texts, tokens, logps, offsets = ([[] for _ in whole] for _ in range(4))
    for chunk in client.completions.create(**asked, stream=True):
        (c,) = chunk.choices
        texts[c.index].append(c.text)
        if c.logprobs is not None:
            assert len(c.logprobs.tokens) <= 68
            tokens[c.index] += c.logprobs.tokens
            logps[c.index] += c.logprobs.token_logprobs
            offsets[c.index] += c.logprobs.text_offset
    for k, choice in enumerate(whole):
        assert "".join(texts[k]) == choice.text and choice.text.startswith(prompts[k // 2])
        assert texts[k][0].startswith(prompts[k // 2])
        if logprobs is not None:
            assert tokens[k] == choice.logprobs.tokens and offsets[k] == choice.logprobs.text_offset
            assert logps[k] == choice.logprobs.token_logprobs


def test_prompt_logprobs_are_in_the_form_of_vllm(server):
    ids = tokens_of(server, TEXT)
    (echo,) = complete(server, echo=True, logprobs=2)
    (found,) = complete(server, prompt_logprobs=2)
    entries = found["prompt_logprobs"]
    assert entries[0] is None and len(entries) == len(ids) and found["logprobs"] is None
    for k in range(1, len(ids)):
        own = entries[k][str(ids[k])]
        assert own["logprob"] == echo["logprobs"]["token_logprobs"][k]
        assert own["decoded_token"] == echo["logprobs"]["tokens"][k]
        ranks = sorted(e["rank"] for e in entries[k].values())
        assert ranks[:2] == [1, 2] and len(ranks) == 2 + (own["rank"] > 2)
        best = next(e for e in entries[k].values() if e["rank"] == 1)
        assert best["logprob"] == max(echo["logprobs"]["top_logprobs"][k].values())
    (none,) = complete(server, prompt_logprobs=0, max_tokens=0)
    assert none["text"] == "" and {len(e) for e in none["prompt_logprobs"][1:]} == {1}


def test_prompt_logprobs_of_a_chat_stand_beside_its_choices(server):
    chat = [{"role": "user", "content": "Hi"}]
    ids = ask(server, "/tokenize", messages=chat).json()["tokens"]
    found = ask(server, "/v1/chat/completions", messages=chat, n=2, max_tokens=3,
                prompt_logprobs=1).json()
    assert [e if e is None else next(iter(e)) for e in found["prompt_logprobs"]][1:] \
        == [str(t) for t in ids[1:]]
    assert len(found["choices"]) == 2 and "prompt_logprobs" not in found["choices"][0]


@pytest.mark.parametrize(("path", "wrong", "shown"), [
    ("", {"logprobs": 21, "echo": True}, "logprobs"),
    ("", {"prompt_logprobs": -1}, "prompt_logprobs"),
    ("", {"prompt_logprobs": 10**30}, "prompt_logprobs"),
    ("", {"prompt_logprobs": True}, "prompt_logprobs"),
    ("", {"prompt_logprobs": 1, "stream": True}, "stream"),
    ("", {"max_tokens": 0}, "max_tokens"),
    ("", {"max_tokens": -1, "echo": True}, "max_tokens"),
    ("", {"echo": 1}, "echo"),
    ("", {"prompt": [1 << 40], "echo": True}, "out of range"),
    ("", {"prompt": [[5] * 250] * 60, "prompt_logprobs": 20}, "at most 262144"),
    ("chat/", {"echo": True}, "echo"),
    ("chat/", {"prompt_logprobs": 1, "stream": True}, "stream"),
    ("chat/", {"max_tokens": 0}, "max_tokens"),
])
def test_an_invalid_request_gets_an_error_that_says_why(server, path, wrong, shown):
    asked = {"messages": [{"role": "user", "content": "Hi"}]} if path else {"prompt": TEXT}
    answer = ask(server, f"/v1/{path}completions", **asked | wrong)
    assert answer.status_code == 400 and shown in json.dumps(answer.json()), answer.text


def test_the_tokenizer_says_what_clients_need_to_make_prompts(server):
    url = str(server.client().base_url).replace("/v1/", "")
    info = httpx.get(f"{url}/tokenizer_info").json()
    assert (info["bos_token"], info["eos_token"]) == ("<|begin|>", "<|end|>")
    assert "add_generation_prompt" in info["chat_template"]
    assert ask(server, "/tokenize", prompt="a", add_special_tokens=False).json()["count"] == 1


def test_the_client_of_openai_takes_an_echo(client):
    found = client.completions.create(model="tiny", prompt=TEXT, echo=True, logprobs=2,
                                      max_tokens=0).choices[0]
    assert found.text == TEXT and found.logprobs.token_logprobs[0] is None
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt=TEXT, max_tokens=0)
