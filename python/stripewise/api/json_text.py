"""JSON as other programs read it: it has no word for a number that is none, or has no end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["json_text"]


def json_text(content: object, indent: int | None = None) -> str:
    """The content as JSON. A number that is not finite is `null`."""
    try:
        return json.dumps(content, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(content), indent=indent, allow_nan=False)


def _finite(of: Any) -> Any:  # noqa: ANN401
    """The same with nothing in the place of numbers that are not finite. O(all that is in it)."""
    if isinstance(of, float):
        return of if math.isfinite(of) else None
    if isinstance(of, Mapping):
        return {key: _finite(value) for key, value in of.items()}
    return [_finite(one) for one in of] if isinstance(of, list | tuple) else of
