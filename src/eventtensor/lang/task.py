"""`@et.task`: makes a task kind of a Python body, which is its meaning.

A kind may have custom C++ and CUDA bodies too. The Python body is traced for each call
(lang/trace_body.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

from ..errors import BadBody, BadCall
from ..ir.cpp_body import CppBody
from ..ir.cuda_body import CudaBody
from .cuda_body_inference import infer_cuda_body

OPTIONS = ("cpp", "cuda", "loader", "name")
_BODIES = {"cpp": CppBody, "cuda": CudaBody}


@dataclass(frozen=True, eq=False)
class Task:
    """A task kind: its name, its Python body, and custom bodies for a CPU and a GPU."""

    name: str
    body: Callable[..., object]
    cpp_body: CppBody | None = None
    cuda_body: CudaBody | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body in place. A body may call other tasks."""
        return self.body(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Signature:
    """Names of the positional arguments, and keyword-only names (True: may be absent)."""

    args: tuple[str, ...]
    keywords: tuple[tuple[str, bool], ...]


def signature_of(kind: Task) -> Signature:
    """The signature of a body. It may have positional and keyword-only names alone (ET100)."""
    args: list[str] = []
    keywords: list[tuple[str, bool]] = []
    for p in inspect.signature(kind.body).parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            if p.default is not p.empty:
                raise BadBody(f"argument {p.name} of task {kind.name} has a default")
            args.append(p.name)
        elif p.kind is p.KEYWORD_ONLY:
            keywords.append((p.name, p.default is not p.empty))
        else:
            raise BadBody(f"task {kind.name} takes {p}: its arguments must be spelled out")
    return Signature(tuple(args), tuple(keywords))


@overload
def task(fn: Callable[..., object], /) -> Task: ...


@overload
def task(
    *,
    cpp: str | CppBody | None = None,
    cuda: str | CudaBody | None = None,
    loader: str | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., object]], Task]: ...


def task(fn: Callable[..., object] | None = None, /, **options: Any) -> Any:
    """Make a task kind of a Python tile body: `@et.task` or `@et.task(cpp="...", cuda="...")`. A
    source given as `cuda` declares nothing; `et.CudaBody` declares what a source does besides, and
    it and `et.CppBody` name headers."""
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise BadCall(
            f"et.task has no option {sorted(unknown)[0]!r}",
            hint="options are cpp=, cuda=, name=",
        )
    cpp, cuda, loader = (options.get(k) for k in ("cpp", "cuda", "loader"))
    for option, source in (("cpp", cpp), ("cuda", cuda), ("loader", loader)):
        is_body = isinstance(source, _BODIES.get(option, ()))
        if source is not None and not is_body and not (isinstance(source, str) and source.strip()):
            raise BadCall(f"{option}= of a task must be source text")
    if loader is not None and not isinstance(cuda, str):
        raise BadCall("loader= goes with the source of a cuda= body",
                      hint="give et.CudaBody(.., producer=et.Producer(source, operands))")

    def make(body: Callable[..., object]) -> Task:
        if not inspect.isroutine(body):
            raise BadCall(f"et.task is given {body!r}, which is not a function")
        chosen = options.get("name") or body.__name__
        if not isinstance(chosen, str) or not chosen.isidentifier():
            raise BadCall(
                f"a task needs a name and {chosen!r} is none", hint="use def, or name='...'"
            )
        cuda_body = infer_cuda_body(cuda, loader, body) if isinstance(cuda, str) else cuda
        return Task(chosen, body, CppBody(cpp) if isinstance(cpp, str) else cpp, cuda_body)

    return make if fn is None else make(fn)
