"""JSON values as objects of a generated type, for values that come from elsewhere than a request's body.

Annotations, configuration and the results of webhooks get the checks of a body (`control.decoding.decode`): types, ranges of
integers, quantities, base64 and times. An object that does not pass them could not be shown in every encoding.
"""

from __future__ import annotations

from typing import Any

import msgspec

from control.decoding import canonical, unknown_fields
from kube import serialize
from kube.json_object import Object


def to_object(raw: Any, struct: type[msgspec.Struct]) -> Object:
    """Return a value in its type's form, without unknown fields; raises msgspec.ValidationError if it is none of the type."""
    typed = serialize.convert(raw, struct)
    overflow = unknown_fields.inspect(raw, struct)[2]
    if overflow:
        raise msgspec.ValidationError(overflow)
    obj = serialize.to_dict(typed)
    try:
        canonical.rewrite(obj, struct)
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error
    return obj
