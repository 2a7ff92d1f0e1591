"""Cache of the rules that bindings grant to users, and of authorization decisions.

Clients choose the texts of the keys, so both parts are bounded, whatever the number of users, namespaces and roles. An answer
is one for all names of objects, or says that it depends on the name, which is then looked for in the compiled rules: so
there is one answer for each kind of request. It belongs to a number, which is never used again, and keeps no rules in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

from control.auth.rule_set import RuleSet
from control.auth.user import AuthzAttributes, UserInfo
from kube.bounded_cache import LONGEST_USER, is_short, on_forget

MOST_GRANTED = 8192
"""Users of namespaces; one with more than ROLES_OF_ONE roles counts several times."""
ROLES_OF_ONE = 16
MOST_ANSWERS = 32768
"""Answers, whose keys have up to LONGEST characters: 5 to 20 MB."""
_Who = tuple[str, tuple[str, ...]]
_Key = tuple[int, str, str, str, str] | tuple[int, str, str]
_numbers = count()
_UNKNOWN = object()


class Granted:
    """The rules of the roles that are bound to a user, and the roles that do not exist, for messages.

    `missing` has the first of those, `unnamed` is the number of the others.
    """

    __slots__ = ("missing", "number", "rules", "unnamed")

    def __init__(self, rules: RuleSet, missing: Sequence[str], unnamed: int = 0) -> None:
        self.rules, self.missing, self.unnamed, self.number = rules, missing, unnamed, next(_numbers)

    def weight(self) -> int:
        return 1 + (len(self.rules.blocks) + len(self.rules.paths) + len(self.missing)) // ROLES_OF_ONE


NOTHING = Granted(RuleSet(), ())


class GrantedCache:
    """Grants by namespace ("" for the cluster) and user, and answers."""

    def __init__(self) -> None:
        self._granted: dict[str, dict[_Who, Granted]] = {}
        self._weight = 0
        self._answers: OrderedDict[_Key, object] = OrderedDict()
        on_forget(self.forget)

    def get(self, namespace: str, user: UserInfo) -> Granted | None:
        here = self._granted.get(namespace)
        return None if here is None else here.get((user.name, user.groups))

    def put(self, namespace: str, user: UserInfo, granted: Granted) -> None:
        """Keep what a user has in a namespace, if the cache does not have it."""
        if not is_short(user.name, *user.groups, longest=LONGEST_USER) or not is_short(namespace):
            return
        if self._weight >= MOST_GRANTED:
            self.drop_all()
        self._granted.setdefault(namespace, {})[user.name, user.groups] = granted
        self._weight += granted.weight()

    def drop(self, namespace: str) -> None:
        """Drop what users have in a namespace."""
        for granted in self._granted.pop(namespace, {}).values():
            self._weight -= granted.weight()

    def drop_all(self) -> None:
        self._granted.clear()
        self._weight = 0

    def forget(self) -> None:
        self.drop_all()
        self._answers.clear()

    def allows(self, granted: Granted, a: AuthzAttributes) -> bool:
        """Return whether the rules allow a request."""
        if granted is NOTHING:
            return False
        key: _Key
        if a.resource or a.unnamed_resource:
            key = (granted.number, a.verb, a.group, a.resource, a.subresource)
        else:
            key = (granted.number, a.verb, a.path)
        answers = self._answers
        answer = answers.get(key, _UNKNOWN)
        if answer is _UNKNOWN:
            answer = self._find(granted, key, a)
        elif len(answers) > MOST_ANSWERS // 2:  # the order counts from here on, and costs a tenth of a decision
            answers.move_to_end(key)
        if answer is None:
            return granted.rules.allows(a.verb, a.group, a.resource, a.subresource, a.name)
        return answer is True

    def _find(self, granted: Granted, key: _Key, a: AuthzAttributes) -> bool | None:
        if a.is_resource:
            answer = granted.rules.allows_any(a.verb, a.group, a.resource, a.subresource)
        else:
            answer = granted.rules.allows_path(a.verb, a.path)
        if is_short(a.verb, a.group, a.resource, a.subresource, a.path):
            self._answers[key] = answer
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        return answer
