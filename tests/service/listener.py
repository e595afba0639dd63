"""A small HTTP server that keeps what it receives, for what the service sends by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Received = tuple[str, dict[str, str], bytes]  # path, headers by their names in lower case, body


@contextmanager
def listener(*statuses: int) -> Iterator[tuple[str, list[Received]]]:
    """Yields its base URL and the list of what it receives; it answers with these statuses and then with 204."""
    received: list[Received] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(left.pop(0) if left else 204)
            self.send_header("location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}", received
        server.shutdown()
