"""What a server on this machine listens on: a port that is free, its address in words, and who can reach it."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from linnet.errors import LinnetError

_TRIES = 20  # ports from the usual one on, where that is taken


def listen(host: str, port: int | None, usual_port: int) -> socket.socket:
    """A socket that listens; an error in one line where there is none to be had.

    `port`: None for `usual_port` or the next that is free.
    """
    wanted = [usual_port + offset for offset in range(_TRIES)] if port is None else [port]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in wanted:
        listening = socket.socket(family, socket.SOCK_STREAM)
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host.strip("[]"), number))
            listening.listen(128)
            return listening
        except (OSError, OverflowError, TypeError) as error:  # the last of a name with letters that no host has
            listening.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if taken and port is None:
                continue
            reason = "it is taken; name another `port`, or let it be chosen" if taken else str(error)
            if isinstance(error, TypeError):
                reason = "a host has no such name"
            raise LinnetError(f"cannot listen on {host} port {number}: {reason}") from None
    raise LinnetError(f"ports {wanted[0]} to {wanted[-1]} are all taken; name a free `port`")


def address(host: str, port: int) -> str:
    """The URL of a server that listens there, for people and their browsers."""
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host.strip("[]")
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def is_loopback(host: str) -> bool:
    """Does an address to listen on reach no further than this machine?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
