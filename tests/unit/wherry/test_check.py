from pathlib import Path

import pytest

from wherry import allocator, check
from wherry.settings import Settings


def test_a_missing_allocator_is_a_warning_with_its_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(allocator, "FOLDERS", (str(tmp_path),))
    found = check._allocator()
    assert found.level == "warning" and "apt-get install libjemalloc2" in found.fix
    (tmp_path / allocator.LIBRARY).touch()
    assert check._allocator().level == "ok"


def test_workers_need_no_other_allocator() -> None:
    of_worker = check._programs(Settings(role="worker"))
    assert not [found for found in of_worker if allocator.LIBRARY in found.what]
    assert [found for found in check._programs(Settings()) if allocator.LIBRARY in found.what]
