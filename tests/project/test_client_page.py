"""The page of clients, and the folders that it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.client_folder import Client, clients
from tools import clients_doc

ROOT = Path(__file__).parents[2]


def test_the_page_says_that_every_feature_of_every_client_works() -> None:
    known = {c.name: dict.fromkeys(c.features) for c in clients()}
    assert (ROOT / "docs" / "clients.md").read_text() == clients_doc.page(known), "run make clients"


@pytest.mark.parametrize("client", list(clients()), ids=lambda c: c.name)
def test_a_client_is_locked_and_shows_what_it_lists(client: Client) -> None:
    assert len(client.versions) == len(client.packages) > 0
    script = client.script.read_text()
    assert client.features and [f for f in client.features if f"({f!r}" not in
                                script.replace('"', "'")] == []


def test_a_feature_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (client,) = (c for c in clients() if c.name == "openai_python")
    first, second = client.features[:2]
    lines = list(clients_doc.rows(client, {first: None, second: "a | b\nc"}))
    assert lines[0].startswith("| openai (Python) |") and lines[0].endswith("| works |")
    assert lines[1].startswith("|  |  |") and lines[1].endswith(r"| FAIL: a \| b |")
    assert lines[2].endswith("| FAIL: not run |")
