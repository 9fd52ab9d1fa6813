"""Every error class of the engine, one per boundary. A message says what was received, where, and what to do."""

from __future__ import annotations


class StepWiserError(Exception):
    """Base of all errors whose message is meant for the user."""


class InputError(StepWiserError):
    """A file, line or field that cannot be used.

    ``file``, ``line`` (1-based) and ``item_id`` say where, as far as they are known; they are part of the message.
    """

    def __init__(
        self, reason: str, *, file: str | None = None, line: int | None = None, item_id: str | None = None
    ):
        self.reason, self.file, self.line, self.item_id = reason, file, line, item_id
        place = ":".join(str(part) for part in (file, line) if part is not None)
        where = ", ".join(part for part in (place, f"id {item_id!r}" if item_id is not None else "") if part)
        super().__init__(f"{where}: {reason}" if where else reason)


class ChunkError(StepWiserError):
    """A text whose chunk tags are unclosed, nested or stray; ``position`` is a character offset."""

    def __init__(self, reason: str, position: int):
        self.reason, self.position = reason, position
        super().__init__(f"{reason} at character {position}")


class RecipeError(StepWiserError):
    """A recipe with an unknown, missing or impossible field."""


class CheckpointError(StepWiserError):
    """A checkpoint folder that is missing, incomplete, unsafe or cannot be loaded."""


class LLMError(StepWiserError):
    """A language model that failed while working."""


class PromptTooLongError(LLMError):
    """A prompt that leaves no room for an answer in the context."""

    def __init__(self, request_id: str, n_tokens: int, context: int):
        self.request_id, self.n_tokens, self.context = request_id, n_tokens, context
        super().__init__(
            f"request {request_id!r}: the prompt has {n_tokens} tokens and the context holds {context}; "
            "shorten the problem or use a checkpoint with a longer context"
        )


class GraderError(StepWiserError):
    """The grading workers cannot be started or keep dying."""


class TrainingError(StepWiserError):
    """A training set that cannot be trained on, a checkpoint name that is taken, or a loss that became NaN."""


class RunError(StepWiserError):
    """A run that cannot be started, stopped or resumed as asked."""


class ReviewError(StepWiserError):
    """A review that cannot be stored: stale card, unknown chunk, verdict out of range."""
