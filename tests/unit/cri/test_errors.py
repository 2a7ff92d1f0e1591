import grpc
import grpc.aio
import pytest

from cri import errors
from cri.texts import MESSAGE


def _failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.NOT_FOUND, errors.NotFoundError),
        (grpc.StatusCode.ALREADY_EXISTS, errors.AlreadyExistsError),
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceededError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.UnimplementedError),
        (grpc.StatusCode.UNKNOWN, errors.CRIError),
    ],
)
def test_each_status_has_its_class_and_keeps_the_runtimes_message(
    code: grpc.StatusCode, expected: type[errors.CRIError]
) -> None:
    error = errors.translate(_failure(code, "what happened"), "RunPodSandbox")
    assert type(error) is expected
    assert (str(error), error.code, error.method) == ("what happened", code.name, "RunPodSandbox")


def test_a_runtime_that_still_loads_is_unavailable() -> None:
    error = errors.translate(_failure(grpc.StatusCode.UNKNOWN, "server is not initialized yet"), "Status")
    assert isinstance(error, errors.UnavailableError)


def test_an_error_is_written_as_upstreams_events_show_it() -> None:
    error = errors.translate(_failure(grpc.StatusCode.NOT_FOUND, "gone"), "PullImage")
    assert error.grpc_text() == "rpc error: code = NotFound desc = gone"


def test_of_a_long_message_the_beginning_is_kept() -> None:
    error = errors.translate(_failure(grpc.StatusCode.UNKNOWN, "exec: " + "u" * 1_000_000), "StartContainer")
    assert len(error.message) == MESSAGE and error.message.startswith("exec: u") and error.message.endswith("u...")
