"""Chat completions, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...engine.request import Chosen, Finish
from ..deltas import ArgumentsDelta, CallDelta, Delta, ReasoningDelta, TextDelta, ToolCall
from ..openai_writer import OpenAIWriter
from ..prompt_logprobs import vllm_logprobs
from ..response_writer import AnswerDelta, Json, Usage, WholeAnswer


@dataclass
class ChatWriter(OpenAIWriter):
    """`begun`: answers that have a chunk; `calling`: those of which a call has begun."""

    begun: set[int] = field(default_factory=set)
    calling: set[int] = field(default_factory=set)
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
                "finish_reason": _reason(answer.finish, bool(parsed.calls))}

    def text_frame(self, answer: int) -> tuple[str, str] | None:
        if answer not in self.begun:
            return None
        return (f'{{"index":{answer},"delta":{{"content":',
                '},"logprobs":null,"finish_reason":null}')

    def pieces(self, new: AnswerDelta) -> Iterator[Json]:
        """Log probabilities come with the first of them, the finish with the last."""
        said = [self._said(delta, new.index) for delta in new.deltas]
        logprobs = self._logprobs(new.tokens)
        if not said and (new.finish is not None or logprobs is not None):
            said = [{"content": ""} if new.index not in self.begun else {}]
        for k, delta in enumerate(said):
            if new.index not in self.begun:
                self.begun.add(new.index)
                delta = {"role": "assistant", "content": None if "content" not in delta else "",
                         **delta}
            last = k == len(said) - 1
            reason = _reason(new.finish, new.index in self.calling) if last else None
            yield {"index": new.index, "delta": delta, "logprobs": logprobs if k == 0 else None,
                   "finish_reason": reason}

    def _said(self, delta: Delta, answer: int) -> Json:
        match delta:
            case TextDelta(text):
                return {"content": text}
            case ReasoningDelta(text):
                return {"reasoning_content": text}
            case CallDelta(index, name, id):
                self.calling.add(answer)
                return {"tool_calls": [{"index": index, "id": id, "type": "function",
                                        "function": {"name": name, "arguments": ""}}]}
            case ArgumentsDelta(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _logprobs(self, tokens: Sequence[Chosen]) -> Json | None:
        entries = self.texts.logprobs(tokens)
        return {"content": entries} if entries else None


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}}


def _reason(finish: Finish | None, calls: bool) -> str | None:
    return "tool_calls" if calls and finish is Finish.stop else finish
