"""The real console in a terminal, against the real daemon with the emulated engine under load."""

from __future__ import annotations

import re

from steady_load import steady_load

POLICY = "engine.policy=muxwise"


def decode_sms(text):
    """Of the split in the title of the GPU; None where the screen shows no split."""
    found = re.search(r"now \d+ SMs prefill, (\d+) decode", text)
    return int(found[1]) if found else None


def test_the_split_moves_when_an_slo_is_edited_in_the_console(start, open_console):
    daemon = start(settings=[POLICY])
    with steady_load(daemon.data_url, daemon.key, daemon.model, users=24, prompt_words=1500, tokens=300):
        terminal = open_console(daemon)
        terminal.until_shown("Overview")
        terminal.until_shown("● serving")
        before = terminal.until(lambda text: decode_sms(text) in range(1, 100) and decode_sms(text))

        terminal.press("2")
        terminal.until(lambda text: "[2 Tenants]" in text and "default" in text)
        terminal.press("Enter")
        terminal.until_shown("Edits of the targets")
        terminal.press("e")
        terminal.until_shown("Targets of default, version 1")
        terminal.until_shown("of 50 ms")
        terminal.press("C-a")
        terminal.press("C-k")
        terminal.until_shown("TBT, ms is ''")
        terminal.press("1", "4")
        terminal.until_shown("of 14 ms")
        terminal.press("Enter")
        terminal.until_shown("Change the targets of default?")
        terminal.press("y")
        terminal.until(lambda text: re.search(r"^ +2 .* 14 .*in force", text, re.MULTILINE))
        assert daemon.admin("GET", "/api/v1/tenants/default/slo").json()["tbt_ms"] == 14

        terminal.press("1")
        terminal.until_shown("[1 Overview]")
        terminal.until(
            lambda text: decode_sms(text) is not None and before < decode_sms(text) < 132 and "/14 " in text
        )


def test_the_console_survives_when_the_daemon_stops_and_comes_back(start, open_console):
    daemon = start()
    terminal = open_console(daemon)
    terminal.until(lambda text: "● serving" in text and "no engine says" not in text)
    assert daemon.stop() == 0
    terminal.until_shown("No connection to")
    terminal.until_shown("STALE")
    assert "Traceback" not in terminal.text
    port = daemon.admin_url.rpartition(":")[2]
    start(key=daemon.key, settings=[f"admin.port={port}"])
    terminal.press("r")
    terminal.until_shown("● serving")
    terminal.press("q")
    terminal.until_shown("ended with status 0")
