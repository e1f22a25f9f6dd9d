"""A server with its link, for scripts that measure one thing on a server of their own."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpu_servers.options import RunOptions
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.models import ServedModel
from pdmuxd.daemon.bench.servers.link import Link, listening
from pdmuxd.daemon.bench.servers.server import running
from pdmuxd.daemon.process.ports import free_port


class Linked(NamedTuple):
    """A server that serves, and the daemon's end of its link."""

    base_url: str
    link: Link


@contextlib.asynccontextmanager
async def linked(
    arm: Arm,
    options: RunOptions,
    *,
    model: ServedModel,
    folder: Path,
    log: Path,
    tp_size: int = 1,
    extra: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    partitions: str = "",
) -> AsyncIterator[Linked]:
    """Start it; it ends with the block. `extra` flags come before the options'. Raises: ServerError."""
    port, address = free_port(), f"ipc://{folder}/engine"
    async with listening(address) as link:
        command = arm.command(
            model=model,
            port=port,
            link=address,
            tp_size=tp_size,
            cpu=options.cpu,
            extra=(*extra, *options.extra),
            python=options.python,
            kernels_file=options.kernels_file,
            partitions=partitions,
        )
        around = dict(environment or arm.environment(cpu=options.cpu, tp_size=tp_size))
        async with running(
            arm, command=command, environment=around, port=port, log=log, start_s=options.start_s
        ) as base_url:
            yield Linked(base_url=base_url, link=link)


def steps_by(steps: Mapping[str, int], *, parts: int) -> dict[str, int]:
    """A link's count of `mode/reason/SMs` by so many of these."""
    found: Counter[str] = Counter()
    for name, count in steps.items():
        found["/".join(name.split("/")[:parts])] += count
    return dict(found.most_common())
