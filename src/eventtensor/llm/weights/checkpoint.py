"""The interface of checkpoints: tensors under logical names, whatever the files call them. These
are embed (vocab, hidden), head, final_norm, layers.L.NAME for each NAME of `layer_shapes`, and with
experts layers.L.experts.E.NAME for each NAME of `mlp_shapes`. Matrices are (out, in). A checkpoint
checks all names and shapes when it is opened; formats/ has the readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

from ...errors import MissingTensor, UnexpectedTensor, WrongTensorShape
from ..array_types import Array, Shape
from ..model.model_config import ModelConfig


class Checkpoint(Protocol):
    """`tensor` returns float32 or bfloat16 by logical name."""

    @property
    def config(self) -> ModelConfig: ...

    def tensor(self, name: str) -> Array: ...


def mlp_shapes(c: ModelConfig) -> dict[str, Shape]:
    """The tensors of one MLP, or of one expert."""
    return {
        "w_gate": (c.intermediate, c.hidden),
        "w_up": (c.intermediate, c.hidden),
        "w_down": (c.hidden, c.intermediate),
    }


def layer_shapes(c: ModelConfig) -> dict[str, Shape]:
    """The tensors of one layer without those of its experts."""
    wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
    norms = {"q_norm": (c.head_dim,), "k_norm": (c.head_dim,)} if c.qk_norm else {}
    return {
        "attn_norm": (c.hidden,),
        "wq": (wide, c.hidden),
        "wk": (narrow, c.hidden),
        "wv": (narrow, c.hidden),
        **norms,
        "wo": (c.hidden, wide),
        "mlp_norm": (c.hidden,),
        **(mlp_shapes(c) if c.experts is None else {"router": (c.experts.count, c.hidden)}),
    }


@lru_cache(maxsize=8)  # a MoE model has some ten thousand tensors, and each lookup comes here
def shapes(c: ModelConfig) -> Mapping[str, Shape]:
    """All tensors of a model; a tied head is none."""
    ends: dict[str, Shape] = {"embed": (c.vocab, c.hidden), "final_norm": (c.hidden,)}
    if not c.tied:
        ends["head"] = (c.vocab, c.hidden)
    layer = layer_shapes(c)
    if c.experts is not None:
        layer |= {f"experts.{e}.{n}": s for e in range(c.experts.count)
                  for n, s in mlp_shapes(c).items()}
    return MappingProxyType(
        ends | {f"layers.{k}.{n}": s for k in range(c.layers) for n, s in layer.items()})


def file_names(c: ModelConfig, ends: Mapping[str, str], layer: Mapping[str, str]) -> dict[str, str]:
    """The names of all tensors in a format. `ends` maps logical names; `layer` has patterns with {}
    for the layer and, for `experts.NAME`, for the expert."""
    out = {}
    for name in shapes(c):
        match name.split("."):
            case "layers", number, "experts", expert, part:
                out[name] = layer[f"experts.{part}"].format(number, expert)
            case "layers", number, part:
                out[name] = layer[part].format(number)
            case _:
                out[name] = ends[name]
    return out


def check_tensors(
    c: ModelConfig, names: Mapping[str, str], found: Mapping[str, Shape], spare: Iterable[str]
) -> None:
    """Checks that the tensors of the files are those of the config, and maybe some of `spare`."""
    for name, shape in shapes(c).items():
        key = names[name]
        if key not in found:
            raise MissingTensor(f"the checkpoint has no {key}; it should be {shape}")
        if found[key] != shape:
            raise WrongTensorShape(f"{key} is {found[key]}; the config asks for {shape}")
    extra = sorted(found.keys() - set(names.values()) - set(spare))
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise UnexpectedTensor(
            f"the checkpoint has {extra[0]} {found[extra[0]]}{more}, which a {c.family} model of "
            f"{c.layers} layers does not use"
        )


def check_name(c: ModelConfig, name: str) -> str:
    """The name of a tensor after ties: a tied head is the embedding."""
    wanted = "embed" if name == "head" and c.tied else name
    if wanted not in shapes(c):
        raise MissingTensor(f"a {c.family} model of {c.layers} layers has no tensor {name!r}")
    return wanted
