"""An explanation in a sentence for each contender, and as data."""

from collections.abc import Iterator
from typing import Any

import msgspec

from kvroom.explain.explain import Explanation
from kvroom.explain.finding import Forecast
from kvroom.explain.whole import Whole


def reasons(whole: Whole) -> Iterator[str]:
    """A sentence for each contender: its first finding, and the first change."""
    for one in whole.contenders:
        found, changes = one.explanation.findings, one.explanation.changes
        if not found:
            continue
        text = f"{one.contender}: {found[0].cause}: {found[0].claim}."
        change = next((change for change in changes if change.to), None)
        if change is not None:
            expected = (
                f", {forecast_text(change.tokens_per_s)} expected" if change.tokens_per_s else ""
            )
            text += f" Change {change.setting} from {change.now or 'its default'} to {change.to}"
            text += f"{expected}."
        yield text


def forecast_text(span: Forecast) -> str:
    """``225 tok/s (150 to 330)``."""
    return f"{span.likely:,.0f} tok/s ({span.low:,.0f} to {span.high:,.0f})"


def run_data(whole: Whole) -> Any:
    """The explanation of a run as plain values."""
    data = msgspec.to_builtins(whole, enc_hook=_plain)
    for one, plain in zip(whole.contenders, data["contenders"], strict=True):
        plain["explanation"] = explanation_data(one.explanation)
    return data


def explanation_data(one: Explanation) -> Any:
    """The same as plain values, for ``--json``."""
    data = msgspec.to_builtins(one, enc_hook=_plain)
    for finding, plain in zip(one.findings, data["findings"], strict=True):
        plain["quotes"] = [
            {"source": str(quote.source), "text": quote.text} for quote in finding.quotes
        ]
    return data


def _plain(value: Any) -> int:
    """Sizes are numbers of bytes."""
    return int(value)
