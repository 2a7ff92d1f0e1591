from __future__ import annotations

from control.registry.columns import AGE, NAME, Column, Field, compiled_row
from tests.unit.control.registry.strategies import NOW

OBJECT = {
    "metadata": {"name": "x", "creationTimestamp": "2026-01-02T11:00:00Z"},
    "spec": {"a": {"b": [1, 2]}, "no": False, "none": None},
}


def test_cells_are_fields_by_path_what_a_function_shows_of_them_or_what_it_computes() -> None:
    row = compiled_row(
        [
            NAME,
            Column("Items", Field("spec.a.b", show=len)),
            Column("Whole", Field("", show=sorted)),
            Column("Time", lambda obj, now: f"{obj['spec']['a']} {now.year}"),
            AGE,
        ]
    )
    assert row(OBJECT, NOW) == ["x", 2, ["metadata", "spec"], "{'b': [1, 2]} 2026", "60m"]


def test_absent_fields_and_parents_show_what_the_column_has_for_them() -> None:
    paths = ("spec.no", "spec.none", "spec.none.deep", "spec.a.c", "status.phase")
    row = compiled_row([*(Column(path, Field(path, "<none>")) for path in paths), Column("", Field("a.b", show=str))])
    assert row(OBJECT, NOW) == ["<none>"] * 5 + ["None"]
