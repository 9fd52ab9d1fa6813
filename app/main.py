"""The page list and what surrounds every page. The pages are in ``views``; ``serve.py`` adds the headers."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

ICON = str(Path(__file__).with_name("icon.svg"))

st.set_page_config(page_title="StepWiser Studio", page_icon=ICON, layout="wide")
st.logo(ICON, size="small")

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
        st.Page("views/runs.py", title="Runs", icon=":material/play_circle:", url_path="runs"),
    ],
    position="top",
)
page.run()
