"""The bodies of /tokenize and /detokenize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from .chat.chat_body import MAX_TOOLS, Messages, ToolBody
from .chat_request import ChatRequest, ToolChoice
from .strict_body import Body, MaxItems, Name, NoEffect, Tokens


class TokenizeBody(Body):
    model: Name | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    tools: Annotated[list[ToolBody], MaxItems(MAX_TOOLS)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "add_generation_prompt": NoEffect("a chat continues with an answer", (True,)),
        "return_token_strs": NoEffect("tokens are returned as numbers", (False,)),
    }

    @property
    def adds_first(self) -> bool:
        """Whether the tokenizer adds its first token to a text."""
        return self.add_special_tokens is not False

    def to_chat_request(self) -> ChatRequest | None:
        """The chat to encode, if the body has one. It generates nothing, so it has no params."""
        if self.messages is None:
            return None
        tools = [tool.to_tool() for tool in self.tools or ()]
        return ChatRequest([m.to_message() for m in self.messages], [], tools,
                           ToolChoice("auto" if tools else "none"), self.chat_template_kwargs or {})


class DetokenizeBody(Body):
    model: Name | None = None
    tokens: Tokens
