"""Opens the store that the settings name. The pages cache the result; commands open one each."""

from __future__ import annotations

from app.settings import Settings, get_settings
from db.connect import BUSY_TIMEOUT_S, connect
from db.migrate import check_current, upgrade
from db.store import Store


def open_store(settings: Settings | None = None, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Store:
    """The store at its current schema. Raises StoreOutdatedError when it is older or newer than the code."""
    engine = connect((settings or get_settings()).store_url, busy_timeout_s=busy_timeout_s)
    check_current(engine)
    return Store(engine)


def open_or_make_store(settings: Settings | None = None) -> Store:
    """The store, made or migrated first where that is needed."""
    engine = connect((settings or get_settings()).store_url)
    upgrade(engine)
    return Store(engine)
