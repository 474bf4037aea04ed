"""Reads tokenizers from a Hugging Face folder (tokenizer.json) or from the metadata of a GGUF
file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import BadModelConfig, BadModelFile, UnsupportedTokenizer
from ..model.model_config import shown
from ..model_files import MAX_TOKENIZER_BYTES, check_size, read_json, read_text
from ..optional_packages import need
from .tokenizer import Tokenizer

_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
# Tags in answers: readers need their text, also if a file declares them control tokens.
_TAGS = {"<think>", "</think>", "<tool_call>", "</tool_call>"}
_CONTROL, _USER = 3, 4  # token types of GGUF: control tokens, and user-defined words

# How published tokenizer.json files split text before merges.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"llama-bpe": _WORDS % r"\p{N}{1,3}", "qwen2": _WORDS % r"\p{N}"}
_PRE = ("smollm", "gpt-2", *_SPLITS)


def from_folder(folder: Path, eos: tuple[int, ...]) -> Tokenizer | None:
    """The tokenizer of a folder; None if it has none."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        if (folder / "tokenizer.model").is_file():
            raise UnsupportedTokenizer(
                f"{folder} has tokenizer.model only; supported is tokenizer.json"
            )
        return None
    check_size(path, MAX_TOKENIZER_BYTES)
    try:
        core = need("tokenizers").Tokenizer.from_file(str(path))
    except Exception as e:  # the package raises nothing narrower
        raise BadModelFile(f"{path} cannot be read: {e}") from e
    core = _with_tags_as_text(core)
    core.no_truncation()
    core.no_padding()
    extra = folder / "tokenizer_config.json"
    config = read_json(extra) if extra.is_file() else {}
    special = {k: text for k in _NAMES if (text := _text(config.get(k))) is not None}
    if not eos and "eos_token" in special:
        last = core.token_to_id(special["eos_token"])
        if last is None:
            raise BadModelFile(f"{extra}: eos_token is {shown(special['eos_token'])}, which "
                               "tokenizer.json does not have")
        eos = (last,)
    templates = _templates(folder, config)
    return Tokenizer(core, eos=eos, special=special, template=templates.get("default"),
                     tool_template=templates.get("tool_use"))


def _with_tags_as_text(core: Any) -> Any:
    if not any(t.special and t.content in _TAGS for t in core.get_added_tokens_decoder().values()):
        return core
    definition = json.loads(core.to_str())
    for token in definition["added_tokens"]:
        token["special"] &= token["content"] not in _TAGS
    return need("tokenizers").Tokenizer.from_str(json.dumps(definition))


def _text(token: Any) -> str | None:
    """The text of a special token, which is a text or a table with its content."""
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if isinstance(found, str) else None


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name: `default`, and `tool_use` for chats with tools if there is one."""
    found = _named_templates(folder, config.get("chat_template"))
    for name, path in (("default", "chat_template.jinja"),
                       ("tool_use", "additional_chat_templates/tool_use.jinja")):
        if (folder / path).is_file():
            found[name] = read_text(folder / path)
    return found


def _named_templates(folder: Path, given: Any) -> dict[str, str]:
    match given:
        case str(text):
            return {"default": text}
        case list(several):
            try:
                named = {t["name"]: t["template"] for t in several}
            except (TypeError, KeyError) as e:
                raise BadModelFile(f"{folder}: chat_template is no list of named texts") from e
            return {name: text for name, text in named.items() if isinstance(text, str)}
        case _:
            return {}


def from_gguf(meta: Mapping[str, Any], eos: tuple[int, ...]) -> Tokenizer:
    model, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "gpt-2")
    if model != "gpt2":
        raise UnsupportedTokenizer(f"tokenizer.ggml.model is {shown(model)}; supported is 'gpt2'")
    if pre not in _PRE:
        raise UnsupportedTokenizer(
            f"tokenizer.ggml.pre is {shown(pre)}; supported are {', '.join(_PRE)}"
        )
    tokens = _list(meta, "tokenizer.ggml.tokens")
    core = _core(tokens, _list(meta, "tokenizer.ggml.merges"), pre)
    _add_special(core, tokens, meta)
    special = _special(meta, tokens)
    # llama.cpp's rule: without a key, only Llama 3 has a first token.
    if meta.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe"):
        _add_first(core, special.get("bos_token"))
    return Tokenizer(core, eos=eos, special=special,
                     template=_template(meta, "tokenizer.chat_template"),
                     tool_template=_template(meta, "tokenizer.chat_template.tool_use"))


def _template(meta: Mapping[str, Any], key: str) -> str | None:
    found = meta.get(key)
    if not isinstance(found, str | None):
        raise BadModelConfig(f"{key} is {shown(found)}; it must be a text")
    return found


def _list(meta: Mapping[str, Any], key: str) -> list[str]:
    found = meta.get(key)
    if not isinstance(found, list) or not found:
        raise BadModelConfig(f"{key} is not in the metadata")
    if not all(isinstance(text, str) for text in found):
        raise BadModelConfig(f"{key} must hold texts")
    return found


def _core(tokens: list[str], merges: list[str], pre: str) -> Any:
    t = need("tokenizers")
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        pairs.append((left, right))
    ids = {text: k for k, text in enumerate(tokens)}
    try:
        model = t.models.BPE(vocab=ids, merges=pairs, ignore_merges=pre == "llama-bpe")
    except Exception as e:  # the package raises nothing narrower
        raise BadModelConfig(f"tokenizer.ggml.merges does not fit the tokens: {e}") from e
    core = t.Tokenizer(model)
    parts = []
    if pre == "smollm":
        parts.append(t.pre_tokenizers.Digits(individual_digits=True))
    if pre in _SPLITS:
        parts.append(t.pre_tokenizers.Split(t.Regex(_SPLITS[pre]), behavior="isolated"))
    parts.append(
        t.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in _SPLITS)
    )
    if pre == "qwen2":
        core.normalizer = t.normalizers.NFC()
    core.pre_tokenizer = t.pre_tokenizers.Sequence(parts)
    core.decoder = t.decoders.ByteLevel()
    return core


def _add_special(core: Any, tokens: list[str], meta: Mapping[str, Any]) -> None:
    t = need("tokenizers")
    kinds = meta.get("tokenizer.ggml.token_type", [])
    if not isinstance(kinds, list):
        raise BadModelConfig(f"tokenizer.ggml.token_type is {shown(kinds)}; it must be a list")
    kinds = [_USER if text in _TAGS and kind == _CONTROL else kind
             for text, kind in zip(tokens, kinds, strict=False)]
    for wanted, add in ((_CONTROL, core.add_special_tokens), (_USER, core.add_tokens)):
        texts = [text for text, kind in zip(tokens, kinds, strict=False) if kind == wanted]
        add([t.AddedToken(x, special=wanted == _CONTROL, normalized=False) for x in texts])


def _special(meta: Mapping[str, Any], tokens: list[str]) -> dict[str, str]:
    out = {}
    for name in _NAMES:
        word = name.replace("unk", "unknown").replace("pad", "padding")
        key = f"tokenizer.ggml.{word}_id"
        match meta.get(key):
            case None:
                pass
            case int(at) if 0 <= at < len(tokens):
                out[name] = tokens[at]
            case other:
                raise BadModelConfig(f"{key} is {shown(other)}; there are {len(tokens)} tokens")
    return out


def _add_first(core: Any, text: str | None) -> None:
    if text is None:
        raise BadModelConfig("texts begin with bos, but tokenizer.ggml.bos_token_id is missing")
    t = need("tokenizers")
    core.post_processor = t.processors.TemplateProcessing(
        single=f"{text} $A", special_tokens=[(text, core.token_to_id(text))]
    )
