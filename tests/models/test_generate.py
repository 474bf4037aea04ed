"""Generation: chunks of prompts, ends, seeds; and SmolLM2 word for word against transformers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from models.fake_kernels import fake_kernels
from support.fake_driver import FakeDriver, installed

from eventtensor.errors import BadOption, MissingPackage, NoDevice
from eventtensor.models import generate as generate_module
from eventtensor.models.checkpoint import file_names
from eventtensor.models.formats.hf import _ENDS, _LAYER
from eventtensor.models.generate import Generator, Request, Settings, find_target, next_batch
from eventtensor.models.source import open_model

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences what a prime number is, and give three examples of prime numbers.",
    "List three things that one should pack for a week in the mountains.",
    "Why is the sky blue?",
)


# ---- which rows a step has ---------------------------------------------------------------------


def request(number, known, done=0):
    return Request(number, [number], list(range(known)), 99, done)


def test_those_who_decode_come_first_and_prompts_get_the_room_that_is_left():
    batch = next_batch([request(0, 300), request(1, 8, 7), request(2, 5)], 128)
    assert [(r.request, r.position) for r in batch.chosen] == [(1, 7)]
    assert [(r.request, r.position) for r in batch.more] == [(0, k) for k in range(127)]


def test_a_prompt_that_ends_in_a_step_gets_its_token_there():
    batch = next_batch([request(0, 130, 128), request(1, 4)], 128)
    assert [(r.request, r.position) for r in batch.chosen] == [(0, 129), (1, 3)]
    assert [(r.request, r.position) for r in batch.more] == [(0, 128), (1, 0), (1, 1), (1, 2)]
    assert batch.rows == batch.chosen + batch.more


# ---- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [
    {"max_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1},
    {"top_p": 0.0}, {"top_p": 1.5}, {"seed": -1}, {"seed": 1 << 64},
])
def test_settings_that_make_no_sense_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(BadOption, match=f"{name} is") as caught:
        Settings(**wrong)
    assert "must be" in caught.value.hint


def test_seed_and_position_alone_decide_the_chance_of_a_token():
    drawn = Settings(temperature=0.8, seed=5)
    chances = [drawn.choice(k).uniform for k in range(100)]
    assert chances == [Settings(3, 0.5, 7, 0.9, 5).choice(k).uniform for k in range(100)]
    assert len(set(chances)) == 100 and all(0 <= u < 1 for u in chances)
    assert chances[3] != Settings(temperature=0.8, seed=6).choice(3).uniform
    assert Settings().choice(3).temperature == 0


# ---- a tiny model ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    with Generator(open_model("random:tiny-llama"), target="cpu", dtype="f32", context=400,
                   requests=3, sampling=True) as made:
        yield made


def answers(generator, prompts, settings):
    out = [[] for _ in prompts]
    for k, token in generator.stream(prompts, settings):
        out[k].append(token)
    return out


def test_a_prompt_of_many_chunks_is_answered_like_one_fed_token_by_token(tiny, monkeypatch):
    ids = np.random.default_rng(0).integers(2, 256, 300).tolist()
    chunks = list(tiny.tokens(ids, Settings(20)))
    assert tiny.timing.prompt == 300 and tiny.timing.steps == len(chunks) - 1
    monkeypatch.setattr(generate_module, "next_batch", lambda r, most: next_batch(r, 1))
    assert list(tiny.tokens(ids, Settings(20))) == chunks and len(set(chunks)) > 1


def test_answers_do_not_depend_on_what_else_is_asked(tiny):
    draw = np.random.default_rng(1)
    prompts = [draw.integers(2, 256, n).tolist() for n in (5, 140, 33)]
    together = answers(tiny, prompts, Settings(24))
    assert together == [list(tiny.tokens(p, Settings(24))) for p in prompts]


def test_drawn_tokens_depend_on_the_seed_and_on_nothing_else_in_the_batch(tiny):
    draw = np.random.default_rng(2)
    prompts = [draw.integers(2, 256, n).tolist() for n in (9, 150, 4)]
    settings = Settings(16, temperature=1.5, top_k=50, top_p=0.95, seed=11)
    together = answers(tiny, prompts, settings)
    assert together == [list(tiny.tokens(p, settings)) for p in prompts]
    other = Settings(16, temperature=1.5, top_k=50, top_p=0.95, seed=12)
    assert answers(tiny, prompts, other) != together
    assert list(tiny.tokens(prompts[0], Settings(16))) == list(
        tiny.tokens(prompts[0], Settings(16, temperature=1.5, top_k=1, seed=11)))


@pytest.mark.parametrize(("same_bits", "launches"), [(False, {128: 3, 1: 5}), (True, {128: 8})])
def test_on_a_gpu_single_rows_have_their_own_kernel_unless_bits_matter(same_bits, launches):
    """The first of two requests is alone in the last step of four."""
    driver = FakeDriver()
    with (
        installed(lambda: driver), fake_kernels() as made,
        Generator(open_model("random:tiny-llama"), target="cuda", context=200, requests=2,
                  same_bits=same_bits) as generator,
    ):
        assert answers(generator, [[5] * 150, [9]], Settings(3)) == [[6, 7, 8], [10, 11, 12]]
        assert list(generator.tokens([30], Settings(4))) == [31, 32, 33, 34]
        assert {k.rows: k.launches for k in made} == launches


class Slow:
    """A runner that seems to take so long for a step, and to wait before it for its compiler."""

    def __init__(self, runner, step_s, wait_s):
        self.runner, self.step_s, self.wait_s, self.now = runner, step_s, wait_s, 0.0

    def __getattr__(self, name):
        return getattr(self.runner, name)

    def ready(self, rows, alone=False):
        self.now += self.wait_s
        self.wait_s = 0.0
        return self.runner.ready(rows, alone)

    def step(self, rows, *args, **options):
        self.ready(len(rows))
        self.now += self.step_s
        return self.runner.step(rows, *args, **options)


def test_the_wait_for_a_compiler_is_not_in_the_speed(tiny, monkeypatch):
    slow = Slow(tiny.runner, 2.0, 1000.0)
    monkeypatch.setattr(tiny, "runner", slow)
    monkeypatch.setattr(generate_module, "time", SimpleNamespace(perf_counter=lambda: slow.now))
    found = list(tiny.tokens([5, 6, 7], Settings(9)))
    t = tiny.timing
    assert len(found) > 2 and slow.now == 1000 + 2 + 2 * t.steps
    assert (t.prefill_s, t.decode_s) == (2.0, 2.0 * t.steps)


def test_it_ends_at_the_end_token_which_is_not_given(tiny, monkeypatch):
    free = list(tiny.tokens([5, 6, 7], Settings(12)))
    stop = free[4]
    monkeypatch.setattr(Generator, "eos", (stop,))
    assert list(tiny.tokens([5, 6, 7], Settings(12))) == free[: free.index(stop)]


def test_it_ends_with_the_context(tiny):
    """The last token needs no place of its own: nothing comes after it."""
    found = list(tiny.tokens([5] * 395, Settings(100)))
    assert len(found) <= 6 and tiny.context == 400
    assert len(list(tiny.tokens([5] * 400, Settings(100)))) <= 1


@pytest.mark.parametrize(("prompts", "shown"), [
    ([[]], "0 tokens"), ([[5] * 401], "401 tokens"), ([[5]] * 4, "4 prompts"), ([], "0 prompts"),
])
def test_prompts_that_do_not_fit_are_refused(tiny, prompts, shown):
    with pytest.raises(BadOption, match=shown):
        next(tiny.stream(prompts))


def test_auto_is_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(generate_module, "device", lambda index: None)
    assert find_target("auto") == "cuda"

    def missing(index):
        raise NoDevice("none")

    monkeypatch.setattr(generate_module, "device", missing)
    assert (find_target("auto"), find_target("cuda")) == ("cpu", "cuda")
    with pytest.raises(BadOption, match="tpu"):
        find_target("tpu")


# ---- SmolLM2 -----------------------------------------------------------------------------------


def reference(model):
    """The same weights in transformers, in float32."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    c, get = model.config, model.checkpoint.tensor
    with torch.device("meta"):
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.intermediate,
            num_hidden_layers=c.layers, num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads, rms_norm_eps=c.norm_eps, tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            max_position_embeddings=c.max_position, bos_token_id=1, eos_token_id=2,
        ))
    names = file_names(c, _ENDS, _LAYER)
    weights = {key: torch.from_numpy(np.array(get(n), np.float32)) for n, key in names.items()}
    made.load_state_dict(weights | {"lm_head.weight": weights[names["embed"]]}, assign=True)
    made.model.rotary_emb = type(made.model.rotary_emb)(made.config)
    return torch, made.eval()


def test_smollm2_says_word_for_word_what_transformers_says():
    """Five prompts in one batch, 64 tokens each. Where transformers, given the answer so far, goes
    on with the same token at every place, its own greedy answer is this one; so one pass does."""
    try:
        model = open_model("smollm2")
    except MissingPackage as e:
        pytest.skip(str(e))
    torch, theirs = reference(model)
    prompts = [model.tokenizer.chat([{"role": "user", "content": p}]) for p in PROMPTS]
    with Generator(model, target="cpu", dtype="f32", context=160, requests=5) as ours:
        found = answers(ours, prompts, Settings(64))
    for prompt, tokens in zip(prompts, found, strict=True):
        with torch.no_grad():
            logits = theirs(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :]
        wanted = logits.argmax(dim=-1).tolist()
        assert tokens == wanted[: len(tokens)]
        assert len(tokens) == 64 or wanted[len(tokens)] in model.config.eos
    assert model.tokenizer.decode(found[0]) == "The capital of France is Paris."
    assert max(len(tokens) for tokens in found) == 64
