"""One table of ops: a layer without an entry for an op fails at import, and names both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import eventtensor
from eventtensor.errors import OpWithoutEntry
from eventtensor.ir import tile as t
from eventtensor.ir.elementwise import FUNCTIONS
from eventtensor.ir.handler_table import HandlerTable
from eventtensor.ir.ops import KEYWORDS, OP_SPECS, OPS, find_op

# Modules by the start of the name of their handlers.
TABLES = {
    "the interpreter": "eventtensor.interp.evaluate",
    "the C++ back end": "eventtensor.codegen.cpp.body",
    "the CUDA back end": "eventtensor.codegen.cuda.body",
    "the language (lang/values.py)": "eventtensor.lang.program_builder",
}
PACKAGE = str(Path(eventtensor.__file__).parent)


def import_without(table: str, key: str, module: str) -> str:
    """What Python prints that imports a module whose table registers no handler for a key."""
    code = f"""
import sys, types
sys.modules["eventtensor"] = package = types.ModuleType("eventtensor")
package.__path__ = [{PACKAGE!r}]
from eventtensor.ir.handler_table import HandlerTable
add = HandlerTable.add
def forget(self, handler, *keys):
    left = [k for k in keys if getattr(k, "__name__", k) != {key!r}]
    return add(self, handler, *(left if self.name.startswith({table!r}) else keys))
HandlerTable.add = forget
del sys.modules["eventtensor"]
import {module}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_lacks_an_op_fails_at_import(table: str) -> None:
    shown = import_without(table, "Gather", TABLES[table])
    assert "ET106" in shown and table in shown and "'Gather'" in shown


def test_a_function_that_python_cannot_spell_fails_at_import() -> None:
    shown = import_without(
        "the language (lang/tile_functions.py)", "tanh", "eventtensor.lang.tile_functions"
    )
    assert "ET106" in shown and "lang/tile_functions.py" in shown and "'tanh'" in shown


def test_a_complete_package_imports() -> None:
    for module in TABLES.values():
        assert import_without("no table", "Gather", module) == ""


def test_a_table_names_all_that_it_lacks() -> None:
    table: HandlerTable[type, int] = HandlerTable("a back end", OP_SPECS)
    table.add(1, *(set(OP_SPECS) - {t.TopK, t.Scan}))
    with pytest.raises(OpWithoutEntry, match="a back end has no entry for 'Scan', 'TopK'"):
        table.require_all()


def test_a_table_takes_each_op_once() -> None:
    table: HandlerTable[str, int] = HandlerTable("a back end", FUNCTIONS)
    table.add(1, "exp")
    with pytest.raises(OpWithoutEntry, match="'exp' twice"):
        table.add(2, "exp")
    with pytest.raises(OpWithoutEntry, match="'expm1', which the table lacks"):
        table.add(2, "expm1")


def test_every_node_class_has_one_row() -> None:
    assert {row.node for row in OPS} == set(get_args(t.Op)) and len(OPS) == len(OP_SPECS)


@pytest.mark.parametrize("row", OPS, ids=lambda row: row.node.__name__)
def test_a_row_names_all_fields_of_its_node(row) -> None:
    named = [name for name, _ in row.fields] + ([row.tag] if row.tag else [])
    assert sorted(named) == sorted(row.node.__dataclass_fields__)


@pytest.mark.parametrize("row", OPS, ids=lambda row: row.node.__name__)
def test_a_name_and_keywords_belong_to_one_row(row) -> None:
    assert all(find_op(name, row.fields_of_form(*KEYWORDS)) is row for name in row.names)
