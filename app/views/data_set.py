"""One frozen set: its manifest in numbers and pictures, how it was made, its files, and what to train on it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import streamlit as st
import yaml

from app.settings import get_settings
from app.views.data_export import set_downloads
from app.views.data_preview import waterfall_steps
from app.views.data_sets import FORMS
from app.widgets.charts import CONFIG, Slice, share_bars
from app.widgets.here import here_button
from app.widgets.safe_text import code, escape_line
from app.widgets.set_charts import balance_by_position, waterfall
from app.widgets.when import ago, stamp
from engine.errors import StepWiserError
from training.sets import Manifest, read_manifest

TRAINERS = {
    "judge": {
        "train-judge": "Train a judge on it",
        "train-judge-rsft": "Fine-tune a judge on its right verdicts",
    },
    "turns": {"train-judge-sft": "Train a judge on it"},
    "completion": {"train-sft": "Fine-tune on it"},
}
PART_WORDS = {"train": "to train on", "held_out": "held out"}


def show_set(name: str) -> None:
    """The page of the set called ``name``; an unknown name gets a named error."""
    here_button("All sets", {}, key="all-sets", icon=":material/arrow_back:")
    try:
        manifest = read_manifest(get_settings().home, name)
    except StepWiserError as error:
        st.error(escape_line(str(error), limit=600), icon=":material/link_off:")
        return
    st.markdown(f"## {escape_line(manifest.name, limit=100)}", anchors=False)
    st.caption(
        f"{FORMS.get(manifest.form, 'Prompt and completion')} · frozen {ago(manifest.made_at)} "
        f"({stamp(manifest.made_at)}) · hash {code(manifest.hash[:16])} · never changed since"
    )
    _ways_on(manifest)
    _numbers(manifest)
    left, right = st.columns(2, gap="medium")
    with left:
        _left_out(manifest)
        _people(manifest)
        _origin(manifest)
    with right:
        _positions(manifest)
    st.markdown("**Take it elsewhere**")
    set_downloads(manifest)
    _how_made(manifest)


def _ways_on(manifest: Manifest) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        for kind, words in TRAINERS[manifest.form].items():
            st.page_link(
                "views/runs.py",
                label=words,
                icon=":material/model_training:",
                query_params={"new": kind, "set": f"set={json.dumps(manifest.name)}"},
            )
        if manifest.run_id is not None:
            st.page_link(
                "views/runs.py",
                label=f"Made by run {manifest.run_id}",
                icon=":material/play_circle:",
                query_params={"run": str(manifest.run_id)},
            )


def _numbers(manifest: Manifest) -> None:
    values = {
        "To train on": f"{manifest.files['train.jsonl'].rows:,}",
        "Held out": f"{manifest.files['held_out.jsonl'].rows:,}",
        "Problems": f"{manifest.problems.get('train', 0):,} + {manifest.problems.get('held_out', 0):,}",
    }
    labels = manifest.from_people + manifest.from_rule + manifest.from_judge
    if labels:
        values["From people"] = f"{manifest.from_people / labels:.0%}"
    values |= {
        name.replace("_", " ").capitalize(): f"{value:.3g}" for name, value in manifest.measures.items()
    }
    with st.container(horizontal=True):
        for name, value in values.items():
            st.metric(escape_line(name, limit=40), value, width=128)
    if alike := manifest.problems.get("near_duplicates"):
        st.caption(f"{alike:,} problems stay with another that is nearly the same, on one side of the split.")


def _left_out(manifest: Manifest) -> None:
    if "chunks" not in manifest.counts or not manifest.classes:
        return
    st.markdown("**What was left out, and why**")
    steps = waterfall_steps(manifest.counts)
    said = "; ".join(f"{step.name} {'−' if step.loss else ''}{step.count}" for step in steps)
    st.plotly_chart(waterfall(steps), key="set-waterfall", config=CONFIG, alt=said)
    over = (manifest.counts.get("too_long_positive", 0), manifest.counts.get("too_long_negative", 0))
    if any(over):
        st.caption(f"Too long: {over[0]:,} labelled + and {over[1]:,} labelled −.")


def _people(manifest: Manifest) -> None:
    labels = {"people": manifest.from_people, "rule": manifest.from_rule, "judge": manifest.from_judge}
    if not any(labels.values()):
        return
    st.markdown("**Who gave the labels**")
    st.plotly_chart(
        share_bars(
            {"labels": labels},
            (
                Slice("people", "a person", "line"),
                Slice("rule", "the rule", "quiet"),
                *([Slice("judge", "a judge's vote", "warn")] if manifest.from_judge else []),
            ),
        ),
        key="set-people",
        config=CONFIG,
        alt=f"{manifest.from_people} labels from people, {manifest.from_rule} from the rule"
        + (f", {manifest.from_judge} from a judge's votes" if manifest.from_judge else ""),
    )


def _positions(manifest: Manifest) -> None:
    for part, rows in manifest.positions.items():
        if rows:
            words = PART_WORDS.get(part, part)
            st.markdown(f"**+ and − by position, {words}**")
            st.plotly_chart(
                balance_by_position({words: rows}),
                key=f"set-positions-{part}",
                config=CONFIG,
                alt="; ".join(f"chunk {row.position}: {row.positive} +, {row.negative} −" for row in rows),
            )


def _origin(manifest: Manifest) -> None:
    for what, counts in (("Data set", manifest.datasets), ("Policy", manifest.policies)):
        if counts:
            st.markdown(
                f"{what}: " + ", ".join(f"{code(name)} {count:,} labels" for name, count in counts.items())
            )


def _how_made(manifest: Manifest) -> None:
    with st.expander("How it was made, and its files"):
        left, right = st.columns([3, 2])
        with left:
            st.caption("Resolved recipe: the same recipe on the same store makes the same rows")
            st.code(
                yaml.safe_dump(dict(manifest.recipe), sort_keys=False, allow_unicode=True).rstrip(),
                language="yaml",
                wrap_lines=True,
            )
        with right:
            st.caption("Files, checked against these hashes whenever the set is read")
            lines = [
                f"{file}\n  {rows.rows:,} rows, {rows.bytes:,} bytes\n  sha256 {rows.sha256}"
                for file, rows in manifest.files.items()
            ]
            st.code("\n".join(lines), language=None, wrap_lines=True)
            st.caption("Counts")
            st.code(_table(manifest.counts), language=None)
            if manifest.prompt_hash:
                st.caption(f"Prompt of the judge, by the hash of its wording: {code(manifest.prompt_hash)}")


def _table(counts: Mapping[str, int]) -> str:
    width = max((len(name) for name in counts), default=0)
    return "\n".join(f"{name.replace('_', ' '):<{width}}  {count:,}" for name, count in counts.items())
