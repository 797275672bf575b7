"""What is wrong with a scenario or a sweep."""

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong."""

    file: str
    """The file; ``<dict>`` or ``<text>`` of what stands in none."""
    line: int
    """Its line, from 1; 0: the file as a whole, or a dict."""
    key: str
    """The path of the key, ``router.config.link.rate``; empty where there is none."""
    message: str
    """What is wrong, with the valid range or the nearest valid name."""


class ScenarioError(ValueError):
    """A scenario or a sweep is wrong. All that is wrong with it is told at once."""

    problems: list[Problem]

    def __init__(self, message: str, problems: Sequence[tuple[str, int, str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = [Problem(*problem) for problem in problems]

    @property
    def file(self) -> str | None:
        """The file of the first problem."""
        return self.problems[0].file if self.problems else None

    @property
    def line(self) -> int | None:
        """The line of the first problem."""
        return self.problems[0].line if self.problems else None

    @property
    def key(self) -> str | None:
        """The key of the first problem."""
        return self.problems[0].key if self.problems else None
