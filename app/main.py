"""The page list and what surrounds every page. The pages are in ``views``; ``serve.py`` adds the headers."""

from __future__ import annotations

import streamlit as st

st.set_page_config(page_title="StepWiser Studio", page_icon=":material/stairs_2:", layout="wide")

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
