"""Numbers in documents about files of this repository and about tests are those of their sources."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.messages import in_source
from tests.support.page_commands import ROOT, documents

_RUN = re.compile(r"v1\.36\.2 has (\d+) conformance tests: (\d+) parallel and (\d+) serial ones")
_MENTIONED = re.compile(r"(\d+)\s+(?:conformance\s+)?tests\s+of\s+v1\.36\.2")


def pins(*names: str) -> int:
    """Return how many packages lock files name."""
    return sum(len(re.findall(r"^[a-zA-Z].*==", (ROOT / name).read_text(), re.M)) for name in names)


def named(path: Path, pattern: str) -> int:
    found = re.findall(pattern, path.read_text())
    assert len(found) == 1, f"{path.name}: {found}"
    return int(found[0])


def test_the_wheels_of_an_installation_without_the_internet_are_those_of_the_lock_files() -> None:
    wheels = named(ROOT / "docs/airgap.md", r"There are (\d+) wheels")
    assert wheels == pins("requirements.lock", "requirements-kubectl.lock")


def test_all_documents_have_the_number_of_conformance_tests_that_ran() -> None:
    ((run, parallel, serial),) = _RUN.findall((ROOT / "docs/conformance.md").read_text())
    assert int(run) == int(parallel) + int(serial)
    mentioned = {path.name: set(_MENTIONED.findall(path.read_text())) for path in documents()}
    assert {name: found for name, found in mentioned.items() if found} == {"comparison.md": {run}, "faq.md": {run}}


def test_the_readme_shows_the_commands_that_are_printed_after_the_start() -> None:
    readme = (ROOT / "README.md").read_text()
    block = readme.split("ends by printing the next commands:\n\n")[1].split("\n\n")[0]
    source = in_source((ROOT / "wherry/user_kubeconfig.py").read_text())
    printed = {text for text in source if re.match(r"(kubectl (?!config|is )|curl )[^\n]*$", text)}
    assert {line.strip() for line in block.splitlines()} == printed
