"""Stripewise: puts each part of each file where it is served fastest, on storage of fast and slow servers.

In Python: open the files of a pool (`open_pool`), `read` a trace or a log, look at its `files`, `frame` and
`signature`, `plan` layouts for a pool or a cluster that a file describes, `simulate` them, ask what to `advise`.
docs/api.md shows each. The command line (`stripewise --help`) is built on this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stripewise._native import StripewiseError, __version__

if TYPE_CHECKING:
    from stripewise.api.advice import Advice, advise
    from stripewise.api.comparison import Comparison, compare
    from stripewise.api.files import PoolFile, PoolFiles, open_pool
    from stripewise.api.plan import Plan, plan
    from stripewise.api.signature import Signature
    from stripewise.api.simulation import Simulation, simulate
    from stripewise.api.survey import Survey, survey
    from stripewise.api.trace import Trace, read

__all__ = [
    "Advice",
    "Comparison",
    "Plan",
    "PoolFile",
    "PoolFiles",
    "Signature",
    "Simulation",
    "StripewiseError",
    "Survey",
    "Trace",
    "__version__",
    "advise",
    "compare",
    "open_pool",
    "plan",
    "read",
    "simulate",
    "survey",
]

_LATER = {
    "Advice": "advice",
    "advise": "advice",
    "Comparison": "comparison",
    "compare": "comparison",
    "PoolFile": "files",
    "PoolFiles": "files",
    "open_pool": "files",
    "Plan": "plan",
    "plan": "plan",
    "Signature": "signature",
    "Simulation": "simulation",
    "simulate": "simulation",
    "Survey": "survey",
    "survey": "survey",
    "Trace": "trace",
    "read": "trace",
}
"""Where each name stands in `stripewise.api`, imported on first use: data frames take longer to load than a command."""


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _LATER:
        raise AttributeError(f"module 'stripewise' has no attribute '{name}'")
    value = getattr(import_module(f"stripewise.api.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
