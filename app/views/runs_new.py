"""Start a run: pick a kind and a recipe, fill the form or paste YAML, see the forecast, press Start.

The form is ``runs_form``, what can be chosen in it ``runs_choices``, the forecast's box ``runs_forecast``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import streamlit as st
import yaml
from pydantic import ValidationError

from app.kinds import KINDS, Kind, resolve_recipe
from app.runs import queue_run
from app.settings import get_settings
from app.shipped import shipped_for
from app.views.runs_choices import choices, start_points
from app.views.runs_explained import show_explained
from app.views.runs_fields import title_of
from app.views.runs_forecast import show_forecast
from app.views.runs_form import Form
from app.widgets.access import actor, get_store
from app.widgets.chrome import allowed
from app.widgets.empty import no_such
from app.widgets.here import go_here, here_button
from app.widgets.live import live
from app.widgets.plain_table import flat
from app.widgets.run_words import kind_groups, kind_title
from app.widgets.safe_text import escape_line
from db.errors import NotFoundError, StoreError
from engine.errors import RecipeError, StepWiserError
from engine.recipes import Recipe, SampleRecipe, set_fields

MAX_YAML = 100_000
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
    _pick_kind(kind_name)
    kind = KINDS[kind_name]
    st.caption(kind.does)
    _pick_recipe(kind)
    base = _base(kind)
    if base is not None:
        live(_launch, every=None)(Form(kind, base, choices(kind.name)))


def _pick_kind(kind_name: str) -> None:
    """Two rows: what it is about, and the kinds of that group."""
    groups = kind_groups()
    group = next(name for name, kinds in groups.items() if kind_name in kinds)
    st.session_state["new-group"], st.session_state["new-kind"] = group, kind_name
    st.segmented_control(
        "What is it about?",
        list(groups),
        key="new-group",
        required=True,
        on_change=_choose_group,
        label_visibility="collapsed",
    )
    st.segmented_control(
        "What should it do?",
        groups[group],
        format_func=kind_title,
        key="new-kind",
        required=True,
        on_change=_choose_kind,
        label_visibility="collapsed",
    )


def _choose_group() -> None:
    go_here({"new": kind_groups()[st.session_state["new-group"]][0]})


def _choose_kind() -> None:
    go_here({"new": st.session_state["new-kind"]})


def _pick_recipe(kind: Kind) -> None:
    """What the form starts from: its defaults, a recipe that comes with the program, or an earlier run."""
    query = st.query_params
    chosen = (
        f"recipe={query['recipe']}"
        if "recipe" in query
        else f"like={query['like']}"
        if "like" in query
        else ""
    )
    points = start_points(kind.name)
    if chosen and chosen not in points:
        points[chosen] = chosen.partition("=")[2][:60]
    if len(points) == 1:
        return
    st.session_state["new-from"] = chosen
    st.selectbox(
        "Start from",
        list(points),
        key="new-from",
        format_func=points.__getitem__,
        on_change=_choose_recipe,
        args=(kind.name,),
        help="A recipe that comes with the program, or the recipe of an earlier run; every field can be changed below",
    )
    if (shipped := shipped_for(kind.name).get(query.get("recipe", ""))) and shipped.about:
        st.caption(escape_line(shipped.about, limit=600))


def _choose_recipe(kind: str) -> None:
    name, sign, value = st.session_state["new-from"].partition("=")
    go_here({"new": kind} | ({name: value} if sign else {}))


def _base(kind: Kind) -> dict[str, Any] | None:
    """Values that the form starts from: a shipped recipe's (``recipe``) or an earlier run's (``like``), and on top the
    address's ``set``; None if they are bad."""
    like = st.query_params.get("like")
    try:
        base = set_fields(_begun(kind, like), st.query_params.get_all("set"))
        _refuse_wrong_fields(kind, base)
    except NotFoundError:
        no_such("run", like or "")
        return None
    except RecipeError as error:
        st.error("The address gives values that this recipe cannot have:", icon=":material/link_off:")
        st.code(str(error), language=None, wrap_lines=True)
        here_button("The empty form", {"new": kind.name}, key="empty-form", icon=":material/edit_off:")
        return None
    return base


def _refuse_wrong_fields(kind: Kind, base: dict[str, Any]) -> None:
    """Raise RecipeError for a field that is wrong by itself; what is still missing can be filled in on the form."""
    try:
        resolve_recipe(kind.name, base)
    except RecipeError as error:
        cause = error.__cause__
        if not isinstance(cause, ValidationError) or any(problem["loc"] for problem in cause.errors()):
            raise


def _begun(kind: Kind, like: str | None) -> dict[str, Any]:
    """The data that the form begins with. Raises NotFoundError, RecipeError."""
    name = st.query_params.get("recipe")
    if like is not None:
        if not like.isdecimal() or len(like) > 18:
            raise NotFoundError(like)
        run = get_store().run(int(like))
        if run.kind != kind.name:
            raise RecipeError(f"run {run.id} is of kind {run.kind}, this form makes {kind.name}")
        return dict(run.recipe)
    if name is not None:
        shipped = shipped_for(kind.name)
        if name not in shipped:
            raise RecipeError(
                f"no recipe {name!r} of kind {kind.name} comes with the program; there are {', '.join(shipped) or 'none'}"
            )
        return dict(shipped[name].data)
    if kind.name == "sample" and not get_store().count_problems(SampleRecipe().dataset):
        return {"generate": {}}
    return {}


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
            on_change=_change_how,
            args=(form,),
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


def _change_how(form: Form) -> None:
    """Carry what is on screen over: the form's values into the YAML, or the YAML's into the form if they are sound."""
    if st.session_state["new-how"] == "YAML":
        st.session_state[form.key("yaml")] = _as_yaml(form)
        return
    try:
        data = _parsed_yaml(form)
        resolve_recipe(form.kind.name, data)
        form.fill(st.session_state, data)
    except RecipeError:
        st.session_state["new-how"] = "YAML"
        st.session_state["new-problem"] = (
            f"This YAML is no recipe that the form of the kind {form.kind.name!r} can show: see what is wrong above"
        )


def _as_yaml(form: Form) -> str:
    data = {"kind": form.kind.name, **form.collect(st.session_state)}
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def _start_box(form: Form) -> None:
    token = st.session_state.setdefault("new-token", uuid4().hex)
    st.markdown(":material/schedule: **Forecast**")
    recipe = _checked(form)
    if recipe is not None:
        show_forecast(recipe)
        show_explained(recipe)
    may = allowed("owner", "Starting a run")
    st.button(
        f"Start: {kind_title(recipe.kind if recipe else form.kind.name).lower()}",
        key="new-start",
        type="primary",
        icon=":material/play_arrow:",
        width="stretch",
        disabled=recipe is None or not may,
        on_click=_start,
        args=(form, token),
    )
    _worker_hint()
    if recipe is not None:
        _download(recipe)
    if problem := st.session_state.pop("new-problem", None):
        st.error("It was not started:" if "YAML" not in problem else "Still YAML:", icon=":material/error:")
        st.code(problem, language=None, wrap_lines=True)


def _download(recipe: Recipe) -> None:
    """What would run, with every field, as a file that ``stepwiser run`` and this page take."""
    text = yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    st.download_button(
        "What would run (YAML)",
        text,
        file_name=f"{recipe.kind}.yaml",
        mime="application/yaml",
        icon=":material/download:",
        type="tertiary",
        on_click="ignore",
        help="The whole recipe, every field with its value. On the command line: "
        f"stepwiser run {recipe.kind} --recipe {recipe.kind}.yaml",
    )


def _worker_hint() -> None:
    if not get_store().worker_alive():
        st.caption(":material/warning: No worker is running, so it will wait. Start one: `stepwiser worker`")


def _data(form: Form) -> dict[str, Any]:
    """The recipe on screen, as plain data. Raises RecipeError."""
    if st.session_state.get("new-how") != "YAML":
        return {"kind": form.kind.name, **form.collect(st.session_state)}
    data = _parsed_yaml(form)
    return {"kind": form.kind.name, **data}


def _parsed_yaml(form: Form) -> dict[str, Any]:
    """The mapping in the YAML editor. Raises RecipeError."""
    text = st.session_state.get(form.key("yaml"), "")
    if len(text) > MAX_YAML:
        raise RecipeError(f"the YAML has {len(text):,} characters; a recipe has at most {MAX_YAML:,}")
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none, 2026-13-01
        raise RecipeError(f"not YAML: {error}") from error
    if not isinstance(data, dict):
        raise RecipeError(f"a recipe is a mapping of fields, this is {type(data).__name__}")
    return data


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
        where = field_in(str(error), data)
        st.error(
            f"{where} cannot be used here." if where else "This recipe cannot be used here.",
            icon=":material/error:",
        )
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


def field_in(message: str, data: Mapping[str, Any]) -> str:
    """The field whose value a message quotes, in words and with its path; empty where none is quoted."""
    for path, value in flat(data).items():
        if isinstance(value, str) and path != "kind" and repr(value) in message:
            return f"{title_of(path)} ({path})"
    return ""


def _yaml_editor(form: Form) -> None:
    key = form.key("yaml")
    if key not in st.session_state:
        st.session_state[key] = _as_yaml(form)
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
