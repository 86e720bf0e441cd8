"""How an engine wants to be asked for a streamed, greedy answer of forced length."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Prompt = list[int] | str
Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """The engine's endpoint that turns text into token ids."""

    path: str
    text_field: str
    extra: Mapping[str, Any] = field(default_factory=dict)


def completion(model: str, prompt: Prompt, output_tokens: int) -> Body:
    """The body of OpenAI's completions."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def chat(model: str, prompt: Prompt, output_tokens: int) -> Body:
    """The body of OpenAI's chat completions, one message from the user."""
    message = {"role": "user", "content": prompt}
    asked = completion(model, prompt, output_tokens) | {"messages": [message]}
    del asked["prompt"]
    return asked


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way to ask one engine."""

    path: str = "/v1/completions"
    body: Callable[[str, Prompt, int], Body] = completion
    """Served model, prompt and output tokens -> the usual fields."""
    tokenizer: Tokenizer | None = None
    """Where prompts can be sent as token ids; without it they are sent as text."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields beside the usual ones."""
    forced_by: str | None = "ignore_eos"
    """The field that forces the length of the output; None where nothing does."""
    optional: tuple[str, ...] = ()
    """Fields that a server may refuse; they are then left out, and the record says so."""
    prompt_count: tuple[str, ...] = ("usage", "prompt_tokens")
    """Where an answer in one piece counts the prompt's tokens."""

    def request(self, model: str, prompt: Prompt, output_tokens: int) -> Body:
        """The whole body of one streamed answer."""
        return {**self.body(model, prompt, output_tokens), **self.extra}

    def forces_length(self, body: Mapping[str, Any]) -> bool:
        """Whether a body makes the engine write as many tokens as were asked for."""
        return self.forced_by is not None and bool(body.get(self.forced_by))

    def chatting(self) -> "Dialect":
        """The same engine asked through its chat endpoint, where prompts are text."""
        return Dialect(
            path="/v1/chat/completions",
            body=chat,
            extra={name: value for name, value in self.extra.items() if name != "return_token_ids"},
            forced_by=self.forced_by,
            optional=self.optional,
        )
