"""A prompt in, text out as it comes, and a line about the speed at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from ..engine.llm import LLM
from ..engine.sampling_params import SamplingParams
from ..errors import BadChat, UnsupportedTokenizer
from ..models.bandwidth import Bandwidth, measure_bandwidth
from ..models.model_source import open_model
from ..models.runner import Runner, StepToken
from ..models.text.tokenizer import Tokenizer
from .terminal import terminal


@dataclass(frozen=True)
class ChatPrompt:
    """`template`: with the model's chat template; None means if it has one."""

    prompt: str
    system: str = ""
    template: bool | None = None

    def tokens(self, tokenizer: Tokenizer) -> list[int]:
        wanted = tokenizer.template is not None if self.template is None else self.template
        if not wanted:
            if self.system:
                raise BadChat("--system needs a chat, and this prompt goes in as it is",
                              hint="leave --system away, or use a model with a chat template")
            return tokenizer.encode(self.prompt)
        before = [{"role": "system", "content": self.system}] if self.system else []
        return tokenizer.chat([*before, {"role": "user", "content": self.prompt}])


def generate_text(
    name: str, chat: ChatPrompt, params: SamplingParams, target: str, dtype: str,
    batch_invariant: bool, artifact: Path | None = None,
) -> Iterator[str]:
    """Text piece by piece. Progress and speed go to stderr. The answer ends with the context, which
    is no longer than the model's own."""
    shown = terminal(stderr=True)
    model = open_model(name)
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise UnsupportedTokenizer(f"{name} has no tokenizer, so it cannot take a text",
                                   hint="eventtensor.LLM takes tokens")
    assert params.max_tokens is not None
    prompt = chat.tokens(tokenizer)
    with ProgressBars(shown) as bars, LLM(
        model, target=target, dtype=dtype, max_model_len=len(prompt) + params.max_tokens,
        max_num_seqs=1, cache_gb=None, progress=bars.update, batch_invariant=batch_invariant,
        artifact=artifact,
    ) as llm:
        _built(llm.engine.runner, len(prompt))
        bars.stop()
        heard = TokenTimer(len(prompt), time.perf_counter())
        for output in llm.stream(prompt, replace(params, max_tokens=None)):
            heard.now()
            yield output.text
        yield "\n"
        read = llm.engine.runner.bytes_read([StepToken(0, 0, heard.middle)])
        memory = measure_bandwidth(llm.target)
        shown.print(heard.summary(read, memory, f"{llm.target}, {dtype}"), style="dim")


def _built(runner: Runner, prompt: int) -> None:
    """What a compiler takes is no part of the speed: all kernels that steps of one request use."""
    runner.ready(min(prompt, runner.limits.rows))
    runner.ready(1, decode_only=True)


@dataclass
class TokenTimer:
    """When what comes of an answer was there: a token each time, or its end."""

    prompt: int
    sent: float
    came: list[float] = field(default_factory=list)

    def now(self) -> None:
        self.came.append(time.perf_counter())

    @property
    def middle(self) -> int:
        """The position of the middle step after the first token."""
        return self.prompt + len(self.came) // 2

    def summary(self, read: int, memory: Bandwidth, how: str) -> str:
        """`read`: bytes that the middle step reads."""
        took = (self.came[0] - self.sent) * 1e3
        first = f"{how}: {self.prompt} prompt tokens in {took:.0f} ms"
        if len(self.came) == 1:
            return first
        each = (self.came[-1] - self.came[0]) / (len(self.came) - 1)
        return (
            f"{first}; then {1 / each:.1f} tokens/s, {read / 1e6:.0f} MB a step, "
            f"{read / each / 1e9:.1f} GB/s = {100 * read / each / memory.rate:.0f}% of the "
            f"{memory.rate / 1e9:.1f} GB/s that memory gives ({memory.how})"
        )


class ProgressBars:
    """A bar for what takes long: packing weights, compiling, taking weights to a GPU."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console,
            transient=True, disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("compiling", total=None)

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._bars.stop()

    def update(self, name: str, done: int, total: int) -> None:
        if done < total:
            self._bars.update(self._task, completed=done, total=total, description=name)
        else:
            self._bars.reset(self._task, completed=0, description="compiling")
            self._bars.update(self._task, total=None)
