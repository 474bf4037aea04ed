"""Installs the packages of a client into `.venv/clients`, once per lock, from the caches of uv and
npm."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.clients.client_folder import CLIENTS, Client

ENVIRONMENTS = CLIENTS.parents[1] / ".venv" / "clients"
_INSTALL_S = 600
# A client asks no site but the server: for prices of models, and to tell how it is used.
_NO_SITES = {
    "NO_PROXY": "127.0.0.1,localhost",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
}


def command(client: Client) -> list[str]:
    """What runs the script of a client; all that it needs is there then."""
    folder, wanted = ENVIRONMENTS / client.name, _fingerprint(client)
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "made"
    with locked(folder / "lock"):
        if not made.exists() or made.read_text() != wanted:
            made.unlink(missing_ok=True)
            (_install_node if client.uses_node else _install_python)(client, folder)
            made.write_text(wanted)
    if client.uses_node:
        # Modules are looked for beside the script.
        shutil.copytree(client.folder, folder, dirs_exist_ok=True)
        return [_tool("node"), str(folder / client.script.name)]
    return [str(folder / "venv/bin/python"), str(client.script)]


def variables() -> dict[str, str]:
    """For the script: the harness, and no settings of a client that are not its defaults."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("OPENAI_", "ANTHROPIC_", "LITELLM_", "PYTEST_"))
    }
    harness = str(CLIENTS / "harness")
    return kept | _NO_SITES | {"PYTHONPATH": harness, "HARNESS": harness}


@contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Among the processes of a run."""
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield


def _fingerprint(client: Client) -> str:
    told = b"".join(p.read_bytes() for p in client.locks)
    return hashlib.sha256(told + sys.version.encode()).hexdigest()


def _install_python(client: Client, folder: Path) -> None:
    uv, venv = _tool("uv"), folder / "venv"
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--compile-bytecode"]
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)])
    _run([*install, "--python", str(venv / "bin/python"), "-r", str(client.locks[0])])
    (packages,) = venv.glob("lib/python*/site-packages")
    for name in client.lent:
        found = find_spec(name)
        assert found is not None and found.origin is not None, f"{name} is not there"
        (packages / name).symlink_to(Path(found.origin).parent)


def _install_node(client: Client, folder: Path) -> None:
    for lock in client.locks:
        shutil.copy(lock, folder)
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
    # The optional packages of promptfoo alone are of more than 1 GB.
    _run([_tool("npm"), "ci", *quiet, "--omit=optional", "--prefix", str(folder)])


def _tool(name: str) -> str:
    """A program that comes with the packages of the tests, or is there anyway."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which(name, path=places)
    assert found is not None, f"{name} is not there: install the extra `test`"
    return found


def _run(line: Sequence[str]) -> None:
    done = subprocess.run(line, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    assert done.returncode == 0, f"{' '.join(line)}\n{done.stdout}{done.stderr}"
