"""CEL as Kubernetes uses it: a table of expressions with their values, errors and messages, and a second opinion."""

from __future__ import annotations

from typing import Any

import cel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.cel import BudgetExceeded, CompileError, Declarations, EvaluationError, compile
from control.cel.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of, object_of

SELF = object_of(
    {
        "replicas": INT,
        "max": INT,
        "ratio": DOUBLE,
        "name": STRING,
        "on": BOOL,
        "items": list_of(object_of({"a": INT, "b": STRING}), size=10),
        "labels": map_of(STRING, STRING, size=10),
        "any": DYN,
        "missing": STRING,
    }
)
DECLARED = Declarations({"self": SELF})
VALUE: dict[str, Any] = {
    "replicas": 3,
    "max": 5,
    "ratio": 1,
    "name": "web",
    "on": True,
    "items": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
    "labels": {"app": "web", "tier": "front"},
    "any": {"deep": [1, "two", None]},
}


def value(expression: str) -> Any:
    return compile(expression, DECLARED).evaluate({"self": VALUE}).value


TRUE = r"""
self.replicas <= self.max
has(self.name) && !has(self.missing)
self.items.all(i, i.a > 0)
self.items.exists(i, i.b == 'y')
self.items.exists_one(i, i.a == 2)
self.items.map(i, i.a) == [1, 2]
self.items.map(i, i.a > 1, i.b) == ['y']
self.items.filter(i, i.a > 1).size() == 1
self.labels.all(k, self.labels[k] != '')
'app' in self.labels && 'web' in ['web']
self.items.all(index, item, item.a == index + 1)
[1, 2, 3].transformList(i, v, v * i) == [0, 2, 6]
self.labels.transformMap(k, v, v + k)['app'] == 'webapp'
{'a': 1}.transformMapEntry(k, v, {string(v): k}) == {'1': 'a'}
self.any.deep[1] == 'two' && self.any.deep[2] == null
self.?missing.orValue('none') == 'none'
self.?name.hasValue() && !self.?missing.hasValue()
self.?name.optMap(n, n + '!').value() == 'web!'
self.any.?deep[?5].orValue(7) == 7
[?self.?missing, ?self.?name] == ['web']
{?'n': self.?missing}.size() == 0
cel.bind(x, self.replicas * 2, x + x == 12)
1 / 0 == 1 || true
true || 1 / 0 == 1
!(false && 1 / 0 == 1)
[0, 1].exists(x, 1 / x == 1)
dyn(1) == 1.0 && dyn(1u) == 1
1 < 1.5 && 2u > 1
-7 / 2 == -3 && -7 % 2 == -1
7.0 / 2.0 == 3.5
double(self.replicas) * 1.5 == 4.5
int('42') == 42 && string(42) == '42' && string(1.0) == '1'
type(self.replicas) == int && type(1u) == uint && type([]) == list
timestamp('2026-01-02T03:04:05Z').getHours() == 3
string(timestamp('0009-01-02T03:04:05Z')) == '0009-01-02T03:04:05Z'
timestamp('2026-01-02T03:04:05Z').getHours('+02:00') == 5
timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')
duration('1h30m').getMinutes() == 90 && duration('90s') > duration('1m')
timestamp('2026-01-01T00:00:00Z') + duration('1h') == duration('30m') + timestamp('2026-01-01T00:30:00Z')
timestamp('2026-01-01T01:00:00Z') - duration('1h') == timestamp('2026-01-01T00:00:00Z')
string(timestamp('2026-01-01T00:00:00.5Z')) == '2026-01-01T00:00:00.5Z' && string(duration('90s')) == '90s'
'%s-%d-%.2f-%x-%s'.format(['a', 7, 1.5, 255, [1, 'b']]) == 'a-7-1.50-ff-[1, b]'
'hello'.charAt(1) == 'e' && 'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3
'a,b,c'.split(',') == ['a', 'b', 'c'] && ['a', 'b'].join('-') == 'a-b'
'AbC'.lowerAscii() == 'abc' && ' x '.trim() == 'x' && 'aXbX'.replace('X', '-', 1) == 'a-bX'
'hello'.substring(1, 3) == 'el' && 'abc'.reverse() == 'cba' && strings.quote('a"b') == '"a\\"b"'
'abc123'.matches('^[a-z]+[0-9]+$') && 'abc 123 45'.findAll('[0-9]+') == ['123', '45'] && 'abc'.find('z') == ''
[1, 2, 2].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && ['a', 'b'].max() == 'b'
[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2
sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])
quantity('1Gi').isGreaterThan(quantity('1000Mi')) && quantity('500m').add(quantity('0.5')).asInteger() == 1
isQuantity('1Ki') && !isQuantity('1Kb') && quantity('-1').sign() == -1 && quantity('2').sub(1).isInteger()
quantity('1.5').asApproximateFloat() == 1.5 && quantity('1').compareTo(quantity('1000m')) == 0
url('https://user@example.com:8443/a%20b?k=v&k=w').getHost() == 'example.com:8443'
url('https://example.com:8443/x').getPort() == '8443' && url('/only/path').getEscapedPath() == '/only/path'
url('https://[::1]:80/?k=v').getHostname() == '::1' && url('https://a/?k=v&k=w').getQuery()['k'] == ['v', 'w']
isURL('https://a.b') && !isURL('nope') && !isURL('a b')
ip('192.168.0.1').family() == 4 && ip('::1').isLoopback() && isIP('10.0.0.1') && !isIP('10.0.0.256')
ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1') && string(ip('10.0.0.1')) == '10.0.0.1'
cidr('10.1.0.0/16').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))
cidr('10.1.2.3/16').masked() == cidr('10.1.0.0/16') && cidr('10.1.0.0/16').prefixLength() == 16
!isCIDR('10.0.0.0') && isCIDR('10.0.0.0/8') && cidr('10.1.2.3/16').ip() == ip('10.1.2.3')
semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))
!isSemver('v1.0') && isSemver('v1.0', true) && semver('1.2.3').minor() == 2
format.dns1123Label().validate('ok') == optional.none() && format.dns1123Label().validate('NO').hasValue()
!format.named('unknown').hasValue()
optional.of(1).or(optional.of(2)).value() == 1 && optional.none().orValue(3) == 3
optional.ofNonZeroValue('') == optional.none()
b'abc' == bytes('abc') && size(b'abc') == 3 && r'\d' == '\\d' && '\u00e9' == 'é'
self.on ? self.name == 'web' : false
"""


@pytest.mark.parametrize("expression", [line for line in TRUE.strip().splitlines() if line])
def test_an_expression_holds(expression: str) -> None:
    assert value(expression) is True


FAILS = {
    "9223372036854775807 + 1 > 0": "integer overflow",
    "-9223372036854775808 / -1 > 0": "integer overflow",
    "1 / (self.replicas - 3) == 1": "division by zero",
    "1 % (self.replicas - 3) == 1": "modulus by zero",
    "self.missing == ''": "no such key: missing",
    "self.labels['nope'] == ''": "no such key: nope",
    "self.items[9].a == 1": "index out of bounds: 9",
    "self.any.deep + 1 == 2": "no such overload",
    "self.any.deep.all(x, x > 0)": "no such overload",
    "int('x') == 1": "type conversion error from 'string' to 'int'",
    "quantity('x') == quantity('1')": "quantities must match the regular expression",
    "optional.none().value() == 1": "optional.none() dereference",
    "[].min() == 1": "min called on empty list",
    "'a'.substring(2) == ''": "index out of range: 2",
    "timestamp(self.name) == timestamp(self.name)": "type conversion error from 'string' to 'google.protobuf.Timestamp'",
    "'%d'.format(['x']) == ''": "error during formatting",
}


@pytest.mark.parametrize("expression", FAILS)
def test_an_evaluation_fails_with_a_reason(expression: str) -> None:
    with pytest.raises(EvaluationError) as found:
        value(expression)
    assert FAILS[expression] in str(found.value)


REFUSED = {
    "self.nope == 1": "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^",
    "nope": "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^",
    "self.name == 5": "found no matching overload for '_==_' applied to '(string, int)'",
    "self.replicas + 'a'": "found no matching overload for '_+_' applied to '(int, string)'",
    "self.name.startsWith(1)": "found no matching overload for 'startsWith' applied to 'string.(int)'",
    "self.name.nope()": "undeclared reference to 'nope' (in container '')",
    "self.replicas.x == 1": "type 'int' does not support field selection",
    "self.replicas.all(x, true)": "cannot be range of a comprehension (must be list, map, or dynamic)",
    "self.items.all(i, i.a)": "expected type 'bool' but found 'int'",
    "has(self)": "invalid argument to has() macro",
    "self.items.all(i.a, true)": "argument must be a simple name",
    "[1, 'a'].size() == 2": "ERROR: <input>:1:5: expected type 'int' but found 'string'",
    "{'a': 1, 'b': 'x'}.size() == 2": "expected type 'int' but found 'string'",
    "self.name.matches('[')": "invalid matches argument",
    "duration('soon') > duration('1s')": "invalid duration argument",
    "timestamp('soon') > timestamp('2026-01-01T00:00:00Z')": "invalid timestamp argument",
    "1 +": "Syntax error: mismatched input '<EOF>'",
    "(1": "Syntax error: mismatched input '<EOF>' expecting ')'",
    "'unfinished": "Syntax error: token recognition error at: '''",
    "while": "reserved identifier: while",
    "99999999999999999999": "invalid int literal",
    "(" * 100 + "1" + ")" * 100: "expression recursion limit exceeded",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_an_expression_is_refused_with_its_place(expression: str) -> None:
    with pytest.raises(CompileError) as found:
        compile(expression, DECLARED)
    assert REFUSED[expression] in str(found.value)


def test_all_errors_are_reported_at_once_with_lines() -> None:
    with pytest.raises(CompileError) as found:
        compile("self.a == 1 &&\n  self.b == 2", DECLARED)
    assert str(found.value) == (
        "ERROR: <input>:1:5: undefined field 'a'\n | self.a == 1 &&\n | ....^\n"
        "ERROR: <input>:2:7: undefined field 'b'\n |   self.b == 2\n | ......^"
    )


def test_a_budget_ends_what_costs_too_much() -> None:
    program = compile("self.items.all(x, self.items.all(y, self.items.all(z, x.a + y.a + z.a > 0)))", DECLARED)
    many = {"self": {"items": [{"a": 1}] * 100}}
    with pytest.raises(BudgetExceeded, match="actual cost limit exceeded") as found:
        program.evaluate(many, 100_000)
    assert 100_000 < found.value.cost < 101_000, "it ends where the budget does"
    assert program.evaluate({"self": {"items": [{"a": 1}] * 5}}, 100_000).value is True


HUGE = "a" * 100_000
BLOWN_UP = (
    "self.replace('a', self).size() > 0",
    "self.replace('', self).size() > 0",
    "self.split('').map(x, self).join(self).size() > 0",
    "cel.bind(a, self + self, cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, c + c + c + c))).size() > 0",
    "'%.999999999f'.format([1.0]).size() > 0",
    "quantity('1e999999999').isInteger()",
    "quantity('1e-999999999999').isInteger()",
    "duration(string(99999999999999999) + 'h') > duration('1h')",
    "timestamp('9999-12-31T23:59:59Z').getHours('+14:00') > 0",
    "self.matches('((a*)*)*b')",
)


@pytest.mark.parametrize("expression", BLOWN_UP)
def test_what_grows_without_bounds_ends_early(expression: str) -> None:
    program = compile(expression, Declarations({"self": STRING}))
    try:
        assert program.evaluate({"self": HUGE}).cost < 1_000_000
    except EvaluationError as error:
        assert "internal error" not in str(error)


def test_sizes_of_results_and_costs_of_conversions_are_those_of_upstreams_estimate() -> None:
    """Rules of the Gateway API's definitions, which upstream accepts."""
    hosts = Declarations({"self": list_of(Type("string", size=253), size=1024)})
    pattern = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
    whole = compile(f"self.all(h, h.matches('{pattern}'))", hosts).estimated_cost
    assert compile(f"self.all(h, h.substring(2).matches('{pattern}'))", hosts).estimated_cost < 2 * whole
    free = Declarations({"self": STRING})
    assert compile("duration(self) > duration('0s')", free).estimated_cost < 20


def test_what_is_estimated_is_never_less_than_what_is_spent() -> None:
    for expression in TRUE.strip().splitlines():
        program = compile(expression, DECLARED)
        assert program.estimated_cost >= program.evaluate({"self": VALUE}).cost, expression


def test_lists_without_a_limit_are_taken_as_large_as_a_request() -> None:
    free = Declarations({"self": list_of(STRING)})
    assert compile("self.all(x, self.exists(y, x == y))", free).estimated_cost > 10**12
    bound = Declarations({"self": list_of(STRING, size=5)})
    assert compile("self.all(x, x.size() > 0)", bound).estimated_cost < 100


def test_others_declare_functions_of_their_own() -> None:
    from control.cel.signatures import read

    more = Declarations({"n": INT}, read(["twice (int)int int.()int"]), {"twice": lambda n: 2 * n})
    assert compile("twice(n) == 4 && n.twice() == 4", more).evaluate({"n": 2}).value is True


def test_what_an_expression_refers_to_is_known() -> None:
    program = compile("self.items.all(self, self.a > 0) && oldSelf", Declarations({"self": SELF, "oldSelf": BOOL}))
    assert program.used == {"self", "oldSelf"}


def test_doubles_are_doubles_also_where_json_has_an_int() -> None:
    assert value("self.ratio / 2.0") == 0.5


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_numbers = st.integers(-50, 50)
_leaves = st.one_of(
    _numbers.map(lambda n: f"({n})"),
    st.sampled_from(["a", "b", "xs[0]", "xs.size()", "xs.map(x, x + 1)[1]", "size('abc')"]),
)


@unhurried
@given(
    st.recursive(
        _leaves,
        lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        max_leaves=8,
    ),
    st.sampled_from(["<", "<=", "==", "!=", ">", ">="]),
    _leaves,
    st.sampled_from(
        ["{} && b > 0", "{} || a > 0", "!({})", "{} ? true : 1 / a > 0", "xs.all(a, {})", "xs.exists(b, {})"]
    ),
)
def test_another_implementation_agrees(left: str, operator: str, right: str, around: str) -> None:
    """The common-expression-language package (cel-rust) evaluates to the same, or fails too.

    It fails at the first element that fails. By the specification `all` is the conjunction and `exists` the disjunction of
    its elements, and those have a value where another element decides.
    """
    expression = around.format(f"{left} {operator} {right}")
    variables = {"a": 0, "b": 7, "xs": [3, 0, -2]}
    declared = Declarations({"a": INT, "b": INT, "xs": list_of(INT)})
    try:
        mine = compile(expression, declared).evaluate(variables).value
    except EvaluationError:
        mine = "error"
    try:
        theirs = cel.evaluate(expression, variables)
    except Exception:
        theirs = "error"
    if theirs == "error" and around.startswith("xs."):
        assert mine in ("error", around.startswith("xs.exists"))
    else:
        assert mine == theirs


@unhurried
@given(st.text(alphabet="self.ab01 ()[]{}+-*/%<>=!&|?:,'\"\\\n`ux", max_size=40))
def test_no_text_breaks_the_compiler(text: str) -> None:
    try:
        compile(text, DECLARED).evaluate({"self": VALUE}, 10_000)
    except (CompileError, EvaluationError):
        pass
