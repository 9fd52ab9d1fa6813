"""Ray's job server over HTTP: submit, follow, stop. Ray itself need not be installed here for it.

The routes are those of Ray's documented REST API for jobs, and its list of nodes. Not: which run becomes a job (``app.cluster_run``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from engine.errors import RunError

ANSWER_S = 15.0
MOST_NODES = 10_000  # Ray's own limit of its list
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class NoAnswerError(RunError):
    """The job server cannot be reached, or not now."""


@dataclass(frozen=True)
class JobState:
    """``status``: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED; ``message``: Ray's words, not to be trusted."""

    status: str
    message: str

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class JobServer:
    """The job server at ``address``. Every method raises RunError, and NoAnswerError where it says nothing."""

    def __init__(self, address: str, token: str):
        self.address, self.token = address, token

    def wants_token(self) -> bool:
        """Whether a question without a token is refused."""
        return self._ask("GET", "/api/jobs/", token="").status_code in (401, 403)

    def version(self) -> str:
        """Ray's version there."""
        return str(self._json("GET", "/api/version").get("ray_version", "unknown"))

    def gpus(self) -> float:
        """GPUs of all nodes together."""
        answer = self._json("GET", f"/api/v0/nodes?detail=true&limit={MOST_NODES}")
        try:
            nodes = answer["data"]["result"]["result"]
            return float(
                sum((n["resources_total"] or {}).get("GPU", 0) for n in nodes if n["state"] == "ALIVE")
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"Ray cluster {self.address}: its list of nodes cannot be read ({error!r})"
            ) from error

    def submit(
        self,
        job: str,
        entrypoint: str,
        env: Mapping[str, str],
        about: Mapping[str, str],
        *,
        gpus: int = 0,
        on_head: bool = False,
    ) -> None:
        """Start ``entrypoint`` as ``job``: on the head node, or where ``gpus`` are free unless it must be the head."""
        data: dict[str, Any] = {
            "submission_id": job,
            "entrypoint": entrypoint,
            "runtime_env": {"env_vars": dict(env)},
            "metadata": dict(about),
        }
        if gpus:
            data["entrypoint_num_gpus"] = gpus
        if on_head:
            data["entrypoint_resources"] = {"node:__internal_head__": 0.001}
        self._json("POST", "/api/jobs/", data)

    def state(self, job: str) -> JobState:
        found = self._json("GET", f"/api/jobs/{job}")
        return JobState(str(found.get("status")), str(found.get("message") or ""))

    def log(self, job: str) -> str:
        """What the job has printed so far."""
        return str(self._json("GET", f"/api/jobs/{job}/logs").get("logs") or "")

    def stop(self, job: str) -> None:
        """Have it asked to end, and ended some seconds later."""
        self._json("POST", f"/api/jobs/{job}/stop")

    def _json(self, method: str, path: str, data: Any = None) -> dict[str, Any]:
        answer = self._ask(method, path, data, self.token)
        if answer.status_code in (401, 403):
            raise RunError(
                f"Ray cluster {self.address}: it refuses the token; take that of the cluster's head node"
            )
        if answer.status_code >= 500:
            raise NoAnswerError(
                f"Ray cluster {self.address}: {path} answered {answer.status_code}: {_said(answer)}"
            )
        try:
            if answer.status_code == 200 and isinstance(found := answer.json(), dict):
                return found
        except json.JSONDecodeError:
            pass
        raise RunError(
            f"Ray cluster {self.address}: {path} answered {answer.status_code}: {_said(answer)}; is this the address "
            "of a job server (the dashboard's, port 8265 by default)?"
        )

    def _ask(self, method: str, path: str, data: Any = None, token: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            with httpx.Client(base_url=self.address, timeout=ANSWER_S, trust_env=False) as client:
                return client.request(method, path, json=data, headers=headers)
        except httpx.HTTPError as error:
            raise NoAnswerError(
                f"Ray cluster {self.address}: it does not answer ({type(error).__name__}: {error}); is its head node "
                "up (`ray start --head --dashboard-host …`) and the address that of the dashboard?"
            ) from error


def _said(answer: httpx.Response) -> str:
    text = "".join(sign if sign.isprintable() else " " for sign in answer.text[:1000])
    return text.strip()[-300:]
