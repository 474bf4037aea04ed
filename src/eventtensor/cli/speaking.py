"""A prompt in, text out as it comes, and a line about the speed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from ..errors import BadChat, UnsupportedTokenizer
from ..models.bandwidth import Bandwidth, measure_bandwidth
from ..models.generate import Generator, Settings, Timing
from ..models.source import open_model
from ..models.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Chat:
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


def answer(
    name: str, chat: Chat, settings: Settings, target: str, dtype: str, same_bits: bool,
    artifact: Path | None = None,
) -> Iterator[str]:
    """Text piece by piece. Progress and speed go to stderr."""
    shown = Console(stderr=True, soft_wrap=True, highlight=False)
    model = open_model(name)
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise UnsupportedTokenizer(
            f"{name} has no tokenizer, so it cannot take a text",
            hint="eventtensor.models.generate.Generator takes tokens",
        )
    prompt = chat.tokens(tokenizer)
    with Bars(shown) as bars:
        made = Generator(model, target=target, dtype=dtype, progress=bars.tell,
                         context=len(prompt) + settings.max_tokens,
                         sampling=settings.temperature > 0 or artifact is not None,
                         same_bits=same_bits, artifact=artifact)
    with made as generator:
        stream = tokenizer.stream()
        for token in generator.tokens(prompt, settings):
            yield stream.push(token)
        yield stream.end() + "\n"
        memory = measure_bandwidth(generator.target)
        shown.print(summary(generator.timing, memory, generator.target, dtype), style="dim")


def summary(t: Timing, memory: Bandwidth, target: str, dtype: str) -> str:
    first = f"{target}, {dtype}: {t.prompt} prompt tokens in {t.prefill_s * 1e3:.0f} ms"
    if not t.steps:
        return first
    each, rate = t.read / t.steps, t.read_rate
    return (
        f"{first}; then {t.tokens_per_s:.1f} tokens/s, {each / 1e6:.0f} MB a step, "
        f"{rate / 1e9:.1f} GB/s = {100 * rate / memory.rate:.0f}% of the "
        f"{memory.rate / 1e9:.1f} GB/s that memory gives ({memory.how})"
    )


class Bars:
    """A bar for what takes long: packing weights, compiling, taking weights to a GPU."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console,
            transient=True, disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("compiling", total=None)

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def tell(self, name: str, done: int, total: int) -> None:
        if done < total:
            self._bars.update(self._task, completed=done, total=total, description=name)
        else:
            self._bars.reset(self._task, completed=0, description="compiling")
            self._bars.update(self._task, total=None)
