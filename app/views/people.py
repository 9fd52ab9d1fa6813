"""People: who you are here, who may do what, and the list of what was done. ``?person=…`` opens somebody's role.

``?by=…`` shows one person's writes, ``?before=…`` older ones. Roles are enforced by the store; this page only offers
what the role allows.
"""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from app.widgets.access import actor, get_store, signing_in
from app.widgets.audit_words import leads_to, said
from app.widgets.empty import empty_state
from app.widgets.here import here_button
from app.widgets.rows import Chip, Column, Row, Tone, row_table
from app.widgets.safe_text import escape_line, visible
from app.widgets.when import stamp
from db.errors import StoreError
from db.people_store import ISSUER, AuditRow
from db.tables.people import ROLES

PAGE = 50
KNOWN = ("person", "by", "before")
MAY = {
    "reader": "looks at everything and changes nothing",
    "annotator": "reviews, and works through queues",
    "owner": "reviews, makes queues, adjudicates, imports, starts and stops runs, sets roles",
}
ICONS = {"reader": "visibility", "annotator": "rate_review", "owner": "key"}
TONES: dict[str, Tone] = {"reader": "quiet", "annotator": "info", "owner": "good"}
PEOPLE_COLUMNS = (
    Column("Name", "link"),
    Column("Role", "chips"),
    Column("Signs as", "text", "wide"),
    Column("Set by", "small", "hide"),
    Column("Since", "small"),
)
AUDIT_COLUMNS = (
    Column("To", "link"),
    Column("Did", "small"),
    Column("Who", "small", "wide"),
    Column("When", "small"),
    Column("Particulars", "text", "wide"),
)
_DONE = "people-done"
_PROBLEM = "people-problem"


def page() -> None:
    """Who you are, the roles, the people, and what they did."""
    st.title("People", anchor=False)
    for name in st.query_params:
        if name not in KNOWN:
            st.warning(f"The address has {escape_line(name, limit=40)}=…, which this page does not know.")
    me = actor()
    role = get_store().role(me)
    _you(me, role)
    _people(role)
    _audit(me, role)


def _you(me: str, role: str) -> None:
    """Name, role, what it allows, and on what terms."""
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            name = str(st.user.get("name") or me) if signing_in() else me
            st.markdown(
                f":material/person: You are **{escape_line(name, limit=60)}** "
                f":blue-badge[:material/{ICONS[role]}: {role}] An {role} {MAY[role]}.".replace("An r", "A r"),
                width="content",
            )
            if signing_in():
                st.button("Sign out", icon=":material/logout:", on_click=st.logout, key="sign-out")
        if not signing_in():
            st.caption(
                "Names on this machine are an honour system: whoever can open these pages writes under the name that "
                "they were started with (STEPWISER_ACTOR). For people who are told apart, configure sign-in: "
                "an [auth] section in secrets.toml, then `stepwiser people set owner …` for the first owner."
            )
        elif role == "owner":
            st.caption("You sign as:")
            st.code(visible(me), language=None, wrap_lines=True)
        else:
            st.caption("To get another role, send this line to an owner, or to whoever runs this server:")
            st.code(visible(me), language=None, wrap_lines=True)


def _people(role: str) -> None:
    st.subheader("Roles", anchor=False)
    people = get_store().people()
    if people:
        rows = [
            Row(
                id=person.actor,
                href="/people?" + urlencode({"person": person.actor}),
                label=f"Role of {visible(person.name)}",
                cells=(
                    visible(person.name),
                    [Chip(person.role, TONES[person.role], MAY[person.role])],
                    visible(person.actor),
                    visible(person.set_by),
                    stamp(person.created_at),
                ),
            )
            for person in people
        ]
        row_table(PEOPLE_COLUMNS, rows, label="People", key="people")
    else:
        empty_state(
            "No role was set",
            "Names on this machine are owners; whoever signed in is a reader until an owner says otherwise.",
            icon=":material/group:",
        )
    if role == "owner":
        _form()
    else:
        st.caption(":material/lock: Only an owner sets roles.")
    if problem := st.session_state.pop(_PROBLEM, None):
        st.error(escape_line(f"Nothing was changed: {problem}", limit=500), icon=":material/block:")
    if done := st.session_state.pop(_DONE, None):
        st.success(escape_line(done, limit=300), icon=":material/check:")


def _form() -> None:
    """Give somebody a role; ``?person=`` says whom."""
    asked = st.query_params.get("person", "")
    known = {person.actor: person for person in get_store().people()}
    if st.session_state.get("people-asked") != asked:  # another person was opened
        st.session_state["people-asked"] = asked
        held = known.get(asked)
        st.session_state["people-actor"] = asked
        st.session_state["people-name"] = held.name if held else ""
        st.session_state["people-role"] = held.role if held else "annotator"
    with st.form("people-form", border=True):
        st.markdown("**Give somebody a role**")
        left, right = st.columns(2)
        left.text_input(
            "Signs as",
            key="people-actor",
            max_chars=200,
            placeholder=f"subject{ISSUER}issuer, or a name on this machine",
            help="The line that the person sees on this page after signing in",
        )
        right.text_input("Name (optional)", key="people-name", max_chars=200)
        st.segmented_control(
            "Role",
            ROLES,
            key="people-role",
            required=True,
            help="; ".join(f"{k}: {v}" for k, v in MAY.items()),
        )
        st.form_submit_button("Set role", type="primary", icon=":material/key:", on_click=_set_role)


def _set_role() -> None:
    """Callback: the store refuses whoever may not."""
    state = st.session_state
    who, role = state["people-actor"].strip(), state["people-role"]
    try:
        get_store().set_role(who, role, by=actor(), name=state["people-name"])
    except StoreError as error:
        state[_PROBLEM] = str(error)
        return
    state[_DONE] = f"{who} is now {'a reader' if role == 'reader' else f'an {role}'}."


def _audit(me: str, role: str) -> None:
    """What people did, newest first, by keyset pages."""
    st.subheader("What was done", anchor=False)
    before, by = st.query_params.get("before"), st.query_params.get("by")
    cursor = int(before) if before is not None and before.isdecimal() and len(before) < 19 else None
    if before is not None and cursor is None:
        st.error(
            f"before={escape_line(before, limit=40)} is not the number of an entry; this is the newest page.",
            icon=":material/link_off:",
        )
    if role != "owner":
        st.caption("Your own writes; an owner sees everybody's.")
    elif by is not None:
        st.caption(f"Only what {escape_line(by, limit=80)} did.")
    entries = get_store().audit(before=cursor, actor=by, limit=PAGE + 1)
    if not entries:
        st.caption(":material/history: Nothing is written down here yet.")
    else:
        row_table(AUDIT_COLUMNS, [_entry(one) for one in entries[:PAGE]], label="What was done", key="audit")
    kept = {"by": by} if by is not None else {}
    with st.container(horizontal=True):
        if cursor is not None:
            here_button("Newest", kept, key="newest", icon=":material/first_page:")
        if len(entries) > PAGE:
            older = kept | {"before": str(entries[PAGE - 1].id)}
            here_button("Older", older, key="older", icon=":material/chevron_right:", icon_position="right")
        if by is not None:
            here_button("Everybody's", {}, key="everybody", icon=":material/group:")
        elif role == "owner" and entries:
            here_button("Only mine", {"by": me}, key="mine", icon=":material/person:")


def _entry(entry: AuditRow) -> Row:
    cells = (
        visible(entry.target),
        visible(entry.action),
        visible(entry.actor),
        stamp(entry.at),
        visible(said(entry.detail)),
    )
    return Row(str(entry.id), leads_to(entry), f"{visible(entry.action)}, {visible(entry.target)}", cells)


if __name__ == "__main__":
    page()
