"""A request handler that answers every GET with JSON."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler


def answer_json(find: Callable[[str], object]) -> type[BaseHTTPRequestHandler]:
    """A handler class whose answers are what `find` makes of a path without its query."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(find(self.path.partition("?")[0])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
