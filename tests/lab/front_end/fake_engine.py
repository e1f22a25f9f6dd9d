"""An engine that computes nothing and whose front end costs little, for `bench_gateway.py`.

As SGLang it answers `/v1/completions` over HTTP, and with a socket's path it hands the tokens between the
first and the last to the daemon (`engine/link/token_frames.py`). Each step has one for every stream.
Its arguments: seconds of a step, the model's tokenizer, that socket or nothing. It prints its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import uvloop
from tokenizers import Tokenizer

from pdmuxd.engine.link.token_frames import (
    TOKEN_FRAMES_PROTOCOL,
    Begun,
    TokenSender,
    TokenStep,
    Vocabulary,
)

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"


def _chunk(events: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(events), events)


class Answer:
    """One stream."""

    def __init__(self, front_end: FrontEnd, body: dict[str, Any], number: int) -> None:
        self.front_end = front_end
        self.left = int(body["max_tokens"])
        self.rid = str(body.get("rid") or f"own-{number}")
        self.number = number
        self.wants_tokens = bool((body.get("custom_params") or {}).get("pdmuxd_tokens"))
        self.is_direct = self.has_begun = False
        self.kept: list[bytes] = []
        """The text of tokens that the daemon has got, for the end."""
        self.head = (
            b'data: {"id":"%b","object":"text_completion","created":1764000000,"model":"%b",'
            b'"choices":[{"index":0,"text":"' % (self.rid.encode(), str(body["model"]).encode())
        )

    def event(self, text: bytes, *, is_last: bool) -> bytes:
        """As SGLang writes it; `text` is escaped."""
        reason = b'"length"' if is_last else b"null"
        tail = b'","logprobs":null,"finish_reason":%b,"matched_stop":null}],"usage":null}\n\n' % reason
        return self.head + text + tail


class FrontEnd(asyncio.Protocol):
    """One connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._data = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's call."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Asyncio's call."""
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if len(rest) < length:
            return
        self._data = rest[length:]
        if b"/completions " in lines[0]:
            self._engine.begin(self, json.loads(rest[:length]))
            return
        if b"/abort_request " in lines[0]:
            self._engine.abort(json.loads(rest[:length])["rid"])
        self.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's call."""
        self._engine.forget(self)
        self.transport = None

    def write(self, data: bytes) -> None:
        """If there is anybody."""
        if self.transport is not None:
            self.transport.write(data)


class Engine:
    """All streams, one step after the other at fixed times."""

    def __init__(self, step_s: float, tokenizer: Path, tokens: Path | None) -> None:
        self._step_s = step_s
        words = Tokenizer.from_file(str(tokenizer)).get_vocab()
        self._words = [
            (number, text.replace("Ġ", " ").encode())
            for text, number in sorted(words.items())
            if len(text) > 2 and text[1:].isascii() and text[1:].isalpha()
        ]
        self._sender = None
        if tokens is not None:
            said = Vocabulary(protocol=TOKEN_FRAMES_PROTOCOL, tokenizer_path=str(tokenizer))
            self._sender = TokenSender(tokens, lambda: said)
        self._answers: dict[str, Answer] = {}
        self._asked = 0
        self._steps = 0

    def begin(self, front_end: FrontEnd, body: dict[str, Any]) -> None:
        """A request came."""
        self._asked += 1
        answer = Answer(front_end, body, self._asked)
        self._answers[answer.rid] = answer

    def abort(self, rid: str) -> None:
        """Nobody waits for it."""
        self._answers.pop(rid, None)

    def forget(self, front_end: FrontEnd) -> None:
        """Its client left."""
        for rid in [rid for rid, answer in self._answers.items() if answer.front_end is front_end]:
            del self._answers[rid]

    async def run(self) -> None:
        """Until the process is ended."""
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + self._step_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())
            if self._sender is not None:
                self._sender.poll()
            self._step()

    def _step(self) -> None:
        if not self._answers:
            return
        sender = self._sender
        is_ready = sender is not None and sender.is_ready
        begun: list[Begun] = []
        streams: list[int] = []
        token_ids: list[int] = []
        ended = []
        for answer in self._answers.values():
            token_id, text = self._words[(self._steps * 31 + answer.number * 7) % len(self._words)]
            answer.left -= 1
            if answer.left <= 0:
                ended.append(answer.rid)
                said = answer.event(b"".join(answer.kept) + text, is_last=True) + DONE
                answer.front_end.write(_chunk(said) + b"0\r\n\r\n")
            elif answer.is_direct:
                answer.kept.append(text)
                streams.append(answer.number)
                token_ids.append(token_id)
            else:
                said = _chunk(answer.event(text, is_last=False))
                answer.front_end.write(said if answer.has_begun else HEAD + said)
                if not answer.has_begun and answer.wants_tokens and is_ready:
                    answer.is_direct = True
                    begun.append(Begun(answer.number, answer.rid, (), (token_id,), True))
                answer.has_begun = True
        self._steps += 1
        for rid in ended:
            del self._answers[rid]
        if sender is not None and (begun or streams):
            sender.send(TokenStep(begun=begun, streams=streams, token_ids=token_ids, several=[]))


async def main(step_s: str, tokenizer: str, tokens: str | None = None) -> None:
    """Serve until the process is ended."""
    engine = Engine(float(step_s), Path(tokenizer), None if tokens is None else Path(tokens))
    server = await asyncio.get_running_loop().create_server(
        lambda: FrontEnd(engine), "127.0.0.1", 0, backlog=2048
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    gc.freeze()
    with contextlib.suppress(asyncio.CancelledError):
        await engine.run()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
