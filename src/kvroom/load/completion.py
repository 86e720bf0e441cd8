"""Events of a streamed answer -> tokens, text, usage, errors.

Completions, chat, and the lines of Ollama's own endpoint alike. An event counts as one with tokens
if text, reasoning, token ids or a call of a tool are in it: the first event of a chat, which only
names a role, does not, and neither does one that only carries usage.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from kvroom.load.wire import Answer, Event, Unreadable

DONE = b"[DONE]"
SHOWN = 300
"""How much of an error's text is kept."""


class Delta(msgspec.Struct, gc=False):
    """The moving part of a chat event."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None


class Choice(msgspec.Struct, gc=False):
    """One choice of an event."""

    text: str | None = None
    delta: Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts by the server."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Message(msgspec.Struct, gc=False):
    """The JSON of one event."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    response: str | None = None
    """Ollama's text."""
    thinking: str | None = None
    done: bool | None = None
    """Ollama's end; its counts come with it."""
    prompt_eval_count: int | None = None
    eval_count: int | None = None


class Said(msgspec.Struct, kw_only=True):
    """What a streamed completion said."""

    token_events: list[int] = []
    """Indices of the events that carried tokens."""
    token_ids: list[int] = []
    """How many token ids each of those carried; zero where the server sends none."""
    text: str = ""
    finished: bool = False
    """Whether a reason to finish, or the end mark, came."""
    usage: Usage | None = None
    error: str | None = None


_decode = msgspec.json.Decoder(Message).decode


def read_completion(events: Sequence[Event]) -> Said:
    """The meaning of the events; Unreadable if one is not JSON of the expected shape."""
    said = Said()
    texts: list[str] = []
    for index, event in enumerate(events):
        if event.data == DONE:
            said.finished = True
            break
        message = _message(event)
        if message.error is not None:
            said.error = _error_text(message.error)
            break
        said.usage = message.usage or said.usage
        if message.done is not None:
            _read_ollama(index, message, said, texts)
        for choice in message.choices or ():
            text, ids = _text(choice), len(choice.token_ids or ())
            if text or ids or (choice.delta and choice.delta.tool_calls):
                said.token_events.append(index)
                said.token_ids.append(ids)
                texts.append(text)
            said.finished = said.finished or choice.finish_reason is not None
    said.text = "".join(texts)
    return said


def _read_ollama(index: int, message: Message, said: Said, texts: list[str]) -> None:
    """An event of Ollama's own endpoint, which has neither choices nor usage."""
    if text := (message.thinking or "") + (message.response or ""):
        said.token_events.append(index)
        said.token_ids.append(0)
        texts.append(text)
    if message.done:
        said.finished = True
        said.usage = Usage(message.prompt_eval_count, message.eval_count)


def _message(event: Event) -> Message:
    if not event.data.strip():
        return Message()
    if event.name == b"error":
        return Message(error=event.data.decode("utf-8", errors="replace"))
    try:
        return _decode(event.data)
    except msgspec.DecodeError as error:
        raise Unreadable(f"an event that cannot be read: {error}") from None


def _text(choice: Choice) -> str:
    delta = choice.delta
    if delta is None:
        return choice.text or ""
    return (delta.reasoning or delta.reasoning_content or "") + (delta.content or "")


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error
    return str(error)[:SHOWN]


def refusal(answer: Answer) -> str:
    """What a server that answered with another status than 200 said."""
    try:
        said = msgspec.json.decode(answer.body)
        text = _error_text(said.get("error", said) if isinstance(said, dict) else said)
    except msgspec.DecodeError:
        text = answer.body[:SHOWN].decode("utf-8", errors="replace").strip()
    return f"HTTP {answer.status}: {text or answer.reason}"
