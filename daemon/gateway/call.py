"""One call of the data plane, with what the access log and the metrics say of it."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from pdmuxd.daemon.gateway.delivery import Delivery
from pdmuxd.daemon.gateway.dialects import OPENAI, Dialect
from pdmuxd.daemon.gateway.errors import Header
from pdmuxd.daemon.gateway.exchange import CLIENT_GONE_STATUS, End
from pdmuxd.daemon.gateway.identity import OWN_REQUEST_ID, REQUEST_ID
from pdmuxd.daemon.gateway.tracing import UNTRACED, CallTrace
from pdmuxd.daemon.httpd.asgi import Receive, Send
from pdmuxd.daemon.httpd.pushing import Push
from pdmuxd.daemon.metrics import OTHER_PATH


@dataclass(slots=True, kw_only=True)
class Call:
    """One call, with what the access log and the metrics say of it."""

    receive: Receive
    send: Send
    push: Push | None = None
    """Writes a part of the answer past `send`, where the server can."""
    rid: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_s: float = field(default_factory=time.monotonic)
    tenant: str = ""
    path: str = OTHER_PATH
    status: int = CLIENT_GONE_STATUS
    end: End = End.COMPLETE
    is_logged: bool = True
    delivery: Delivery | None = None
    token_path: str | None = None
    """Of a streamed answer: `direct` if the scheduler's tokens are used, `http` if not."""
    asks_model: bool = False
    """Whether it is a request whose outcome counts, and no question about models or tokens."""
    trace: CallTrace = UNTRACED
    dialect: Dialect = OPENAI
    """Of the API that it asks."""
    error: str | None = None
    """The code of the error that the gateway answered."""
    client_id: str | None = None
    """What the client calls the request; the engine knows it as `rid`, which nobody else can choose."""

    @property
    def id_headers(self) -> tuple[Header, ...]:
        """The client's own id back, and ours beside it."""
        if self.client_id is None:
            return ((REQUEST_ID, self.rid.encode()),)
        return ((REQUEST_ID, self.client_id.encode()), (OWN_REQUEST_ID, self.rid.encode()))
