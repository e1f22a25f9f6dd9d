"""What a start says of itself."""

import logging
import os

from pdmuxd.engine.link.procfs import boot_s, started_s
from pdmuxd.engine.sglang.start_phases import StartPhases


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def said(caplog):
    return [record.getMessage() for record in caplog.records]


def test_each_part_of_a_start_is_told_with_its_seconds(caplog):
    caplog.set_level(logging.INFO)
    clock = Clock()
    phases = StartPhases(launcher_s=60.0, process_s=80.0, now_s=clock)
    clock.now_s = 103.0
    phases.begin("loading the model")
    clock.now_s = 110.0
    phases.begin("capturing graphs", "1/2 (16 SMs)")
    clock.now_s = 111.0
    phases.begin("capturing graphs", "2/2 (24 SMs)")
    clock.now_s = 114.0
    assert phases.end() == {
        "launcher": 20.0,
        "imports": 23.0,
        "loading the model": 7.0,
        "capturing graphs": 4.0,
    }
    assert said(caplog)[1:] == [
        "pdmuxd: start: capturing graphs 1/2 (16 SMs)",
        "pdmuxd: start: capturing graphs 2/2 (24 SMs)",
        "pdmuxd: start: 54 s: launcher 20.0, imports 23.0, loading the model 7.0, capturing graphs 4.0",
    ]


def test_nothing_is_told_of_a_start_that_is_over(caplog):
    caplog.set_level(logging.INFO)
    phases = StartPhases(launcher_s=None, process_s=None, now_s=Clock())
    phases.end()
    phases.begin("capturing graphs")
    phases.end()
    assert said(caplog) == ["pdmuxd: start: 0 s: launcher 0.0, imports 0.0"]


def test_a_process_knows_when_it_started():
    began_s = started_s(os.getpid())
    assert began_s is not None
    assert 0.0 < began_s <= boot_s()
    assert started_s(2**22 + 1) is None
