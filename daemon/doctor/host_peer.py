"""The scheduler and the clients for `host_rate.py`, as a process of their own: it waits for its own tokens.

Arguments: the folder of the socket, the port of the clients, streams of each stage, seconds of a stage. It
prints what each stage took, one line each.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from pathlib import Path

import msgspec

from pdmuxd.engine.link.token_frames import (
    TOKEN_FRAMES_PROTOCOL,
    Begun,
    TokenSender,
    TokenStep,
    Vocabulary,
)

STEP_S = 0.02
_END = b"\n\n\r\n"
"""Behind each event, in its chunk."""
_WORDS = 256
_READ_BYTES = 2**18
_READY_S = 5.0


class Stage(msgspec.Struct, frozen=True):
    """What was measured at one rate."""

    tokens_per_s: float
    late_p90_s: float
    """From a step to when all clients had its tokens."""


class Peer:
    """All streams, one step after the other at fixed times."""

    def __init__(self, folder: Path, port: int) -> None:
        self._port = port
        self._file = folder / "s.tokenizer.json"
        self._sender = TokenSender(folder / "s.tokens", self._introduce)
        self._selector = selectors.DefaultSelector()
        self._streams = 0
        self._came = 0

    def _introduce(self) -> Vocabulary:
        words = {"<unk>": 0} | {f" {chr(97 + i % 26)}{i or ''}": i + 1 for i in range(_WORDS)}
        empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
        model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
        made = {"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"}, "model": model}
        self._file.write_bytes(msgspec.json.encode(empty | made))
        return Vocabulary(protocol=TOKEN_FRAMES_PROTOCOL, tokenizer_path=str(self._file))

    def meet(self) -> None:
        """Wait for the daemon. Raises: TimeoutError."""
        end_s = time.monotonic() + _READY_S
        while not self._sender.is_ready:
            if time.monotonic() > end_s:
                raise TimeoutError
            self._sender.poll()
            time.sleep(0.01)

    def grow(self, streams: int) -> None:
        """Have so many streams, each with its first token."""
        begun, expected = [], self._came + streams - self._streams
        for number in range(self._streams + 1, streams + 1):
            client = socket.create_connection(("127.0.0.1", self._port))
            client.sendall(f"s{number}".encode())
            client.setblocking(False)
            self._selector.register(client, selectors.EVENT_READ, b"")
            begun.append(Begun(number, f"s{number}", (), (1,), skip_special_tokens=True))
        self._streams = streams
        end_s = time.monotonic() + _READY_S
        while self._came < expected and time.monotonic() < end_s:
            self._read(0.05)
        self._sender.send(TokenStep(begun=begun, streams=[], token_ids=[], several=[]))

    def stage(self, seconds: float) -> Stage:
        numbers = list(range(1, self._streams + 1))
        late_s: list[float] = []
        begin_s = time.monotonic()
        steps = int(seconds / STEP_S)
        came, sent = self._came, 0
        due: list[float] = []
        while len(late_s) < steps:
            now_s = time.monotonic()
            if now_s > begin_s + 3 * seconds:
                late_s += [now_s - at_s for at_s in due]
                break
            next_s = begin_s + sent * STEP_S
            if sent < steps and now_s >= next_s:
                ids = [2 + (number + sent) % (_WORDS - 2) for number in numbers]
                self._sender.send(TokenStep(begun=[], streams=numbers, token_ids=ids, several=[]))
                due.append(next_s)
                sent += 1
                next_s += STEP_S
            self._read(max(0.0, next_s - time.monotonic()) if sent < steps else STEP_S)
            now_s = time.monotonic()
            while due and self._came - came >= (len(late_s) + 1) * self._streams:
                late_s.append(now_s - due.pop(0))
        late_s.sort()
        return Stage(self._streams / STEP_S, late_s[min(len(late_s) - 1, int(0.9 * len(late_s)))])

    def _read(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            client = key.fileobj
            assert isinstance(client, socket.socket)  # noqa: S101 - a narrowing
            data = key.data + client.recv(_READ_BYTES)
            self._came += data.count(_END)
            # An end may be cut in two; what is kept is shorter than one.
            rest = data[-(len(_END) - 1) :]
            self._selector.modify(client, selectors.EVENT_READ, b"" if data.endswith(_END) else rest)


def main() -> None:
    """Measure as the arguments say."""
    folder, port, plan, seconds = sys.argv[1:]
    peer = Peer(Path(folder), int(port))
    peer.meet()
    for streams in map(int, plan.split(",")):
        peer.grow(streams)
        sys.stdout.write(msgspec.json.encode(peer.stage(float(seconds))).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
