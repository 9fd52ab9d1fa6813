"""The laboratory's recipe: how much of everything. Light: the pages build a form from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine.recipes import Recipe

RuleName = Literal["rel-ratio", "abs-q", "rel-effective"]
Ablation = Literal["no-cot", "no-balance", "no-clip-higher", "all-labels", "after-errors", "blank-line"]
Comparison = Literal["search", "selection"]


class LabRecipe(Recipe):
    """Rerun the paper's comparisons in the nano world: judges under three rules, ablations, search, selection."""

    kind: Literal["lab"] = "lab"
    jobs: int = Field(2, ge=1, le=64, description="Runs side by side; each gets its share of the CPU cores")
    seeds: int = Field(
        3,
        ge=1,
        le=20,
        description="Trainings of every judge and policy, with seeds 1, 2, …; 1 gives no verdicts",
    )
    rules: tuple[RuleName, ...] = Field(
        ("rel-ratio", "abs-q", "rel-effective"),
        description="Label rules; the ablations, search and selection use rel-ratio",
    )
    ablations: tuple[Ablation, ...] = Field(
        ("no-cot", "no-balance", "no-clip-higher", "all-labels", "after-errors", "blank-line"),
        description="What is left out or changed, one thing at a time, on rel-ratio",
    )
    comparisons: tuple[Comparison, ...] = Field(
        ("search", "selection"), description="What the trained judges are then used for"
    )
    train_problems: int = Field(600, ge=4, description="Problems whose labels judges are trained on")
    held_out_problems: int = Field(
        120, ge=4, description="Other problems, whose labels judges are measured on"
    )
    n: int = Field(16, ge=2, description="Solutions sampled a training problem")
    per_problem: int = Field(2, ge=1, description="Of these, solutions that are rolled out")
    m: int = Field(16, ge=1, description="Rollouts a prefix for training labels")
    held_out_m: int = Field(
        256,
        ge=2,
        description="Solutions a held-out problem and rollouts a prefix: labels that are nearly the truth",
    )
    chunks: int = Field(400, ge=2, description="Held-out chunks a rule, balanced, that every judge reads")
    k: int = Field(8, ge=1, le=256, description="Judgments a held-out chunk")
    fresh_problems: int = Field(
        300, ge=4, description="Further problems, which search and fine-tuned policies are measured on"
    )
    fresh_n: int = Field(8, ge=1, description="Solutions of each of them")
    selection_problems: int = Field(
        300, ge=4, description="Training problems of which a solution is selected to fine-tune the policy on"
    )
    steps: int | None = Field(
        None,
        ge=1,
        description="At most this many optimizer steps a training; empty: as the shipped recipes say",
    )
    batch: int | None = Field(
        None,
        ge=1,
        description="At most this many prompts or examples a batch; empty: as the shipped recipes say",
    )

    @model_validator(mode="after")
    def _has_rel_ratio(self) -> LabRecipe:
        if "rel-ratio" not in self.rules:
            raise ValueError("rules must name rel-ratio: every other comparison is made under it")
        return self

    @property
    def parts(self) -> int:
        """How many runs that makes."""
        from app.lab.cells import lab_plan  # it needs the kinds of run, and this is one of them

        return len(lab_plan(self).parts)
