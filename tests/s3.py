"""An S3 server on this machine (moto), and stores that are slow or gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """The address of a server with an empty bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    address = f"http://127.0.0.1:{port}"
    session = boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    session.client("s3", endpoint_url=address).create_bucket(Bucket=bucket)
    try:
        yield address
    finally:
        server.stop()


def use_s3(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Let this process and those that it starts find a server of S3 there."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": address}.items():
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


@contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that takes calls and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held: list[socket.socket] = []
        is_over = threading.Event()

        def hold() -> None:
            listening.settimeout(0.2)
            while not is_over.is_set():
                try:
                    held.append(listening.accept()[0])
                except TimeoutError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        is_over.set()
        thread.join()
        for connection in held:
            connection.close()
