"""`eventtensor chat`: a chat in the terminal, or one question per line through a pipe.

`Conversation` holds the messages; `converse` reads lines and prints answers."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Annotated, TextIO

from ...errors import BadChat, PromptTooLong, UnsupportedTokenizer
from ..engine.llm import LLM
from ..engine.sampling_params import SamplingParams
from ..weights.model_source import Model, open_model
from .options import (
    Artifact,
    BatchInvariant,
    DType,
    DTypeName,
    MaxModelLen,
    ModelName,
    TargetName,
    TargetOption,
    check_numbers,
    check_texts,
    option,
    user_errors,
)
from .progress_bars import ProgressBars
from .terminal import terminal

_COMMANDS = "/clear forgets the chat, /exit ends, ctrl-c stops an answer"


def chat(
    model: ModelName,
    system: Annotated[str, option("the system message")] = "",
    max_tokens: Annotated[int | None, option("maximum tokens of an answer")] = None,
    temperature: Annotated[float, option("0: always the likeliest token")] = 0.7,
    top_k: Annotated[int, option("only the k likeliest tokens; 0: all")] = 0,
    top_p: Annotated[float, option("only the likeliest tokens with this total probability")] = 0.95,
    seed: Annotated[int | None, option("seed of sampling; random without it")] = None,
    target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
    max_model_len: MaxModelLen = None,
    batch_invariant: BatchInvariant = False,
    artifact: Artifact = None,
) -> None:
    """Chat with a model in the terminal. Through a pipe each line is a question."""
    with user_errors():
        check_texts(system=system)
        check_numbers(max_model_len=max_model_len)
        params = SamplingParams(
            max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
        )
        with ProgressBars(terminal(stderr=True)) as bars, LLM(
            chat_model(model), target=target.value, dtype=dtype.short_name,
            max_model_len=max_model_len, max_num_seqs=1, batch_invariant=batch_invariant,
            artifact=artifact, progress=bars.update,
        ) as llm:
            bars.stop()
            is_terminal = sys.stdin.isatty()
            if is_terminal:
                terminal(stderr=True).print(f"{model} on {llm.target}: {_COMMANDS}", style="dim")
            lines = read_lines() if is_terminal else iter(sys.stdin)
            converse(Conversation(llm, params, system), lines, sys.stdout, is_terminal)


def chat_model(name: str) -> Model:
    """Opens a model that can chat, and refuses others before their weights load."""
    model = open_model(name)
    if model.tokenizer is None:
        raise UnsupportedTokenizer(f"{name} has no tokenizer, so it cannot take a text",
                                   hint="eventtensor.LLM takes tokens")
    if model.tokenizer.template is None:
        raise BadChat(f"{name} has no chat template",
                      hint="`eventtensor generate --raw` goes on with a text")
    return model


@dataclass
class Conversation:
    """The messages so far, and the model that continues them."""

    llm: LLM
    params: SamplingParams
    system: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        system = {"role": "system", "content": self.system}
        self.messages = [system] if self.system else []

    def answer(self, text: str) -> Generator[str, None, None]:
        """Yields the answer in pieces. An interrupted answer stays in the chat as far as it got. A
        question that is too long does not."""
        question = {"role": "user", "content": text}
        tokens = self.llm.tokens([*self.messages, question])
        reply = {"role": "assistant", "content": ""}
        self.messages += [question, reply]
        try:
            for output in self.llm.stream(tokens, self.params):
                reply["content"] += output.text
                yield output.text
        except PromptTooLong:
            del self.messages[-2:]
            raise


def converse(
    conversation: Conversation, lines: Iterable[str], out: TextIO, is_terminal: bool
) -> None:
    """Answers one question per line. In a terminal, neither ctrl-c nor a chat that is too long ends
    the loop."""
    for text in filter(None, map(str.strip, lines)):
        if text == "/exit":
            return
        if text == "/clear":
            conversation.clear()
            continue
        if text == "/help":
            terminal(stderr=True).print(_COMMANDS)
            continue
        with closing(conversation.answer(text)) as pieces:
            try:
                for piece in pieces:
                    out.write(piece)
                    out.flush()
            except KeyboardInterrupt:
                if not is_terminal:
                    raise
            except PromptTooLong as e:
                if not is_terminal:
                    raise
                line = f"{e.code}: {e.message}\n  hint: /clear"
                terminal(stderr=True).print(line, style="yellow")
        out.write("\n")
        out.flush()


def read_lines() -> Iterator[str]:
    """Lines from the terminal, with line editing where readline is installed."""
    with suppress(ImportError):
        import readline  # noqa: F401
    with suppress(EOFError):
        while True:
            yield input("> ")
    print()
