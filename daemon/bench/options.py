"""How servers are started and runs are made, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How servers are started."""

    cpu: bool = False
    extra: tuple[str, ...] = ()
    """More flags for every SGLang server."""
    start_s: float = 240.0
    """What a start may take."""
    work: Path
    """The folder of files that servers share."""
    log_dir: Path
    python: Path | None = None
    """The Python that has SGLang, if it is not this one."""

    @property
    def kernels_file(self) -> Path:
        """Timed by the first server, and read by all that follow."""
        return self.work.absolute() / "partition-kernels.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ServerOptions):
    """How runs are made, and where everything is."""

    duration_s: float = 30.0
    drain_s: float = 8.0
    budget_s: float = math.inf
    predictors: dict[str, Path] = field(default_factory=dict)
    """Profiles by model, for arms with a policy."""
    results: Path
    tp_size: int = 1
