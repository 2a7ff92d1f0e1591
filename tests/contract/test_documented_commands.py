"""Command lines of all documents: programs, commands, options and arguments exist; nothing of a block is left unread."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documented_commands import PROGRAMS, Page, problems
from tests.support.page_commands import ROOT, documents, lines


def found(page: str, text: str) -> list[str]:
    """Return the problems of a document's lines."""
    made = Page()
    return [f"{line}: {problem}" for line in lines(page, text, PROGRAMS) for problem in problems(line, made)]


DOCUMENTS = [path for path in documents() if path.parent.name != "tasks"]
"""All but those that tests/cluster/test_tasks.py runs as a whole."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_command_lines_of_a_document_can_be_typed(path: Path) -> None:
    assert found(str(path.relative_to(ROOT)), path.read_text()) == []


@pytest.mark.parametrize(
    ("page", "line", "wrong"),
    [
        ("uninstall", "kubectl drain node2", "kubectl drian node2"),
        ("uninstall", "--ignore-daemonsets", "--ignroe-daemonsets"),
        ("airgap", "    apt-get install ./wherry", "    atp-get instal ./wherry"),
        ("airgap", "    apt-get install ./wherry", "    apt-get instal ./wherry"),
        ("airgap", "    mkdir -p debs\n", ""),
        ("airgap", "-xf airgap.tar && cd bundle", "-xf airgap.tar && cd bundle && cp a.deb other/"),
        ("other-network", "wherry kubectl apply", "wherry kubectl aply"),
        ("start", "kubectl expose deployment web --port=80", "kubectl expoze deployment web --port=80"),
        ("start", "kubectl get nodes", "kubectl get nodse"),
        ("troubleshooting", "`ss -ltnp`", "`ss --nonsense`"),
        ("troubleshooting", "`ls -ld /opt", "`sl -ld /opt"),
        ("private-registries", "wherry up --registry-mirror", "wherry up --max-pods 3 nonsense --registry-mirror"),
        ("private-registries", "wherry config validate", "wherry config validat"),
        ("backup", "wherry snapshot list", "wherry snapshot list --from tomorrow"),
        ("install", "wherry token create --ttl 1h --desc", "wherry token create --ttl 1w --desc"),
        ("install", "wherry token create --ttl 1h --desc", "wherry token create --ttl 1h --dec"),
        ("packages", "scripts/package wheel", "scripts/pakage wheel"),
        ("api", "    kubectl get flowschemas", "    This is text."),
        ("api", "python -m control kube-scheduler", "python -m controls kube-scheduler"),
        ("monitoring", "| tr -d -", "| tr -d '"),
    ],
)
def test_a_wrong_line_is_found(page: str, line: str, wrong: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text()
    assert line in text
    problem = found(f"docs/{page}.md", text.replace(line, wrong))
    assert problem and all(f"docs/{page}.md:" in each for each in problem)


@pytest.mark.parametrize(
    "line",
    [
        "wherry up --proxy banana",
        "wherry status --watch -o json",
        "wherry completion tcsh",
        "wherry up --proxy-mode auto --proxy upstream",
        "wherry up --max-pods 0",
        "wherry up --disable metrcs",
        "wherry join https://10.0.0.1:6443 --token wrong",
        "wherry logs proxy",
        "wherry config print -o table",
        "wherry why pod/web --since 10",
        "wherry upgrade --check --to newest",
        "wherry snapshot save --name scheduled",
    ],
)
def test_a_value_that_the_command_refuses_is_found(line: str) -> None:
    (problem,) = found("docs/page.md", f"    {line}\n")
    assert problem.startswith(f"docs/page.md:1: {line}: {line}: ")


@pytest.mark.parametrize(
    "line",
    ["wherry up --node-ip ADDRESS --max-pods 9", "wherry why KIND/NAME --since TIME", "wherry join URL --token TOKEN"],
)
def test_words_in_capitals_stand_for_values(line: str) -> None:
    assert found("docs/page.md", f"    {line}\n") == []
