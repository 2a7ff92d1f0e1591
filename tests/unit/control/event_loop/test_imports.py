"""Imports that do not block the event loop, and the interpreter's switch interval meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from control.event_loop import imports
from control.event_loop.switch_interval import SWITCH_SECONDS, switching


async def test_modules_are_imported_in_a_thread_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("imported_first", "imported_second"):
        (tmp_path / f"{name}.py").write_text("import threading\nTHREAD = threading.current_thread().name\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    await asyncio.gather(imports.ensure("imported_first"), imports.ensure("imported_second"))
    threads = {sys.modules[name].THREAD for name in ("imported_first", "imported_second")}
    assert len(threads) == 1
    assert threads.pop().startswith("imports")


async def test_an_imported_module_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "run", None)
    await imports.ensure("asyncio", "control.event_loop.imports")


async def test_a_module_that_cannot_be_imported_fails_for_the_caller() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        await imports.ensure("control.no_such_module")


def test_the_switch_interval_is_short_until_the_last_of_several_threads_has_ended() -> None:
    usual = sys.getswitchinterval()
    first_may_end, second_may_end = threading.Event(), threading.Event()
    first = threading.Thread(target=switching, args=(lambda: first_may_end.wait(10),))
    second = threading.Thread(target=switching, args=(lambda: second_may_end.wait(10),))
    first.start()
    second.start()
    try:
        assert switching(sys.getswitchinterval) == pytest.approx(SWITCH_SECONDS)
        first_may_end.set()
        first.join(10)
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    finally:
        first_may_end.set()
        second_may_end.set()
        second.join(10)
    assert sys.getswitchinterval() == usual
