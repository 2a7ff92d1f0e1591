"""Imports that do not block the event loop, and the interpreter's switch interval meanwhile."""

from __future__ import annotations

import asyncio
import importlib
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


async def test_a_module_that_is_being_imported_is_waited_for_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import threading\nBEGUN.set()\nassert END.wait(10)\n"
    (tmp_path / "imported_slowly.py").write_text(f"from imported_events import BEGUN, END\n{text}")
    (tmp_path / "imported_events.py").write_text(
        "import threading\nBEGUN, END = threading.Event(), threading.Event()\n"
    )
    for name in ("imported_slowly", "imported_events"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    events = importlib.import_module("imported_events")
    first = asyncio.create_task(imports.run(lambda: importlib.import_module("imported_slowly")))
    try:
        assert await asyncio.to_thread(events.BEGUN.wait, 10)
        assert "imported_slowly" in sys.modules and not imports.imported("imported_slowly")
        second = asyncio.create_task(imports.ensure("imported_slowly"))
        await asyncio.wait((second,), timeout=2 * imports.HEAD_START_SECONDS)
        assert not second.done()
    finally:
        events.END.set()
    async with asyncio.timeout(10):
        await asyncio.gather(first, second)
    assert imports.imported("imported_slowly")


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
