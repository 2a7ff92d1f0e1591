"""The images that upstream's v1.20 names."""

from __future__ import annotations

from tests.conformance.image_parts import PAUSE, ImageSources, apache, nginx
from tests.conformance.oci import File, Layout, layer


def add_all(made: Layout, parts: ImageSources) -> None:
    debian, busybox, agnhost = parts.debian, parts.busybox, parts.agnhost({})
    for registry in ("k8s.gcr.io/e2e-test-images", "gcr.io/k8s-authenticated-test"):
        for version in ("2.21", "2.6"):
            made.add(f"{registry}/agnhost:{version}", agnhost, ["/agnhost"], ["pause"])
    made.add("docker.io/library/busybox:1.29", [busybox], (), ["sh"])
    web, newer = apache(), layer({"usr/local/apache2/newer": File()})
    made.add("docker.io/library/httpd:2.4.38-alpine", [debian, web], (), ["httpd-foreground"])
    made.add("docker.io/library/httpd:2.4.39-alpine", [debian, web, newer], (), ["httpd-foreground"])
    for version in ("1.14", "1.15"):
        name = f"docker.io/library/nginx:{version}-alpine"
        made.add(name, [debian, nginx()], (), ["nginx", "-g", "daemon off;"])
    tests = "gcr.io/kubernetes-e2e-test-images"
    made.add(f"{tests}/jessie-dnsutils:1.0", [debian], (), ["sh"])
    for animal in ("kitten", "nautilus"):
        made.add(f"{tests}/{animal}:1.0", [*agnhost, parts.animal(animal)], ["/agnhost"], ["test-webserver"])
    setuid = layer({"usr/local/bin/nnp": parts.program("nnp", 0o4755)})
    made.add(f"{tests}/nonewprivs:1.0", [debian, setuid], (), ["nnp"])
    made.add(f"{tests}/nonroot:1.0", [busybox], (), ["id", "-u"], user="1234")
    extension = layer({"sample-apiserver": parts.program("sample-apiserver")})
    made.add(f"{tests}/sample-apiserver:1.17", [debian, extension], ["/sample-apiserver"])
    etcd = layer({"usr/local/bin/etcd": File(link="/usr/bin/etcd")})
    made.add("k8s.gcr.io/etcd:3.4.13-0", [debian, etcd], (), ["etcd"])
    made.add("docker.io/library/perl:5.26", [debian], (), ["perl"])
    made.add("k8s.gcr.io/pause:3.2", [busybox], PAUSE)
