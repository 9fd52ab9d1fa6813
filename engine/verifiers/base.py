"""The signature that every verifier has. A verifier is a module; the modules are listed in ``engine.verifiers``."""

from __future__ import annotations

from typing import Literal, Protocol

Comparison = Literal["correct", "wrong"]


class Verifier(Protocol):
    """How solutions of one sort are checked: what their answer is, and whether it fits the reference.

    References are texts, as they lie in ``Problem.answer``; ``reference_problem`` says which texts may be one.
    """

    WHOLE: bool
    """Whether the answer may begin before a rollout does, in the prefix: then both are read together."""

    def extract(self, text: str) -> str | None:
        """The answer that a solution gives; None: none is found (outcome ``unparsed``)."""

    def kept(self, answer: str) -> str:
        """What is stored and shown as the solution's answer."""

    def compare_here(self, answer: str, reference: str) -> Comparison | None:
        """The comparison, where it takes microseconds and cannot go wrong; None: it takes ``compare``."""

    def compare(self, answer: str, reference: str) -> Comparison:
        """The comparison, in a grading process. Raises InputError for a reference that cannot be used, and GraderError
        where nothing can be said (outcome ``error``)."""

    def limit_s(self, reference: str, usual: float) -> float:
        """Seconds after which a grading process that still compares is killed; ``usual``: the Grader's own limit."""

    def reference_problem(self, reference: str) -> str | None:
        """Why this text cannot serve as a reference; None if it can."""

    def words(self, reference: str) -> str:
        """The reference in one line for a reader."""

    def refusal(self) -> str | None:
        """Why this machine cannot verify so, and what to do; None if it can."""
