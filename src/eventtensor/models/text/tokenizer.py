"""Text to tokens and back, chats too, and text piece by piece as its tokens come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ...errors import BadChat, BadPrompt
from .chat_template import Message, render
from .control_tokens import are_normalized, controls, marked, unmarking

BROKEN = "\N{REPLACEMENT CHARACTER}"  # what bytes that are not, or not yet, UTF-8 decode to


class Tokenizer:
    """`core` is one of the package `tokenizers`; `special` has the texts of bos_token and the like;
    `eos` are the tokens that end an answer. Chats with tools have the `tool_template`, if there is
    one."""

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

    @property
    def vocab(self) -> int:
        return int(self._core.get_vocab_size())

    @cached_property
    def longest(self) -> int:
        """Bytes that one token stands for at most. A normalizer may make a text shorter: composed
        characters have a third of the bytes."""
        composed = 3 if self._core.normalizer is not None else 1
        return composed * max(len(text.encode()) for text in self._core.get_vocab())

    @property
    def definition(self) -> str:
        """All of it as a tokenizer.json."""
        return str(self._core.to_str())

    def encode(self, text: str, first: bool = True) -> list[int]:
        """Special tokens may be written out in the text; with `first` one is added where the model
        was trained with it."""
        return self._encoded(text, first)

    def _encoded(self, text: str, first: bool, core: Any = None) -> list[int]:
        """By the call for many texts: other threads run meanwhile, as they do not beside the one
        for a single text."""
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise BadPrompt(f"the text has half a character at {e.start}",
                            hint="it was not UTF-8 where it came from") from None
        (found,) = (core or self._core).encode_batch_fast([text], add_special_tokens=first)
        return list(found.ids)

    @cached_property
    def control_tokens(self) -> list[str]:
        """Their texts."""
        return controls(self._core)

    @cached_property
    def _lookalikes(self) -> bool:
        return are_normalized(self._core)

    @cached_property
    def _unmarking(self) -> Any:
        return unmarking(self._core)

    def prepare(self) -> None:
        """Makes what the first request that needs it would wait for."""
        _ = self.longest, self.control_tokens, self._unmarking

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """`special`: with the special tokens."""
        return str(self._core.decode(list(ids), skip_special_tokens=not special))

    def decode_long(self, ids: Sequence[int]) -> str:
        """With the special tokens; other threads run meanwhile."""
        return str(self._core.decode_batch([ids], skip_special_tokens=False)[0])

    def stream(self, *, special: bool = False) -> TextStream:
        """`special`: with the special tokens."""
        return TextStream(self, special)

    def chat(self, messages: Sequence[Message], /, **options: Any) -> list[int]:
        """Tokens of a chat, up to where the answer begins; options go to the template, as `tools`.
        Only the template gives control tokens: elsewhere their text is text like any other."""
        template = self.template
        if options.get("tools") and self.tool_template is not None:
            template = self.tool_template
        if template is None:
            raise BadChat("this model has no chat template")
        given = [list(messages), options]
        try:
            safe = marked(given, self.control_tokens)
            is_marked = safe != given
        except RecursionError:
            raise BadChat("its messages, tools or options are nested too deep") from None
        text = render(template, safe[0], self.special, safe[1])
        core = self._unmarking if self._lookalikes or is_marked else None
        return self._encoded(text, first=False, core=core)


class TextStream:
    """Gives the text of tokens as they come, and never half a character."""

    def __init__(self, tokenizer: Tokenizer, special: bool) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._ids: list[int] = []
        self._given = 0  # how many of them are in the text given so far

    def push(self, token: int) -> str:
        """What is new; it may be nothing, if the token ends inside a character."""
        self._ids.append(token)
        return self._new(last=False)

    def end(self, *, cut: bool = False) -> str:
        """What is left: bytes that no token has completed. Where the tokens are `cut`, those of the
        last character are none."""
        left = self._new(last=True)
        return left.rstrip(BROKEN) if cut else left

    def _new(self, last: bool) -> str:
        before = self._tokenizer.decode(self._ids[: self._given], special=self._special)
        now = self._tokenizer.decode(self._ids, special=self._special)
        if now.endswith(BROKEN) and not last:
            return ""
        # The piece given last stays: a token's text may depend on the one before.
        self._ids = self._ids[self._given :] or self._ids
        self._given = len(self._ids)
        return now[len(before) :]
