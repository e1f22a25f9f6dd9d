"""Partition tables: which SM splits a device can make, and the groups made before serving."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pdmuxd.engine.core.errors import PartitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class SmRules:
    """What the driver allows: a green context gets at least `min_sms`, in multiples of `multiple_sms`.

    On Hopper both are 8 (upstream SGLang's `get_arch_constraints`, compute capability 9.x). One split call
    makes both sides: one is a multiple, the other is what is left. What is left cannot be split again, and
    the groups of 8 are fewer than the SMs suggest (15 of an H200's 132 SMs, driver 580, 2026-11-23).
    """

    total_sms: int
    min_sms: int = 8
    multiple_sms: int = 8

    def is_legal(self, prefill_sms: int, decode_sms: int) -> bool:
        """Whether one split call can make this pair, and matrix products run on both sides."""
        if prefill_sms + decode_sms != self.total_sms:
            return False
        sides = sorted((prefill_sms, decode_sms), key=lambda sms: sms % self.multiple_sms)
        return (
            sides[0] % self.multiple_sms == 0 and sides[0] >= self.min_sms and sides[1] >= self.min_rest_sms
        )

    @property
    def min_rest_sms(self) -> int:
        """The fewest SMs for the side that is left: on 12 of an H200, cuBLAS launches fail
        (CUBLAS_STATUS_EXECUTION_FAILED, 2026-11-23); 20 do."""
        return self.min_sms if self.total_sms % self.multiple_sms == 0 else 2 * self.min_sms

    def legal_pairs(self) -> tuple[tuple[int, int], ...]:
        """All (prefill_sms, decode_sms) with a multiple for prefill and the rest for decode."""
        sizes = range(self.min_sms, self.total_sms - self.min_rest_sms + 1, self.multiple_sms)
        return tuple((p, self.total_sms - p) for p in reversed(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition group: the SMs of its prefill stream and of its decode stream."""

    prefill_sms: int
    decode_sms: int


@dataclass(frozen=True, kw_only=True)
class PartitionTable:
    """Group PREFILL_ONLY, the splits by growing decode share, group DECODE_ONLY.

    Raises: PartitionError naming the pair and the legal ones (invariant 1).
    """

    rules: SmRules
    splits: tuple[Partition, ...]

    PREFILL_ONLY = 0

    def __post_init__(self) -> None:
        for split in self.splits:
            if not self.rules.is_legal(split.prefill_sms, split.decode_sms):
                pairs = set(self.rules.legal_pairs())
                pairs |= {(decode, prefill) for prefill, decode in pairs}
                legal = ", ".join(f"{p},{d}" for p, d in sorted(pairs, reverse=True))
                raise PartitionError(
                    f"partition {split.prefill_sms},{split.decode_sms} is not possible on "
                    f"{self.rules.total_sms} SMs; allowed are {legal}"
                )
        decode = [split.decode_sms for split in self.splits]
        if decode != sorted(set(decode)):
            raise PartitionError("partition groups must be in order of growing decode SMs, without repeats")

    @cached_property
    def groups(self) -> tuple[Partition, ...]:
        """All groups, by index."""
        total = self.rules.total_sms
        return (
            Partition(prefill_sms=total, decode_sms=0),
            *self.splits,
            Partition(prefill_sms=0, decode_sms=total),
        )

    @cached_property
    def decode_only(self) -> int:
        """Index of the group that gives decode every SM."""
        return len(self.splits) + 1

    @cached_property
    def split_indices(self) -> tuple[int, ...]:
        """Indices of the groups with SMs on both sides, by growing decode SMs."""
        return tuple(range(1, len(self.splits) + 1))

    def prefill_sms(self, index: int) -> int:
        """The SMs that prefill has in a group, or would have in the first split; all where there is none."""
        if not self.split_indices:
            return self.rules.total_sms
        return self.groups[index].prefill_sms or self.groups[self.split_indices[0]].prefill_sms

    def index_of(self, prefill_sms: int, decode_sms: int) -> int:
        """The group with just these sizes. Raises: PartitionError listing the groups."""
        for index in self.split_indices:
            split = self.groups[index]
            if (split.prefill_sms, split.decode_sms) == (prefill_sms, decode_sms):
                return index
        known = ", ".join(f"{s.prefill_sms},{s.decode_sms}" for s in self.splits)
        raise PartitionError(f"no partition group {prefill_sms},{decode_sms}; there are {known}")


def even_steps(rules: SmRules, *, step_sms: int = 16, max_splits: int = 6) -> PartitionTable:
    """Splits at `step_sms` of decode, as MuxWise 3.3.2 uses (six groups, 16-SM steps).

    The prefill side is rounded down to a legal size and decode takes the rest, so that no SM idles.
    """
    splits: list[Partition] = []
    for decode_sms in range(step_sms, rules.total_sms, step_sms):
        prefill_sms = (rules.total_sms - decode_sms) // rules.multiple_sms * rules.multiple_sms
        if len(splits) == max_splits or prefill_sms < rules.min_sms:
            break
        if rules.is_legal(prefill_sms, rules.total_sms - prefill_sms):
            splits.append(Partition(prefill_sms=prefill_sms, decode_sms=rules.total_sms - prefill_sms))
    return PartitionTable(rules=rules, splits=tuple(splits))


def aligned_decode(
    rules: SmRules, *, decode_sms: tuple[int, ...] = (8, 16, 24, 32, 40, 48, 64, 80)
) -> PartitionTable:
    """Splits that give decode whole groups of SMs, fine where decode usually is, and prefill the rest.

    Kernels with thread block clusters need whole groups, and decode's are hurt more by lacking them: with
    Llama-8B and 64 requests a step took 22.6 ms on the 20 SMs that 112 leave, and takes 14.2 ms on 16 whole
    ones (one H200, 2026-11-23, docs/measurements/h200-kernels.md).
    """
    pairs = ((rules.total_sms - decode, decode) for decode in decode_sms)
    splits = tuple(Partition(prefill_sms=p, decode_sms=d) for p, d in pairs if p > 0 and rules.is_legal(p, d))
    return PartitionTable(rules=rules, splits=splits)


def with_split(table: PartitionTable, prefill_sms: int, decode_sms: int) -> PartitionTable:
    """The table with one more split, in its place; the same table if it is there already.

    Raises: PartitionError if the device cannot make it.
    """
    wanted = Partition(prefill_sms=prefill_sms, decode_sms=decode_sms)
    if wanted in table.splits:
        return table
    splits = sorted((*table.splits, wanted), key=lambda s: s.decode_sms)
    return PartitionTable(rules=table.rules, splits=tuple(splits))
