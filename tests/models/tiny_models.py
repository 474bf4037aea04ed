"""Tiny models of transformers, and requests that go through a compiled step beside them: what both
give for every token, however tokens are put into steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from eventtensor.llm.runner.runner import DTYPES, Runner, StepToken, TokenChoice, layout_of
from eventtensor.llm.runner.runner_memory import DeviceMemory
from eventtensor.llm.weights.formats.hf_checkpoint import HfCheckpoint
from eventtensor.llm.weights.weight_packing import pack_weights
from eventtensor.runtime.cuda.driver import upload

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}
POSITIONS = 640


@dataclass(frozen=True)
class Tiny:
    family: str = "llama"
    heads: int = 4
    group: int = 2
    head_dim: int = 32
    tied: bool = False
    rope: Mapping[str, Any] | None = None
    hidden: int = 64
    layers: int = 2
    vocab: int = 320
    experts: int = 0
    top: int = 0

    def model(self) -> Any:
        import transformers

        kind = {"llama": "Llama", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}[self.family]
        config = self.config(getattr(transformers, f"{kind}Config"))
        return getattr(transformers, f"{kind}ForCausalLM")(config)

    def config(self, kind: Any) -> Any:
        moe = {"num_experts": self.experts, "num_experts_per_tok": self.top,
               "moe_intermediate_size": 64, "norm_topk_prob": True}
        return kind(
            vocab_size=self.vocab, hidden_size=self.hidden, intermediate_size=96,
            num_hidden_layers=self.layers, num_attention_heads=self.heads,
            num_key_value_heads=self.heads // self.group, head_dim=self.head_dim,
            max_position_embeddings=1024, tie_word_embeddings=self.tied, rms_norm_eps=1e-5,
            bos_token_id=0, eos_token_id=1,
            **({} if self.rope is None else {"rope_parameters": dict(self.rope)}),
            **(moe if self.experts else {}),
        )


MODELS = {
    "llama": Tiny(group=4, head_dim=16),  # a page of 256 tokens
    "llama3": Tiny(group=2, head_dim=64, tied=True, rope=LLAMA3),  # two pages a split
    "qwen3": Tiny("qwen3", group=1, head_dim=32),
}
WIDE = {"wide": Tiny(group=2, head_dim=64, hidden=256)}  # a GPU multiplies in parts of K
MOE = {"qwen3_moe": Tiny("qwen3_moe", group=2, head_dim=32, experts=16, top=4)}


# ---- models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A model of transformers in float32 and the folder that it was saved to. With dtype bf16 its
    weights, norms too, are bf16 numbers."""

    model: Any
    folder: Path
    dtype: str

    def logits(self, ids: Sequence[int], half: bool = False) -> np.ndarray:
        """Of every position; `half`: as transformers computes in bfloat16."""
        import torch

        model = self.model.bfloat16() if half else self.model
        try:
            with torch.no_grad():
                return model(torch.tensor([list(ids)])).logits[0].float().numpy()
        finally:
            self.model.float()

    def greedy(self, ids: Sequence[int], steps: int) -> list[int]:
        import torch

        found, past, new = list[int](), None, list(ids)
        with torch.no_grad():
            for _ in range(steps):
                out = self.model(torch.tensor([new]), past_key_values=past, use_cache=True)
                past, new = out.past_key_values, [int(out.logits[0, -1].argmax())]
                found += new
        return found

    def runner(self, target: str, pages: int = 24, **options: Any) -> Runner:
        invariant = options.get("batch_invariant", False)
        layout = layout_of(target, self.dtype, batch_invariant=invariant)
        checkpoint = HfCheckpoint(self.folder)
        weights = pack_weights(checkpoint, layout, DTYPES[self.dtype].numpy)
        return Runner(checkpoint.config, weights, target=target, dtype=self.dtype, pages=pages,
                      positions=POSITIONS, **options)


def make_pair(
    name: str, dtype: str, folder: Path, change: Callable[[str, Any], None] = lambda key, x: None
) -> Pair:
    """Weights of the size that keeps activations alive; gains away from 1, which hides mistakes.
    `change` may give a parameter, by its name, other values."""
    import torch

    torch.manual_seed(5)
    model = (MODELS | WIDE | MOE)[name].model().eval()
    for key, parameter in model.named_parameters():
        if "norm" in key:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
        else:
            # A router that is sure: noise then decides between experts of small shares only.
            spread = 4.0 if "mlp.gate." in key else 1.0
            torch.nn.init.normal_(parameter, 0.0, spread * parameter.shape[-1] ** -0.5)
        change(key, parameter.data)
    if dtype == "bf16":
        model = model.bfloat16().float()
    model.save_pretrained(folder)
    return Pair(model, folder, dtype)


def pairs(name: str, dtype: str) -> Iterator[Pair]:
    with TemporaryDirectory() as folder:
        yield make_pair(name, dtype, Path(folder))


# ---- requests --------------------------------------------------------------------------------

Chunk = tuple[int, int]  # request, number of its next tokens


@dataclass
class Session:
    """Requests in the cache of a runner, on pages in random order; what nobody has written is NaN.
    `requests` are their tokens, which may grow."""

    runner: Runner
    requests: list[list[int]]
    seed: int = 0
    free: list[int] = field(init=False)
    done: list[int] = field(init=False)
    tables: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._forget()
        order = np.random.default_rng(self.seed).permutation(self.runner.pages)
        self.free = [int(page) for page in order]
        self.done, self.tables = [0 for _ in self.requests], [[] for _ in self.requests]

    def _forget(self) -> None:
        kv, memory = self.runner.fixed["kv"], self.runner.memory
        unwritten = np.full(kv.shape, np.nan, np.float32).astype(kv.dtype)
        if isinstance(memory, DeviceMemory):
            with memory.device.active():
                upload(kv.ctypes.data, unwritten)
        else:
            kv[:] = unwritten

    def step(
        self, chunks: Sequence[Chunk], choices: Sequence[TokenChoice] = ()
    ) -> tuple[dict[int, int], dict[int, np.ndarray]]:
        """Token and logits after the last token of each chunk, by request."""
        lasts, others = [], []
        for r, count in chunks:
            at = self.done[r]
            new = [StepToken(r, self.requests[r][k], k) for k in range(at, at + count)]
            lasts.append(new[-1])
            others += new[:-1]
            self.done[r] += count
            while len(self.tables[r]) * self.runner.page < self.done[r]:
                self.tables[r].append(self.free.pop())
        order = np.random.default_rng(sum(self.done)).permutation(len(others))
        rows = [*lasts, *(others[k] for k in order)]
        tokens, logits = self.runner.step(rows, self.tables, len(lasts), choices)
        return ({r: int(t) for (r, _), t in zip(chunks, tokens, strict=True)},
                {r: x for (r, _), x in zip(chunks, logits, strict=True)})


def random_requests(lengths: Sequence[int], vocab: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[int(t) for t in rng.integers(0, vocab, n)] for n in lengths]


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    """Size of the difference, by that of the logits."""
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def mixed_steps(lengths: Sequence[int], seed: int = 0) -> Iterator[list[Chunk]]:
    """Steps of 1, 2, .., 17 rows and then of many, over chunks of prompts and single tokens, until
    every request is at its end."""
    rng, left, rows = np.random.default_rng(seed), list(lengths), 0
    while any(left):
        rows = rows + 1 if rows < 17 else int(rng.integers(17, 129))
        room, chunks = rows, []
        for r in rng.permutation(len(left)):
            take = min(left[r], room, int(rng.choice([1, 1, 7, 40, 128])))
            if take:
                chunks.append((int(r), take))
                left[r] -= take
                room -= take
        yield chunks
