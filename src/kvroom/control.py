"""The few requests beside the load: is it ready, which version, which model, which tokens."""

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from kvroom.dialect import Dialect, Tokenizer
from kvroom.engine import Engine
from kvroom.errors import EngineError, InputError

POLL_S = 0.05
PROBE_S = 5.0
REFUSALS = (400, 422)
LINE_WAIT_S = 10.0
"""How long a ready line may lag behind the probe before it is no longer waited for."""


class Control:
    """Requests to one server outside of the measured rounds."""

    def __init__(self, url: str, api_key: str | None) -> None:
        import httpx

        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.url = url.rstrip("/").removesuffix("/v1")
        # A server may close a connection that it kept just when it is used again: none is kept.
        self.client = httpx.Client(
            base_url=self.url, headers=headers, timeout=PROBE_S, trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )  # fmt: skip

    def close(self) -> None:
        """Let go of the connection."""
        self.client.close()

    def status(self, path: str) -> int | None:
        """The status of a GET, or None when nobody answers."""
        import httpx

        try:
            return self.client.get(path).status_code
        except httpx.HTTPError:
            return None

    def get(self, path: str) -> Any:
        """The JSON of a GET, or None when there is none."""
        import httpx

        try:
            answer = self.client.get(path)
            return answer.json() if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = 60.0) -> Any:
        """The JSON of a POST; EngineError says what the server refused."""
        import httpx

        answer = self.answer(path, body, timeout_s)
        try:
            return answer.raise_for_status().json()
        except (httpx.HTTPStatusError, ValueError):
            said = answer.text[:300].strip()
            raise EngineError(
                f"{self.url}{path} answered {answer.status_code}: {said or 'nothing'}"
            ) from None

    def answer(self, path: str, body: Mapping[str, Any], timeout_s: float = 60.0) -> Any:
        """The answer to a POST, whatever its status; EngineError if there is none."""
        import httpx

        try:
            return self.client.post(path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise EngineError(f"{self.url}{path} does not answer: {error}") from None


def api_key(variable: str | None) -> str | None:
    """The key in an environment variable; InputError if the variable is not set."""
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise InputError(
            f"the environment variable {variable} is not set", f"export {variable}=..."
        )
    return key


def wait_answer(
    control: Control, engine: Engine, check: Callable[[], None], timeout_s: float
) -> None:
    """Return once the probe answers 200; EngineError after ``timeout_s``.

    ``check`` raises if the engine has died.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        check()
        if control.status(engine.probes.ready) == 200:
            return
        if time.monotonic() > deadline:
            raise EngineError(
                f"not ready after {timeout_s:g} s: {engine.probes.ready} does not answer 200",
                "if it only needs longer, raise timeouts: {ready_s: ...}",
            )
        time.sleep(POLL_S)


def load_model(control: Control, engine: Engine, served: str, timeout_s: float) -> None:
    """Have a model loaded by a server that starts without it."""
    if engine.probes.load is not None:
        path, body = engine.probes.load
        named = {name: served if value == "{model}" else value for name, value in body.items()}
        control.post(path, named, timeout_s)


def wait_line(engine: Engine, check: Callable[[], None], read_log: Callable[[], str]) -> None:
    """Return once the ready line stands in the log.

    A version of an engine may word it differently, so after a while it is no longer waited for.
    """
    deadline = time.monotonic() + LINE_WAIT_S
    while not re.search(engine.ready_line, read_log()) and time.monotonic() < deadline:
        check()
        time.sleep(POLL_S)


def reported_version(control: Control, engine: Engine) -> str | None:
    """The version as the server gives it, if it does."""
    if engine.probes.version is None:
        return None
    path, key = engine.probes.version
    answer = control.get(path)
    value = answer.get(key) if isinstance(answer, dict) else None
    return str(value) if value else None


def served_model(control: Control) -> str:
    """The first model an endpoint lists; EngineError if it lists none."""
    answer = control.get("/v1/models")
    try:
        return str(answer["data"][0]["id"])
    except (TypeError, LookupError):
        raise EngineError(
            f"{control.url} does not list its models", "name one: served_model: ..."
        ) from None


def tokenize(control: Control, tokenizer: Tokenizer, served: str, text: str) -> list[int]:
    """Token ids of a text by the server's own tokenizer."""
    body = {"model": served, tokenizer.text_field: text, **tokenizer.extra}
    answer = control.post(tokenizer.path, body)
    try:
        return [int(token) for token in answer["tokens"]]
    except (TypeError, LookupError, ValueError):
        raise EngineError(f"{control.url}{tokenizer.path} returned no token ids") from None


def prompt_length(
    control: Control, dialect: Dialect, served: str, text: str, extra: Mapping[str, Any]
) -> int:
    """How many tokens the server counts in a text, by asking for a single token after it."""
    body = {**dialect.request(served, text, 1), **extra, "stream": False, "stream_options": None}
    answer = control.post(dialect.path, {k: v for k, v in body.items() if v is not None})
    try:
        for key in dialect.prompt_count:
            answer = answer[key]
        return int(answer)
    except (TypeError, LookupError, ValueError):
        raise EngineError(f"{control.url} does not report how many tokens a prompt has") from None


def refused_fields(
    control: Control, dialect: Dialect, served: str, extra: Mapping[str, Any]
) -> list[str]:
    """The optional fields that a server answers with an error, found by asking for one token.

    EngineError if it refuses the request without them too.
    """
    whole = {**dialect.request(served, "Hello", 1), **extra}
    optional = [name for name in dialect.optional if name not in extra]
    left_out: list[str] = []
    while True:
        body = {k: v for k, v in whole.items() if v is not None and k not in left_out}
        answer = control.answer(dialect.path, body)
        if answer.is_success:
            return left_out
        if answer.status_code not in REFUSALS or left_out == optional:
            said = answer.text[:300].strip()
            raise EngineError(f"{control.url}{dialect.path} answered {answer.status_code}: {said}")
        left_out = optional[: len(left_out) + 1]
