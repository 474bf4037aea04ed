"""What a request for the tokens of a text, or the text of tokens, may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from .chat.chat_body import MOST_TOOLS, Messages, ToolBody
from .chat_request import ChatRequest, ToolChoice
from .strict_body import Body, Few, Name, Neutral, Tokens


class TokenizeBody(Body):
    model: Name | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    tools: Annotated[list[ToolBody], Few(MOST_TOOLS)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "add_generation_prompt": Neutral("a chat goes on with an answer", (True,)),
        "return_token_strs": Neutral("tokens are told as numbers", (False,)),
    }

    @property
    def adds_first(self) -> bool:
        """Whether a text gets the first token of the tokenizer."""
        return self.add_special_tokens is not False

    def asked(self) -> ChatRequest | None:
        """Of a chat; nobody answers it."""
        if self.messages is None:
            return None
        tools = [tool.plain() for tool in self.tools or ()]
        return ChatRequest([m.plain() for m in self.messages], [], tools,
                           ToolChoice("auto" if tools else "none"), self.chat_template_kwargs or {})


class DetokenizeBody(Body):
    model: Name | None = None
    tokens: Tokens
