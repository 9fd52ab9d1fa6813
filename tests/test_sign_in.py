"""Where authentication is configured nobody sees a page, or writes, without signing in; settings that cannot be used
are refused by name. The whole way through a provider is in test_browser_sign_in."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from streamlit.testing.v1 import AppTest

from app.launcher import open_to_all
from app.settings import Settings, get_settings
from app.sign_in import SignInError, origin, read_auth, wrong_with
from app.sign_in_answers import OWN_ADDRESS, SignInAnswers
from app.widgets import access
from db.errors import StoreError
from db.store import open_store

MAIN = str(Path(__file__).parent.parent / "app" / "main.py")
AUTH = {
    "redirect_uri": "http://localhost:{port}/oauth2callback",
    "cookie_secret": "s" * 32,
    "client_id": "c",
    "client_secret": "t",
    "server_metadata_url": "https://login.example.org/.well-known/openid-configuration",
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


def test_a_sign_in_without_subject_or_issuer_is_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "signing_in", lambda: True)
    for user in ({"sub": "1", "iss": ""}, {"iss": "https://issuer.example"}):
        monkeypatch.setattr(access.st, "user", user | {"is_logged_in": True})
        with pytest.raises(StoreError, match="names nobody"):
            access.actor()


def test_how_the_last_try_went_is_said_and_nothing_else(tmp_path: Path):
    for outcome, words in (("no-answer", "gave no usable answer"), ("refused", "cancelled"), ("# Hello", "")):
        app = AppTest.from_file(MAIN, default_timeout=60)
        app.secrets["auth"] = AUTH
        app.query_params["sign-in"] = outcome
        app.run()
        assert [words in error.value for error in app.error] == ([True] if words else [])
        assert [button.key for button in app.button] == ["sign-in"] and not app.exception


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cookie_secret": ""}, "lacks cookie_secret"),
        ({"cookie_secret": "short"}, "cookie_secret has 5 characters.*token_hex"),
        ({"client_id": " ", "client_secret": ""}, "lacks client_id, client_secret"),
        ({"redirect_uri": "http://studio.example.org/oauth2callback"}, "must be https"),
        ({"redirect_uri": "localhost:8501/oauth2callback"}, "must be https"),
        ({"redirect_uri": "https://studio.example.org/"}, "must be the pages' address with /oauth2callback"),
        ({"server_metadata_url": "http://login.example.org/x"}, "server_metadata_url is .*https"),
    ],
)
def test_settings_that_cannot_be_used_are_named(change: dict[str, str], words: str, tmp_path: Path):
    section = "".join(f"{name} = {value!r}\n" for name, value in (AUTH | change).items())
    (tmp_path / "secrets.toml").write_text(f"[auth]\n{section}")
    with pytest.raises(SignInError, match=rf"secrets\.toml: .*{words}"):
        read_auth(Settings(home=tmp_path))


def test_where_the_settings_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work / ".streamlit"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = Settings(home=home)
    assert read_auth(settings) == {} and wrong_with(AUTH) == "" and "not a section" in wrong_with("yes")
    section = "".join(f"{name} = {value!r}\n" for name, value in AUTH.items())
    (work / ".streamlit" / "secrets.toml").write_text(f"[auth]\n{section}")
    (home / "secrets.toml").write_text("other = 1\n")
    assert read_auth(settings) == AUTH
    assert origin(AUTH, 9000) == "http://localhost:9000"
    (home / "secrets.toml").write_text(
        "[auth\n"
    )  # a file that cannot be read is not a file that is not there
    with pytest.raises(SignInError, match="cannot be read as TOML"):
        read_auth(settings)


def test_a_store_of_people_who_sign_in_is_not_opened_to_all_in_silence(tmp_path: Path):
    store = open_store(get_settings().store_url)
    store.set_role("local", "reader", by="rosa")
    assert open_to_all(store, {}, "rosa") == ""
    store.set_role("17 @ https://login.example.org", "owner", by="rosa")
    assert "whoever opens these pages now writes as rosa" in open_to_all(store, {}, "rosa")
    assert open_to_all(store, AUTH, "rosa") == ""
    store.close()


@pytest.mark.parametrize(
    ("address", "ours"),
    [
        ("/trajectory?traj=5&chunk=1", True),
        ("/", True),
        ("//evil.example/x", False),
        ("/\\evil.example", False),
        ("https://evil.example", False),
        ("/a\r\nset-cookie: x=y", False),
    ],
)
def test_after_signing_in_nobody_is_sent_elsewhere(address: str, ours: bool):
    assert bool(OWN_ADDRESS.fullmatch(address)) is ours
    signed = [(b"location", b"/"), (b"set-cookie", b"_streamlit_user=x; Path=/; Max-Age=2592000")]
    cookie = f"stepwiser_wanted={quote(address, safe='')}".encode()
    answer = answered("/oauth2callback", b"state=s&code=c", cookie, 302, signed)
    assert answer["location"] == (address if ours else "/")


def test_a_cleared_cookie_is_not_a_sign_in_and_the_way_back_from_signing_out_is_left_alone():
    cleared = [(b"location", b"/"), (b"set-cookie", b'_streamlit_user=""; Max-Age=0; Path=/')]
    assert (
        answered("/oauth2callback", b"state=s&code=c", b"", 302, cleared)["location"] == "/?sign-in=refused"
    )
    assert answered("/oauth2callback", b"", b"", 302, cleared)["location"] == "/"
    assert answered("/auth/login", b"", b"", 400, [])["location"] == "/?sign-in=no-answer"


def answered(
    path: str, query: bytes, cookie: bytes, status: int, headers: list[tuple[bytes, bytes]]
) -> dict[str, str]:
    """The headers with which a browser gets an answer of these routes."""
    sent: list[dict[str, Any]] = []

    async def routes(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def keep(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query}
    answering = SignInAnswers(routes)(scope | {"headers": [(b"cookie", cookie)]}, None, keep)
    with ThreadPoolExecutor(1) as pool:  # where the browser tests ran before, this thread has a loop already
        pool.submit(asyncio.run, answering).result()
    assert sent[0]["status"] == 302
    return {name.decode(): value.decode() for name, value in sent[0]["headers"]}
