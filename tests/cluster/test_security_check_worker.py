"""`wherry check --security` on a worker, which has fewer files and no API server."""

from __future__ import annotations

from tests.cluster.test_security_check import failed, look
from tests.support.machines import Machines


def test_a_worker_is_looked_at_by_itself(three: Machines) -> None:
    _, *others = three
    done, found = look(others[0])
    assert done == 0 and failed(found) == set()
    assert {found[number]["result"] for number in ("1.2.1", "5.1.1")} == {"N/A"}
    for number in ("4.1.1", "4.1.5", "4.1.9", "4.2.1", "4.2.11", "4.2.12", "4.3.1"):
        assert found[number]["result"] == "PASS", found[number]
