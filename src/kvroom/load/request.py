"""A completion request as bytes, made before it is due."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kvroom import __version__
from kvroom.errors import InputError
from kvroom.load.drive import Target

_PORTS = {"http": 80, "https": 443}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine's API is: the socket and the path in front of every endpoint."""

    target: Target
    host_header: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """The address in a URL; InputError if it is not one."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in _PORTS or not parts.hostname or port == -1:
            raise InputError(f"{url!r} is not the address of a server", "http://HOST:PORT")
        if parts.username or parts.password:
            raise InputError(
                "a login in 'url' would be kept with the run", "name a variable: api_key_env: ..."
            )
        target = Target(
            host=parts.hostname,
            port=port or _PORTS[parts.scheme],
            tls=parts.scheme == "https",
        )
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(target=target, host_header=parts.netloc.rpartition("@")[2], prefix=prefix)


def encode(address: Address, path: str, body: Mapping[str, Any], api_key: str | None) -> bytes:
    """The whole HTTP request; the server is asked to close the connection after its answer."""
    payload = msgspec.json.encode(body)
    lines = [
        f"POST {address.prefix}{path} HTTP/1.1",
        f"Host: {address.host_header}",
        f"User-Agent: kvroom/{__version__}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        f"Content-Length: {len(payload)}",
        "Connection: close",
    ]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload


def expected_answer_bytes(output_tokens: int) -> int:
    """Room for the answer: an event of vLLM or llama.cpp takes 200 to 350 bytes a token."""
    return 4096 + 400 * output_tokens
