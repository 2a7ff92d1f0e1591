"""Certificate requests of a node that a person may approve: a node may request any certificate, and gets what is approved."""

from __future__ import annotations

import base64
import binascii

from cryptography import x509

from kube import subjects
from kube.api import certificates_v1

CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
USAGES = {
    CLIENT: {"client auth", "digital signature", "key encipherment"},
    SERVING: {"server auth", "digital signature", "key encipherment"},
}
NODES = "system:nodes"


def is_of_node(spec: certificates_v1.CertificateSigningRequestSpec, node: str) -> bool:
    """Return whether a node requests a certificate of a kubelet for itself and nothing more (upstream: the signers' rules)."""
    user = f"system:node:{node}"
    usages = USAGES.get(spec.signer_name)
    if spec.username != user or usages is None or not set(spec.usages) <= usages:
        return False
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(spec.request))
        subject = subjects.read(request.subject)
    except (ValueError, binascii.Error, subjects.SubjectError):
        return False
    return (
        not subjects.ambiguous(request.subject)
        and subject.name == user
        and subject.groups == (NODES,)
        and not subject.uid
    )
