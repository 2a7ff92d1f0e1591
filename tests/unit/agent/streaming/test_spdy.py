import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.streaming.dictionary import DICTIONARY
from agent.streaming.spdy import Connection, Data, GoAway, Reset, SPDYError, StreamAccepted, StreamOpened

# A SYN_STREAM of stream 1 with the header streamtype: error, deflated at zlib's default level.
HEADER_ID = bytes.fromhex("78bbe3c6a7c2")


def test_the_dictionary_is_the_one_of_spdy_3() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_a_stream_is_opened_with_version_3_an_odd_number_and_headers_in_lower_case() -> None:
    client = Connection()
    assert client.open_stream({"streamType": "error"}) == 1
    frame = client.take()
    assert frame[:4] == bytes.fromhex("80030001")
    assert struct.unpack(">I", frame[4:8])[0] == len(frame) - 8
    assert frame[8:12] == b"\0\0\0\1"
    assert frame[18:24] == HEADER_ID
    plain = zlib.decompressobj(zdict=DICTIONARY).decompress(frame[18:])
    assert plain == b"\0\0\0\1" + b"\0\0\0\x0astreamtype" + b"\0\0\0\5error"


def test_two_sides_understand_each_other() -> None:
    client, server = Connection(), Connection(client=False)
    first, second = client.open_stream({"a": "1"}), client.open_stream({"a": "2", "b": "3"}, fin=True)
    client.send(first, b"hello")
    client.send(first, b"", fin=True)
    assert server.receive(client.take()) == [
        StreamOpened(first, {"a": "1"}),
        StreamOpened(second, {"a": "2", "b": "3"}, fin=True),
        Data(first, b"hello"),
        Data(first, b"", fin=True),
    ]
    server.accept_stream(first)
    server.reset(second, 3)
    server.go_away()
    assert client.receive(server.take()) == [StreamAccepted(first, {}), Reset(second, 3), GoAway(0)]


@given(st.binary(max_size=200_000), st.integers(min_value=1, max_value=5000))
def test_bytes_arrive_whole_however_the_connection_cuts_them(data: bytes, step: int) -> None:
    client, server = Connection(), Connection(client=False)
    stream = client.open_stream({"streamtype": "stdin"})
    client.send(stream, data, fin=True)
    wire, events = client.take(), []
    for start in range(0, len(wire), step):
        events += server.receive(wire[start : start + step])
    parts = [event for event in events if isinstance(event, Data)]
    assert b"".join(part.data for part in parts) == data
    assert [part.fin for part in parts] == [False] * (len(parts) - 1) + [True]


def test_a_ping_is_answered_and_an_answer_is_not() -> None:
    client = Connection()
    assert client.receive(bytes.fromhex("80030006 00000004 00000002")) == []
    assert client.take() == bytes.fromhex("80030006 00000004 00000002")
    client.receive(bytes.fromhex("80030006 00000004 00000001"))
    assert client.take() == b""


def test_settings_and_window_updates_are_passed_over() -> None:
    client = Connection()
    settings = bytes.fromhex("80030004 0000000c 00000001 00000004 00000064")
    window = bytes.fromhex("80030009 00000008 00000001 00010000")
    assert client.receive(settings + window) == []


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("80020001 0000000a") + bytes(10),  # another version
        bytes.fromhex("80030003 00000004 00000001"),  # a reset without status
        bytes.fromhex("80030002 00000008 00000001 deadbeef"),  # headers that are not deflated
    ],
)
def test_a_broken_frame_ends_the_connection(frame: bytes) -> None:
    with pytest.raises(SPDYError):
        Connection().receive(frame)


def test_a_header_block_that_inflates_without_end_is_refused() -> None:
    bomb = zlib.compressobj(zdict=DICTIONARY)
    packed = bomb.compress(struct.pack(">III", 1, 1, 0) + bytes(64 << 20)) + bomb.flush(zlib.Z_SYNC_FLUSH)
    frame = struct.pack(">HHII", 0x8003, 2, len(packed) + 4, 1) + packed
    with pytest.raises(SPDYError, match="too large"):
        Connection().receive(frame)
