"""What a request for the tokens of a text, or the text of tokens, may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .chat.chat_body import Messages
from .strict_body import Body, Name, Neutral, Tokens


class TokenizeBody(Body):
    model: Name | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "add_generation_prompt": Neutral("a chat goes on with an answer", (True,)),
        "return_token_strs": Neutral("tokens are told as numbers", (False,)),
    }

    @property
    def adds_first(self) -> bool:
        """Whether a text gets the first token of the tokenizer."""
        return self.add_special_tokens is not False

    def plain_messages(self) -> list[dict[str, Any]] | None:
        return None if self.messages is None else [m.plain() for m in self.messages]


class DetokenizeBody(Body):
    model: Name | None = None
    tokens: Tokens
