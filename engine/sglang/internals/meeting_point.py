"""Where the ranks' process groups meet: ports of this machine alone.

PyTorch's store listens on every address of the machine, has no key, and is there for one GPU as well (SGLang
0.5.23, PyTorch 2.14). One engine is one machine, so that loopback is enough.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import socket
from collections.abc import Callable, MutableMapping
from datetime import timedelta

from torch.distributed import Store, TCPStore

LOOPBACK = frozenset({"127.0.0.1", "localhost"})
_MAKER = "_create_c10d_store"
_BACKLOG = 2048

_log = logging.getLogger(__name__)


def keep_on_loopback(environ: MutableMapping[str, str]) -> None:
    """Make the store of a process group that meets on loopback listen there alone, and Gloo's too.

    What the user has set for Gloo holds. A PyTorch without the name is left as it is, with a line in the log.
    """
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # The package has a function of the module's name.
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    make = getattr(rendezvous, _MAKER, None)
    if make is None or not {"hostname", "port", "rank", "world_size", "timeout"} <= set(
        inspect.signature(make).parameters
    ):
        _log.warning("pdmuxd: PyTorch's store listens on all addresses: it has no %s", _MAKER)
        return
    setattr(rendezvous, _MAKER, functools.wraps(make)(functools.partial(_made, make)))


def _made(
    make: Callable[..., Store],
    hostname: str,
    port: int,
    rank: int,
    world_size: int,
    timeout: timedelta,
    *rest: object,
) -> Store:
    if hostname not in LOOPBACK or rank != 0:
        return make(hostname, port, rank, world_size, timeout, *rest)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((hostname, port))
        listening.listen(_BACKLOG)
        return TCPStore(
            host_name=hostname,
            port=port,
            world_size=world_size,
            is_master=True,
            timeout=timeout,
            # The store closes it.
            master_listen_fd=listening.detach(),
        )
