"""Requests that schemathesis derives from the server's own description (/openapi.json): valid ones
and invalid ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from benchmarks.http_client import Outcomes
from eventtensor.llm.bench.completion_client import Address

_LIMIT_S = 60


def fuzz_openapi(at: Address, model: str, count: int, first: int = 0) -> Outcomes:
    """Sends `count` cases, shared among all operations; `first` is the first seed. After each case
    the server must answer a well-formed request."""
    url, seen = f"http://{at.host}:{at.port}", Outcomes()
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    good = {"model": model, "prompt": [5], "max_tokens": 1, "ignore_eos": True}
    strategies, turn = list(_strategies(schema)), first
    each = min(25, -(-count // len(strategies)))
    while sum(seen.ends.values()) < count:
        for strategy in strategies:
            _run_cases(strategy, min(each, count - sum(seen.ends.values())), turn, url, good, seen)
            turn += 1
    return seen


def _strategies(schema: Any) -> Iterator[Any]:
    """Valid and invalid bodies of each POST operation. Other operations have no body."""
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.method == "post":
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                yield operation.as_strategy(generation_mode=mode)


def _run_cases(
    strategy: Any, count: int, turn: int, url: str, good: dict[str, Any], seen: Outcomes
) -> None:
    if count <= 0:
        return

    @seed(turn)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def send(case: Any) -> None:
        try:
            code = case.call(base_url=url, timeout=_LIMIT_S).status_code
        except requests.RequestException as e:
            code = 0
            seen.wrong.append(f"no answer to {case.method} {case.path} {case.body!r:.300}: {e}")
        seen.ends[str(code)] += 1
        if code >= 500 and code != 503:
            seen.wrong.append(f"{case.method} {case.path} {case.body!r:.500} gave {code}")
        answer = requests.post(f"{url}/v1/completions", json=good, timeout=_LIMIT_S)
        if answer.status_code != 200:
            seen.wrong.append(f"no good answer after {case.method} {case.path} {case.body!r:.500}")

    send()
