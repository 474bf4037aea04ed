"""Clients that others have written, each as it comes and with its defaults: every feature that its
folder lists works. With ET_CLIENT_RESULTS=FOLDER each test writes there what it found, for
docs/clients.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.clients.client_environment import command, variables
from tests.clients.client_folder import Client, clients
from tests.clients.shared_server import shared

_SCRIPT_S = 240
_SERVERS = {
    "smollm2": [
        sys.executable,
        "-m",
        "eventtensor.cli",
        "serve",
        "smollm2",
        "--target",
        "cpu",
        "--port",
        "0",
    ],
    "scripted": [sys.executable, "-m", "tests.clients.scripted.scripted_server", "smollm2"],
}


@pytest.fixture(scope="module")
def servers(fresh_cache: Path) -> Iterator[list[str]]:
    """Their addresses."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(shared(line, name, fresh_cache)) for name, line in _SERVERS.items()
        ]


@pytest.mark.parametrize(
    "client", [pytest.param(c, id=c.name, marks=getattr(pytest.mark, c.tier)) for c in clients()]
)
def test_every_feature_works(client: Client, servers: list[str], tmp_path: Path) -> None:
    line = [*command(client), *servers]
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:
        process = subprocess.Popen(line, stdout=out, stderr=err, env=variables(), cwd=tmp_path)
        try:
            process.wait(_SCRIPT_S)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        told, trouble = out.read(), err.read()
    lines = [json.loads(x) for x in told.splitlines() if x.startswith('{"feature"')]
    write_results(client, lines)
    wrong = [x for x in lines if not x["ok"]]
    assert not wrong, json.dumps(wrong, indent=1) + trouble[-4000:]
    assert [x["feature"] for x in lines] == list(client.features), told[-2000:] + trouble[-4000:]


def write_results(client: Client, lines: list[dict[str, Any]]) -> None:
    if folder := os.environ.get("ET_CLIENT_RESULTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{client.name}.json").write_text(json.dumps(lines, indent=1))
