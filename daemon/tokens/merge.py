"""One streamed answer from two sources: the engine's front end, and its scheduler's tokens.

The front end sends the first tokens of an answer and, with its end, all the text in between; the tokens of
the scheduler bring that text earlier. The events are those of the front end: the first one of a choice is the
form of all that are made of its tokens (`choice.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pdmuxd.daemon.tokens import forms
from pdmuxd.daemon.tokens.choice import Choice, GrowingChoice, Mismatch, Numbers, Surroundings
from pdmuxd.daemon.tokens.forms import NotUnderstoodError, Shape
from pdmuxd.daemon.tokens.logprobs import LogprobChoice, LogprobWriter
from pdmuxd.daemon.tokens.outbox import Outbox, deliver
from pdmuxd.daemon.tokens.plain import PLAIN, Direct

DONE = b"data: [DONE]\n\n"
"""Behind the last event of OpenAI's streams."""
_LAST = (
    DONE,
    b"event: message_stop\n",
    *(b"event: response.%b\n" % end for end in (b"completed", b"incomplete", b"failed")),
)
_END = b"\n\n"


class MergedStream:
    """What is for the client, as both sources bring it; `outbox` has it. For one event loop."""

    __slots__ = (
        *("_before_event", "_choices", "_cut", "_make", "_max_unsent_bytes", "_numbers", "_shape"),
        *("has_end", "is_single", "outbox"),
    )

    def __init__(
        self,
        asked: Direct = PLAIN,
        *,
        max_unsent_bytes: int,
        is_parsed: bool = False,
        think: Sequence[str] = (),
        logprobs: LogprobWriter | None = None,
        tells_all: bool = False,
        before_event: Callable[[], None] = lambda: None,
        on_mismatch: Callable[[Mismatch], None] = lambda _: None,
        on_unread: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_event` reads the tokens that have arrived, so that they are used before an answer's end.

        With `is_parsed` the event that says who speaks has another form than text; `think` is how reasoning
        begins and ends where that is told apart. `logprobs` writes those that were asked for, with
        `tells_all` also of tokens that have no text.
        """
        self._max_unsent_bytes = max_unsent_bytes
        self._before_event = before_event
        self._shape = asked.shape
        self.is_single = not asked.is_several
        self.outbox = Outbox()
        self._numbers = Numbers(used=self._shape is Shape.RESPONSES)
        surroundings = Surroundings(
            max_unsent_bytes=max_unsent_bytes,
            on_mismatch=on_mismatch,
            on_unread=on_unread,
            numbers=self._numbers,
            role_has_form=not (asked.is_counted or is_parsed),
            think=tuple(think),
        )
        of_shape: Callable[..., Choice] = GrowingChoice if self._shape is Shape.GENERATE else Choice
        if logprobs is not None:
            value_of = logprobs.chat if asked.is_chat else logprobs.completion
            of_shape = partial(LogprobChoice, value_of=value_of, tells_all=tells_all)
        self._make = partial(of_shape, self.outbox, surroundings)
        self._choices: dict[str, Choice] = {}
        """By the engine's own ids; of a single one by the empty text."""
        self._cut = b""
        """The begin of an event whose end has not come."""
        self.has_end = False
        """Whether the front end has said that nothing more comes."""

    def choice(self, part: str = "") -> Choice:
        """The choice of that id."""
        name = "" if self.is_single else part
        found = self._choices.get(name)
        if found is None:
            found = self._choices[name] = self._make()
        return found

    @property
    def held_bytes(self) -> int:
        """What waits for the client, and texts that wait for the front end's first event."""
        return self.outbox.held_bytes + sum(choice.early_characters for choice in self._choices.values())

    async def feed(self, chunk: bytes) -> None:
        """Bytes of the front end's answer; waits while the client has not read what there is."""
        self._before_event()
        data = self._cut + chunk if self._cut else chunk
        begin = 0
        while (end := data.find(_END, begin)) >= 0:
            end += len(_END)
            self._event(data[begin:end])
            begin = end
        self._cut = data[begin:]
        for choice in self._choices.values():
            choice.flush()
        deliver((self.outbox,))
        while self.outbox.held_bytes > self._max_unsent_bytes:
            await self.outbox.taken()

    def close(self) -> None:
        """The front end's answer is over."""
        self._put_cut()
        for choice in self._choices.values():
            choice.close()
        self.outbox.close()

    def fail(self, error: BaseException) -> None:
        """The front end's answer broke off."""
        self._put_cut()
        self.outbox.close(error)

    def _put_cut(self) -> None:
        if self._cut:
            self.outbox.put(self._cut)
            self._cut = b""

    def _event(self, event: bytes) -> None:
        try:
            said = forms.read(self._shape, event)
        except NotUnderstoodError as error:
            self.choice(error.part).heard_otherwise(error.text, event)
            return
        if said is None:
            self.has_end = self.has_end or event.startswith(_LAST)
            self.outbox.put(self._numbers.renumbered(event))
            return
        self.choice(said.part).hear(said, event)
