"""A scripted server of OpenAI's protocol over real sockets."""

import contextlib
import itertools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CALL, TEXT = "tool_calls", "stop"


def reply(message, finish=None, tokens=7):
    """A chat completion with a message, or with a text."""
    if isinstance(message, str):
        message = {"content": message}
    calls = [
        {"id": f"call_{i}", "type": "function"} | call
        for i, call in enumerate(message.get("tool_calls") or ())
    ]
    message = {"role": "assistant", "content": message.get("content")}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message}
    choice["finish_reason"] = finish or (CALL if calls else TEXT)
    usage = {"prompt_tokens": tokens - 2, "completion_tokens": 2}
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [choice],
        "usage": usage | {"total_tokens": tokens},
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        server = self.server
        number = next(server.numbers)
        server.requests.append((time.monotonic(), self.path, self.headers, body))
        said = server.script(body, number)
        kind, *rest = said if isinstance(said, tuple) else ("reply", said)
        getattr(self, f"_{kind}")(*rest)

    def _reply(self, content, status=200, headers=None):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _error(self, status, message="no", code=None, headers=None):
        error = {"message": message, "type": "error", "code": code}
        self._reply({"error": error}, status, headers)

    def _late(self, seconds, said):
        self.server.stopped.wait(seconds)
        self._reply(said)

    def _hang(self):
        self.server.stopped.wait(30)
        self.close_connection = True

    def _drop(self, content):
        """Close the connection in the middle of the reply."""
        content = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.close_connection = True

    def _drip(self, content):
        """Send the reply slowly, byte by byte."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        for byte in json.dumps(content).encode():
            self.wfile.write(bytes([byte]))
            if self.server.stopped.wait(0.1):
                break
        self.close_connection = True

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests = script, []
        self.numbers, self.stopped = itertools.count(), threading.Event()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address):
        pass  # clients disconnect


@contextlib.contextmanager
def server(script):
    """Run a server. `script(body, number of the request)` returns a reply, or a tuple
    `(kind, ...)` that selects a method of `Handler`."""
    with Server(script) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            made.stopped.set()
            made.shutdown()
            thread.join()
