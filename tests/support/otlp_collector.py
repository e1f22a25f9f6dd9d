"""A collector of OTLP/HTTP spans on loopback, which decodes what arrives."""

from __future__ import annotations

import contextlib
import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from daemon_process import wait_until
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class CollectedSpan:
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    begin_ns: int
    end_ns: int
    is_error: bool
    attributes: dict


class Collector:
    """Keeps the spans; says 503 to every batch while `refuses`, and nothing while it is `silent`."""

    def __init__(self):
        self.spans = []
        self.raw = []
        self.resource = {}
        self.refuses = False
        self.silent = False
        self.asked = 0
        self._released = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked += 1
                if collector.silent:
                    collector._released.wait()
                    return
                if collector.refuses:
                    self._answer(503)
                    return
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self._answer(200)

            def _answer(self, status):
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def take(self, path, body):
        assert path == "/v1/traces"
        self.raw.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            self.resource = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [
                    CollectedSpan(
                        name=span.name,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        kind=span.kind,
                        begin_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                        is_error=span.status.code == 2,
                        attributes=_attributes(span.attributes),
                    )
                    for span in scope.spans
                ]

    def wait_for(self, count):
        """So many spans, by name."""
        wait_until(lambda: len(self.spans) >= count)
        return {span.name: span for span in self.spans}

    def close(self):
        self._released.set()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def _attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextlib.contextmanager
def collecting():
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()
