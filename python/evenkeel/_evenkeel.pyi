"""The compiled half of the package."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, final

__all__ = [
    "VERSION",
    "Expectation",
    "Result",
    "SweepResult",
    "Table",
    "merge",
    "run",
    "run_seeds",
    "sweep",
]

VERSION: str

_Scenario: TypeAlias = str | PathLike[str] | dict[str, Any]

@final
class Table:
    """Rows of one kind, by the Arrow PyCapsule interface.

    ``pyarrow.table(t)`` and ``polars.DataFrame(t)`` use the memory of the table as it is.
    """

    def __len__(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    def describe(self) -> list[tuple[str, str, str]]:
        """Name, unit and meaning of each column."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Expectation:
    """A claim of the scenario, judged."""

    @property
    def name(self) -> str: ...
    @property
    def claim(self) -> str: ...
    @property
    def expression(self) -> str: ...
    @property
    def verdict(self) -> str:
        """``holds``, ``fails``, ``undecided``, ``not_judged``, ``not_reproduced``, and with a
        mechanism switched off ``fails_without``, ``holds_without``."""
    @property
    def failed(self) -> bool:
        """Whether it fails the run."""
    @property
    def measured(self) -> list[tuple[str, float | None]]:
        """The terms of the expression and their numbers; None: not measured."""
    @property
    def note(self) -> str: ...

@final
class Result:
    """What came out of one run."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def without(self) -> str | None:
        """The mechanism that was switched off."""
    @property
    def passed(self) -> bool:
        """Whether all claims came out as they should and nothing is unexplained."""
    @property
    def expectations(self) -> list[Expectation]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def samples(self) -> Table:
        """A row per class, link and window: ``samples.csv``, unrounded."""
    @property
    def flows(self) -> Table:
        """A row per flow: ``flows.csv``, unrounded."""
    @property
    def connections(self) -> Table:
        """A row per TCP connection and window, with ``connections=True``."""
    @property
    def subscribers(self) -> Table:
        """A row per subscriber, link and step."""
    @property
    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` holds."""
    def to_html(self) -> str:
        """The page, whole."""
    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Writes what ``evenkeel sim --out`` writes; returns the files, the page last."""

@final
class SweepResult:
    """What is there of a sweep."""

    @property
    def tasks(self) -> int:
        """Runs of the whole sweep."""
    @property
    def missing(self) -> list[int]:
        """Numbers of those that are not there."""
    @property
    def kept(self) -> int:
        """Runs that were there before."""
    @property
    def new(self) -> int:
        """Runs made now."""
    @property
    def failed(self) -> list[str]:
        """Runs that could not be simulated: which and why."""
    @property
    def folder(self) -> Path: ...
    @property
    def files(self) -> list[Path]: ...
    @property
    def measures(self) -> Table:
        """A row per run: its point of the grid, its seed, what was measured."""
    @property
    def results(self) -> Table:
        """A row per run, step, link and class."""

def run(
    scenario: _Scenario,
    *,
    seed: int | None = None,
    without: str | None = None,
    time_scale: float = 1.0,
    connections: bool = False,
    capture: Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
) -> Result:
    """Runs a scenario once.

    ``seed`` takes the place of the scenario's; ``without`` names a ``[[without]]`` to apply;
    ``connections`` looks at each TCP connection after each window; ``capture`` writes what comes
    out of wires (``["r1/r2"]``) into ``out``, where all results go if it is given.

    Raises ScenarioError, and OSError where results cannot be written.
    """

def run_seeds(
    scenario: _Scenario,
    seeds: int | Iterable[int],
    *,
    jobs: int = 0,
    without: str | None = None,
    time_scale: float = 1.0,
    connections: bool = False,
    capture: Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
) -> list[Result]:
    """Runs a scenario with several seeds, ``jobs`` at the same time (0: one per core).

    ``seeds`` is a number, counted from the scenario's seed, or the seeds. With ``out`` each run is
    written into ``out/seed-N`` as soon as it is done: Ctrl-C keeps those.
    """

def sweep(
    sweep: _Scenario,
    out: str | PathLike[str],
    *,
    jobs: int = 0,
    shard: str | None = None,
) -> SweepResult:
    """Runs what is not yet there of a sweep, into ``out``, and puts it together.

    ``shard`` is a part of it, ``"3/8"``. Ctrl-C finishes the runs in flight; the same call goes on.
    """

def merge(folders: Sequence[str | PathLike[str]], out: str | PathLike[str]) -> SweepResult:
    """Puts parts of a sweep together."""
