"""Tokens of the emulated engine that go straight to the daemon (`engine/link/token_frames.py`).

As with SGLang: the first token and the end of an answer go through the HTTP endpoints, the end with all the
text in between; the tokens in between go to the daemon, one datagram for all that came at one instant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pdmuxd.engine.emulator.server.filler import known_pieces
from pdmuxd.engine.link.token_frames import (
    TOKEN_FRAMES_PROTOCOL,
    Begun,
    Sample,
    TokenSender,
    TokenStep,
    Vocabulary,
    frames_path,
    tokenizer_path,
)

_UNKNOWN = "<unk>"
_SAMPLES = 8


class DirectAnswer:
    """One answer whose tokens are handed over."""

    __slots__ = ("answer_id", "request_id", "stream", "token_ids")

    def __init__(self, answer_id: str, request_id: str, stream: int, token_ids: Sequence[int]) -> None:
        self.answer_id = answer_id
        self.request_id = request_id
        self.stream = stream
        self.token_ids = token_ids
        """As far as they are tokens: the end of an answer may be cut inside one."""


class DirectTokens:
    """Collects what is new, and hands it over with `flush`."""

    def __init__(self, link: str) -> None:
        self._path = tokenizer_path(link)
        self._ids: Mapping[bytes, int] = {
            piece: number for number, piece in enumerate(known_pieces(), start=1)
        }
        self._sender = TokenSender(frames_path(link), self._introduce)
        self._begun: list[Begun] = []
        self._streams: list[int] = []
        self._token_ids: list[int] = []

    def poll(self) -> bool:
        """Look for the daemon; False if it is not there, and what goes its way must go another."""
        self._sender.poll()
        return self._sender.is_ready

    def answer(self, answer_id: str, request_id: str, pieces: Sequence[bytes]) -> DirectAnswer | None:
        """The stream of a choice of these pieces; None if the daemon is not there or it is too short."""
        if not self._sender.is_ready or len(pieces) < 3:
            return None
        token_ids: list[int] = []
        for piece in pieces:
            number = self._ids.get(piece)
            if number is None:
                break
            token_ids.append(number)
        if not token_ids:
            return None
        return DirectAnswer(answer_id, request_id, self._sender.next_stream(), token_ids)

    def begin(self, answer: DirectAnswer) -> None:
        """Begin after its first token, which goes through HTTP."""
        self._begun.append(
            Begun(
                stream=answer.stream,
                request_id=answer.answer_id,
                context=(),
                token_ids=(answer.token_ids[0],),
                skip_special_tokens=True,
                part=answer.request_id,
            )
        )

    def token(self, answer: DirectAnswer, produced: int) -> None:
        """Note that it has so many tokens now."""
        if produced <= len(answer.token_ids):
            self._streams.append(answer.stream)
            self._token_ids.append(answer.token_ids[produced - 1])

    def flush(self) -> bool:
        """Hand over what is new; False if the daemon did not take it."""
        if not self._begun and not self._streams:
            return True
        step = TokenStep(begun=self._begun, streams=self._streams, token_ids=self._token_ids, several=[])
        self._begun, self._streams, self._token_ids = [], [], []
        return self._sender.send(step)

    def close(self) -> None:
        self._sender.close()

    def _introduce(self) -> Vocabulary:
        vocabulary = {_UNKNOWN: 0} | {piece.decode(): number for piece, number in self._ids.items()}
        _write(self._path, vocabulary)
        samples = tuple(
            Sample(token_ids=(number, number), text=2 * piece.decode())
            for piece, number in list(self._ids.items())[:_SAMPLES]
        )
        return Vocabulary(
            protocol=TOKEN_FRAMES_PROTOCOL,
            tokenizer_path=str(self._path),
            samples=samples,
            has_tool_parser=True,
            plain_responses=True,
        )


def _write(path: Path, vocabulary: Mapping[str, int]) -> None:
    """A tokenizer whose tokens are joined as they are. Raises: OSError."""
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": _UNKNOWN}
    file = {"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"}, "model": model}
    path.write_bytes(msgspec.json.encode(empty | file))
