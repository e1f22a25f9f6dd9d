"""What is special to PostgreSQL: its driver, its time zone, and how long anything may take."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import URL, Connection, Engine, event, text

DRIVER = "postgresql+psycopg"
INSTALL = "the driver of PostgreSQL is not installed: pip install 'pdmuxd[postgresql]'"
_UPGRADE_LOCK = 0x70646D757864
"""Any number that nobody else takes: `pdmuxd` in ASCII."""
CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S = 5
"""How long a change waits for those of other nodes, each of which takes milliseconds."""
STATEMENT_TIMEOUT_S = 10
"""The server ends what takes longer. A year of usage by the day is read in tenths of a second."""
ANSWER_TIMEOUT_S = 12.0
"""After it a server is left that does not even say that something took too long: it was stopped."""
PING_TIMEOUT_S = 2.0
"""The same of the question, before each use of a connection, whether the server is there."""


def is_postgresql(url: URL) -> bool:
    """Whether a URL is of a PostgreSQL server."""
    return url.get_backend_name() == "postgresql"


def with_driver(url: URL) -> URL:
    """`postgresql://` and `postgres://` mean the driver that we bring; another that is named stays."""
    return url.set(drivername=DRIVER) if url.drivername in ("postgresql", "postgres") else url


def hold_upgrades(connection: Connection) -> None:
    """Let no other node upgrade until this transaction ends; it then finds nothing left to do."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})


def bound_waits(engine: Engine) -> None:
    """Leave a server that does not answer. Its own time-outs end what is slow, but not what it never begins:
    the kernel of a stopped server still takes what is sent, so `tcp_user_timeout` sees nothing either."""
    from psycopg import Connection, OperationalError

    class Bounded(Connection[Any]):
        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own types
            # SQLAlchemy asks whether the server is there in autocommit, which nothing else uses.
            limit_s = PING_TIMEOUT_S if self.autocommit else ANSWER_TIMEOUT_S
            return super().wait(self._within(gen, limit_s), *args, **kwargs)

        def _within(self, gen: Any, limit_s: float) -> Any:  # noqa: ANN401
            end_s = time.monotonic() + limit_s
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    if not ready and time.monotonic() > end_s:
                        self.pgconn.finish()
                        raise OperationalError(f"no answer within {limit_s:g} s")
                    wanted = gen.send(ready)
            except StopIteration as done:
                return done.value

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, args: Any, parameters: Any) -> Any:  # noqa: ANN401
        return Bounded.connect(*args, **parameters)


def options(*, statements_end: bool = True) -> dict[str, Any]:
    """Options for `create_engine`. A server that was restarted costs a new connection, and no error."""
    settings = {
        # Instants are stored in UTC without a zone; CURRENT_TIMESTAMP in a revision must mean the same.
        "timezone": "UTC",
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        # A node that hangs within a change must not hold up the others for ever.
        "idle_in_transaction_session_timeout": "30s",
    }
    if statements_end:
        settings["statement_timeout"] = f"{STATEMENT_TIMEOUT_S}s"
    return {
        "pool_pre_ping": True,
        "pool_size": 4,
        "max_overflow": 8,
        "pool_timeout": CONNECT_TIMEOUT_S,
        "connect_args": {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "pdmuxd",
            "keepalives_idle": 30,
            "tcp_user_timeout": round(1000 * ANSWER_TIMEOUT_S),
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        },
    }
