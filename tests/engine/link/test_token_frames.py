"""Tokens from the engine's end of the socket to the daemon's."""

import contextlib
import socket

import msgspec
import pytest

from pdmuxd.engine.link import token_frames
from pdmuxd.engine.link.token_frames import READY, Begun, TokenSender, TokenStep, Vocabulary

VOCABULARY = Vocabulary(protocol=token_frames.TOKEN_FRAMES_PROTOCOL, tokenizer_path="/x/tokenizer.json")
STEP = TokenStep(begun=[], streams=[1, 2], token_ids=[7, 2**31], several=[(3, [1, 2])])


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path has at most 107 bytes
    return token_frames.Path("tokens")


@pytest.fixture
def sender(path):
    with contextlib.closing(TokenSender(path, lambda: VOCABULARY)) as made:
        yield made


def meet(path, sender, listening):
    """Both ends, connected and ready."""
    sender.poll()
    end, _ = listening.accept()
    assert token_frames.decode(end.recv(2**16)) == VOCABULARY
    end.send(READY)
    sender.poll()
    return end


def test_a_step_arrives_as_it_was_when_the_daemon_is_ready(path, sender):
    with token_frames.listen(path) as listening, meet(path, sender, listening) as end:
        begun = Begun(stream=1, request_id="r", context=(-1, 5), token_ids=(9,), skip_special_tokens=False)
        step = TokenStep(begun=[begun], streams=[], token_ids=[], several=[])
        assert sender.is_ready
        assert sender.send(step)
        assert sender.send(STEP)
        assert token_frames.decode(end.recv(2**16)) == msgspec.structs.replace(step, number=1)
        assert token_frames.decode(end.recv(2**16)) == msgspec.structs.replace(STEP, number=2)


def test_nothing_is_handed_over_when_there_is_no_daemon(sender):
    sender.poll()
    assert not sender.is_ready
    assert not sender.send(STEP)


def test_nothing_is_handed_over_before_the_daemon_can_use_it(path, sender):
    with token_frames.listen(path):
        sender.poll()
        sender.poll()
        assert not sender.is_ready


def test_a_step_is_refused_at_once_when_the_daemon_does_not_read(path, sender):
    with token_frames.listen(path) as listening, meet(path, sender, listening):
        large = TokenStep(begun=[], streams=list(range(1000)), token_ids=[10**6] * 1000, several=[])
        sent = 0
        while sender.send(large):
            sent += 1
            assert sent < 10_000, "its buffer has no bound"
        assert sender.lost == 1
        assert sender.is_ready


def test_a_step_that_was_lost_leaves_a_gap_in_the_numbers(path, sender):
    with token_frames.listen(path) as listening, meet(path, sender, listening) as end:
        large = TokenStep(begun=[], streams=list(range(1000)), token_ids=[10**6] * 1000, several=[])
        while sender.send(large):
            pass
        read = [token_frames.decode(end.recv(2**18)).number for _ in range(sender.sent)]
        assert sender.send(STEP)
        read.append(token_frames.decode(end.recv(2**16)).number)
        assert read == [*range(1, sender.sent), sender.sent + 1]


def test_a_step_can_be_read_when_an_older_engine_sends_it_without_a_number():
    older = msgspec.msgpack.encode(["step", [], [1], [2], []])
    assert token_frames.decode(older) == TokenStep(begun=[], streams=[1], token_ids=[2], several=[])


def test_the_next_daemon_is_found_when_one_has_gone(path, sender):
    with token_frames.listen(path) as listening:
        meet(path, sender, listening).close()
    sender.poll()
    assert not sender.is_ready
    with token_frames.listen(path) as listening, meet(path, sender, listening) as end:
        assert sender.send(STEP)
        assert token_frames.decode(end.recv(2**16)) == msgspec.structs.replace(STEP, number=1)


def test_a_loss_is_noticed_when_a_step_is_sent(path, sender):
    with token_frames.listen(path) as listening:
        meet(path, sender, listening).close()
        assert not sender.send(STEP)
        assert not sender.is_ready


def test_only_this_user_may_connect(path):
    with token_frames.listen(path):
        assert path.stat().st_mode & 0o777 == 0o600
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert token_frames.is_own_user(ours)


def test_a_prompts_end_is_the_context_of_its_answer():
    assert token_frames.context_of([1, 2]) == (1, 2)
    assert token_frames.context_of(range(100)) == (95, 96, 97, 98, 99)
