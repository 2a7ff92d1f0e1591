"""The audit policy of the documentation, and what the check of audit policies says about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wherry.security.configuration import CHECKS
from wherry.security.facts import Facts
from wherry.settings import Settings

PAGE = (Path(__file__).resolve().parents[4] / "docs/security.md").read_text()
(EXAMPLE,) = (text.split("```")[0] for text in PAGE.split("```yaml\n")[1:] if "audit.k8s.io/v1\nkind: Policy" in text)
(COVERS,) = (check for check in CHECKS if check.id == "3.2.2")


def judged(policy: str, tmp_path: Path) -> tuple[str, str]:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    found = COVERS.look(Facts(Settings(), flags={"audit-policy-file": str(file)}))
    return found.verdict, found.reason


@pytest.mark.parametrize("what", ["secrets", "configmaps", "serviceaccounts/token", "tokenreviews"])
def test_the_example_logs_bodies_but_no_tokens(tmp_path: Path, what: str) -> None:
    assert "level: RequestResponse" in EXAMPLE
    assert judged(EXAMPLE, tmp_path)[0] == "PASS"
    assert what in EXAMPLE
    verdict, reason = judged(EXAMPLE.replace(what, "nothing"), tmp_path)
    assert verdict == "FAIL" and reason == f"the log contains the contents of {what}"
