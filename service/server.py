"""One process that listens, serves and stops when told."""

import signal
import socket
from types import FrameType
from typing import NoReturn

import uvicorn

from service.app import create_app


def listen(host: str, port: int) -> socket.socket:
    """A socket that already accepts connections, so that whoever reads its address may connect at once.

    Raises OSError where the address is taken, unknown or not ours.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # A restart must not wait for the last connections of the process before it to time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a client finds the listener, with the port it really got."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def serve(listener: socket.socket) -> None:
    """Answer requests until SIGTERM or SIGINT, finish those under way, then exit the process with code 0."""
    # uvicorn raises the signal again once it has shut down, and the default handler would then kill an orderly stop.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    config = uvicorn.Config(create_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
