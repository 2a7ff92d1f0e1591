"""Submodules of a package without its `__init__`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kube.partial_packages import without_init

NAME = "package_with_much_more"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "__init__.py").write_text(f"from {NAME} import rest\nfrom {NAME}.wanted import VALUE\n")
    (folder / "rest.py").write_text("")
    (folder / "wanted.py").write_text("VALUE = object()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for each in [each for each in sys.modules if each.partition(".")[0] == NAME]:
        del sys.modules[each]


def wanted() -> object:
    without_init(NAME)
    return importlib.import_module(f"{NAME}.wanted").VALUE


def test_only_the_submodule_is_imported(package: Path) -> None:
    wanted()
    importlib.import_module(NAME)
    assert {each for each in sys.modules if each.startswith(NAME)} == {NAME, f"{NAME}.wanted"}


def test_the_first_use_of_the_package_imports_all_of_it_with_the_same_submodule(package: Path) -> None:
    value = wanted()
    whole = importlib.import_module(NAME)
    assert whole.VALUE is value
    assert whole.rest is sys.modules[f"{NAME}.rest"] and whole.wanted is sys.modules[f"{NAME}.wanted"]
    assert type(whole) is ModuleType and not hasattr(whole, "absent")


def test_attributes_that_python_reads_of_all_modules_import_nothing(package: Path) -> None:
    partial = without_init(NAME)
    assert not hasattr(partial, "__warningregistry__") and partial.__file__ == str(package / "__init__.py")
    assert f"{NAME}.rest" not in sys.modules


def test_an_unknown_attribute_is_named(package: Path) -> None:
    with pytest.raises(AttributeError, match=f"module '{NAME}' has no attribute 'absent'"):
        _ = without_init(NAME).absent


def test_a_package_that_is_imported_already_is_used(package: Path) -> None:
    whole = importlib.import_module(NAME)
    assert wanted() is whole.VALUE
    assert sys.modules[NAME] is whole


def test_an_init_that_fails_is_run_again_by_the_next_use(package: Path) -> None:
    (package / "rest.py").unlink()
    wanted()
    with pytest.raises(ImportError):
        _ = sys.modules[NAME].VALUE
    (package / "rest.py").write_text("")
    importlib.invalidate_caches()
    assert sys.modules[NAME].VALUE is wanted()


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        without_init("no_such_package")
