"""Scenarios and sweeps of Evenkeel in virtual time, results as Arrow tables.

>>> import evenkeel
>>> result = evenkeel.run("scenarios/latency/pdrr.toml")
>>> result.passed
True

A scenario is a path, a text in TOML of several lines, or a dict with the same keys. The same
scenario and seed give the same bytes as the command ``evenkeel sim`` does. Disciplines of one's
own are written in Rust.
"""

from ._errors import Problem, ScenarioError
from ._evenkeel import (
    VERSION,
    Expectation,
    Result,
    SweepResult,
    Table,
    merge,
    run,
    run_seeds,
    sweep,
)

__version__ = VERSION

__all__ = [
    "Expectation",
    "Problem",
    "Result",
    "ScenarioError",
    "SweepResult",
    "Table",
    "merge",
    "run",
    "run_seeds",
    "sweep",
]
