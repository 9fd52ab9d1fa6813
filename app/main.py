"""The page list and what surrounds every page. The pages are in ``views``; ``serve.py`` serves them, adds the headers
and says how people sign in."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.views.sign_in import sign_in
from app.widgets.access import signed_in, signing_in
from app.widgets.keys import key_sheet
from app.widgets.safe_text import escape_line
from db.errors import StoreError

ICON = str(Path(__file__).with_name("icon.svg"))

st.set_page_config(page_title="StepWiser Studio", page_icon=ICON, layout="wide")
st.logo(ICON, size="small")


outside = signing_in() and not signed_in()
page = st.navigation(
    [
        st.Page("views/overview.py", title="Overview", icon=":material/space_dashboard:", default=True),
        st.Page(
            "views/trajectories.py",
            title="Trajectories",
            icon=":material/list_alt:",
            url_path="trajectories",
        ),
        st.Page("views/trajectory.py", title="Trajectory", icon=":material/timeline:", url_path="trajectory"),
        st.Page("views/queue.py", title="Queue", icon=":material/checklist:", url_path="queue"),
        st.Page(
            "views/adjudication.py",
            title="Adjudication",
            icon=":material/balance:",
            url_path="adjudication",
        ),
        st.Page("views/judges.py", title="Judges", icon=":material/gavel:", url_path="judges"),
        st.Page("views/runs.py", title="Runs", icon=":material/play_circle:", url_path="runs"),
        st.Page("views/data.py", title="Data", icon=":material/dataset:", url_path="data"),
        st.Page("views/rewards.py", title="Rewards", icon=":material/bar_chart:", url_path="rewards"),
        st.Page("views/people.py", title="People", icon=":material/group:", url_path="people"),
    ],
    position="hidden" if outside else "top",
)
if outside:  # every address leads here, and stays as it is
    sign_in()
    st.stop()
try:
    page.run()
except StoreError as error:
    st.error(escape_line(f"The store cannot be used: {error}", limit=600), icon=":material/database_off:")
key_sheet()
