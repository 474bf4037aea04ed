"""Writes chat completions, whole or as chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...engine.request import FinishReason, ScoredToken
from ..deltas import ArgumentsDelta, CallDelta, Delta, ReasoningDelta, TextDelta, ToolCall
from ..openai_writer import OpenAIWriter
from ..prompt_logprobs import vllm_logprobs
from ..response_writer import AnswerDelta, Json, Usage, WholeAnswer


@dataclass
class ChatWriter(OpenAIWriter):
    """Remembers which answers have had a chunk, and which have had a call."""

    started: set[int] = field(default_factory=set)
    with_calls: set[int] = field(default_factory=set)
    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> Json:
        found = super().whole(answers, usage)
        if self.prompt_logprobs is not None:
            found["prompt_logprobs"] = vllm_logprobs(
                answers[0].prompt, self.prompt_logprobs, self.texts)
        return found

    def choice(self, index: int, answer: WholeAnswer) -> Json:
        parsed = answer.parsed
        message: Json = {"role": "assistant", "content": parsed.text}
        if parsed.reasoning:
            message["reasoning_content"] = parsed.reasoning
        if parsed.calls:
            message["tool_calls"] = [_call(call) for call in parsed.calls]
            message["content"] = parsed.text or None
        return {"index": index, "message": message, "logprobs": self._logprobs(answer.tokens),
                "finish_reason": _finish_reason(answer.finish, bool(parsed.calls))}

    def text_frame(self, answer: int) -> tuple[str, str] | None:
        if answer not in self.started:
            return None
        return (f'{{"index":{answer},"delta":{{"content":',
                '},"logprobs":null,"finish_reason":null}')

    def pieces(self, new: AnswerDelta) -> Iterator[Json]:
        """The first piece has the log probabilities, the last one the finish reason."""
        contents = [self._content(delta, new.index) for delta in new.deltas]
        logprobs = self._logprobs(new.tokens)
        if not contents and (new.finish is not None or logprobs is not None):
            contents = [{"content": ""} if new.index not in self.started else {}]
        for k, delta in enumerate(contents):
            if new.index not in self.started:
                self.started.add(new.index)
                delta = {"role": "assistant", "content": None if "content" not in delta else "",
                         **delta}
            last = k == len(contents) - 1
            reason = _finish_reason(new.finish, new.index in self.with_calls) if last else None
            yield {"index": new.index, "delta": delta, "logprobs": logprobs if k == 0 else None,
                   "finish_reason": reason}

    def _content(self, delta: Delta, answer: int) -> Json:
        match delta:
            case TextDelta(text):
                return {"content": text}
            case ReasoningDelta(text):
                return {"reasoning_content": text}
            case CallDelta(index, name, id):
                self.with_calls.add(answer)
                return {"tool_calls": [{"index": index, "id": id, "type": "function",
                                        "function": {"name": name, "arguments": ""}}]}
            case ArgumentsDelta(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _logprobs(self, tokens: Sequence[ScoredToken]) -> Json | None:
        entries = self.texts.logprobs(tokens)
        return {"content": entries} if entries else None


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}}


def _finish_reason(finish: FinishReason | None, has_calls: bool) -> str | None:
    return "tool_calls" if has_calls and finish is FinishReason.stop else finish
