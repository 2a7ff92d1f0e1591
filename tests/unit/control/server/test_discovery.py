"""Discovery documents as the server keeps them."""

from __future__ import annotations

from control.server.discovery import Discovery


def test_all_spellings_of_a_path_are_one_document() -> None:
    discovery = Discovery()
    paths = ("/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1")
    documents = {path: discovery.document(path) for path in paths}
    for slashes in range(1, 100):
        for path in paths:
            assert discovery.document(path + "/" * slashes) == documents[path]
            assert discovery.document("/" * slashes + path) == documents[path]
    assert len(discovery._documents) == len(paths)
