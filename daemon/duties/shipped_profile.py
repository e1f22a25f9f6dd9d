"""A profile that pdmuxd brings along is put in force where none ever was, until one is measured."""

from __future__ import annotations

import asyncio

import structlog

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import PdmuxdError
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.shipped_profiles import shipped_for

log = structlog.get_logger("pdmuxd.stand_in")


class StandIn:
    """Waits for engines that predict with a roofline. All methods run in the event loop."""

    def __init__(self, control_plane: ControlPlane, *, is_wanted: bool) -> None:
        self._control_plane = control_plane
        self._is_wanted = is_wanted
        self._hello: Hello | None = None
        self._came = asyncio.Event()

    def on_hello(self, hello: Hello) -> None:
        """An engine introduced itself; the emulated one has a profile of its own."""
        if self._is_wanted and hello.profile == "roofline":
            self._hello = hello
            self._came.set()

    async def wait(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            await self.settle()

    async def settle(self) -> None:
        """Do what the newest engine asks for, if one came since the last time; that it fails is logged."""
        hello, self._hello = self._hello, None
        if hello is None:
            return
        try:
            profile = await asyncio.to_thread(shipped_for, hello)
            if profile is None:
                return
            stored = await asyncio.to_thread(self._control_plane.profiles.stand_in, profile)
        except PdmuxdError as error:
            log.warning("the shipped profile was not put in force", reason=str(error))
            return
        if stored is not None:
            log.info(
                "a shipped profile is in force until one is measured",
                profile=stored.name,
                provenance=stored.profile.provenance_line,
                hint="pdmuxd profile run --activate",
            )
