"""Sessions of calls that have to end within a time together: an agent's task.

A client names the session in each of its calls. The time runs from the first one; each call's whole answer is
due when it ends, and planned for a part of what is left, by how many calls the tenant's sessions have. Kept
in memory: another node, or a daemon that takes this one's place, counts anew.
"""

from __future__ import annotations

import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from pdmuxd.daemon.httpd.asgi import Scope, header
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import E2E_RANGE_S, E2E_SHARE_RANGE, RequestTargets, Slo

SESSION_HEADER = "x-pdmuxd-session-id"
IDLE_S = 3600.0
"""A session without a call for so long is forgotten."""
MOST = 65_536
"""Remembered at once, some 20 MB; those without a call for the longest are forgotten first."""
MOST_OF_TENANT = 4_096
"""Of one tenant, so that none makes the others' be forgotten. Calls of further ones count as sessions of
their own."""
_ID = re.compile(rb"[\x21-\x7e]{1,128}")


@dataclass(slots=True)
class _Session:
    began_s: float
    last_s: float = 0.0
    """When its last call came."""
    calls: int = 0


class Sessions:
    """When each began, by tenant and name. Used in one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], _Session] = OrderedDict()
        """The last to be called last."""
        self._of: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        """Of the sessions that are known, by tenant."""

    def __len__(self) -> int:
        return len(self._known)

    def applied(
        self, scope: Scope, tenant: str, slo: Slo, targets: RequestTargets | None
    ) -> RequestTargets | None:
        """The request's own targets with what is left of its session's time, if it is of one and whole
        answers have a target. Raises: RequestError 400 naming the header."""
        given = header(scope, SESSION_HEADER.encode())
        if given is None:
            return targets
        if not _ID.fullmatch(given):
            raise RequestError(
                f"the header `{SESSION_HEADER}` is wrong: allowed are 1 to 128 visible characters of ASCII",
                status=400,
                code="invalid_value",
                param=SESSION_HEADER,
            )
        within_s = slo.e2e_s if targets is None or targets.e2e_s is None else targets.e2e_s
        if within_s is None:
            return targets
        now_s = self._clock()
        session = self._called(tenant, given.decode("ascii"), now_s)
        more = max(0.0, self._calls[tenant] / max(1, self._of[tenant]) - session.calls)
        return replace(
            targets or RequestTargets(),
            e2e_s=max(E2E_RANGE_S[0], within_s - (now_s - session.began_s)),
            e2e_share=max(E2E_SHARE_RANGE[0], round(1.0 / (1.0 + more), 3)),
        )

    def _called(self, tenant: str, name: str, now_s: float) -> _Session:
        """The session, with this call."""
        key = (tenant, name)
        while self._known and now_s - next(iter(self._known.values())).last_s > IDLE_S:
            self._forget_first()
        found = self._known.get(key)
        if found is None:
            found = _Session(began_s=now_s)
            if self._of[tenant] >= MOST_OF_TENANT:
                return found
            if len(self._known) >= MOST:
                self._forget_first()
            self._of[tenant] += 1
            self._known[key] = found
        found.calls, found.last_s = found.calls + 1, now_s
        self._calls[tenant] += 1
        self._known.move_to_end(key)
        return found

    def _forget_first(self) -> None:
        (tenant, _), session = self._known.popitem(last=False)
        self._of[tenant] -= 1
        self._calls[tenant] -= session.calls
        if not self._of[tenant]:
            del self._of[tenant], self._calls[tenant]
