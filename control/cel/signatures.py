"""Signatures of all functions, against which expressions are type-checked.

A line is `name (arguments) result`, with `receiver.` before the parentheses for a method; capital letters are type
parameters. `control.cel.functions` and `control.cel.libraries` implement the functions by name.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from control.cel.types import Type, parse, split

_TABLE = """
!_ (bool)bool
-_ (int)int (double)double (duration)duration
_&&_ (bool,bool)bool
_||_ (bool,bool)bool
_?_:_ (bool,A,A)A
_==_ (A,A)bool
_!=_ (A,A)bool
@in (A,list(A))bool (A,map(A,B))bool
_[_] (list(A),int)A (list(A),uint)A (map(A,B),A)B (optional(list(A)),int)optional(A) (optional(map(A,B)),A)optional(B)
_[?_] (list(A),int)optional(A) (map(A,B),A)optional(B) (optional(list(A)),int)optional(A) (optional(map(A,B)),A)optional(B)
_+_ (int,int)int (uint,uint)uint (double,double)double (string,string)string (bytes,bytes)bytes (list(A),list(A))list(A)
_+_ (timestamp,duration)timestamp (duration,timestamp)timestamp (duration,duration)duration
_-_ (int,int)int (uint,uint)uint (double,double)double (timestamp,timestamp)duration (timestamp,duration)timestamp
_-_ (duration,duration)duration
_*_ (int,int)int (uint,uint)uint (double,double)double
_/_ (int,int)int (uint,uint)uint (double,double)double
_%_ (int,int)int (uint,uint)uint
size (string)int (bytes)int (list(A))int (map(A,B))int string.()int bytes.()int list(A).()int map(A,B).()int
type (A)type
dyn (A)dyn
bool (bool)bool (string)bool
int (int)int (uint)int (double)int (string)int (timestamp)int (duration)int
uint (uint)uint (int)uint (double)uint (string)uint
double (double)double (int)double (uint)double (string)double
string (string)string (int)string (uint)string (double)string (bool)string (bytes)string (timestamp)string (duration)string
bytes (bytes)bytes (string)bytes
timestamp (timestamp)timestamp (string)timestamp (int)timestamp
duration (duration)duration (string)duration (int)duration
contains string.(string)bool
startsWith string.(string)bool
endsWith string.(string)bool
matches (string,string)bool string.(string)bool
getFullYear timestamp.()int timestamp.(string)int
getMonth timestamp.()int timestamp.(string)int
getDayOfYear timestamp.()int timestamp.(string)int
getDayOfMonth timestamp.()int timestamp.(string)int
getDate timestamp.()int timestamp.(string)int
getDayOfWeek timestamp.()int timestamp.(string)int
getHours timestamp.()int timestamp.(string)int duration.()int
getMinutes timestamp.()int timestamp.(string)int duration.()int
getSeconds timestamp.()int timestamp.(string)int duration.()int
getMilliseconds timestamp.()int timestamp.(string)int duration.()int

charAt string.(int)string
format string.(list(dyn))string
indexOf string.(string)int string.(string,int)int list(A).(A)int
lastIndexOf string.(string)int string.(string,int)int list(A).(A)int
join list(string).()string list(string).(string)string
lowerAscii string.()string
upperAscii string.()string
quote (string)string
replace string.(string,string)string string.(string,string,int)string
reverse string.()string
split string.(string)list(string) string.(string,int)list(string)
strings.quote (string)string
substring string.(int)string string.(int,int)string
trim string.()string
find string.(string)string
findAll string.(string)list(string) string.(string,int)list(string)

isSorted list(A).()bool
sum list(int).()int list(uint).()uint list(double).()double list(duration).()duration
min list(A).()A
max list(A).()A
sets.contains (list(A),list(A))bool
sets.equivalent (list(A),list(A))bool
sets.intersects (list(A),list(A))bool

optional.of (A)optional(A)
optional.ofNonZeroValue (A)optional(A)
optional.none ()optional(A)
hasValue optional(A).()bool
value optional(A).()A
or optional(A).(optional(A))optional(A)
orValue optional(A).(A)A

quantity (string)quantity
isQuantity (string)bool
sign quantity.()int
isInteger quantity.()bool
asInteger quantity.()int
asApproximateFloat quantity.()double
add quantity.(quantity)quantity quantity.(int)quantity
sub quantity.(quantity)quantity quantity.(int)quantity
isGreaterThan quantity.(quantity)bool semver.(semver)bool
isLessThan quantity.(quantity)bool semver.(semver)bool
compareTo quantity.(quantity)int semver.(semver)int

url (string)url
isURL (string)bool
getScheme url.()string
getHost url.()string
getHostname url.()string
getPort url.()string
getEscapedPath url.()string
getQuery url.()map(string,list(string))

ip (string)ip cidr.()ip
isIP (string)bool
ip.isCanonical (string)bool
family ip.()int
isUnspecified ip.()bool
isLoopback ip.()bool
isLinkLocalMulticast ip.()bool
isLinkLocalUnicast ip.()bool
isGlobalUnicast ip.()bool
cidr (string)cidr
isCIDR (string)bool
containsIP cidr.(ip)bool cidr.(string)bool
containsCIDR cidr.(cidr)bool cidr.(string)bool
masked cidr.()cidr
prefixLength cidr.()int

semver (string)semver (string,bool)semver
isSemver (string)bool (string,bool)bool
major semver.()int
minor semver.()int
patch semver.()int

format.named (string)optional(format)
validate format.(string)optional(list(string))
"""
_ORDERED = ("int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration")
_NUMBERS = ("int", "uint", "double")
_FORMATS = (
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix",
    "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime",
)  # fmt: skip
_CONVERTED = {"ip": "string (ip)string", "cidr": "string (cidr)string"}


class Overload(msgspec.Struct, frozen=True):
    """One form of a function."""

    params: tuple[Type, ...]
    result: Type
    method: bool = False


Signatures = dict[str, list[Overload]]


def read(lines: Iterable[str]) -> Signatures:
    """Read a table of signatures."""
    found: Signatures = {}
    for line in lines:
        name, _, forms = line.strip().partition(" ")
        while forms:
            found.setdefault(name, []).append(_overload(forms))
            forms = _rest(forms)
    return found


def _end(text: str) -> int:
    """Return where the form at the beginning of a text ends: at the first space outside of parentheses."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == " " and depth == 0:
            return index
    return len(text)


def _rest(text: str) -> str:
    return text[_end(text) :].strip()


def _overload(text: str) -> Overload:
    text = text[: _end(text)]
    receiver, method = "", False
    if ".(" in text:
        receiver, _, text = text.partition(".(")
        text, method = "(" + text, True
    depth = end = 0
    while True:
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            break
        end += 1
    params = [parse(part) for part in split(text[1:end])]
    return Overload(tuple([parse(receiver), *params] if method else params), parse(text[end + 1 :]), method)


def _standard() -> Signatures:
    found = read(line for line in _TABLE.splitlines() if line.strip())
    for operator in ("_<_", "_<=_", "_>_", "_>=_"):
        lines = [f"{operator} ({kind},{kind})bool" for kind in _ORDERED]
        lines += [f"{operator} ({a},{b})bool" for a in _NUMBERS for b in _NUMBERS if a != b]
        found |= read(lines)
    for line in _CONVERTED.values():
        found["string"] += read([line])["string"]
    for name in _FORMATS:
        found |= read([f"format.{name} ()format"])
    return found


STANDARD: Signatures = _standard()
