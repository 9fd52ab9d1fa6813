"""Start a run: pick a kind, fill the form or paste YAML, see the forecast, press Start. The form is ``runs_form``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import streamlit as st
import yaml
from pydantic import ValidationError

from app.kinds import KINDS, Kind, resolve_recipe
from app.runs import forecast, queue_run
from app.settings import get_settings
from app.views.runs_form import Form, title_of
from app.widgets.access import actor, get_store
from app.widgets.empty import no_such
from app.widgets.here import go_here, here_button
from app.widgets.live import live
from app.widgets.run_words import kind_title
from app.widgets.safe_text import escape_line
from app.widgets.when import ago
from db.errors import NotFoundError, StoreError
from engine.checkpoints import list_checkpoints
from engine.errors import RecipeError, StepWiserError
from engine.judge import prompt_names
from engine.labels import DEFAULT_RULES
from engine.recipes import Recipe, SampleRecipe, set_fields

MAX_YAML = 100_000
NOTHING = {
    "sample": "There is nothing to sample: this data set has no problems yet. Let new ones be written first.",
    "rollout": "There is nothing to roll out: no trajectory with more than one chunk fits. Sample some first.",
    "judge": "There is nothing to judge: no trajectory fits. Sample some first.",
}
STARTED = "new-started"
"""Session key: the run that Start queued, until its page is shown."""


def show_new(kind_name: str) -> None:
    """The page that starts a run of the kind that the address names."""
    if kind_name not in KINDS:
        st.error(
            f"There is no kind of run {escape_line(kind_name, limit=60)}; there are {', '.join(KINDS)}.",
            icon=":material/link_off:",
        )
        kind_name = next(iter(KINDS))
    here_button("All runs", {}, key="all-runs", icon=":material/arrow_back:")
    st.title("Start a run", anchor=False)
    st.session_state["new-kind"] = kind_name
    st.segmented_control(
        "What should it do?",
        list(KINDS),
        format_func=kind_title,
        key="new-kind",
        required=True,
        on_change=_choose_kind,
        label_visibility="collapsed",
    )
    kind = KINDS[kind_name]
    st.caption(kind.does)
    base = _base(kind)
    if base is not None:
        live(_launch, every=None)(Form(kind, base, _choices()))


def _choose_kind() -> None:
    go_here({"new": st.session_state["new-kind"]})


def _base(kind: Kind) -> dict[str, Any] | None:
    """Values that the form starts from: an earlier run's (``like``) and the address's ``set``; None if they are bad."""
    base: dict[str, Any] = {}
    if kind.name == "sample" and not get_store().count_problems(SampleRecipe().dataset):
        base = {"generate": {}}
    like = st.query_params.get("like")
    try:
        if like is not None:
            run = get_store().run(int(like)) if like.isdecimal() and len(like) < 19 else None
            if run is None:
                raise NotFoundError(like)
            if run.kind != kind.name:
                raise RecipeError(f"run {run.id} is of kind {run.kind}, this form makes {kind.name}")
            base = dict(run.recipe)
        base = set_fields(base, st.query_params.get_all("set"))
        resolve_recipe(kind.name, base)
    except NotFoundError:
        no_such("run", like or "")
        return None
    except RecipeError as error:
        st.error("The address gives values that this recipe cannot have:", icon=":material/link_off:")
        st.code(str(error), language=None, wrap_lines=True)
        here_button("The empty form", {"new": kind.name}, key="empty-form", icon=":material/edit_off:")
        return None
    return base


def _choices() -> dict[str, Mapping[Any, str]]:
    """What can be picked, from the store and from what is installed."""
    store = get_store()
    datasets = {name: name for name in store.datasets()}
    policies = {name: name for name in store.policies()}
    checkpoints = {name: name for name in list_checkpoints(get_settings().home)}
    made = {
        run.id: f"Run {run.id} · {kind_title(run.kind)} · {run.done:,} {run.unit} · {ago(run.created_at, run.now)}"
        for run in store.runs(30, kinds=["sample", "import"])
    }
    return {
        "dataset": datasets or {"nano": "nano"},
        "select.dataset": datasets,
        "select.policy": policies,
        "select.from_run": made,
        "llm.checkpoint": checkpoints,
        "base": checkpoints,
        "prompt": {name: name for name in prompt_names()},
        "labels.rule": {str(rule): str(rule) for rule in DEFAULT_RULES},
    }


def _launch(form: Form) -> None:
    """Form or YAML on the left; forecast and Start beside it. A fragment: a change here redraws only this."""
    left, right = st.columns([5, 2], gap="medium")
    with left:
        how = st.segmented_control(
            "How",
            ["Form", "YAML"],
            default="Form",
            key="new-how",
            required=True,
            label_visibility="collapsed",
            persist_state="session",
        )
        if how == "YAML":
            _yaml_editor(form)
        else:
            form.draw()
    with right, st.container(border=True):
        _start_box(form)
    if (started := st.session_state.get(STARTED)) is not None:
        go_here({"run": str(started)})
        st.rerun()


def _start_box(form: Form) -> None:
    token = st.session_state.setdefault("new-token", uuid4().hex)
    st.markdown(":material/schedule: **Forecast**")
    recipe = _checked(form)
    if recipe is not None:
        _forecast(recipe)
    st.button(
        f"Start: {kind_title(recipe.kind if recipe else form.kind.name).lower()}",
        key="new-start",
        type="primary",
        icon=":material/play_arrow:",
        width="stretch",
        disabled=recipe is None,
        on_click=_start,
        args=(form, token),
    )
    _worker_hint()
    if problem := st.session_state.pop("new-problem", None):
        st.error("It was not started:", icon=":material/error:")
        st.code(problem, language=None, wrap_lines=True)


def _worker_hint() -> None:
    if not get_store().worker_alive():
        st.caption(":material/warning: No worker is running, so it will wait. Start one: `stepwiser worker`")


def _data(form: Form) -> dict[str, Any]:
    """The recipe on screen, as plain data. Raises RecipeError."""
    if st.session_state.get("new-how") != "YAML":
        return {"kind": form.kind.name, **form.collect(st.session_state)}
    text = st.session_state.get(form.key("yaml"), "")
    if len(text) > MAX_YAML:
        raise RecipeError(f"the YAML has {len(text):,} characters; a recipe has at most {MAX_YAML:,}")
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"not YAML: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"a recipe is a mapping of fields, this is {type(data).__name__}")
    return {"kind": form.kind.name, **data}


def _kind_in(data: Mapping[str, Any]) -> str:
    return str(data["kind"])


def _checked(form: Form) -> Recipe | None:
    """The recipe on screen if a run can be started from it; otherwise says what is wrong with which field."""
    try:
        data = _data(form)
        recipe = resolve_recipe(_kind_in(data), data)
        recipe.check(get_settings().home)
    except RecipeError as error:
        _say_wrong(error)
    except StepWiserError as error:
        st.error("This recipe cannot be used here.", icon=":material/error:")
        st.code(str(error), language=None, wrap_lines=True)
    else:
        return recipe
    return None


def _say_wrong(error: RecipeError) -> None:
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        st.error("This recipe cannot be used.", icon=":material/error:")
        st.code(str(error), language=None, wrap_lines=True)
        return
    count = cause.error_count()
    st.error(f"{count} field{'s' if count > 1 else ''} cannot be used.", icon=":material/error:")
    for problem in cause.errors():
        path = ".".join(str(part) for part in problem["loc"]) or "recipe"
        why = "there is no such field" if problem["type"] == "extra_forbidden" else problem["msg"]
        st.text(f"{path}: {why}" if title_of(path).lower() == path else f"{title_of(path)} ({path}): {why}")


def _forecast(recipe: Recipe) -> None:
    try:
        found = forecast(get_store(), recipe.kind, recipe)
    except (StepWiserError, StoreError) as error:
        st.warning(escape_line(str(error), limit=400), icon=":material/warning:")
        return
    st.text(found.text)
    if found.count == 0:
        st.warning(NOTHING.get(recipe.kind, ""), icon=":material/warning:")


def _yaml_editor(form: Form) -> None:
    key = form.key("yaml")
    if key not in st.session_state:
        data = {"kind": form.kind.name, **form.collect(st.session_state)}
        st.session_state[key] = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    upload = f"{key}-file"
    st.file_uploader(
        "A recipe from a file", type=["yaml", "yml"], key=upload, on_change=_take_file, args=(upload, key)
    )
    st.text_area("Recipe (YAML)", key=key, height=420, persist_state="session")


def _take_file(upload: str, key: str) -> None:
    file = st.session_state.get(upload)
    if file is None:
        return
    try:
        st.session_state[key] = file.getvalue().decode("utf-8")
    except UnicodeDecodeError:
        st.session_state["new-problem"] = f"{file.name}: not UTF-8 text, so it cannot be a recipe"


def _start(form: Form, token: str) -> None:
    """Queue what is on screen, once: a second press of the same button shows the run that the first one queued."""
    runs = st.session_state.setdefault("new-runs", {})
    if token not in runs:
        try:
            data = _data(form)
            runs[token] = queue_run(get_store(), _kind_in(data), data, actor(), get_settings())
        except (StepWiserError, StoreError) as error:
            st.session_state["new-problem"] = str(error)
            return
    st.session_state["new-token"] = uuid4().hex
    st.session_state[STARTED] = runs[token]
