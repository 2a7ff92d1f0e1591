"""One cluster of two virtual machines for all tests of this tier: making it takes many minutes."""

import shutil
from collections.abc import Iterator

import pytest

from tests.vm import vagrant


@pytest.fixture(scope="session")
def machines() -> Iterator[None]:
    """A control plane and a worker that `vagrant up` made; destroyed at the end, come what may."""
    for tool in ("vagrant", "virsh", "qemu-system-x86_64", "debootstrap", "rsync"):
        if not shutil.which(tool):
            pytest.fail(f"{tool} is missing: scripts/test --vm installs it")
    vagrant.prepare()
    with vagrant.hypervisor():
        try:
            vagrant.vagrant("validate")
            vagrant.vagrant("up")
            yield
        finally:
            if not vagrant.KEEP:
                vagrant.vagrant("destroy", "--force", check=False)
