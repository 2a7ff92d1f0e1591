"""Selectors of devices: expressions that must compile and may not cost too much (upstream: pkg/apis/resource/validation)."""

from __future__ import annotations

from typing import Any

from control.cel import CompileError
from control.cel.devices import COST_LIMIT, MAX_LENGTH, SelectorTypeError, compile_selector
from control.registry.checks import Errors
from kube.errors import FieldError, forbidden_field, invalid_value, required

MOST = 32


def validate_selectors(selectors: list[dict[str, Any]], path: str) -> Errors:
    """Check the selectors of a class or a request."""
    if len(selectors) > MOST:
        return [FieldError(path, "Too many", f"must have at most {MOST} items", len(selectors))]
    errors: Errors = []
    for index, selector in enumerate(selectors):
        cel = selector.get("cel")
        if cel is None:
            errors.append(required(f"{path}[{index}].cel"))
        else:
            errors += _expression(cel.get("expression") or "", f"{path}[{index}].cel.expression")
    return errors


def _expression(text: str, path: str) -> Errors:
    if not text:
        return [required(path)]
    if len(text.encode()) > MAX_LENGTH:
        return [FieldError(path, "Too long", f"may not be more than {MAX_LENGTH} bytes", text)]
    try:
        program = compile_selector(text)
    except SelectorTypeError as error:
        return [invalid_value(path, text, str(error))]
    except CompileError as error:
        return [invalid_value(path, text, f"compilation failed: {error}")]
    if program.estimated_cost > COST_LIMIT:
        return [forbidden_field(path, "too complex, exceeds cost limit")]
    return []
