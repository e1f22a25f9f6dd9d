"""One console for one browser tab: `pdmuxd top` as a child that draws into a web socket.

textual-serve speaks with the child; what it leaves out is here: the token, no shell between, and an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from aiohttp import WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

TOKEN_VARIABLE = "PDMUXD_ADMIN_TOKEN"  # noqa: S105 - its name
STOP_TIMEOUT_S = 3.0
LEAST, MOST = 1, 1000
"""Columns or rows that a browser may ask for."""


def command_of(url: str, *, is_light: bool) -> tuple[str, ...]:
    """What the child is started with."""
    top = (sys.executable, "-m", "pdmuxd.daemon.cli.main", "top", "--in-browser", "--url", url)
    return (*top, "--light") if is_light else top


class Console(AppService):
    """A child with its web socket."""

    def __init__(
        self,
        command: Sequence[str],
        token: str,
        socket: web.WebSocketResponse,
        downloads: DownloadManager,
    ) -> None:
        super().__init__(
            command[0],
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=self._close,
            download_manager=downloads,
        )
        self._command = tuple(command)
        self._token = token
        self._socket = socket

    async def serve(self, width: int, height: int) -> None:
        """Until the tab is closed or the console has ended."""
        await self.start(width, height)
        ended = asyncio.create_task(self._close_after(self._task))
        try:
            await self._pass_on()
        finally:
            ended.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop(), STOP_TIMEOUT_S)
            self._kill()

    async def _pass_on(self) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            match message.json():
                case ["stdin", str(typed)]:
                    await self.send_bytes(typed.encode())
                case ["resize", {"width": int(width), "height": int(height)}]:
                    await self.set_terminal_size(bounded(width), bounded(height))
                case ["ping", data]:
                    await self._socket.send_json(["pong", data])
                case ["blur", *_]:
                    await self.blur()
                case ["focus", *_]:
                    await self.focus()

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # Not in the arguments, which every user of the machine may read.
            env=self._build_environment(width=width, height=height) | {TOKEN_VARIABLE: self._token},
        )
        self._stdin = process.stdin
        return process

    async def _close_after(self, child: asyncio.Task[None] | None) -> None:
        """A child that died without a word leaves no dead screen behind."""
        if child is not None:
            await asyncio.wait([child])
        await self._close()

    async def _close(self) -> None:
        await self._socket.close()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def bounded(size: int) -> int:
    """Columns or rows as they may be."""
    return max(LEAST, min(MOST, size))
