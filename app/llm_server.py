"""``stepwiser llm-server``: this process becomes a vLLM server that fits the server door. Not: the door's own side."""

from __future__ import annotations

import os
import shlex

from rich.console import Console
from rich.text import Text

from app.settings import Settings
from engine.checkpoints import resolve_checkpoint
from engine.llm import LLMSpec
from engine.llm.checkpoint import check_checkpoint
from engine.llm.server_start import server_command, server_environment
from engine.recipes import resolve, set_fields


def serve(
    settings: Settings,
    checkpoint: str,
    host: str,
    port: int,
    assignments: list[str],
    show: bool,
    console: Console,
) -> None:
    """Replace this process by the server, or with ``show`` print what would be started.

    Raises CheckpointError for a checkpoint that is not there and RecipeError for a field the door does not have.
    """
    path = resolve_checkpoint(checkpoint, settings.home)
    fields = set_fields({"checkpoint": str(path), "name": checkpoint}, assignments)
    spec = resolve(LLMSpec, fields)
    info = check_checkpoint(path)
    command = server_command(spec, info, host, port)
    if show:
        extra = server_environment(spec, info, {})
        console.print(
            Text(shlex.join(["env", *(f"{k}={v}" for k, v in extra.items()), *command])), soft_wrap=True
        )
        return
    os.execve(command[0], command, server_environment(spec, info, os.environ))
