"""Kubeconfigs of users with which no request can be sent: each is one sentence, and none a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from wherry import cluster
from wherry.errors import WherryError

SERVER = {"server": "https://127.0.0.1:6443"}
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no scheme": ({"server": "foo"}, {}, "the server 'foo' is no address of an API server"),
    "another scheme": ({"server": "ftp://x"}, {}, "no address of an API server"),
    "port": ({"server": "https://x:99999"}, {}, "no address of an API server"),
    "no host": ({"server": "https://"}, {}, "no address of an API server"),
    "CA": (SERVER | {"certificate-authority-data": "eHg="}, {}, "its certificates or its key cannot be used"),
    "missing files": (SERVER, {"client-certificate": "a", "client-key": "b"}, r"its key \(.*/a, .*/b\) cannot be used"),
    "certificate": (SERVER, {"client-certificate-data": "eHg=", "client-key-data": "eHg="}, "cannot be used"),
    "token": (SERVER, {"token": "a\nX: b"}, "the token of the user has line breaks"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_no_request_can_be_sent_with_is_one_sentence(tmp_path: Path, name: str) -> None:
    server, user, text = WRONG[name]
    document = {
        "clusters": [{"name": "a", "cluster": server}],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(WherryError, match=text) as found:
        async with cluster.as_user([path]):
            pass
    assert "\n" not in str(found.value)
