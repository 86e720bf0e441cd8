"""Any endpoint that already runs and speaks OpenAI's completions: a gateway, a hosted API."""

from kvroom.dialect import Dialect
from kvroom.engine import Engine, Probes

ENGINE = Engine(
    name="openai",
    summary="an OpenAI-shaped endpoint that already runs (url)",
    home=None,
    dialect=Dialect(extra={"ignore_eos": True}, optional=("ignore_eos", "stream_options")),
    probes=Probes(ready="/v1/models"),
)
