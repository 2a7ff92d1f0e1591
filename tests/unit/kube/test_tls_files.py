"""TLS settings made from files, and rebuilt when those change."""

from __future__ import annotations

import errno
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from control.aggregation.remote import FrontProxy, Remote
from kube import pki
from kube.tls_files import FromFiles, TlsFiles


def pair(directory: Path, authority: pki.KeyPair) -> tuple[Path, Path]:
    """Write a certificate and its key in place of those there are, as those who renew do."""
    made = pki.issue(authority, "client", now=datetime.now(UTC))
    found = directory / "client.crt", directory / "client.key"
    for path, text in zip(found, (made.cert_pem, made.key_pem), strict=True):
        path.with_suffix(".new").write_bytes(text)
        path.with_suffix(".new").rename(path)
    return found


def settings(certificate: Path, key: Path) -> TlsFiles:
    def make() -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.load_cert_chain(certificate, key)
        return context

    return TlsFiles(make, [certificate, key])


def test_settings_are_made_again_when_a_file_changes_and_only_then(tmp_path: Path) -> None:
    authority = pki.new_ca("ca", datetime.now(UTC))
    found = settings(*pair(tmp_path, authority))
    first = found.current()
    assert found.current() is first
    pair(tmp_path, authority)
    second = found.current()
    assert second is not first and found.current() is second


def test_files_that_cannot_be_used_leave_what_there_was_until_they_can(tmp_path: Path) -> None:
    authority = pki.new_ca("ca", datetime.now(UTC))
    certificate, key = pair(tmp_path, authority)
    found = settings(certificate, key)
    first = found.current()
    key.write_text("not a key")
    assert found.current() is first
    key.unlink()
    assert found.current() is first
    pair(tmp_path, authority)
    assert found.current() is not first


def test_files_that_cannot_be_used_at_first_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        settings(tmp_path / "absent.crt", tmp_path / "absent.key").current()


async def test_an_extension_is_shown_the_front_proxy_certificate_as_it_is_now(tmp_path: Path) -> None:
    authority = pki.new_ca("ca", datetime.now(UTC))
    service = {"spec": {"version": "v1", "service": {"name": "s", "namespace": "n"}}}
    remote = Remote(service, 1, FrontProxy(*pair(tmp_path, authority)))
    first = await remote.context()
    assert await remote.context() is first
    pair(tmp_path, authority)
    assert await remote.context() is not first


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (OSError(errno.EMFILE, "Too many open files"), True),
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (ssl.SSLError("KEY_VALUES_MISMATCH"), False),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (ValueError("not a key"), False),
    ],
)
def test_a_failure_that_is_not_for_the_files_is_tried_again_without_a_change(
    tmp_path: Path, failure: Exception, again: bool
) -> None:
    file, failing, made = tmp_path / "file", list[Exception](), list[str]()

    def make() -> str:
        if failing:
            raise failing[0]
        made.append(file.read_text())
        return made[-1]

    file.write_text("old")
    found = FromFiles(make, [file])
    assert found.current() == "old"
    file.write_text("the new one")
    failing.append(failure)
    assert found.current() == "old"
    failing.clear()
    assert found.current() == ("the new one" if again else "old")
    assert found.current() == made[-1] and len(made) == (2 if again else 1), "made once"
