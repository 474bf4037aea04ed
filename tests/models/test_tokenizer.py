"""Tokenizers: SmolLM2's from its GGUF file against byte-pair merges by hand; streams; chats."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import regex
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from eventtensor.errors import (
    BadChat,
    BadModelConfig,
    BadModelFile,
    MissingPackage,
    UnsupportedTokenizer,
)
from eventtensor.llm.text import chat_template
from eventtensor.llm.text.chat_template import render
from eventtensor.llm.text.tokenizer import Tokenizer
from eventtensor.llm.text.tokenizer_files import from_folder, from_gguf
from eventtensor.llm.weights.formats.gguf_checkpoint import GgufCheckpoint
from eventtensor.llm.weights.model_source import smollm2_path
from tests.engine.tiny_chat import write_tiny_chat

TEXTS = [
    "", "Hello world", "  two  spaces \n\n\ttabs", "1234567890 and 3.14159", "I've, he'll, WE'RE",
    "def f(x: int) -> str:\n    return f'{x!r}'  # x²\n", "Grüße, naïve café", "漢字とかな 한국어",
    "👩‍👩‍👧 🚀 é vs e\u0301", "Ⅷ ½ ٣", "\x00\x7f\u200b", "a" * 100, "<not_special> <|im_sta",
]

# SmolLM2 has no tokens for some control characters and for the byte 0xf1: they vanish.
CHARACTERS = st.characters(
    min_codepoint=0x20, max_codepoint=0x3FFFF, exclude_categories=["Cs"]
)


@pytest.fixture(scope="module")
def checkpoint():
    try:
        return GgufCheckpoint(smollm2_path())
    except MissingPackage as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def smollm2(checkpoint):
    return from_gguf(checkpoint.metadata, checkpoint.config.eos)


class Merger:
    """Byte-pair encoding as it is defined: merge the pair of lowest rank until none is left."""

    def __init__(self, meta):
        self.ids = {t: k for k, t in enumerate(meta["tokenizer.ggml.tokens"])}
        pairs = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
        self.ranks = {p: k for k, p in enumerate(pairs)}
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [b for b in range(256) if b not in plain]
        self.chars = {b: chr(b) for b in plain} | {b: chr(256 + k) for k, b in enumerate(rest)}

    def encode(self, text: str) -> list[int]:
        words = regex.compile(
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
        )
        parts = regex.split(r"(\p{N})", text)  # digits stand alone
        return [k for part in parts for word in words.findall(part) for k in self._word(word)]

    def _word(self, word: str) -> list[int]:
        units = [self.chars[b] for b in word.encode()]
        while len(units) > 1:
            rank, at = min((self.ranks.get(p, 1 << 30), k) for k, p in enumerate(pairwise(units)))
            if rank == 1 << 30:
                break
            units[at : at + 2] = [units[at] + units[at + 1]]
        return [self.ids[u] for u in units]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_merging_by_hand(checkpoint, smollm2, text):
    ids = smollm2.encode(text)
    assert ids == Merger(checkpoint.metadata).encode(text)
    assert smollm2.decode(ids) == text


def test_tokens_of_smollm2_are_what_they_have_always_been(smollm2):
    assert smollm2.encode("Hello world") == [19556, 905]
    assert smollm2.encode("42") == [36, 34]
    assert (smollm2.vocab, smollm2.eos) == (49152, (2,))


def test_special_tokens_are_read_and_left_out_of_text(smollm2):
    ids = smollm2.encode("<|im_start|>user\nHi<|im_end|>")
    assert ids[0] == 1 and ids[-1] == 2
    assert smollm2.decode(ids) == "user\nHi"
    assert smollm2.decode(ids, special=True) == "<|im_start|>user\nHi<|im_end|>"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 49151), max_size=20))
def test_a_stream_gives_the_text_of_all_its_tokens(smollm2, ids):
    stream = smollm2.stream()
    assert "".join([*(stream.push(k) for k in ids), stream.end()]) == smollm2.decode(ids)


def test_a_stream_decodes_once_with_each_token(tmp_path, monkeypatch):
    """The engine has 32 streams a step, and to decode takes a good part of its time."""
    tokenizer = from_folder(write_tiny_chat(tmp_path / "model"), (1,))
    decode, calls = tokenizer.decode, []

    def counted(ids, *, special=False):
        calls.append(list(ids))
        return decode(ids, special=special)

    monkeypatch.setattr(tokenizer, "decode", counted)
    ids = tokenizer.encode("abcabcabcabc", first=False)
    stream = tokenizer.stream()
    assert "".join(stream.push(k) for k in ids) == "abcabcabcabc"
    assert len(calls) <= len(ids) + len(set(ids)) + 1



@settings(max_examples=100, deadline=None)
@given(st.text(CHARACTERS, max_size=20))
def test_a_stream_never_gives_half_a_character(smollm2, text):
    stream, pieces = smollm2.stream(), []
    for k in smollm2.encode(text):
        pieces.append(stream.push(k))
        assert text.startswith("".join(pieces))
    assert "".join(pieces) + stream.end() == text


def test_a_character_of_several_tokens_comes_whole(smollm2):
    ids = smollm2.encode("🦙")
    stream = smollm2.stream()
    assert len(ids) > 1
    assert [stream.push(k) for k in ids] == [""] * (len(ids) - 1) + ["🦙"]
    assert stream.end() == ""
    cut = smollm2.stream()
    assert cut.push(ids[0]) == "" and cut.end() == "\N{REPLACEMENT CHARACTER}"


def test_what_is_cut_inside_a_character_ends_before_it(smollm2):
    """What is broken before it stays."""
    half = smollm2.encode("🦙")[:1]
    for ids in (half, smollm2.encode("a") + half, half + smollm2.encode("a") + half):
        stream = smollm2.stream()
        text = "".join([*(stream.push(k) for k in ids), stream.end(cut=True)])
        assert text + "\N{REPLACEMENT CHARACTER}" == smollm2.decode(ids)


# ---- chats ---------------------------------------------------------------------------------

CHATS = [
    [{"role": "user", "content": "What is 2+2?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end"},
     {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}],
]
RICH = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'skip' %}{% continue %}{% endif %}\n"
    "  [{{ m | tojson }}]\n{% endfor %}{{ strftime_now('%Y')[:2] }}"
    "{% if add_generation_prompt %}>{% endif %}{{ mood }}"
)


@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("template", [None, RICH])
def test_a_chat_is_what_transformers_makes_of_it(smollm2, messages, template):
    transformers = pytest.importorskip("transformers")
    template = template or smollm2.template
    reference = transformers.PreTrainedTokenizerFast(
        tokenizer_object=smollm2._core, **smollm2.special
    )
    wanted = reference.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True, mood="é"
    )
    assert render(template, messages, smollm2.special, {"mood": "é"}) == wanted
    if template == smollm2.template:
        assert smollm2.chat(messages) == smollm2.encode(wanted)
        assert wanted.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(("template", "shown"), [
    ("{{ raise_exception('no system') }}", "no system"),
    ("{% for %}", "fails"),
    ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    ("{{ messages.append(1) }}", "unsafe"),
    ("{{ messages[0]['content'] + 3 }}", "fails"),
])
def test_a_template_that_fails_or_reaches_out_is_refused(template, shown):
    with pytest.raises(BadChat, match=shown):
        render(template, CHATS[0], {}, {})


# ---- other files ---------------------------------------------------------------------------


def metadata(**changes) -> dict:
    """A byte-level vocabulary, a few merges, and three special tokens."""
    bytes_ = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = ["1 2", "12 3", "4 5", "Ã ©"]
    tokens = ["<bos>", "<eos>", "<word>", *bytes_, *(m.replace(" ", "") for m in merges)]
    kinds = [3, 3, 4] + [1] * (len(tokens) - 3)
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges, "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
        **{f"tokenizer.ggml.{k}": v for k, v in changes.items()},
    }


def test_tags_of_an_answer_are_text_also_where_a_file_calls_them_control_tokens(tmp_path):
    """Else the calls and the reasoning of an answer could not be told."""
    meta = metadata()
    meta["tokenizer.ggml.tokens"][2:2] = ["<think>", "<tool_call>"]
    meta["tokenizer.ggml.token_type"][2:2] = [3, 3]
    core = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "<think>": 1, "<eos>": 2}, []))
    core.add_special_tokens(["<think>", "<eos>"])
    core.save(str(tmp_path / "tokenizer.json"))
    for found, text in ((from_gguf(meta, (1,)), "<tool_call>"), (from_folder(tmp_path, (2,)),
                                                                 "<think>")):
        (token,) = found.encode(text)
        assert found.decode([token, *found.eos]) == text and text not in found.control_tokens
        assert "<eos>" in found.control_tokens


@pytest.mark.parametrize(("pre", "pieces"), [
    ("llama-bpe", ["<bos>", "123", "45"]),
    ("qwen2", ["1", "2", "3", "4", "5"]),
    ("smollm", ["1", "2", "3", "4", "5"]),
    ("gpt-2", ["123", "45"]),
])
def test_each_pre_tokenizer_cuts_numbers_its_own_way(pre, pieces):
    meta = metadata(pre=pre)
    ids = from_gguf(meta, (1,)).encode("12345")
    assert [meta["tokenizer.ggml.tokens"][k] for k in ids] == pieces


def test_a_first_token_is_added_if_the_file_says_so():
    assert from_gguf(metadata(pre="qwen2", add_bos_token=True), (1,)).encode("a")[0] == 0
    assert from_gguf(metadata(pre="llama-bpe", add_bos_token=False), (1,)).encode("a")[0] != 0
    meta = {k: v for k, v in metadata(pre="llama-bpe").items() if "bos" not in k}
    with pytest.raises(BadModelConfig, match="bos_token_id is missing"):
        from_gguf(meta, (1,))


def test_words_of_the_user_stay_in_the_text():
    found = from_gguf(metadata(pre="qwen2"), (1,))
    assert found.encode("<word><eos>") == [2, 1]
    assert found.decode([2, 1]) == "<word>"
    assert found.encode("e\u0301") == found.encode("é")  # Qwen composes characters


@pytest.mark.parametrize(("changes", "error", "shown"), [
    ({"model": "llama"}, UnsupportedTokenizer, "'llama'; supported is 'gpt2'"),
    ({"pre": "deepseek-llm"}, UnsupportedTokenizer, "'deepseek-llm'; supported are smollm"),
    ({"tokens": None}, BadModelConfig, "tokenizer.ggml.tokens"),
    ({"merges": []}, BadModelConfig, "tokenizer.ggml.merges"),
    ({"eos_token_id": 10**6}, BadModelConfig, "eos_token_id is 1000000"),
])
def test_metadata_that_gives_no_tokenizer_is_named(changes, error, shown):
    with pytest.raises(error) as caught:
        from_gguf(metadata(pre="smollm") | {f"tokenizer.ggml.{k}": v for k, v in changes.items()},
                  (1,))
    assert shown in str(caught.value)


def test_a_folder_gives_the_same_tokenizer(smollm2, tmp_path):
    smollm2._core.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>",
        "chat_template": smollm2.template,
    }))
    found = from_folder(tmp_path, ())
    assert found is not None and found.eos == (2,)
    assert found.special == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    for text in TEXTS:
        assert found.encode(text) == smollm2.encode(text)
    assert found.chat(CHATS[1]) == smollm2.chat(CHATS[1])
    (tmp_path / "chat_template.jinja").write_text("new")
    found = from_folder(tmp_path, (7,))
    assert found is not None and (found.template, found.eos) == ("new", (7,))


def test_a_folder_may_name_several_templates_or_none(smollm2, tmp_path):
    smollm2._core.save(str(tmp_path / "tokenizer.json"))
    bare = from_folder(tmp_path, (2,))
    assert bare is not None
    with pytest.raises(BadChat, match="no chat template"):
        bare.chat(CHATS[0])
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    found = from_folder(tmp_path, (2,))
    assert found is not None and found.template == "d"


def test_a_template_of_its_own_for_tools_is_taken_with_tools(smollm2, tmp_path):
    smollm2._core.save(str(tmp_path / "tokenizer.json"))
    config = tmp_path / "tokenizer_config.json"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    config.write_text(json.dumps({"chat_template": named}))

    def texts(found):
        return [found.decode(found.chat(CHATS[0], **options))
                for options in ({}, {"tools": []}, {"tools": [{"name": "a"}]})]

    assert texts(from_folder(tmp_path, (2,))) == ["d", "d", "t"]
    meta = metadata() | {"tokenizer.chat_template": "1", "tokenizer.chat_template.tool_use": "2"}
    assert texts(from_gguf(meta, (1,))) == ["1", "1", "2"]
    config.write_text(json.dumps({"chat_template": "d"}))
    assert texts(from_folder(tmp_path, (2,))) == ["d", "d", "d"]
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("u")
    assert texts(from_folder(tmp_path, (2,))) == ["d", "d", "u"]
    with pytest.raises(BadModelConfig, match="tool_use is 3"):
        from_gguf(metadata() | {"tokenizer.chat_template.tool_use": 3}, (1,))


def test_a_prepared_tokenizer_compiles_no_template_for_a_chat(smollm2):
    text = smollm2.template + "{# prepared #}"
    made = Tokenizer(
        smollm2._core, eos=(2,), special=smollm2.special, template=text, tool_template="{{ x("
    )
    made.prepare()
    before = chat_template._compile.cache_info().misses
    made.chat(CHATS[0])
    assert chat_template._compile.cache_info().misses == before


def test_a_folder_without_a_tokenizer_has_none(tmp_path):
    assert from_folder(tmp_path, ()) is None
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(UnsupportedTokenizer, match=r"tokenizer\.model only"):
        from_folder(tmp_path, ())
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadModelFile, match=r"tokenizer\.json cannot be read"):
        from_folder(tmp_path, ())
