"""Rows of docs/troubleshooting.md that are faults of a machine: produced, found by the command, mended by the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from control.storage.sqlite import SqliteStore
from tests.support import images
from tests.support.machine_symptoms import SYMPTOMS
from tests.support.stopped_installation import install
from tests.support.symptoms import rows
from wherry.control_settings import control_config


@pytest.fixture
async def installed(tmp_path: Path) -> Path:
    settings = install(tmp_path / "machine")
    await (await SqliteStore.open(control_config(settings).database)).close()
    return Path(settings.prefix)


@pytest.mark.parametrize("message", SYMPTOMS)
def test_a_symptom_of_the_machine_is_found_and_mended_as_its_row_says(
    message: str, installed: Path, tmp_path: Path
) -> None:
    (folder := tmp_path / "folder").mkdir()
    images.archive(folder / "good.tar", [images.busybox("wherry.test/good:1")])
    SYMPTOMS[message].run(rows()[message], installed, folder)
