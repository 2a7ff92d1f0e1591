"""The pages of the architecture: each path exists and is named from the root, each folder of the product is on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FIRST = "ARCHITECTURE.md"
PAGES = [FIRST, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/architecture").glob("*.md"))]
LIMITS = {FIRST: 90}
"""Lines of a page; a first page that nobody reads to its end is none."""
LIMIT = 150
PACKAGES = ("agent", "control", "cri", "kube", "netproxy", "simulation", "wherry")

_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
_SPAN = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
_FILE = re.compile(r"[\w.*-]+\.(?:py|md|ya?ml|json|toml|lock|proto|service)")
_DRAWN = re.compile(r"(?<![<\w./-])[\w-]+/[\w./-]*")


def paths(text: str, roots: set[str]) -> list[str]:
    """Return the paths that a page names: in backticks, and in its diagrams."""
    spans = [span for span in _SPAN.findall(_FENCE.sub("", text)) if _PATH.fullmatch(span)]
    found = [span for span in spans if _FILE.fullmatch(span) or (span.partition("/")[0] in roots and "/" in span)]
    for fence in _FENCE.findall(text):
        found += [path for path in _DRAWN.findall(fence) if path.partition("/")[0] in roots]
    return found


def wrong_paths(text: str, root: Path = ROOT) -> list[str]:
    """Return the paths of a page that do not exist, or are not named from the root; a path may be a pattern."""
    return [path for path in paths(text, top_folders(root)) if not any(root.glob(path.rstrip("/")))]


def top_folders(root: Path = ROOT) -> set[str]:
    """Return the names with which paths from the root begin."""
    return {path.name for path in root.iterdir() if path.is_dir()}


def folders(package: str) -> list[str]:
    """Return a package and the packages in it, one level down."""
    found = [path.parent for path in (ROOT / package).glob("*/*.py")]
    return [f"{package}/", *sorted({f"{package}/{folder.name}/" for folder in found if folder.name != "__pycache__"})]


@pytest.mark.parametrize("page", PAGES)
def test_each_path_exists_and_is_named_from_the_root(page: str) -> None:
    text = (ROOT / page).read_text()
    assert wrong_paths(text) == []
    assert len(paths(text, top_folders())) > 10


@pytest.mark.parametrize("package", PACKAGES)
def test_each_folder_of_a_package_is_on_a_page(package: str) -> None:
    named = {span for page in PAGES for span in _SPAN.findall((ROOT / page).read_text())}
    assert [folder for folder in folders(package) if folder not in named] == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_short(page: str) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= LIMITS.get(page, LIMIT)


def test_the_first_page_links_to_all_others() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)", (ROOT / FIRST).read_text()))
    assert [page for page in PAGES[1:] if page not in linked] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`agent/main.py` `agent/` `agent/m*.py` `top.py` `/etc/wherry/apiserver.yaml` `pods/binding`", []),
        ("`agent/none.py` `agent/none/` `agent/x*.py`", ["agent/none.py", "agent/none/", "agent/x*.py"]),
        ("`main.py`, `*.py`, `n*.py`", ["main.py", "n*.py"]),
        ("`python -m agent` `kube-apiserver` `agent`", []),
        ('```mermaid\na["agent/main.py:<br>x"] --> b["agent/none/:<br/>y"]\n```\n', ["agent/none/"]),
        ("```text\nmain.py\n```\n", []),
    ],
)
def test_missing_and_ambiguous_paths_are_found(text: str, wrong: list[str], tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/main.py").touch()
    (tmp_path / "top.py").touch()
    assert wrong_paths(text, tmp_path) == wrong
