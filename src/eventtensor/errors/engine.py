"""ET5xx: the engine: parameters of a request, and requests that cannot be taken or finished."""

from __future__ import annotations

from .base import EventTensorError


class BadParameter(EventTensorError):
    code, title = "ET500", "a parameter of a request that is unknown or out of range"
    default_hint = "see eventtensor.SamplingParams"


class BadPrompt(EventTensorError):
    code, title = "ET501", "a prompt that is empty, or no text of this model"
    default_hint = "a text, or tokens of this model's own vocabulary"


class PromptTooLong(BadPrompt):
    """The message has both sentences by which clients of servers know this error."""

    code, title = "ET517", "a prompt that, with its answer, is too long for the context"
    default_hint = "shorten it, or make the engine with a larger context"

    def __init__(self, context: int, prompt: str, answer: int = 0) -> None:
        """`prompt`: how long it is. `answer`: tokens that are wanted, if it is they that are too
        many."""
        most = f"This model's maximum context length is {context} tokens"
        if answer:
            super().__init__(f"{most}, but the prompt has {prompt} and its answer may have "
                             f"{answer} tokens")
        else:
            super().__init__(f"Input tokens exceed the configured limit of {context} tokens. "
                             f"{most}, with one for the answer, but the prompt has {prompt}")


class QueueFull(EventTensorError):
    code, title = "ET502", "more requests than the engine lets wait"
    default_hint = "try again later, or make the engine with a larger max_waiting"

    def __init__(self, message: str, retry_s: int | None = None) -> None:
        """`retry_s`: seconds after which there is likely to be room; None if nobody knows."""
        super().__init__(message)
        self.retry_s = retry_s


class EngineStopped(EventTensorError):
    code, title = "ET503", "an engine that runs no more"
    default_hint = "what ended it is in the message; make a new one"


class StepStuck(EventTensorError):
    code, title = "ET504", "a step that does not end"
    default_hint = "the machine may be overloaded; the limit is step_limit_s"


class StepFailed(EventTensorError):
    code, title = "ET505", "a step that gave no tokens"
    default_hint = "the message has the cause; requests that come later are not concerned"


class BadGrammar(EventTensorError):
    code, title = "ET506", "a grammar of an answer that cannot be used"
    default_hint = "the message says what of it is wrong, or not supported"


class BadAddress(EventTensorError):
    code, title = "ET507", "an address that a server cannot listen at"
    default_hint = "another --port, or 0 for any that is free; --host is an address of this machine"


class BadTool(EventTensorError):
    code, title = "ET515", "a tool, or a choice of tools, that cannot be used"
    default_hint = "the message names the tool, and what of it is wrong"
