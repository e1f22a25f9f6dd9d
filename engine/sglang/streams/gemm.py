"""Which kernel a matrix product (GEMM) runs with on a partition of n SMs.

cuBLAS chooses kernels for all SMs of the device, also where a green context holds a part of them. cuBLASLt
can be told how many SMs there are (`CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET`; PyTorch: the SM carve-out): on
112 SMs the products of Llama-8B then run 1.0 to 1.6 times as fast, on 24 SMs 1.2 to 1.4 times (one H200,
PyTorch 2.11, 2026-11-23, docs/measurements/h200-kernels.md). The target is a hint, and not always the best
one, so the candidates are timed, and the fastest is kept for each (SMs, shape of the weights, rows).

Both settings are process-wide and read when a product is launched or captured. Only `GemmInForce` sets them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdmuxd.engine.core.errors import EngineError

CUBLAS, CUBLASLT = "cublas", "cublaslt"


@dataclass(frozen=True, slots=True)
class Gemm:
    """A library, and the number of SMs that its choice of a kernel is made for."""

    library: str = CUBLAS
    target_sms: int | None = None
    """None: all SMs of the device."""

    @property
    def name(self) -> str:
        """The name as `parse` reads it: `cublas`, `cublaslt`, `cublaslt@112`."""
        return self.library if self.target_sms is None else f"{self.library}@{self.target_sms}"

    @classmethod
    def parse(cls, name: str) -> Gemm:
        """Raises: ValueError if it is no name of a choice."""
        library, at, target = name.partition("@")
        if library not in (CUBLAS, CUBLASLT) or (at and library == CUBLAS):
            raise ValueError(f"{name!r} is not cublas, cublaslt or cublaslt@SMS")
        return cls(library, int(target) if at else None)


WHOLE_DEVICE = Gemm()
"""As PyTorch has it."""


def candidates(sms: int) -> tuple[Gemm, ...]:
    """What is worth timing on a partition of `sms` SMs.

    On whole groups of 8 SMs the fastest of these is at most 1% behind the fastest of nine (16 SMs and more,
    same measurement). What is left of a split has fewer whole groups than its size suggests: kernels for
    exactly its size take two rounds there, those for 4 to 16 SMs fewer do not.
    """
    less = (8,) if sms % 8 == 0 else (4, 12, 16)
    lower = (Gemm(CUBLASLT, sms - fewer) for fewer in less if sms > fewer)
    return WHOLE_DEVICE, Gemm(CUBLASLT), Gemm(CUBLASLT, sms), *lower


Shape = tuple[int, int]
"""Of the weights: (output features, input features)."""
PartitionShape = tuple[int, Shape]
"""SMs of the partition, and the weights."""


@dataclass(slots=True)
class GemmChoices:
    """The fastest candidate for each (SMs, weights, rows) that was timed."""

    _rows: dict[PartitionShape, list[int]] = field(default_factory=dict)
    _fastest: dict[PartitionShape, list[Gemm]] = field(default_factory=dict)

    def keep(self, sms: int, shape: Shape, rows: int, fastest: Gemm) -> None:
        """Note a choice; a later one for the same rows replaces it."""
        key = (sms, shape)
        all_rows, found = self._rows.setdefault(key, []), self._fastest.setdefault(key, [])
        at = bisect_left(all_rows, rows)
        if at < len(all_rows) and all_rows[at] == rows:
            found[at] = fastest
        else:
            all_rows.insert(at, rows)
            found.insert(at, fastest)

    def knows(self, sms: int, shape: Shape, rows: int) -> bool:
        """Whether just these rows were timed."""
        return rows in self._rows.get((sms, shape), ())

    def fastest(self, sms: int, shape: Shape, rows: int) -> Gemm | None:
        """The choice for the timed number of rows at or above `rows`, else for the largest; None if nothing
        was timed.

        At or above, because a kernel fills up its tiles: 1,000 rows take as long as 1,024.
        """
        key = (sms, shape)
        all_rows = self._rows.get(key)
        if not all_rows:
            return None
        return self._fastest[key][min(bisect_left(all_rows, rows), len(all_rows) - 1)]

    def to_json(self) -> dict[str, dict[str, str]]:
        """JSON by `SMS:OUTPUTxINPUT`, then by rows."""
        return {
            f"{sms}:{shape[0]}x{shape[1]}": {
                str(rows): gemm.name for rows, gemm in zip(all_rows, self._fastest[sms, shape], strict=True)
            }
            for (sms, shape), all_rows in self._rows.items()
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Mapping[str, str]]) -> GemmChoices:
        """Raises: ValueError, AttributeError or TypeError for anything that `to_json` did not write."""
        choices = cls()
        for key, found in document.items():
            sms, _, shape = key.partition(":")
            outputs, _, inputs = shape.partition("x")
            for rows, name in found.items():
                choices.keep(int(sms), (int(outputs), int(inputs)), int(rows), Gemm.parse(name))
        return choices

    def count(self) -> int:
        """How many were timed."""
        return sum(len(rows) for rows in self._rows.values())


class GemmInForce:
    """PyTorch's process-wide settings. Raises: GemmUnsupportedError where PyTorch cannot set them."""

    def __init__(self, total_sms: int) -> None:
        import torch

        self._total_sms = total_sms
        try:
            self._set_carve_out = torch._C._set_sm_carveout_experimental
            self._set_library = torch._C._set_blas_preferred_backend
            self._libraries = {
                CUBLAS: torch._C._BlasBackend.Cublas,
                CUBLASLT: torch._C._BlasBackend.Cublaslt,
            }
            self._set_carve_out(None)
        except (AttributeError, RuntimeError) as error:
            raise GemmUnsupportedError(str(error)) from error
        self._original_library: Any = torch._C._get_blas_preferred_backend()
        self._in_force = WHOLE_DEVICE

    @property
    def in_force(self) -> Gemm:
        """What the next product is launched with."""
        return self._in_force

    def put(self, gemm: Gemm) -> None:
        """Products that are launched or captured from now on run in this way. A change takes 0.3 us."""
        if gemm == self._in_force:
            return
        if gemm.library != self._in_force.library:
            same = gemm.library == CUBLAS
            self._set_library(self._original_library if same else self._libraries[gemm.library])
        if gemm.target_sms != self._in_force.target_sms:
            target = gemm.target_sms
            self._set_carve_out(None if target is None else self._total_sms - target)
        self._in_force = gemm


class GemmUnsupportedError(EngineError):
    """This PyTorch, or its library, does not let us say how many SMs there are."""


def missing(
    choices: GemmChoices, sides: Iterable[tuple[int, Iterable[int]]], shapes: Iterable[Shape]
) -> Iterator[tuple[int, Shape, int]]:
    """What still has to be timed: (SMs, weights, rows), each once."""
    shapes = tuple(shapes)
    seen: set[tuple[int, Shape, int]] = set()
    for sms, all_rows in sides:
        for rows in all_rows:
            for shape in shapes:
                point = (sms, shape, rows)
                if point not in seen and not choices.knows(*point):
                    seen.add(point)
                    yield point
