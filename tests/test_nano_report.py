"""The report of nano facts, over a scripted policy that is the demonstrations' own error process."""

import dataclasses
import json
import random
import re

import pytest

from engine.llm.scripted import ScriptedLLM
from engine.worlds.nano import generate, sound
from training.nano.demos import PolicyRates, solve
from training.nano.report import Fact, nano_report, show_report

PROBLEMS, SEED = 12, 3
RATES = PolicyRates(
    easy=0.1,
    carry=0.25,
    times=0.35,
    check_slip=0.7,
    notice_small=0.2,
    notice_large=0.5,
    plan=0,
    check={},
)
BY_TEXT = {p.text: p for p in generate(PROBLEMS, SEED)}


def solution(prompt, seed):
    """A demonstration, or how one goes on from the chunks that are there."""
    text, begun = re.fullmatch(r"<solve>(.*?)\n(.*)", prompt, re.S).groups()
    problem = BY_TEXT[text]
    chunks = re.findall("<chunk>(.*?)</chunk>", begun)
    steps = [c for c in chunks if not c.startswith("Wait")]
    start = int(re.search(r"=(\d+)", chunks[-1])[1]) if chunks else problem.start
    rest = dataclasses.replace(problem, start=start, ops=problem.ops[len(steps) :])
    done = solve(rest, RATES, random.Random(seed)).completion()
    return ("\n" if chunks else "") + done


def perfect(prompt, seed):
    text, history, chunk = re.fullmatch(
        r"<judge>(.*?)\n<history>(.*)</history>\n<new>(.*)</new>\n", prompt, re.S
    ).groups()
    ok = sound(BY_TEXT[text], [*filter(None, history.split("\n")), chunk])[-1]
    return f"{chunk} looks {'right' if ok else 'wrong'}. \\boxed{{{'Positive' if ok else 'Negative'}}}"


def deaf(prompt, seed):
    return f"Fine. \\boxed{{{random.Random(seed).choice(('Positive', 'Negative'))}}}"


def facts_with(judging):
    llm = ScriptedLLM(lambda p, s: (solution if p.startswith("<solve>") else judging)(p, s))
    report = nano_report(llm, problems=PROBLEMS, n=16, truth_problems=6, m=16, seed=SEED)
    return report, {f.name: f for f in report["facts"]}


@pytest.fixture(scope="module")
def with_perfect():
    return facts_with(perfect)


def test_the_policy_facts_are_those_of_the_process(with_perfect):
    _, facts = with_perfect
    rng = random.Random(0)
    expected = sum(solve(p, RATES, rng).correct for p in BY_TEXT.values() for _ in range(300)) / (
        300 * PROBLEMS
    )
    measured = facts["pass@1 at temperature 1"]
    assert measured.value == pytest.approx(expected, abs=0.1)
    assert measured.low < expected < measured.high
    assert facts["problems with right and wrong among 16"].value > 0.7
    assert 0.1 < facts["solutions with an unsound chunk that end right"].value < 0.7
    assert facts["chunks on which the three rules disagree"].value > 0.05


def test_a_judge_that_is_never_wrong_is_too_good(with_perfect):
    report, facts = with_perfect
    truth = facts["judge accuracy on balanced chunks, arithmetic truth"]
    assert truth.value == 1.0 and not truth.holds and not report["holds"]
    groups = facts["groups of four verdicts that disagree"]
    assert groups.value == 0.0 and not groups.holds
    assert facts["another chunk, same history: the analysis changes"].value == 1.0
    assert facts["sound and unsound chunk told apart, greedy"].value == 1.0


def test_a_judge_that_never_reads_the_chunk_is_found_out():
    _, facts = facts_with(deaf)
    assert facts["judge accuracy on balanced chunks, arithmetic truth"].value == pytest.approx(0.5, abs=0.12)
    assert facts["groups of four verdicts that disagree"].holds
    assert not facts["another chunk, same history: the analysis changes"].holds


def test_the_last_line_is_json_with_every_bar(with_perfect):
    report, facts = with_perfect
    *table, last = show_report(report).splitlines()
    assert len(table) == 1 + len(facts)
    summary = json.loads(last)
    assert summary["holds"] is False and summary["m"] == 16
    assert {f["name"]: f["holds"] for f in summary["facts"]} == {n: f.holds for n, f in facts.items()}
    assert all({"value", "low", "high", "bar"} <= set(f) for f in summary["facts"])


def test_a_fact_that_could_not_be_measured_does_not_hold():
    nothing = Fact("nothing", float("nan"), 0, 1, 0.1, 1.0, 0)
    assert not nothing.holds
    last = show_report({"facts": [nothing], "holds": False, "settings": {}}).splitlines()[-1]
    assert json.loads(last, parse_constant=pytest.fail)["facts"][0]["value"] is None
