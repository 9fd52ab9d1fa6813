"""Where authentication is configured nobody sees a page, or writes, without signing in."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.settings import get_settings
from app.widgets import access
from db.errors import StoreError
from db.store import open_store

MAIN = str(Path(__file__).parent.parent / "app" / "main.py")
AUTH = {
    "redirect_uri": "http://localhost/oauth2callback",
    "cookie_secret": "s",
    "client_id": "c",
    "client_secret": "t",
}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
    monkeypatch.setenv("STEPWISER_DATABASE_URL", "")
    get_settings.cache_clear()
    open_store(f"sqlite:///{tmp_path / 'stepwiser.db'}", migrate=True).close()
    yield
    get_settings.cache_clear()


def test_without_authentication_the_overview_is_shown():
    app = AppTest.from_file(MAIN, default_timeout=60).run()
    assert [title.value for title in app.title] == ["Overview"]


def test_with_authentication_only_the_sign_in_button_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = AppTest.from_file(MAIN, default_timeout=60)
    app.secrets["auth"] = AUTH
    app.run()
    assert [button.key for button in app.button] == ["sign-in"]
    assert [title.value for title in app.title] == ["StepWiser Studio"]
    assert not app.exception


@pytest.mark.parametrize("length", [10, 300])
def test_a_signed_in_name_keeps_its_issuer_however_long_it_is(length: int, monkeypatch: pytest.MonkeyPatch):
    user = {"sub": "s" * length, "iss": "https://issuer.example", "is_logged_in": True}
    monkeypatch.setattr(access, "signing_in", lambda: True)
    monkeypatch.setattr(access.st, "user", user)
    name = access.actor()
    assert name.endswith(" @ https://issuer.example") and len(name) <= access.LONGEST
    monkeypatch.setattr(access.st, "user", user | {"sub": "s" * (length - 1) + "t"})
    assert access.actor() != name
    monkeypatch.setattr(access.st, "user", user | {"iss": "i" * 200})
    with pytest.raises(StoreError, match="issuer has 200 characters, too many"):
        access.actor()
