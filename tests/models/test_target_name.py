"""Targets are found by name."""

from __future__ import annotations

import pytest

from eventtensor.errors import BadOption, NoDevice
from eventtensor.llm.runner import target_name
from eventtensor.llm.runner.target_name import find_target


def test_auto_is_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(target_name, "device", lambda index: None)
    assert find_target("auto") == "cuda"

    def missing(index):
        raise NoDevice("none")

    monkeypatch.setattr(target_name, "device", missing)
    assert (find_target("auto"), find_target("cuda")) == ("cpu", "cuda")
    assert (find_target("auto", "h200"), find_target("cpu", "h200")) == ("cuda", "cpu")
    with pytest.raises(BadOption, match="tpu"):
        find_target("tpu")
