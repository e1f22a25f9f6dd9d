"""`pdmuxd web`: the address of the pages, if they are there."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from pdmuxd.daemon.cli.main import app


class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == self.server.known else 404)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as made:
        made.known = "/ui/login"  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def url_of(server: http.server.HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_the_address_is_printed_and_opened_when_asked(
    server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(typer, "launch", lambda url: opened.append(url) or 0)
    printed = CliRunner().invoke(app, ["web", "--url", url_of(server)])
    assert (printed.exit_code, printed.stdout, opened) == (0, f"{url_of(server)}/ui\n", [])
    assert CliRunner().invoke(app, ["web", "--url", url_of(server), "--open"]).exit_code == 0
    assert opened == [f"{url_of(server)}/ui"]


def test_it_says_what_is_missing_when_there_are_no_pages(server: http.server.HTTPServer) -> None:
    server.known = "/"  # type: ignore[attr-defined]
    other = CliRunner().invoke(app, ["web", "--url", url_of(server)])
    assert (other.exit_code, "gave HTTP 404" in other.stderr) == (1, True)
    nobody = CliRunner().invoke(app, ["web", "--url", "http://127.0.0.1:1"])
    assert (nobody.exit_code, "start one with: pdmuxd serve" in nobody.stderr) == (1, True)
