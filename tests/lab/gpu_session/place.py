"""Where everything of a session is, and what a step is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments import command_of
from gpu_session.step import Lane, Step

BEGINS = "begins\n"
"""Stands in a step's log before each try: what an earlier one said last is not this one's."""
_LAST_LINES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where everything of a session is."""

    folder: Path
    traces: Path
    start_s: float
    """What one server's start may take."""
    command_of: Callable[..., list[str]] = command_of
    """From a step's plan and its words to a command line."""

    @property
    def results(self) -> Path:
        """Of all steps but profiles."""
        return self.folder / "results.jsonl"

    @property
    def profiles(self) -> Path:
        """Of the models that were measured."""
        return self.folder / "profile"

    @property
    def rows(self) -> Path:
        """Of measurements of kernels, a file each."""
        return self.folder / "kernels"

    def log(self, step: str) -> Path:
        """What a step says."""
        return self.folder / "logs" / f"{step}.log"

    def predictors(self) -> dict[str, Path]:
        """Of the models whose profile is there."""
        found = sorted(self.profiles.glob("*.predictors.json"))
        return {path.name.removesuffix(".predictors.json"): path for path in found}

    def command(self, step: Step, gpus: str, left_s: float) -> list[str]:
        """The whole command line."""
        words = self.command_of(step.plan, *step.words)
        if step.keeps == "rows":
            return [*words, "--out", str(self.rows)]
        words += ["--start-s", f"{self.start_s:g}"]
        words += ["--work", str(self.folder / "models" / gpus)]
        if step.keeps == "profile":
            return [*words, "--out", str(self.profiles)]
        words += ["--results", str(self.results), "--traces", str(self.traces)]
        words += ["--log-dir", str(self.folder / "logs" / gpus)]
        for model, path in self.predictors().items():
            words += ["--predictors", f"{model}={path}"]
        if step.records:
            words += ["--records", str(self.folder / "records")]
        return [*words, "--budget-s", f"{left_s:.0f}"] if step.fills_s or step.told_budget else words


def environment_of(lane: Lane, environment: Mapping[str, str]) -> dict[str, str]:
    """A lane sees its own GPUs, of those that are visible to all, in the order that nvidia-smi counts in."""
    visible = [word for word in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    own = [visible[gpu] if gpu < len(visible) else str(gpu) for gpu in lane.gpus]
    return dict(environment) | {"CUDA_VISIBLE_DEVICES": ",".join(own), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def last_line(log: Path) -> str:
    """Of what a step has said, that a person would look at."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def last_words(log: Path) -> str:
    """The end of what the last try of a step has said."""
    if not log.is_file():
        return ""
    return "\n".join(log.read_text(errors="replace").split(BEGINS)[-1].splitlines()[-_LAST_LINES:])
