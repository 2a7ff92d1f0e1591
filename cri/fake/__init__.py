"""A container runtime without containers, served over real gRPC on a real unix socket, for tests."""

from cri.fake.server import FakeRuntime

__all__ = ["FakeRuntime"]
