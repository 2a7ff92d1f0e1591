"""UUIDs are well-formed and never the same twice."""

import uuid

from kube.uid import new_uid


def test_uids_are_random_uuids_of_version_4() -> None:
    found = [new_uid() for _ in range(2000)]
    assert len(set(found)) == len(found)
    for text in found:
        parsed = uuid.UUID(text)
        assert str(parsed) == text and parsed.version == 4 and parsed.variant == uuid.RFC_4122
