import asyncio

import pytest

from cri.fake.script import Script, UnknownCommandError


async def _run(command: list[str]) -> tuple[int, list[tuple[str, bytes]]]:
    written: list[tuple[str, bytes]] = []
    code = await Script.parse(command).run(lambda stream, data: written.append((stream, data)), asyncio.sleep)
    return code, written


async def test_output_goes_to_the_stream_that_the_command_names() -> None:
    code, written = await _run(["sh", "-c", "echo one; echo two >&2 && exit 3; echo never"])
    assert code == 3
    assert written == [("stdout", b"one\n"), ("stderr", b"two\n")]


async def test_a_single_command_needs_no_shell() -> None:
    assert await _run(["false"]) == (1, [])


def test_a_program_that_the_image_lacks_is_refused() -> None:
    with pytest.raises(UnknownCommandError):
        Script.parse(["sh", "-c", "nginx; true"])


async def test_a_trap_gives_the_exit_code_of_a_terminated_script() -> None:
    script = Script.parse(["sh", "-c", "trap 'exit 9' TERM; sleep 600"])
    running = asyncio.create_task(script.run(lambda *_: None, asyncio.sleep))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    script.terminate(first_process=True)
    assert await asyncio.wait_for(running, 5) == 9


async def test_without_a_trap_the_first_process_of_a_namespace_does_not_notice_the_signal() -> None:
    deaf, mortal = Script.parse(["sleep", "600"]), Script.parse(["sleep", "600"])
    deaf.terminate(first_process=True)
    mortal.terminate(first_process=False)
    assert not deaf.terminated.is_set()
    assert await asyncio.wait_for(mortal.run(lambda *_: None, asyncio.sleep), 5) == 143
