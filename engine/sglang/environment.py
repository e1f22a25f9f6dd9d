"""What the launcher tells the plugin, through environment variables: SGLang's processes inherit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.engine.core.errors import SettingsError

POLICY = "PDMUXD_POLICY"
"""The scheduling policy to start with; the plugin does nothing in a server where it is not set."""
LINK = "PDMUXD_LINK"
"""The daemon's link, `ipc://PATH`; empty to serve alone."""
PARTITIONS = "PDMUXD_PARTITIONS"
"""Splits to make streams for, `112,20;96,36`; empty for the device's default."""
WHOLE_GRAPHS = "PDMUXD_WHOLE_GRAPHS"
"""`1` if fused batches may be captured whole; empty if the user's flags say how they are captured."""
KERNELS = "PDMUXD_PARTITION_KERNELS"
"""`0` to launch on partitions what is made for all SMs; else kernels are chosen for each partition."""
KERNELS_FILE = "PDMUXD_KERNELS_FILE"
"""Keeps which kernels are fastest, so that a restart does not time them again; empty to keep nothing."""

LAUNCHED = "PDMUXD_LAUNCHED_S"
"""When the launcher started, in seconds since boot; empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEnvironment:
    """The variables, parsed."""

    policy: str
    link: str | None
    partitions: tuple[tuple[int, int], ...] | None
    whole_graphs: bool = False
    partition_kernels: bool = True
    kernels_file: Path | None = None
    launched_s: float | None = None


def read_environment(environ: Mapping[str, str]) -> PluginEnvironment | None:
    """None in a server that pdmuxd did not start. Raises: SettingsError naming the variable."""
    policy = environ.get(POLICY)
    if not policy:
        return None
    return PluginEnvironment(
        policy=policy,
        link=environ.get(LINK) or None,
        partitions=_partitions(environ.get(PARTITIONS, "")),
        whole_graphs=environ.get(WHOLE_GRAPHS) == "1",
        partition_kernels=environ.get(KERNELS) != "0",
        kernels_file=Path(environ[KERNELS_FILE]) if environ.get(KERNELS_FILE) else None,
        launched_s=_seconds(environ.get(LAUNCHED, "")),
    )


def _seconds(text: str) -> float | None:
    """Seconds; they only serve a line in the log, so what cannot be read is left out."""
    try:
        return float(text)
    except ValueError:
        return None


def _partitions(text: str) -> tuple[tuple[int, int], ...] | None:
    if not text:
        return None
    pairs: list[tuple[int, int]] = []
    for part in text.split(";"):
        sizes = part.split(",")
        if len(sizes) != 2 or not all(size.strip().isdecimal() for size in sizes):
            raise SettingsError(
                f"{PARTITIONS}: {part!r} is not a split; give prefill SMs and decode SMs, e.g. 112,20;96,36"
            )
        pairs.append((int(sizes[0]), int(sizes[1])))
    return tuple(pairs)
