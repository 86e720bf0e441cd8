"""Golden files: what people look at is kept beside the tests. ``UPDATE_GOLDEN=1 pytest`` renews."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    """The text equals the golden file of that name."""
    file = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{name} differs; UPDATE_GOLDEN=1 renews it"
