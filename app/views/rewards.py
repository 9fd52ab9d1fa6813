"""Sparse against dense reward on the same sampled solutions, in pictures, for somebody who has never seen either.

``/rewards?problem=…&scores=…&solution=…&level=…&how=…&w=…`` restores the view. The numbers are the trainer's own
(``training.process_rewards``); the solutions and their scores come from ``rewards_group``, the words from
``rewards_words``.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import streamlit as st

from app.settings import get_settings
from app.views.rewards_address import HOWS, LEVELS, Asked, address, read_asked
from app.views.rewards_group import Candidate, Group, Solution, Source, candidates, read_group
from app.views.rewards_hacking import warning_signs
from app.views.rewards_words import sentences, telescopes, telling_solution
from app.widgets.access import actor, get_store
from app.widgets.chips import OUTCOMES, outcome_chip
from app.widgets.empty import empty_state, no_such
from app.widgets.here import go_here, here_button
from app.widgets.reference import show_reference
from app.widgets.reward_rows import Bar, Line, Strip, reward_lines, reward_strips, signed
from app.widgets.safe_text import escape_line, raw_toggle, show_text, visible
from training.process_rewards import RewardComparison, dense_and_sparse

HOW_HELP = (
    "How a solution's chunk scores become one number. mean: all chunks count alike. min: as good as its worst chunk. "
    "sum: more chunks, more reward, which invites padding."
)
W_HELP = (
    "How much the outcome counts beside the chunk scores: reward = (1 − w) · process + w · outcome. "
    "At w = 1 only the outcome is left."
)
W_STEP = 0.05


def page() -> None:
    """The page, from its address."""
    st.title("Rewards", anchor=False)
    st.caption(
        "A policy is trained by comparing solutions of one problem. With a **sparse** reward it hears one number at the "
        "end; with a **dense** one it hears how good each chunk was. Below, the same solutions under both."
    )
    asked = read_asked()
    if asked.wrong:
        for wrong in asked.wrong:
            st.error(wrong, icon=":material/link_off:")
        here_button("Start over", {}, key="start-over", icon=":material/restart_alt:")
        return
    store = get_store()
    known = _candidates(get_settings().store_url, actor(), store.hidden_now(), store.counts())
    problem = asked.problem if asked.problem is not None else next((c.problem_id for c in known), None)
    if problem is None:
        _nothing_yet()
        warning_signs(None)
        return
    group, sources = read_group(get_store(), problem, asked.scores)
    _choose(asked, problem, known, sources, group)
    if group is None:
        _no_group(asked, problem, sources)
        return
    _show(asked, problem, group)


@st.cache_data(ttl=60, max_entries=4, show_spinner=False)
def _candidates(store_url: str, viewer: str, hidden: str, counts: dict[str, int]) -> list[Candidate]:
    """Problems worth showing to the viewer; looked for again when the store is another or holds other ``counts``, and
    when other solutions are ``hidden`` from the viewer."""
    return candidates(get_store())


def _nothing_yet() -> None:
    empty_state(
        "No solutions to compare yet",
        "This page needs several sampled solutions of one problem with a score for each chunk: first a sample run, "
        "then a rollout run (scores from Q) or a judge run (scores from votes). Or load the sample: "
        "stepwiser sample load",
        page="views/runs.py",
        label="Start a run",
        query={"new": "sample"},
    )


def _no_group(asked: Asked, problem: int, sources: Sequence[Source]) -> None:
    if sources and asked.scores is not None:
        no_such("source of scores", asked.scores)
        here_button("Scores that there are", address(scores=None), key="any-scores", icon=":material/undo:")
        return
    if not get_store().siblings(problem, 1):
        no_such("problem with solutions", str(problem))
        here_button("Another problem", {}, key="any-problem", icon=":material/undo:")
        return
    empty_state(
        "No scores for this problem's chunks",
        "At least two of its solutions need a score for every chunk. Roll out their prefixes (scores from Q), or let a "
        "judge read them (scores from votes).",
        page="views/runs.py",
        label="Roll out prefixes",
        query={"new": "rollout"},
    )


def _choose(
    asked: Asked, problem: int, known: Sequence[Candidate], sources: Sequence[Source], group: Group | None
) -> None:
    """Which problem, and whose scores."""
    titles = {
        one.problem_id: f"Problem {one.problem_id} · {one.right} right, {one.wrong} wrong" for one in known
    }
    titles.setdefault(problem, f"Problem {problem}")
    names = {source.key: f"{visible(source.title)} · {source.solutions} solutions" for source in sources}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.session_state["rewards-problem"] = problem
        st.selectbox(
            "Problem",
            list(titles),
            format_func=lambda key: titles[key],
            key="rewards-problem",
            on_change=_problem_chosen,
            width=330,
        )
        if group is not None:
            st.session_state["rewards-scores"] = group.source.key
            st.selectbox(
                "Scores of the chunks from",
                list(names),
                format_func=lambda key: names[key],
                key="rewards-scores",
                on_change=_chosen,
                args=("scores",),
                width=380,
                help="Rollouts: a chunk's score is the chance of success after it less the chance before it (−1 to 1). "
                "A judge: the share of its verdicts that were positive (0 to 1).",
            )


def _problem_chosen() -> None:
    go_here(address(problem=str(st.session_state["rewards-problem"]), solution=None, scores=None))


def _chosen(name: str) -> None:
    value = st.session_state[f"rewards-{name}"]
    go_here(address(**{name: f"{value:g}" if isinstance(value, float) else value}))


def _show(asked: Asked, problem: int, group: Group) -> None:
    chosen = next((one for one in group.solutions if one.id == asked.solution), None)
    if asked.solution is not None and chosen is None:
        no_such("scored solution of this problem", str(asked.solution))
    chosen = chosen or telling_solution(group)
    compared = dense_and_sparse(
        [one.scored() for one in group.solutions], aggregation=asked.how, outcome_weight=asked.w
    )
    most = _most(compared)
    _problem(group)
    _dense_controls(asked)
    left, right = st.columns(2, gap="medium")
    with left:
        _sparse(problem, group, compared, chosen, most)
    with right:
        _dense(asked, problem, group, compared, chosen, most)
    st.markdown("##### What to see", anchors=False)
    for words in sentences(group, compared):
        st.markdown(f"- {words}")
    _one_solution(asked, group, compared, chosen, most)
    _how_made(asked, group, compared)
    warning_signs(group)


def _most(compared: RewardComparison) -> float:
    """The largest advantage on the page: a full bar means the same in every picture."""
    steps = (value for row in compared.step_advantages for value in row.chunks)
    return max(
        abs(value) for value in (*compared.outcome_advantages, *compared.mixed_advantages, *steps, 1e-9)
    )


def _problem(group: Group) -> None:
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            n_right, n_shown = sum(one.right for one in group.solutions), len(group.solutions)
            scored = group.source.solutions
            less = "" if n_shown == scored else f"; {n_shown} of these are compared"
            st.caption(
                f"{scored} of {group.total} solutions that policy **{escape_line(group.policy, limit=60)}** sampled "
                f"for this problem have a score for every chunk{less}: {n_right} right, {n_shown - n_right} wrong"
            )
            raw = raw_toggle()
        show_text(group.problem, raw=raw)
        show_reference(group.reference, group.verifier)


def _strip(one: Solution, problem: int, bars: Sequence[Bar], chosen: Solution) -> Strip:
    return Strip(
        id=str(one.id),
        name=f"#{one.id}",
        href="/rewards?" + urlencode(address(problem=str(problem), solution=str(one.id))),
        outcome=f"{'✓' if one.right else '✗'} {OUTCOMES[one.outcome][2]}",
        right=one.right,
        bars=bars,
        chosen=one.id == chosen.id,
    )


def _sparse(problem: int, group: Group, compared: RewardComparison, chosen: Solution, most: float) -> None:
    st.markdown("##### :material/flag: Sparse: one reward at the end", anchors=False)
    st.caption(
        "Reward 1 if the answer is right, else 0; nothing for the chunks before it. All chunks share one bar."
    )
    strips = []
    for one, value, reward in zip(
        group.solutions, compared.outcome_advantages, compared.outcome_rewards, strict=True
    ):
        bars = [Bar(value, "no reward of its own", "·") for _ in one.chunks[:-1]]
        bars.append(Bar(value, "the reward of the whole solution", f"reward {reward:g}"))
        strips.append(_strip(one, problem, bars, chosen))
    reward_strips(strips, label="Sparse reward: advantage of each chunk", most=most, key="sparse")


def _dense(
    asked: Asked,
    problem: int,
    group: Group,
    compared: RewardComparison,
    chosen: Solution,
    most: float,
) -> None:
    st.markdown("##### :material/bar_chart: Dense: a score for every chunk", anchors=False)
    if asked.level == "chunk":
        st.caption(
            "Under each bar the chunk's own score; the bar says how it compares with the group's chunks."
        )
    else:
        st.caption(
            f"Under each bar the chunk's own score; their {asked.how} makes one bar for the whole solution."
        )
    strips = []
    for place, one in enumerate(group.solutions):
        values: Sequence[float] = compared.step_advantages[place].chunks
        if asked.level == "solution":
            values = [compared.mixed_advantages[place]] * len(one.chunks)
        bars = [
            Bar(value, f"chunk {chunk.idx}: {chunk.said}", _score(chunk.score, group))
            for value, chunk in zip(values, one.chunks, strict=True)
        ]
        strips.append(_strip(one, problem, bars, chosen))
    reward_strips(strips, label="Dense reward: advantage of each chunk", most=most, key="dense")


def _dense_controls(asked: Asked) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.session_state["rewards-level"] = asked.level
        st.segmented_control(
            "Dense reward for",
            list(LEVELS),
            format_func=lambda key: LEVELS[key],
            key="rewards-level",
            required=True,
            on_change=_chosen,
            args=("level",),
            help="Each chunk: an advantage of its own (step level). Whole solution: the scores become one number "
            "(trajectory level), and every chunk of the solution gets the same again.",
        )
        if asked.level == "solution":
            st.session_state["rewards-how"] = asked.how
            st.segmented_control(
                "Scores put together by",
                list(HOWS),
                key="rewards-how",
                required=True,
                on_change=_chosen,
                args=("how",),
                help=HOW_HELP,
            )
        st.session_state["rewards-w"] = asked.w
        st.slider(
            "Weight of the outcome, w",
            0.0,
            1.0,
            step=W_STEP,
            key="rewards-w",
            on_change=_chosen,
            args=("w",),
            help=W_HELP,
            width=220,
        )


def _score(score: float, group: Group) -> str:
    return signed(score) if group.source.key == "rollouts" else f"{score:.2f}"


def _one_solution(
    asked: Asked, group: Group, compared: RewardComparison, chosen: Solution, most: float
) -> None:
    """One solution line by line under all three rewards."""
    place = group.solutions.index(chosen)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(
            f"##### Solution {chosen.id}, chunk by chunk &nbsp; {outcome_chip(chosen.outcome)}", anchors=False
        )
        st.page_link(
            "views/trajectory.py",
            label="Open it: rationales and rollouts",
            icon=":material/timeline:",
            query_params={"traj": str(chosen.id)},
        )
    columns = (
        "Outcome only",
        f"Whole solution: {asked.how}, w = {asked.w:g}",
        f"Each chunk, w = {asked.w:g}",
    )
    lines = [
        Line(
            idx=chunk.idx,
            text=visible(chunk.text),
            score=f"{_score(chunk.score, group)}  ({chunk.said})",
            sign=chunk.sign,
            bars=(
                Bar(compared.outcome_advantages[place]),
                Bar(compared.mixed_advantages[place]),
                Bar(compared.step_advantages[place].chunks[chunk.idx]),
            ),
        )
        for chunk in chosen.chunks
    ]
    reward_lines(columns, lines, label=f"Solution {chosen.id} chunk by chunk", most=most, key="lines")
    st.caption(
        "Bars are advantages: ▲ training makes this chunk more likely, ▼ (hatched) less likely, ● neither. "
        "Choose another solution above by its number."
    )


def _how_made(asked: Asked, group: Group, compared: RewardComparison) -> None:
    with st.expander("How these numbers are made"):
        st.markdown(
            "- **Outcome only.** Advantage = (reward − mean of the group) / spread of the group; spread is the sample "
            "standard deviation. All chunks of a solution share it.\n"
            "- **Whole solution.** The same, with reward = (1 − w) · process + w · outcome, where process is the "
            f"{asked.how} of the chunk scores.\n"
            "- **Each chunk.** Advantage = (1 − w) · (score − baseline) + w · (outcome − mean outcome), divided by the "
            "root mean square over the group's chunks, so that sizes compare. The baseline is the mean score of the "
            f"group's chunks: here {signed(compared.step_baselines[0])} after the weight.\n"
            "- A policy's training run uses exactly these functions, on groups that it samples itself."
        )
        if words := telescopes(group):
            st.markdown(f"- {words}")


if __name__ == "__main__":
    page()
