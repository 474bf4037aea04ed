"""The server that benchmarks start in their own process."""

from __future__ import annotations

import httpx
import pytest

from benchmarks.in_process_server import serve_in_process
from eventtensor import LLM


@pytest.mark.core
def test_a_model_is_asked_behind_http_in_this_process():
    with (LLM("random:tiny-llama", target="cpu", dtype="f32", max_model_len=64,
              max_num_seqs=2) as llm,
          serve_in_process(llm) as url):
        assert httpx.get(f"{url}/health").json() == {"status": "ok"}
        body = {"model": "random:tiny-llama", "prompt": [5, 6], "max_tokens": 3}
        found = httpx.post(f"{url}/v1/completions", json=body).json()
        assert found["usage"]["completion_tokens"] <= 3
