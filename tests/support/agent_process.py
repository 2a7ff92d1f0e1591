"""An agent in a process of its own, to be ended as SIGKILL ends it: nothing is cleaned up, nothing more is said.

The configuration and the clock are handed over in a file; `FastClock` counts from the machine's monotonic clock, so time
goes on where it was for the next one. Run as a module it is the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR2)  # an import that hangs is to print its stack, too
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

import uvloop

from agent import main
from agent.config import AgentConfig
from kube.clock import Clock

ROOT = Path(__file__).parents[2]


class AgentProcess:
    """Starts agents one after the other, each with the same configuration; their words go into `log`."""

    def __init__(self, folder: Path, config: AgentConfig, clock: Clock) -> None:
        self.log = folder / "agent.log"
        self._given, self._ready = folder / "agent.pickle", folder / "agent.ready"
        self._given.write_bytes(pickle.dumps((config, clock, self._ready)))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the agent and return at once."""
        self._ready.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.agent_process", str(self._given)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def ready(self) -> bool:
        """The agent that runs now has said that its node is Ready."""
        return self._ready.exists()

    def strike(self) -> None:
        """Kill the agent now; it is gone when `kill` has returned, too."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def terminate(self, seconds: float) -> int | None:
        """Tell the agent to stop; return its exit code, None if it has not ended after so many seconds."""
        process = self._process
        assert process is not None
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await process.wait()
        return None

    async def explain(self) -> None:
        """Have it recorded where the agent's tasks stand, or what its process does that does not come so far."""
        process = self._process
        if process is None or process.returncode is not None:
            words = ["there is no agent" if process is None else f"the agent has ended with {process.returncode}"]
        else:
            words = [f"the agent is {process.pid}", *_kernels_view(process.pid)]
        with self.log.open("a") as log:
            log.write("\n".join(words) + "\n")
        if process is not None and process.returncode is None:
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                process.send_signal(number)
            await asyncio.sleep(1.0)

    async def kill(self) -> None:
        """Kill the agent and return when it is gone."""
        self.strike()
        process, self._process = self._process, None
        if process is not None:
            await process.wait()


def _kernels_view(pid: int) -> Iterator[str]:
    folder = Path(f"/proc/{pid}")
    for path in [folder / "cmdline", *folder.glob("task/*/status"), *folder.glob("task/*/stack")]:
        with contextlib.suppress(OSError):
            yield f"{path}: {path.read_bytes().decode(errors='replace')}"


def _serve(given: Path) -> None:
    config, clock, ready = pickle.loads(given.read_bytes())
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s", stream=sys.stderr
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        loop.add_signal_handler(
            signal.SIGUSR1, lambda: [print(task, file=sys.stderr) for task in asyncio.all_tasks(loop)]
        )
        runner.run(main.run(config, ready=ready.touch, clock=clock))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
