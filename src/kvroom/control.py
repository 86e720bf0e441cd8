"""The few requests beside the load: is it ready, which version, which model, which tokens."""

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from kvroom.engine import Engine
from kvroom.errors import EngineError, InputError

POLL_S = 0.05
PROBE_S = 5.0
LINE_WAIT_S = 10.0
"""How long a ready line may lag behind the probe before it is no longer waited for."""


class Control:
    """Requests to one server outside of the measured rounds."""

    def __init__(self, url: str, api_key: str | None) -> None:
        import httpx

        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.url = url.rstrip("/").removesuffix("/v1")
        self.client = httpx.Client(
            base_url=self.url, headers=headers, timeout=PROBE_S, trust_env=False
        )

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

        try:
            answer = self.client.post(path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise EngineError(f"{self.url}{path} does not answer: {error}") from None
        try:
            return answer.raise_for_status().json()
        except (httpx.HTTPStatusError, ValueError):
            said = answer.text[:300].strip()
            raise EngineError(
                f"{self.url}{path} answered {answer.status_code}: {said or 'nothing'}"
            ) from None


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


def wait_ready(
    control: Control,
    engine: Engine,
    check: Callable[[], None],
    read_log: Callable[[], str],
    timeout_s: float,
) -> None:
    """Return once the probe answers 200 and the ready line stands in the log.

    ``check`` raises if the engine has died; EngineError after ``timeout_s``. A version of an engine
    may word its ready line differently, so after a while the probe alone is believed.
    """
    deadline = time.monotonic() + timeout_s
    answered: float | None = None
    while True:
        check()
        if answered is None and control.status(engine.probes.ready) == 200:
            answered = time.monotonic()
        if answered is not None and (
            re.search(engine.ready_line, read_log()) or time.monotonic() - answered > LINE_WAIT_S
        ):
            return
        if time.monotonic() > deadline:
            raise EngineError(
                f"not ready after {timeout_s:g} s: {engine.probes.ready} does not answer 200",
                "if it only needs longer, raise timeouts: {ready_s: ...}",
            )
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


def tokenize(control: Control, engine: Engine, served: str, text: str) -> list[int]:
    """Token ids of a text by the server's own tokenizer."""
    tokenizer = engine.dialect.tokenizer
    assert tokenizer is not None
    body = {"model": served, tokenizer.text_field: text, **tokenizer.extra}
    answer = control.post(tokenizer.path, body)
    try:
        return [int(token) for token in answer["tokens"]]
    except (TypeError, LookupError, ValueError):
        raise EngineError(f"{control.url}{tokenizer.path} returned no token ids") from None


def prompt_length(
    control: Control, engine: Engine, served: str, text: str, extra: Mapping[str, Any]
) -> int:
    """How many tokens the server counts in a text, by asking for a single token after it."""
    body = {**engine.body(served, text, 1), **extra, "stream": False, "stream_options": None}
    given = {name: value for name, value in body.items() if value is not None}
    answer = control.post(engine.dialect.path, given)
    try:
        return int(answer["usage"]["prompt_tokens"])
    except (TypeError, LookupError, ValueError):
        raise EngineError(f"{control.url} does not report how many tokens a prompt has") from None
