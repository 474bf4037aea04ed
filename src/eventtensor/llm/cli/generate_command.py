"""`eventtensor generate`: answers one prompt, streams the text and reports the speed on stderr.

The options are in `commands.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import BadChat, UnsupportedTokenizer
from ..engine.llm import LLM
from ..engine.sampling_params import SamplingParams
from ..runner.bandwidth import measure_bandwidth
from ..runner.runner import Runner, StepToken
from ..text.tokenizer import Tokenizer
from ..weights.model_source import open_model
from .progress_bars import ProgressBars
from .terminal import terminal
from .token_timer import TokenTimer


@dataclass(frozen=True)
class ChatPrompt:
    """`template` says whether to use the model's chat template. None: if the model has one."""

    prompt: str
    system: str = ""
    template: bool | None = None

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        has_template = tokenizer.template is not None
        if not (has_template if self.template is None else self.template):
            if self.system:
                raise BadChat("--system needs a chat, and this prompt goes in as it is",
                              hint="leave --system away, or use a model with a chat template")
            return tokenizer.encode(self.prompt)
        system = [{"role": "system", "content": self.system}] if self.system else []
        return tokenizer.chat([*system, {"role": "user", "content": self.prompt}])


def generate_text(
    name: str, chat: ChatPrompt, params: SamplingParams, target: str, dtype: str,
    batch_invariant: bool, artifact: Path | None = None,
) -> Iterator[str]:
    """Yields the text of the answer in pieces. Progress and speed go to stderr. The answer ends
    after `params.max_tokens`, or where the model's context ends."""
    shown = terminal(stderr=True)
    model = open_model(name)
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise UnsupportedTokenizer(f"{name} has no tokenizer, so it cannot take a text",
                                   hint="eventtensor.LLM takes tokens")
    assert params.max_tokens is not None
    prompt = chat.encode(tokenizer)
    with ProgressBars(shown) as bars, LLM(
        model, target=target, dtype=dtype, max_model_len=len(prompt) + params.max_tokens,
        max_num_seqs=1, cache_gb=None, progress=bars.update, batch_invariant=batch_invariant,
        artifact=artifact,
    ) as llm:
        _compile_kernels(llm.engine.runner, len(prompt))
        bars.stop()
        timer = TokenTimer(len(prompt), time.perf_counter())
        for output in llm.stream(prompt, replace(params, max_tokens=None)):
            timer.record()
            yield output.text
        yield "\n"
        num_bytes = llm.engine.runner.bytes_read([StepToken(0, 0, timer.middle_position)])
        memory = measure_bandwidth(llm.target)
        shown.print(timer.summary(num_bytes, memory, f"{llm.target}, {dtype}"), style="dim")


def _compile_kernels(runner: Runner, prompt_tokens: int) -> None:
    """Compiles all kernels of one request before the timer starts."""
    runner.ready(min(prompt_tokens, runner.limits.rows))
    runner.ready(1, decode_only=True)
