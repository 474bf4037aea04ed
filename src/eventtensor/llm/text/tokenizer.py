"""The tokenizer of a model: text and chats to tokens, tokens to text, and text from a stream of
tokens. tokenizer_files.py reads tokenizers from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from ...errors import BadChat, BadPrompt
from .chat_template import Message, render
from .control_tokens import control_texts, have_lookalikes, mark, tokenizer_without_marks

BROKEN = "\N{REPLACEMENT CHARACTER}"  # the decoding of bytes that are not, or not yet, UTF-8


class Tokenizer:
    """`core` is a tokenizer of the package `tokenizers`. `special` has the texts of bos_token and
    the like. `eos` are the tokens that end an answer. Chats with tools take `tool_template` if
    there is one."""

    def __init__(
        self,
        core: Any,
        *,
        eos: tuple[int, ...],
        special: Mapping[str, str],
        template: str | None,
        tool_template: str | None = None,
    ) -> None:
        self._core, self.eos, self.special, self.template = core, eos, special, template
        self.tool_template = tool_template
        self._token_texts: dict[tuple[int, bool], str] = {}

    @property
    def vocab(self) -> int:
        return int(self._core.get_vocab_size())

    @cached_property
    def max_token_bytes(self) -> int:
        """The most bytes of text of one token. A normalizer may shorten a text: composed characters
        have a third of the bytes."""
        composed = 3 if self._core.normalizer is not None else 1
        return composed * max(len(text.encode()) for text in self._core.get_vocab())

    @property
    def definition(self) -> str:
        """The whole tokenizer as a tokenizer.json."""
        return str(self._core.to_str())

    def encode(self, text: str, first: bool = True) -> list[int]:
        """The tokens of a text, which may contain special tokens. `first`: adds the first token of
        a text if the model was trained with one."""
        return self._encode_batch(text, first)

    def _encode_batch(self, text: str, first: bool, core: Any = None) -> list[int]:
        """Encodes by the call for many texts, which releases the GIL; the call for one text does
        not."""
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise BadPrompt(f"the text has half a character at {e.start}",
                            hint="it was not UTF-8 where it came from") from None
        (found,) = (core or self._core).encode_batch_fast([text], add_special_tokens=first)
        return list(found.ids)

    @cached_property
    def control_tokens(self) -> list[str]:
        """The texts of the control tokens."""
        return control_texts(self._core)

    @cached_property
    def _has_lookalikes(self) -> bool:
        return have_lookalikes(self._core)

    @cached_property
    def _core_without_marks(self) -> Any:
        return tokenizer_without_marks(self._core)

    def prepare(self) -> None:
        """Computes cached properties and compiles templates, so that no request waits for them."""
        _ = self.max_token_bytes, self.control_tokens, self._core_without_marks
        for template in filter(None, (self.template, self.tool_template)):
            with suppress(BadChat):  # a chat says it
                render(template, [{"role": "user", "content": ""}], self.special, {})

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens. `special`: includes special tokens."""
        return str(self._core.decode(list(ids), skip_special_tokens=not special))

    def decode_token(self, token: int, *, special: bool) -> str:
        """The text of one token alone. It is decoded once: a stream asks for it with each token."""
        key = token, special
        text = self._token_texts.get(key)
        if text is None:
            text = self._token_texts[key] = self.decode([token], special=special)
        return text

    def decode_long(self, ids: Sequence[int]) -> str:
        """The text of many tokens with special tokens; releases the GIL."""
        return str(self._core.decode_batch([ids], skip_special_tokens=False)[0])

    def stream(self, *, special: bool = False) -> TextStream:
        """The text of a stream of tokens. `special`: includes special tokens."""
        return TextStream(self, special)

    def chat(self, messages: Sequence[Message], /, **options: Any) -> list[int]:
        """The tokens of a chat up to the begin of the answer. Options such as `tools` go to the
        template. Only the template writes control tokens; in messages their texts are plain
        text."""
        template = self.template
        if options.get("tools") and self.tool_template is not None:
            template = self.tool_template
        if template is None:
            raise BadChat("this model has no chat template")
        given = [list(messages), options]
        try:
            safe = mark(given, self.control_tokens)
            is_marked = safe != given
        except RecursionError:
            raise BadChat("its messages, tools or options are nested too deep") from None
        text = render(template, safe[0], self.special, safe[1])
        core = self._core_without_marks if self._has_lookalikes or is_marked else None
        return self._encode_batch(text, first=False, core=core)


class TextStream:
    """Converts a stream of tokens to text, in whole characters."""

    def __init__(self, tokenizer: Tokenizer, special: bool) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._ids: list[int] = []
        self._given = 0  # of them are in the text so far

    def push(self, token: int) -> str:
        """The new text; empty if the token ends inside of a character."""
        self._ids.append(token)
        return self._new(last=False)

    def end(self, *, cut: bool = False) -> str:
        """The rest: bytes of an incomplete character. `cut`: drops them, because more tokens would
        have followed."""
        left = self._new(last=True)
        return left.rstrip(BROKEN) if cut else left

    def _new(self, last: bool) -> str:
        before = self._given_text()
        now = self._tokenizer.decode(self._ids, special=self._special)
        if now.endswith(BROKEN) and not last:
            return ""
        # The last piece stays, because the text of a token may depend on the one before.
        self._ids = self._ids[self._given :] or self._ids
        self._given = len(self._ids)
        return now[len(before) :]

    def _given_text(self) -> str:
        """Most pieces are one token."""
        if self._given == 1:
            return self._tokenizer.decode_token(self._ids[0], special=self._special)
        return self._tokenizer.decode(self._ids[: self._given], special=self._special)
