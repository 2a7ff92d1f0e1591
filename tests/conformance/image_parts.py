"""Layers that several versions' images are put together from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.conformance.oci import File, layer, read
from tests.conformance.upstream import Upstream

PAUSE = ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"]
_APACHE = b"""ServerRoot /etc/apache2
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
Listen 80
ServerName localhost
PidFile /tmp/httpd.pid
DocumentRoot /usr/local/apache2/htdocs
DirectoryIndex index.html
ErrorLog /dev/stderr
<Directory />
Require all granted
</Directory>
"""
_NGINX = b"events {}\nhttp { server { listen 80; root /usr/share/nginx/html; } }\n"
_WELCOME = b"<!DOCTYPE html><html><head><title>Welcome to nginx!</title></head><body>Welcome to nginx!</body></html>\n"


@dataclass(frozen=True, slots=True)
class ImageSources:
    """A version with the two layers that images begin with."""

    upstream: Upstream
    debian: bytes
    busybox: bytes

    @property
    def tests(self) -> Path:
        return self.upstream.sources / "test/images"

    def program(self, name: str, mode: int = 0o755) -> File:
        return read(self.upstream.binaries / name, mode)

    def has(self, name: str) -> bool:
        return (self.upstream.binaries / name).exists()

    def agnhost(self, more: dict[str, File]) -> list[bytes]:
        """Return the layers of the image that most tests run."""
        keys = {name: read(self.tests / "agnhost/porter" / name) for name in ("localhost.crt", "localhost.key")}
        program = {"agnhost": self.program("agnhost"), "agnhost-2": File(link="agnhost")}
        return [self.debian, layer({**program, **keys, "uploads/.keep": File(), **more})]

    def animal(self, name: str) -> bytes:
        """Return a layer with the page of a web server that says which one it is."""
        return layer({page: read(self.tests / name / "html" / page) for page in (f"{name}.jpg", "data.json")})


def apache() -> bytes:
    start = b"#!/bin/sh\nexec apache2 -f /usr/local/apache2/conf/httpd.conf -DFOREGROUND\n"
    return layer(
        {
            "usr/local/apache2/htdocs/index.html": File(b"<html><body><h1>It works!</h1></body></html>\n"),
            "usr/local/apache2/conf/httpd.conf": File(_APACHE),
            "usr/local/bin/httpd-foreground": File(start, 0o755),
        }
    )


def nginx() -> bytes:
    return layer({"etc/nginx/nginx.conf": File(_NGINX), "usr/share/nginx/html/index.html": File(_WELCOME)})
