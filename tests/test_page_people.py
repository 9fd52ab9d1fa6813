"""The People page's script: who you are, roles set by an owner, the audit list; a reader is offered nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.settings import get_settings
from app.widgets.safe_text import JOINER
from db.store import Store
from tests.page_support import Open, page_at
from tests.store_world import add_problem, add_trajectory, fresh_store

AUTH = {"redirect_uri": "http://localhost/oauth2callback"}
GRACE = {"is_logged_in": True, "sub": "17", "iss": "https://login.example.org", "name": "Grace"}
SIGNS_AS = "17 @ https://login.example.org"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with fresh_store("sqlite", tmp_path) as store:
        monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
        monkeypatch.setenv("STEPWISER_DATABASE_URL", str(store.engine.url))
        monkeypatch.setenv("STEPWISER_ACTOR", "rosa")
        get_settings.cache_clear()
        yield store
        get_settings.cache_clear()


@pytest.fixture
def open_at(store: Store) -> Open:
    def run(user: dict[str, object] | None = None, **address: str) -> AppTest:
        app = page_at("people", address)
        if user:
            app.secrets["auth"] = AUTH
            app.user = user
        app.run()
        assert not app.exception, app.exception[0].message
        return app

    return run


def words(app: AppTest) -> str:
    shown = (app.title, app.subheader, app.markdown, app.caption, app.error, app.success, app.code)
    text = "\n".join(str(element.value) for kind in shown for element in kind)
    return html.unescape(text).replace(JOINER, "")


def table(app: AppTest, label: str) -> list[dict[str, object]]:
    found = [json.loads(one.proto.json) for one in app.get("bidi_component") if one.proto.json]
    return next((one["rows"] for one in found if one.get("label") == label), [])


def give(app: AppTest, who: str, role: str) -> AppTest:
    app.text_input(key="people-actor").set_value(who)
    app.session_state["people-role"] = role
    next(b for b in app.button if b.label == "Set role").click()
    return app.run()


def test_on_this_machine_names_are_an_honour_system(open_at: Open) -> None:
    said = words(open_at())
    assert "You are **rosa**" in said and "owner" in said
    assert "honour system" in said and "No role was set" in said


def test_an_owner_gives_a_role_and_it_is_on_the_list(open_at: Open, store: Store) -> None:
    app = give(open_at(), SIGNS_AS, "annotator")
    assert f"{SIGNS_AS} is now an annotator." in words(app)
    assert store.role(SIGNS_AS) == "annotator"
    [person] = table(app, "People")
    assert person["cells"][1][0]["text"] == "annotator"  # type: ignore[index]
    [entry] = table(app, "What was done")
    assert entry["cells"][:3] == [f"person {SIGNS_AS}", "set role", "rosa"]  # type: ignore[index]
    assert entry["cells"][4] == "before reader, after annotator"  # type: ignore[index]


def test_a_person_opens_with_the_role_held(open_at: Open, store: Store) -> None:
    store.set_role(SIGNS_AS, "reader", by="rosa", name="Grace")
    app = open_at(person=SIGNS_AS)
    assert app.text_input(key="people-actor").value == SIGNS_AS
    assert app.text_input(key="people-name").value == "Grace"
    assert app.session_state["people-role"] == "reader"


def test_who_signed_in_without_a_role_is_told_what_to_send(open_at: Open) -> None:
    app = open_at(GRACE)
    said = words(app)
    assert "You are **Grace**" in said and "reader" in said
    assert SIGNS_AS in said and "send this line to an owner" in said
    assert "Only an owner sets roles" in said
    assert [b.label for b in app.button if b.label in ("Set role", "Sign out")] == ["Sign out"]


def test_an_owner_who_signed_in_sets_roles_and_cannot_lose_the_last(open_at: Open, store: Store) -> None:
    store.set_role(SIGNS_AS, "owner", by="rosa")
    app = give(open_at(GRACE), SIGNS_AS, "reader")
    assert "Nothing was changed" in words(app) and "the only owner" in words(app)
    assert store.role(SIGNS_AS) == "owner"


def test_a_form_that_outlived_its_role_changes_nothing(open_at: Open, store: Store) -> None:
    store.set_role(SIGNS_AS, "owner", by="rosa")
    app = open_at(GRACE)
    store.set_role("ada @ https://login.example.org", "owner", by="rosa")
    store.set_role(SIGNS_AS, "reader", by="rosa")
    app = give(app, "eve @ https://login.example.org", "owner")
    assert store.role("eve @ https://login.example.org") == "reader"
    assert "Nothing was changed" in words(app) and "setting roles takes an owner" in words(app)


def test_the_list_pages_and_filters_through_the_address(open_at: Open, store: Store) -> None:
    trajectory, chunks = add_trajectory(store, add_problem(store), steps=60)
    for number, chunk in enumerate(chunks):
        store.add_review(chunk, f"a{number}", "ada", 1)
    store.set_role("bob", "owner", by="rosa")
    app = open_at()
    rows = table(app, "What was done")
    assert len(rows) == 50 and rows[1]["href"] == f"/trajectory?traj={trajectory}&chunk=59"
    assert any(b.label == "Older" for b in app.button)
    older = table(open_at(before=str(rows[-1]["id"])), "What was done")
    assert [row["id"] for row in older] == [str(n) for n in range(int(str(rows[-1]["id"])) - 1, 0, -1)]
    assert {row["cells"][2] for row in table(open_at(by="rosa"), "What was done")} == {"rosa"}  # type: ignore[index]
    assert "is not the number of an entry" in words(open_at(before="x"))


def test_names_are_shown_as_text(open_at: Open, store: Store) -> None:
    store.set_role("x", "reader", by="rosa", name="![p](https://evil.example/p.png) <b>")
    app = open_at(by="# Fake ![p](https://evil.example/p.png)")
    assert table(app, "People")[0]["cells"][0] == "![p](https://evil.example/p.png) <b>"  # type: ignore[index]
    assert all("![p](" not in str(element.value) for element in (*app.markdown, *app.caption))


def test_a_reader_is_offered_nothing_that_the_store_would_refuse(open_at: Open, store: Store) -> None:
    trajectory, _ = add_trajectory(store, add_problem(store))
    run = store.create_run("sample", {"kind": "sample"}, "rosa")
    app = open_at(GRACE)
    app.switch_page("views/runs.py")
    app.query_params["run"] = str(run)
    app.run()
    assert app.button(key=f"stop-{run}").disabled
    assert "takes an owner, and you are a reader" in words(app)
    app.switch_page("views/trajectory.py")
    app.query_params.clear()
    app.query_params.update({"traj": str(trajectory), "chunk": "0"})
    app.run()
    assert not app.exception
    assert "Reviewing takes an annotator, and you are a reader" in words(app)
    assert "reviewing as" not in words(app)
    assert not [b.key for b in app.button if b.key and b.key.startswith("verdict-")]
    store.set_role(SIGNS_AS, "annotator", by="rosa")
    assert [b.key for b in app.run().button if b.key and b.key.startswith("verdict-")]
    assert "reviewing as" in words(app)
