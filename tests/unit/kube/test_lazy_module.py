from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kube.lazy_module import LazyModule


def test_a_module_is_imported_when_an_attribute_of_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "used_late.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = LazyModule("used_late")
    assert "used_late" not in sys.modules
    try:
        assert module.ANSWER == 42
        assert "used_late" in sys.modules
    finally:
        sys.modules.pop("used_late", None)


def test_what_the_module_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = LazyModule("json").no_such_name
