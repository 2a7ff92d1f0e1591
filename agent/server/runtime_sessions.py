"""Sessions with containers of a CRI runtime, which returns a URL on its streaming server for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from agent.interfaces import PodView
from agent.runtime_records import ContainerRecord
from agent.server.session_backends import SessionError
from agent.streaming import upgrade
from agent.streaming.remote_command import StreamOptions
from agent.streaming.upgrade import Dial
from cri.errors import CRIError, InvalidArgumentError, NotFoundError
from cri.runtime_service import RuntimeService


class RuntimeSessions:
    """The sessions of one runtime."""

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime

    async def exec(
        self, view: PodView, record: ContainerRecord, command: Sequence[str], options: StreamOptions
    ) -> Dial:
        """Prepare a command."""
        with _session_errors():
            url = await self._runtime.exec_url(
                record.id,
                command,
                tty=options.tty,
                stdin=options.stdin,
                stdout=options.stdout,
                stderr=options.stderr,
            )
        return partial(upgrade.dial, url)

    async def attach(self, view: PodView, record: ContainerRecord, options: StreamOptions) -> Dial:
        """Prepare a connection to a container's first process."""
        with _session_errors():
            url = await self._runtime.attach_url(
                record.id,
                tty=options.tty,
                stdin=options.stdin,
                stdout=options.stdout,
                stderr=options.stderr,
            )
        return partial(upgrade.dial, url)

    async def port_forward(self, view: PodView, ports: Sequence[int]) -> Dial:
        """Prepare connections to ports of a pod's sandbox."""
        assert view.sandbox is not None
        with _session_errors():
            url = await self._runtime.port_forward_url(view.sandbox.id, ports)
        return partial(upgrade.dial, url)


@contextlib.contextmanager
def _session_errors() -> Iterator[None]:
    """Turn the runtime's errors into responses."""
    try:
        yield
    except NotFoundError as error:
        raise SessionError(404, str(error)) from error
    except InvalidArgumentError as error:
        raise SessionError(400, str(error)) from error
    except CRIError as error:
        raise SessionError(500, str(error)) from error
