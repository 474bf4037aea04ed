"""Folders of third-party clients, each with a script that uses the client as its users do.

NAME.toml has title and features, use_NAME.* is the script. NAME.txt (compiled from NAME.in by
`uv pip compile`) or package.json with its lock lists the packages."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CLIENTS = Path(__file__).parent


@dataclass(frozen=True)
class Client:
    """`tier` is the one whose tests run it. `lent`: packages that are large, and come from the
    environment of the tests."""

    folder: Path
    title: str
    packages: tuple[str, ...]
    features: tuple[str, ...]
    tier: str = "full"
    lent: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def uses_node(self) -> bool:
        return (self.folder / "package.json").exists()

    @property
    def script(self) -> Path:
        return self.folder / f"use_{self.name}{'.mjs' if self.uses_node else '.py'}"

    @property
    def locks(self) -> list[Path]:
        """The files that list the packages."""
        names = ["package.json", "package-lock.json"] if self.uses_node else [f"{self.name}.txt"]
        return [self.folder / name for name in names]

    @cached_property
    def versions(self) -> list[str]:
        """Of the packages."""
        if self.uses_node:
            lock = json.loads(self.locks[1].read_text())["packages"]
            return [lock[f"node_modules/{p}"]["version"] for p in self.packages]
        pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", self.locks[0].read_text(), re.MULTILINE))
        return [pins[p] for p in self.packages]


def clients() -> Iterator[Client]:
    for path in sorted(CLIENTS.glob("*/*.toml")):
        told = tomllib.loads(path.read_text())
        yield Client(
            path.parent,
            told["title"],
            tuple(told["packages"]),
            tuple(told["features"]),
            told.get("tier", "full"),
            tuple(told.get("lent", ())),
        )
