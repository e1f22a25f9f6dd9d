"""Tokens from the scheduler straight to the daemon: one datagram per step, past the engine's front end.

A Unix socket beside the link's, SOCK_SEQPACKET: a datagram arrives whole or not at all. The daemon listens,
the engine connects, and either may be restarted. What the engine hands over here it also keeps: its own front
end sends the whole text with the end of an answer, so that a datagram that is not taken costs smoothness and
no text. The engine never blocks: who does not take datagrams gets no more of the answers that are under way.

Engine to daemon: `Vocabulary` once per connection, then a `TokenStep` per step. Daemon to engine: `READY`
once it can make text of tokens; nothing is sent before. What is not understood ends the connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pdmuxd.engine.link.garbage import remove_reports

TOKEN_FRAMES_PROTOCOL = 2
"""A daemon takes this one and the one before it: an engine may be older than its daemon."""
READY = b"ready"
MAX_DATAGRAM_BYTES = 2**18
_SEND_BUFFER_BYTES = 2**20
_CONTEXT_TOKENS = 5
"""Of a prompt's end: SGLang detokenizes the first tokens of an answer behind so many."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """What the engine's own tokenizer makes of some tokens, so that the daemon can compare."""

    token_ids: tuple[int, ...]
    text: str


class LogprobRow(msgspec.Struct, frozen=True, array_like=True):
    """A token's log probability, and those of the likeliest ones in its place."""

    token_id: int
    logprob: float
    top_ids: list[int]
    top_logprobs: list[float]


class LogprobSample(msgspec.Struct, frozen=True, array_like=True):
    """What SGLang's APIs make of log probabilities of some tokens, so that the daemon can compare."""

    is_byte_level: bool
    """Whether a token's bytes are the letters of its name, as GPT-2 writes bytes."""
    rows: list[LogprobRow]
    chat: bytes
    """The JSON of them in a chat's event."""
    completion: bytes
    """The same of a completion's."""


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="vocabulary"):
    """Which text the engine's tokens are."""

    protocol: int
    tokenizer_path: str
    """A file in the format of the library `tokenizers`, in the folder of the socket."""
    samples: tuple[Sample, ...] = ()
    plain_chat: bool = True
    """Whether chat answers are the model's text as it is: no reasoning parser changes it."""
    has_tool_parser: bool = False
    """Whether a parser changes answers that may call tools."""
    plain_responses: bool = False
    """Whether answers of /v1/responses are, too."""
    plain_generate: bool = False
    """Whether events of /generate have the whole text, and no times."""
    watches_calls: bool = False
    """Whether answers that may call tools are handed back where the parser may find a call."""
    think: tuple[str, ...] = ()
    """How reasoning begins and ends where a parser takes it out of chats, which are handed back there."""
    logprobs: LogprobSample | None = None
    """None: log probabilities are not handed over."""


class Begun(msgspec.Struct, frozen=True, array_like=True):
    """A choice of an answer whose first tokens went through the front end; the others come in steps."""

    stream: int
    request_id: str
    context: tuple[int, ...]
    """The last tokens of the prompt, behind which the first ones are detokenized."""
    token_ids: tuple[int, ...]
    """That went through the front end."""
    skip_special_tokens: bool
    part: str = ""
    """The engine's own id of it, where `request_id` is that of several choices."""


class TokenStep(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """The new tokens of a step."""

    begun: list[Begun]
    streams: list[int]
    """One new token each."""
    token_ids: list[int]
    several: list[tuple[int, list[int]]]
    """Streams with several, which were held back while they might have been the begin of a stop text."""
    number: int = 0
    """One more with every step that the engine tried to hand over; 0: it does not count them."""
    last: list[tuple[int, int]] = []
    """Streams with their last token, whose answers end because they are as long as they may be."""
    heard: list[tuple[int, list[int]]] = []
    """Streams with tokens that went through the front end in mid-answer, where a parser had to read them."""
    logprobs: list[tuple[int, list[LogprobRow]]] = []
    """Streams with the log probabilities of their new tokens, where the client asked for them."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Vocabulary | TokenStep] = msgspec.msgpack.Decoder(Vocabulary | TokenStep)


def decode(datagram: bytes | bytearray | memoryview) -> Vocabulary | TokenStep:
    """Read a datagram of the engine's. Raises: msgspec.DecodeError."""
    return _decoder.decode(datagram)


def frames_path(link: str) -> Path:
    """The socket that belongs to the link at `ipc://PATH`."""
    return Path(link.removeprefix("ipc://") + ".tokens")


def tokenizer_path(link: str) -> Path:
    """Where the engine of that link puts its tokenizer."""
    return Path(link.removeprefix("ipc://") + ".tokenizer.json")


def remove_files(link: str) -> None:
    """Remove the files of an engine that has ended. Raises: OSError."""
    for path in (frames_path(link), tokenizer_path(link)):
        path.unlink(missing_ok=True)
    remove_reports(link)


class TokenSender:
    """The engine's end. `is_ready` says whether tokens may be handed over; `poll` finds out, now and then."""

    def __init__(self, path: Path, vocabulary: Callable[[], Vocabulary]) -> None:
        """`vocabulary` is asked once, when there is a daemon to tell it to."""
        self._path = path
        self._make = vocabulary
        self._hello: bytes | None = None
        self._socket: socket.socket | None = None
        self._next = self._steps = 0
        self.is_ready = False
        self.sent = 0
        """Datagrams."""
        self.lost = 0
        """Datagrams that the daemon did not take; the answers in them went on through the front end."""

    def poll(self) -> None:
        """Connect if there is a socket; notice that the daemon is ready, or has gone. Costs a system call."""
        if self._socket is None:
            if not self._path.exists():
                return
            self._connect()
            return
        try:
            said = self._socket.recv(len(READY), socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            said = b""
        if said == READY:
            self.is_ready = True
        else:
            self.close()

    def _connect(self) -> None:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            end.connect(str(self._path))
            if self._hello is None:
                self._hello = _encoder.encode(self._make())
            end.send(self._hello, socket.MSG_NOSIGNAL)
        except OSError:
            end.close()
            return
        self._socket = end

    def next_stream(self) -> int:
        """A number for an answer."""
        self._next += 1
        return self._next

    def send(self, step: TokenStep) -> bool:
        """Hand a step over; False if it was not taken, and then nothing of its answers may be sent again."""
        if self._socket is None:
            return False
        self._steps += 1
        step = msgspec.structs.replace(step, number=self._steps)
        try:
            self._socket.send(_encoder.encode(step), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            self.lost += 1
            return False
        except OSError:
            self.lost += 1
            self.close()
            return False
        self.sent += 1
        return True

    def close(self) -> None:
        """End the connection; `poll` makes another."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self.is_ready = False


def context_of(prompt: Sequence[int]) -> tuple[int, ...]:
    """The part of a prompt behind which an answer is detokenized."""
    return tuple(prompt[max(0, len(prompt) - _CONTEXT_TOKENS) :])


def listen(path: Path) -> socket.socket:
    """The daemon's listening socket; only this user may connect. Raises: OSError."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        end.bind(str(path))
        path.chmod(0o600)
        end.listen(4)
    except OSError:
        end.close()
        raise
    return end


def is_own_user(end: socket.socket) -> bool:
    """Whether the other end is a process of this user, as the kernel says."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.getuid())
