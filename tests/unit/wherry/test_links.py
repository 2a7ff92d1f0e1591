"""Links between documents (scripts/docs): files and anchors exist, and the index and the README name every page."""

from __future__ import annotations

import importlib.util
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load() -> ModuleType:
    loader = SourceFileLoader("docs", str(ROOT / "scripts/docs"))
    spec = importlib.util.spec_from_loader("docs", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    return load()


def test_links_of_all_documents_lead_to_files_and_anchors(docs: ModuleType) -> None:
    assert docs.problems({name: (ROOT / name).read_text() for name in docs.documents()}) == []


def test_the_readme_names_every_page(docs: ModuleType) -> None:
    named = {docs.resolve("README.md", target)[0] for _, target in docs.links((ROOT / "README.md").read_text())}
    pages = {name for name in docs.documents() if name.startswith("docs/") and name.count("/") == 1}
    assert sorted(pages - named) == []


def test_the_menu_of_the_site_is_the_index(docs: ModuleType) -> None:
    index = (
        "# Docs\n\n[x](x.md)\n\n## Start\n\n- [`One`](one.md)\n- [Up](../UP.md)\n\n## Empty\n\n## Run\n[Two](a/b.md)\n"
    )
    assert docs.menu(index) == [
        {"Index": "docs/index.md"},
        {"Start": [{"One": "docs/one.md"}, {"Up": "UP.md"}]},
        {"Run": [{"Two": "docs/a/b.md"}]},
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](a.md) [b](a.md#two-words) [c](#here)\n\n# Here\n", []),
        ("[a](b.md)", ["docs/p.md:1: there is no file docs/b.md"]),
        ("\n\n[a\nb](a.md#none)", ["docs/p.md:3: docs/a.md has no heading #none"]),
        ("[a](#none)", ["docs/p.md:1: docs/p.md has no heading #none"]),
        ("[a](a.md#two-words-1) [b](a.md#two-words-2)", ["docs/p.md:1: docs/a.md has no heading #two-words-2"]),
        ("[`a`](../pyproject.toml)", ["docs/p.md:1: pyproject.toml is no page of the site: name it in backticks"]),
        ("![a](b.png)", ["docs/p.md:1: there is no file docs/b.png"]),
        ("`tests/unit/none.py` `none.py`", ["docs/p.md:1: there is no file tests/unit/none.py"]),
        ("`test_none.py` `test_links.py`", ["docs/p.md:1: there is no file test_none.py"]),
        ("[a](https://example.com/b.md) [b](mailto:a@example.com)", []),
        ("`[a](b.md)`\n\n    [a](b.md)\n\n```\n[a](b.md)\n# None\n```\n", []),
        ("[a](#none)\n```\n# None\n```\n", ["docs/p.md:1: docs/p.md has no heading #none"]),
    ],
)
def test_dead_links_are_reported_with_their_lines(docs: ModuleType, text: str, expected: list[str]) -> None:
    index = "[p](p.md) [a](a.md)"
    texts = {"docs/p.md": text, "docs/a.md": "# Two `words`\n\n## Two words\n", "docs/index.md": index}
    assert docs.problems(texts) == expected


def test_a_page_that_the_index_does_not_name_is_reported(docs: ModuleType) -> None:
    texts = {"docs/index.md": "[a](a.md)", "docs/a.md": "[b](b.md)", "docs/b.md": "", "netproxy/README.md": ""}
    assert docs.problems(texts) == ["docs/index.md does not name docs/b.md"]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Health, metrics and limits", "health-metrics-and-limits"),
        ("kube/: shared code", "kube-shared-code"),
        ("Start & stop", "start--stop"),
        ("The `wherry` [command](wherry.md)", "the-wherry-command"),
    ],
)
def test_anchors_are_those_of_the_platform(docs: ModuleType, heading: str, anchor: str) -> None:
    assert docs.slug(heading) == anchor


def test_pages_are_written_for_the_builder(docs: ModuleType) -> None:
    text = "Text:\n- one\n- two\n\n```mermaid\na --> b\n```\n\n```yaml a.yaml\nx: 1\n```\n"
    shown = 'Text:\n\n- one\n- two\n\n<pre class="mermaid">\na --&gt; b\n</pre>\n\n```yaml\nx: 1\n```\n'
    assert docs.page(text) == shown


def test_a_folder_with_other_files_is_not_replaced(docs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    assert docs.is_free(tmp_path / "new")
    assert docs.is_free(tmp_path / "site")
    assert not docs.is_free(tmp_path)
    (tmp_path / "sitemap.xml").touch()
    assert docs.is_free(tmp_path)


def test_no_module_of_the_current_folder_is_run(
    docs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python puts the current folder, which may be anybody's, before its own modules for -m."""
    ran: list[tuple[list[str], str | None]] = []

    def run(argv: list[str], *, cwd: str | None = None, **_: object) -> subprocess.CompletedProcess[str]:
        ran.append((argv, cwd))
        (tmp_path / "venv").mkdir(exist_ok=True)
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(docs, "CACHE", tmp_path)
    assert docs.environment() == tmp_path / "venv/bin/python"
    assert [argv[2] for argv, _ in ran] == ["venv", "pip"] and {cwd for _, cwd in ran} == {"/"}


@pytest.mark.parametrize(("option", "status"), [("--help", 0), ("--wrong", 2)])
def test_an_option_is_no_folder(
    docs: ModuleType, option: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        docs.main([option])
    assert ended.value.code == status
    assert list(tmp_path.iterdir()) == []


def test_pages_may_show_pictures_of_their_folder_which_exist(docs: ModuleType, tmp_path: Path) -> None:
    for name in ("docs/a.png", "b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    texts = {"docs/index.md": "![a](a.png) ![b](../b.png) ![c](c.png)\n"}
    assert docs.problems(texts, tmp_path) == [
        "docs/index.md:1: b.png is no page of the site: name it in backticks",
        "docs/index.md:1: there is no file docs/c.png",
    ]
