"""A worker thread lets the event loop in soon, for as long as a daemon lives."""

from __future__ import annotations

import sys

import pytest

from pdmuxd.daemon.process.giving_way import INTERVAL_S, giving_way


def test_the_interval_is_short_until_the_end_however_that_comes() -> None:
    before_s = sys.getswitchinterval()
    with giving_way():
        assert sys.getswitchinterval() == pytest.approx(INTERVAL_S, rel=0.01)
    assert sys.getswitchinterval() == before_s
    with pytest.raises(KeyError), giving_way():
        raise KeyError
    assert sys.getswitchinterval() == before_s
