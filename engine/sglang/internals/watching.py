"""What a prefill and a decode step both write, found by running one of each at the start.

PyTorch's operators say in their schema which arguments they write. Kernels that Triton or a library launches
past PyTorch say nothing, so that what layers and attention backends hold is compared before and after.
Neither sees a workspace that such a kernel leaves as it has found it (Marlin's locks), nor one that nothing
of these holds: `shared_state.py` knows those by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.internals.shared_state import Modules, holders

Operator: TypeAlias = Any
"""torch._ops.OpOverload, which the environment of the checks does not have."""
_COLUMNS = 64
"""Words of a row; a tensor's mark is the sums of its rows and of its columns, so that an order shows, too."""
_DEPTH = 4
"""Steps from a pool to its tensors: pools of pools have lists of them."""


class Watch:
    """What outlives a forward and is written by each of several. Pools are written by all of them on purpose,
    in slots of their own, and do not count; nor do parameters."""

    def __init__(self, model: Modules, attention: Iterable[object], pools: Iterable[object]) -> None:
        modules = list(model.modules())
        # Some schemas say of weights that they are written, which are only read (SGLang 0.5.23: a norm's).
        self._allowed = {_key(tensor) for pool in pools for tensor in _tensors(pool, _DEPTH)}
        self._allowed |= {
            _key(tensor) for one in modules for tensor in _tensors(vars(one).get("_parameters"), 1)
        }
        self._held = {
            key: found for key, *found in _named((*modules, *attention)) if key not in self._allowed
        }
        self._written: list[dict[int, _Write]] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        """What is launched inside counts as one; it must have ended on the device when this ends."""
        before = {key: _mark(tensor) for key, (_, tensor) in self._held.items()}
        # A compiled function would be compiled once more: only its operators can be watched.
        with torch.compiler.set_stance("force_eager"), _Writes() as writes:
            yield
        for key, (_, tensor) in self._held.items():
            if not all(map(torch.equal, before[key], _mark(tensor))):
                writes.found.setdefault(key, _Write(tensor, "a kernel"))
        self._written.append(writes.found)

    def found(self) -> str:
        """The first thing that all of them have written, in words; empty if there is none."""
        first, *others = self._written
        for key, write in first.items():
            if key in self._allowed or write.reference.expired() or any(key not in one for one in others):
                continue
            name, _ = self._held.get(key, (f"a tensor of shape {write.shape}", None))
            return f"{name} is written by prefill and by decode (by {write.by})"
        return ""


class _Write:
    """What was written first to a tensor's memory, and whether that is still there."""

    __slots__ = ("by", "reference", "shape")

    def __init__(self, tensor: Tensor, by: str) -> None:
        # While it is kept, no other storage gets this one's address.
        self.reference = StorageWeakRef(tensor.untyped_storage())
        self.shape, self.by = tuple(tensor.shape), by


class _Writes(TorchDispatchMode):  # type: ignore[misc]
    """Notes what operators write, by their schemas."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, _Write] = {}

    def __torch_dispatch__(
        self,
        func: Operator,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Launch an operator."""
        named = kwargs or {}
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[number] if number < len(args) else named.get(argument.name)
            for tensor in _tensors(value, 1):
                self.found.setdefault(_key(tensor), _Write(tensor, str(func)))
        return func(*args, **named)


def _named(owners: Iterable[object]) -> Iterator[tuple[int, str, Tensor]]:
    """What objects and their parts hold: the memory, its name, a tensor there."""
    for owner in owners:
        for holder in holders(owner):
            for field, value in getattr(holder, "__dict__", {}).items():
                buffers = value.items() if field == "_buffers" else ((field, value),)
                for name, held in () if field in ("_parameters", "_modules") else buffers:
                    for tensor in _tensors(held, 1):
                        yield _key(tensor), f"{name} of {type(owner).__name__}", tensor


def _tensors(value: object, depth: int) -> Iterator[Tensor]:
    """Tensors on the device, in so many lists or objects within each other."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda == torch.cuda.is_available() and value.layout is torch.strided:
            yield value
        return
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif depth > 1:
        parts = getattr(value, "__dict__", {}).values()
    for part in parts if depth else ():
        yield from _tensors(part, depth - 1)


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _mark(tensor: Tensor) -> tuple[Tensor, ...]:
    """Sums of the memory behind a tensor, which tell what it was from what it is."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    rest = whole.numel() % (8 * _COLUMNS)
    rows = whole[: whole.numel() - rest].view(torch.int64).view(-1, _COLUMNS)
    return rows.sum(0), rows.sum(1), whole[whole.numel() - rest :].clone()
