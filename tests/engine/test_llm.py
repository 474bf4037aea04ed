"""`LLM` over real kernels of tiny models, on threads."""

from __future__ import annotations

import json
import random
import re
import threading
from dataclasses import replace

import pytest

from eventtensor import LLM, SamplingParams
from eventtensor.errors import BadGrammar, BadOption, BadParameter, BadPrompt, PromptTooLong
from eventtensor.llm.engine.request import FinishReason
from eventtensor.llm.weights.model_source import Model, open_model
from tests.engine.batch_invariance import F32_CACHE_GB, GREEDY, check_company, prompts, tokens_of
from tests.engine.replay import check_tokens
from tests.engine.tiny_chat import write_tiny_chat

SIZES = {"target": "cpu", "dtype": "f32", "max_model_len": 400, "max_num_seqs": 6,
         "cache_gb": F32_CACHE_GB}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_chat(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def llm(folder):
    with LLM(str(folder), **SIZES) as made:
        assert made.engine.scheduler.blocks.num_blocks == 8
        yield made


def test_answers_do_not_depend_on_company_preemption_or_reuse(llm):
    check_company(llm)


def test_log_probabilities_change_no_token(llm):
    asked = prompts(1, (9, 150))
    without, told = (llm.generate(asked, SamplingParams(temperature=0, max_tokens=20, logprobs=n))
                     for n in (None, 3))
    assert tokens_of(without) == tokens_of(told)
    for t in (t for c in told for t in c.tokens):
        assert t.logprobs.top[0] == (t.token, t.logprobs.chosen) and len(t.logprobs.top) == 3


def test_prompts_are_scored_as_transformers_scores_them(llm, folder):
    """Alone and in company to the bit; and an answer has the same log probabilities, to the bit,
    when it is part of a prompt."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    asked = prompts(7, (9, 150, 300, 1, 2, 70))
    only, both = (SamplingParams(max_tokens=n, prompt_logprobs=5, logprobs=5, temperature=0,
                                 ignore_eos=True) for n in (0, 7))
    found = llm.generate([*asked, *asked], [only] * len(asked) + [both] * len(asked))
    for k, prompt in enumerate(asked):
        with torch.no_grad():
            wanted = torch.log_softmax(theirs(torch.tensor([prompt])).logits[0], -1).numpy()
        alone = llm.generate([prompt], only)[0]
        entries = list(alone.prompt_logprobs)
        assert alone.tokens == () and alone.finish is FinishReason.length
        assert entries == list(found[k].prompt_logprobs)
        assert entries == list(found[len(asked) + k].prompt_logprobs)
        assert [e.token for e in entries] == prompt and entries[0].logprobs is None
        for e, row in zip(entries[1:], wanted, strict=False):
            assert e.logprobs.chosen == pytest.approx(row[e.token], abs=1e-3)
            for token, logp in e.logprobs.top:
                assert logp == pytest.approx(row[token], abs=1e-3)
            assert e.logprobs.top[0][1] == pytest.approx(row.max(), abs=1e-3)
        answer = found[len(asked) + k].tokens
        again = llm.generate([[*prompt, *(t.token for t in answer)]], only)[0]
        assert list(again.prompt_logprobs)[len(prompt) :] == list(answer)


def test_seeds_decide_and_without_one_every_request_has_its_own(llm):
    (prompt,) = prompts(2, (12,))
    with_seed = [llm.generate(prompt, SamplingParams(seed=s, max_tokens=12))[0] for s in (1, 1, 2)]
    a, b, c = tokens_of(with_seed)
    assert a == b != c
    free = tokens_of(llm.generate([prompt] * 3, SamplingParams(max_tokens=12)))
    assert len({*map(tuple, free)}) == 3


def test_all_texts_of_a_chat_count_before_it_is_encoded(llm, monkeypatch):
    """In tools and options too, and names as well."""
    encoded = []
    monkeypatch.setattr(type(llm.tokenizer), "chat", lambda *a, **options: encoded.append(options))
    long = "a" * (llm.max_model_len * llm.tokenizer.max_token_bytes)
    message = {"role": "user", "content": "a"}
    llm.tokens([message], self=1, prompt=2)
    for options in ({"tools": [{long: 1}]}, {"a": {"b": [[long]]}}, {"n": [1] * len(long)}):
        with pytest.raises(BadPrompt, match="bytes"):
            llm.tokens([message], **options)
    with pytest.raises(BadPrompt, match="bytes"):
        llm.tokens([message | {"tool_calls": [{"arguments": {"a": long}}]}])
    assert encoded == [{"self": 1, "prompt": 2}]


def test_texts_go_in_and_come_out_and_stops_end_them(llm):
    whole = llm.generate("Hello", SamplingParams(seed=3, max_tokens=60, ignore_eos=True))[0]
    assert whole.prompt_tokens == 5 and whole.finish is FinishReason.length
    assert whole.text == llm.tokenizer.decode(t.token for t in whole.tokens)
    stop = whole.text[20:22]
    cut = llm.generate("Hello", SamplingParams(seed=3, max_tokens=60, ignore_eos=True, stop=stop))
    assert cut[0].text == whole.text[: whole.text.index(stop)]
    assert cut[0].finish is FinishReason.stop


def test_an_object_ends_with_the_properties_that_its_schema_names(llm):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 20]}}, "required": ["a"]}
    params = [SamplingParams(json_schema=schema, seed=k, temperature=2.0) for k in range(8)]
    found = [json.loads(c.text) for c in llm.generate(["x"] * 8, params)]
    assert {tuple(value) for value in found} == {("a",)}


def test_an_answer_that_is_cut_inside_a_character_ends_before_it(llm):
    """Whole, and as a stream; one that ends with its grammar has all its bytes."""
    most = [SamplingParams(grammar='start: "aüü"', max_tokens=n) for n in (2, 3, 4, 5)]
    found = llm.generate(["x"] * 4, most)
    assert [c.text for c in found] == ["a", "aü", "aü", "aüü"]
    assert [len(c.tokens) for c in found] == [2, 3, 4, 5]
    assert [c.text for c in found] == ["".join(o.text for o in llm.stream("x", p)) for p in most]


def test_a_stream_gives_the_text_piece_by_piece(llm):
    chat = [{"role": "user", "content": "Hi"}]
    params = SamplingParams(seed=5, max_tokens=20)
    whole = llm.chat(chat, params)
    pieces = list(llm.stream(chat, params))
    assert "".join(p.text for p in pieces) == whole.text and len(pieces) > 5
    assert [p.finish for p in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish is whole.finish
    assert whole.prompt_tokens == len(llm.tokenizer.chat(chat))


def test_who_leaves_a_stream_frees_its_pages(llm):
    for _ in llm.stream("x" * 200, SamplingParams(ignore_eos=True)):
        break
    llm.generate("y", SamplingParams(max_tokens=1))
    assert llm.engine.num_open_requests == 0 and llm.engine.scheduler.blocks.num_used_blocks == 0


SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["name", "sizes", "ok"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-zäöü]{3,8}$"}, "ok": {"type": "boolean"},
        "sizes": {"type": "array", "items": {"enum": [1, 20, 300]}, "minItems": 2, "maxItems": 4},
    },
}


def test_answers_keep_to_a_schema_or_a_regular_expression(llm):
    """Random weights would never do it by themselves. In company, and drawn."""
    schema = [SamplingParams(json_schema=SCHEMA, seed=k, temperature=1.5) for k in range(6)]
    date = r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]"
    dates = [SamplingParams(regex=date, seed=k) for k in range(3)]
    plain = [SamplingParams(seed=k, max_tokens=9) for k in range(3)]
    params = [*schema, *dates, *plain]
    found = llm.generate(["x"] * len(params), params)
    for c in found[:6]:
        value = json.loads(c.text)
        assert set(value) == {"name", "sizes", "ok"} and 3 <= len(value["name"]) <= 8
        assert 2 <= len(value["sizes"]) <= 4 and set(value["sizes"]) <= {1, 20, 300}
    assert all(re.fullmatch(date, c.text) for c in found[6:9])
    assert {c.finish for c in found[:9]} == {FinishReason.stop}
    assert len({c.text for c in found}) == len(found)
    assert [c.text for c in found] == [llm.generate("x", p)[0].text for p in params]


MIXED = [
    SamplingParams(temperature=0, repetition_penalty=1.6, max_tokens=25, ignore_eos=True),
    SamplingParams(temperature=0.9, min_p=0.3, seed=1, max_tokens=25, ignore_eos=True),
    SamplingParams(seed=2, presence_penalty=1.5, frequency_penalty=0.7, top_p=0.9, max_tokens=25,
                   ignore_eos=True, logprobs=2),
    SamplingParams(temperature=0, max_tokens=25, ignore_eos=True),
    SamplingParams(regex=r"[a-f]{5}(x|yz)+", seed=3, frequency_penalty=2.0, max_tokens=25),
    SamplingParams(regex=r"(no|yes)!{3,9}", temperature=0, max_tokens=25),
    SamplingParams(seed=4, top_k=30, max_tokens=25, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=25, logit_bias=dict.fromkeys(range(0, 200, 2), -100)),
    SamplingParams(seed=5, top_p=0.9, max_tokens=25, ignore_eos=True, frequency_penalty=0.4,
                   logit_bias={65: 3.5, 66: 2.25, 67: -1}, logprobs=2),
    SamplingParams(seed=6, regex="[a-f]{20}", logit_bias={65 + k: k for k in range(9)}),
]


def test_tokens_in_mixed_company_are_those_of_the_reference(llm):
    """By the logits that a runner of the same bits gives for each place."""
    asked = prompts(6, [5 + 40 * k for k in range(len(MIXED))])
    found, decided = llm.generate(asked, MIXED), 0
    for c, prompt, params in zip(found, asked, MIXED, strict=True):
        tokens = [t.token for t in c.tokens]
        assert tokens, params
        decided += check_tokens(llm, prompt, tokens, params)
    assert decided > 0.9 * sum(len(c.tokens) for c in found)
    assert re.fullmatch(r"[a-f]{5}(x|yz)+", found[4].text) or found[4].finish is FinishReason.length
    assert re.fullmatch(r"(no|yes)!{3,9}", found[5].text)


def test_a_grammar_that_cannot_be_used_is_refused(llm):
    for wrong in ({"regex": "[a-"}, {"json_schema": {"type": "thing"}},
                  {"json_schema": {"not": {"type": "string"}}}):
        with pytest.raises(BadGrammar):
            llm.generate("x", SamplingParams(**wrong))
    assert llm.engine.num_open_requests == 0


def test_a_bias_decides_and_log_probabilities_are_the_models_own(llm):
    """Beside others that have none, greedy and drawn."""
    (letter,) = llm.tokenizer.encode("k")
    plain = SamplingParams(temperature=0, max_tokens=1, logprobs=3)
    for t in (0, 1.0):
        forced = SamplingParams(temperature=t, max_tokens=9, logit_bias={letter: 100}, logprobs=3)
        barred = SamplingParams(temperature=t, seed=1, max_tokens=200, ignore_eos=True,
                                logit_bias=dict.fromkeys(range(3, 200), -100))
        found = llm.generate(["x"] * 3, [forced, plain, barred])
        assert found[0].text == "k" * 9
        assert {c.token for c in found[2].tokens} <= {0, 1, 2, *range(200, 256)}
        first = found[0].tokens[0].logprobs
        assert first.top == found[1].tokens[0].logprobs.top and first.chosen < first.top[-1][1]
    with pytest.raises(BadParameter, match="logit_bias has tokens beyond"):
        llm.generate("x", SamplingParams(logit_bias={5: 1, 100_000: 1}))


def test_one_bad_prompt_gives_the_others_up(llm):
    with pytest.raises(PromptTooLong):
        llm.generate(["x", "y" * 500], SamplingParams(max_tokens=100))
    llm.generate("y", SamplingParams(max_tokens=1))
    assert llm.engine.num_open_requests == 0


def test_what_cannot_be_asked_is_refused_in_words(llm):
    with pytest.raises(BadParameter, match="2 params for 1 prompts"):
        llm.generate("x", [GREEDY, GREEDY])
    bare = Model("bare", llm.model.checkpoint, None)
    for wrong in (
        {"max_num_seqs": 65},
        {"max_num_seqs": 0},
        {"max_model_len": 1},
        {"max_num_batched_tokens": 3},
        {"cache_gb": 1e-4},
        {"cache_gb": float("nan")},
        {"cache_gb": 1e30},
        {"dtype": "f64"},
        {"target": "tpu"},
        {"gpu_memory_utilization": 1.1},
    ):
        with pytest.raises(BadOption):
            LLM(bare, **SIZES | wrong)


def test_the_context_is_the_models_unless_one_is_asked_for(llm):
    assert llm.max_model_len == 400 < llm.model.config.max_position
    with LLM(llm.model, target="cpu", dtype="f32", max_num_seqs=2) as made:
        most = llm.model.config.max_position
        assert made.max_model_len == most == made.engine.options.max_model_len
        assert made.capacity.num_full_requests == 2
        long = made.generate([[5] * (most - 3)], SamplingParams(temperature=0, ignore_eos=True))[0]
        assert len(long.tokens) == 3 and long.finish is FinishReason.length


def test_arguments_have_their_old_names_for_one_release(llm):
    sizes = {"target": "cpu", "dtype": "f32", "cache_gb": F32_CACHE_GB}
    with pytest.warns(DeprecationWarning) as warned:
        made = LLM(llm.model, context=200, max_running=3, rows=16, prompt_rows=4, same_bits=True,
                   **sizes)
    with made:
        limits, options = made.engine.runner.limits, made.engine.options
        assert (limits.requests, limits.rows, options.max_prefill_tokens) == (3, 16, 4)
        with pytest.warns(DeprecationWarning, match="max_model_len"):
            assert made.context == made.max_model_len == 200
    said = {str(w.message).split()[0] for w in warned}
    assert said == {"context", "max_running", "rows", "prompt_rows", "same_bits"}


def test_a_model_without_a_tokenizer_takes_tokens():
    with LLM(open_model("random:tiny-llama"), **SIZES) as made:
        found = made.generate([[5, 6]], SamplingParams(temperature=0, max_tokens=4))[0]
        assert len(found.tokens) == 4 and found.text == ""
        with pytest.raises(BadPrompt, match="no tokenizer"):
            made.generate("text")


def test_more_prompts_than_may_wait_are_fed_as_others_end(llm, monkeypatch):
    monkeypatch.setattr(llm.engine, "options", replace(llm.engine.options, max_waiting=2))
    asked = prompts(5, [3 + k for k in range(30)])
    found = llm.generate(asked, SamplingParams(temperature=0, max_tokens=3))
    assert [c.prompt_tokens for c in found] == [len(p) for p in asked]


def test_random_requests_from_many_threads_leave_no_page_behind(llm):
    """Some leave early; those who stay hear what they would hear alone."""
    asked = prompts(4, (3, 90, 200, 129, 260, 17))
    wanted = tokens_of([llm.generate(p, GREEDY)[0] for p in asked])
    wrong = []

    def client(seed):
        draw = random.Random(seed)
        for _ in range(15):
            k, leave = draw.randrange(len(asked)), draw.choice([None, None, 1, 5])
            found = []
            for output in llm.stream(asked[k], GREEDY):
                found += [t.token for t in output.tokens]
                if leave is not None and len(found) >= leave:
                    break
            if found != wanted[k][: len(found)] or (leave is None and found != wanted[k]):
                wrong.append((seed, k, found))

    threads = [threading.Thread(target=client, args=(s,)) for s in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not wrong
    llm.generate("y", SamplingParams(max_tokens=1))
    scheduler = llm.engine.scheduler
    assert llm.engine.num_open_requests == scheduler.blocks.num_used_blocks == 0
    assert scheduler.running == []
