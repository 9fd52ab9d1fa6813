"""Signing in, in a real browser, over a real OpenID Connect provider on this machine: who somebody is, what they may do,
whose name a review carries, and what happens where the provider is down or somebody pretends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value
from typer.testing import CliRunner

from app.people_commands import people_app
from app.settings import get_settings
from db.errors import NotAllowedError
from db.store import open_store
from tests.browser_support import READ_MS, free_port, open_page, settled
from tests.oidc_provider import Provider, Someone
from tests.started_app import App, started_app
from tests.store_world import add_problem, add_trajectory

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.browser
GRACE, OLGA, EVE = Someone("17", "Grace"), Someone("1", "Olga"), Someone("18", "Grace")
CANARY = "canary in a chunk"


@dataclass
class World:
    app: App
    provider: Provider
    address: str
    """Of a chunk, below the pages."""
    chunk: int

    def signs_as(self, person: Someone) -> str:
        return f"{person.sub} @ {self.provider.issuer}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """``stepwiser app`` with sign-in and a solution of three chunks; its operator's shell would trust a header."""
    home = tmp_path_factory.mktemp("sign-in")
    provider = Provider(free_port(), "http://127.0.0.1:{port}/oauth2callback")
    (home / "secrets.toml").write_text(provider.secrets_toml())
    store = open_store(f"sqlite:///{home / 'stepwiser.db'}", migrate=True)
    trajectory, chunks = add_trajectory(store, add_problem(store), words=CANARY)
    store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMLIT_SERVER_TRUSTED_USER_HEADERS", json.dumps({"X-User": "sub"}))
        with started_app(home) as app:
            provider.redirect_uri = f"{app.url}/oauth2callback"
            yield World(app, provider, f"/trajectory?traj={trajectory}&chunk=1", chunks[1])


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1440, "height": 900})
    yield made
    made.close()


def sign_in(page: Page, world: World, person: Someone | None, address: str) -> None:
    """Open an address and press the button there."""
    world.provider.person = person
    open_page(page, world.app.url + address)
    page.get_by_role("button", name="Sign in").click()


def signed_in(page: Page, world: World, person: Someone, address: str) -> None:
    sign_in(page, world, person, address)
    page.wait_for_url(f"{world.app.url}{address}")
    page.get_by_role("link", name="Overview").first.wait_for(state="attached")
    settled(page)


def expect_outside(page: Page) -> None:
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def name_owner(home: Path, actor: str) -> None:
    """As whoever runs the server does it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPWISER_HOME", str(home))
        patch.setenv("STEPWISER_ACTOR", "operator")
        get_settings.cache_clear()
        done = CliRunner().invoke(people_app, ["set", "owner", actor, "--name", "Olga"])
    get_settings.cache_clear()
    assert done.exit_code == 0, done.output


def test_a_person_signs_in_is_given_a_role_and_reviews_under_issuer_and_subject(
    world: World, browser: Browser, context: BrowserContext
) -> None:
    store, page = world.app.store, context.new_page()
    frames: list[bytes] = []
    page.on(
        "websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(_bytes(frame)))
    )

    sign_in(page, world, GRACE, world.address)  # the provider is down
    expect(page.get_by_text("the sign-in provider gave no usable answer")).to_be_visible()
    expect_outside(page)
    with world.provider.up():
        sign_in(page, world, None, world.address)  # she changes her mind
        expect(page.get_by_text("the sign-in was cancelled")).to_be_visible()
        assert frames and not any(CANARY.encode() in frame for frame in frames)

        signed_in(page, world, GRACE, world.address)  # and arrives where she wanted to go
        assert any(CANARY.encode() in frame for frame in frames)
        expect(page.get_by_text("Reviewing takes an annotator, and you are a reader")).to_be_visible()
        expect(page.get_by_role("button", name="−1 error")).to_have_count(0)
        with pytest.raises(NotAllowedError, match="is a reader"):
            store.add_review(world.chunk, "by-hand", world.signs_as(GRACE), 1)

        name_owner(world.app.home, world.signs_as(OLGA))
        other = browser.new_context()
        owner = other.new_page()
        signed_in(owner, world, OLGA, f"/people?person={world.signs_as(GRACE)}".replace(" ", "%20"))
        owner.get_by_role("button", name="Set role").click()
        expect(owner.get_by_text("is now an annotator")).to_be_visible()

    # The provider is down again: whoever is inside goes on.
    open_page(page, world.app.url + world.address)
    page.wait_for_timeout(READ_MS)
    page.keyboard.press("1")
    expect(page.get_by_text("You said")).to_be_visible()
    [step] = store.history(world.chunk)
    assert (step.review.actor, step.review.verdict) == (world.signs_as(GRACE), -1)
    entry = store.audit(limit=1)[0]
    assert (entry.actor, entry.target) == (world.signs_as(GRACE), f"chunk {world.chunk}")
    open_page(owner, world.app.url + "/people")
    expect(owner.locator("[aria-label='What was done']")).to_contain_text(world.signs_as(GRACE))
    other.close()

    open_page(page, world.app.url + "/people")
    page.get_by_role("button", name="Sign out").click()
    expect_outside(page)
    open_page(page, world.app.url + world.address)
    expect_outside(page)


def test_nobody_becomes_somebody_else(world: World, context: BrowserContext) -> None:
    """Same e-mail and name, a header that the operator's shell trusts, an address, a cookie, a token: none is her."""
    store, page, grace = world.app.store, context.new_page(), world.signs_as(GRACE)
    store.set_role(grace, "annotator", by="operator")
    context.set_extra_http_headers({"X-User": GRACE.sub, "X-Forwarded-User": GRACE.sub})
    said = {"sub": GRACE.sub, "iss": world.provider.issuer, "is_logged_in": True, "origin": world.app.url}
    forged = create_signed_value(
        "not the secret of the pages" * 2, "_streamlit_user", json.dumps(said)
    ).decode()
    context.add_cookies([{"name": "_streamlit_user", "value": forged, "url": world.app.url}])
    pretending = f"/people?actor={GRACE.sub}&user={GRACE.sub}&sub={GRACE.sub}"
    open_page(page, world.app.url + pretending)
    expect_outside(page)
    with world.provider.up():
        world.provider.signing = type(world.provider.key).generate_key(2048, auto_kid=True)
        sign_in(page, world, GRACE, pretending)  # an id token that the provider did not sign
        expect(page.get_by_text("did not fit this server")).to_be_visible()
        world.provider.signing = world.provider.key
        signed_in(page, world, EVE, pretending)
        expect(page.get_by_text(re.compile(r"You are Grace"))).to_be_visible()
        expect(page.locator("code")).to_have_text(world.signs_as(EVE))
        expect(page.get_by_text("Only an owner sets roles")).to_be_visible()
        assert store.role(world.signs_as(EVE)) == "reader" and store.role(grace) == "annotator"
        page.goto(f"{world.app.url}/auth/logout")
        expect_outside(page)


def _bytes(frame: bytes | str) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame
