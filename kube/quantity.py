"""Resource quantities: exact arithmetic on "500m", "1Gi", "2e3", and upstream's canonical form.

A quantity keeps the family of its suffix (binary, decimal, exponent) and is printed with the largest suffix that leaves no
fraction; below a nano is rounded up (apimachinery's pkg/api/resource).
"""

from __future__ import annotations

import functools
import re
from decimal import ROUND_CEILING, Context, Decimal

Quantity = str | int | float

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d+))?")
_NANO = Decimal("1e-9")
_LONGEST = 1000
"""Characters of a quantity, and the largest exponent: more than that is no amount of anything, only work."""
_EXACT = Context(prec=4 * _LONGEST, rounding=ROUND_CEILING)
MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityError(ValueError):
    """Not a quantity; the message is upstream's."""


@functools.lru_cache(4096)
def parse(quantity: Quantity) -> Decimal:
    """Return the exact value of a quantity; QuantityError where it is none."""
    return _split(quantity)[0]


def _split(quantity: Quantity) -> tuple[Decimal, str]:
    text = str(quantity).strip() if not isinstance(quantity, str) else quantity
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST else None
    if not match or int(match[4] or 0) > _LONGEST:
        raise QuantityError(MESSAGE)
    number, binary, decimal, exponent = match.groups()
    value = Decimal(number)
    family = "decimal"
    if binary:
        value = _EXACT.multiply(value, Decimal(_BINARY[binary]))
        family = "binary"
    elif decimal:
        value = value.scaleb(_DECIMAL[decimal], _EXACT)
    elif exponent:
        value = value.scaleb(max(int(exponent), -3 * _LONGEST), _EXACT)
        family = "exponent"
    return _nanos(value) if value.as_tuple().exponent < -9 else value, family  # type: ignore[operator]


def _nanos(number: Decimal) -> Decimal:
    return number.quantize(_NANO, ROUND_CEILING, _EXACT)


def value(quantity: Quantity) -> int:
    """Return the quantity in whole units, rounded up: bytes, pods."""
    return int(parse(quantity).to_integral_value(ROUND_CEILING))


def milli(quantity: Quantity) -> int:
    """Return the quantity in thousandths, rounded up: millicores."""
    return int(_EXACT.multiply(parse(quantity), Decimal(1000)).to_integral_value(ROUND_CEILING))


def remainder(amount: Decimal, of: Decimal | int) -> Decimal:
    """Return what is left of an amount; `%` fails where the quotient has more digits than Decimal's context, 28."""
    return _EXACT.remainder(amount, of)


def canonical(quantity: Quantity) -> str:
    """Return the quantity as upstream prints it: 1024Mi -> 1Gi, 0.5 -> 500m, 1000m -> 1."""
    number, family = _split(quantity)
    return render(number, family)


def render(number: Decimal | int, family: str = "decimal") -> str:
    """Print an exact number in a suffix family: "decimal", "binary" or "exponent"."""
    number = Decimal(number)
    if number == 0:
        return "0"
    if family == "binary" and abs(number) >= 1024 and number == number.to_integral_value():
        whole = int(number)
        for suffix, size in reversed(_BINARY.items()):
            if whole % size == 0:
                return f"{whole // size}{suffix}"
        return str(whole)
    nanos = int(_EXACT.multiply(number, Decimal(10**9)).to_integral_value(ROUND_CEILING))
    for suffix, power in reversed(_DECIMAL.items()):
        size = 10 ** (power + 9)
        if nanos % size == 0:
            count = nanos // size
            if family == "exponent":
                return f"{count}e{power}" if power else str(count)
            return f"{count}{suffix}"
    raise AssertionError("a whole number of nanos always has a suffix")
