"""What is special to PostgreSQL: its driver, its time zone, and how long anything may take."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Connection, text

DRIVER = "postgresql+psycopg"
INSTALL = "the driver of PostgreSQL is not installed: pip install 'pdmuxd[postgresql]'"
_UPGRADE_LOCK = 0x70646D757864
"""Any number that nobody else takes: `pdmuxd` in ASCII."""
CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S = 5
"""How long a change waits for those of other nodes, each of which takes milliseconds."""


def is_postgresql(url: URL) -> bool:
    """Whether a URL is of a PostgreSQL server."""
    return url.get_backend_name() == "postgresql"


def with_driver(url: URL) -> URL:
    """`postgresql://` and `postgres://` mean the driver that we bring; another that is named stays."""
    return url.set(drivername=DRIVER) if url.drivername in ("postgresql", "postgres") else url


def hold_upgrades(connection: Connection) -> None:
    """Let no other node upgrade until this transaction ends; it then finds nothing left to do."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})


def options() -> dict[str, Any]:
    """For `create_engine`. A server that was restarted costs a new connection, and no error."""
    settings = {
        # Instants are stored in UTC without a zone; CURRENT_TIMESTAMP in a revision must mean the same.
        "timezone": "UTC",
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        # A node that hangs within a change must not hold up the others for ever.
        "idle_in_transaction_session_timeout": "30s",
    }
    return {
        "pool_pre_ping": True,
        "pool_size": 4,
        "max_overflow": 8,
        "connect_args": {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "pdmuxd",
            "keepalives_idle": 30,
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        },
    }
