"""The page of results: what is not measured is left out, what is refused or failed says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools import performance_doc
from tools.performance_tables import SECTIONS


def row(**fields: Any) -> dict[str, Any]:
    numbers = {"median": 2.0, "p10": 1.5, "p90": 3.0, "samples": 20, "unit": "us"}
    return {**numbers, "gpu": "a GPU", "versions": {"driver": "1"}, **fields}


def refused(**fields: Any) -> dict[str, Any]:
    return {"refused": "not legal", "gpu": "a GPU", "versions": {"driver": "1"}, **fields}


def test_a_page_has_only_the_sections_that_were_measured(tmp_path: Path) -> None:
    assert "\n# " not in performance_doc.page(tmp_path)
    rows = [
        row(name="token", values=32, handoff="tagged"),
        refused(name="token", values=32, handoff="same_worker"),
    ]
    (tmp_path / "handoffs.json").write_text(json.dumps(rows))
    page = performance_doc.page(tmp_path)
    assert [line for line in page.splitlines() if line.startswith("# ")][1:] == [
        "# Hand-offs between compiled tasks (a GPU; driver 1)"
    ]
    assert "| values | tagged | same_worker |" in page and "| 32 | 2 (1.5..3) | refused |" in page
    assert "Every task needs" not in page


def test_fields_of_a_row_stand_beside_its_median(tmp_path: Path) -> None:
    told = {"program": "uneven", "tasks": 7}
    rows = [row(name="schedule", schedule="auto", picked="ticket", **told),
            {**refused(name="schedule", schedule="push", **told), "error": "wrong"}]
    (tmp_path / "schedules.json").write_text(json.dumps(rows))
    assert "| uneven | 7 | 2 (1.5..3), ticket | refused |" in performance_doc.page(tmp_path)


def test_peers_stand_beside_a_row_also_those_of_an_earlier_run(tmp_path: Path) -> None:
    case = {"name": "step", "model": "m", "context": 9}
    rows = [row(**case, batch=1, engine="torch graph", median=7.0, floor=1.0),
            row(**case, batch=8, engine="torch graph", median=8.0),
            refused(**case, batch=1, engine="torch.compile"),
            row(**case, batch=1, engine="eventtensor", tokens=1, floor=1.0, must=1.5, percent=50.0,
                workspace_bytes=2_500_000),
            row(**case, batch=1, engine="eventtensor", tokens=128, floor=1.0, percent=50.0,
                peers={"torch graph": 6.0, "torch.compile": "refused: no memory"})]
    (tmp_path / "decode.json").write_text(json.dumps(rows))
    lines = [s for s in performance_doc.page(tmp_path).splitlines() if s.startswith("| m |")]
    assert lines == [
        "| m | 1 | 9 | 1 | 1.5 | 2 (1.5..3) | 50 | 7 | refused | 1 | 2.5 MB |",
        "| m | 1 | 9 | 1 |  | 2 (1.5..3) | 50 | 6 | refused | 128 |  |",
    ]


def test_a_column_that_no_row_has_is_left_out(tmp_path: Path) -> None:
    told = {"name": "phase", "model": "m", "batch": 1, "context": 9, "floor": 1.0, "tasks": 4}
    for more, end in (({}, "one task |"), ({"stalled_us": 0.5}, "one task | of it stalled |")):
        rows = [row(**told, phase="a", task_us=1.5), row(**told, phase="b", task_us=2.5, **more)]
        (tmp_path / "phases.json").write_text(json.dumps(rows))
        (head,) = (s for s in performance_doc.page(tmp_path).splitlines() if "| phase |" in s)
        assert head.endswith(end)


PIECEWISE = ("decode",)  # its rows may come in several runs; test_decode_bench.py has all of them


def test_every_table_of_a_committed_file_has_rows() -> None:
    for section in SECTIONS:
        rows = performance_doc.load(performance_doc.RESULTS, section.file)
        tables = section.tables[:1] if section.file in PIECEWISE else section.tables
        for table in tables if rows else ():
            assert performance_doc.table(table, rows), table.title
