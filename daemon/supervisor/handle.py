"""All that a daemon needs to take an engine over from another one."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from pdmuxd.daemon.process.ports import free_port
from pdmuxd.daemon.supervisor.plan import HOST
from pdmuxd.engine.link import token_frames
from pdmuxd.engine.link.owner import owner_path


class EngineHandle(msgspec.Struct, frozen=True, kw_only=True):
    """One engine: its process, its HTTP side with the key, its link. It goes from daemon to daemon only."""

    port: int
    api_key: str
    socket: str
    """The link's, in the file system."""
    pid: int = 0
    start_ticks: int = 0
    """When it started; a process id alone may have been given to another process."""
    log_start_bytes: int = 0
    """Where in `engine.log` it began."""

    is_held: bool = False
    """Whether an operator drains it."""

    @classmethod
    def fresh(cls, runtime_dir: Path) -> EngineHandle:
        return cls(
            port=free_port(),
            api_key=secrets.token_urlsafe(32),
            socket=str(runtime_dir / f"engine-{secrets.token_hex(4)}.sock"),
        )

    @property
    def base_url(self) -> str:
        """The address of its HTTP side, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    @property
    def link(self) -> str:
        return f"ipc://{self.socket}"

    def remove_files(self) -> None:
        Path(self.socket).unlink(missing_ok=True)
        owner_path(self.link).unlink(missing_ok=True)
        token_frames.remove_files(self.link)

    def __repr__(self) -> str:
        return f"EngineHandle(pid={self.pid}, base_url={self.base_url!r})"
