"""How the nano checkpoint is made: demonstrations, tokenizer, and a much smaller training that learns."""

import itertools
import json
import random
import re
from pathlib import Path

import pytest

from engine.errors import RecipeError
from engine.judge import parse_verdict
from engine.worlds.nano import apply, generate, sound
from training.nano.demos import JudgeRates, judge, solve
from training.nano.recipe import Stage, load_recipe
from training.nano.tokenizer import TAGS, build_tokenizer
from training.nano.train import examples, train_nano

NANO = Path(__file__).parents[1] / "training" / "nano"
CHECKPOINT = NANO / "checkpoint"
DOUBT = JudgeRates(slip=0.3, stamp=0.4, slip_on_wrong=0.05)
LINK = re.compile(r"(\d+)([-+×])(\d+)=(\d+)")


@pytest.fixture(scope="module")
def recipe():
    return load_recipe(NANO / "recipe.yaml")


@pytest.fixture(scope="module")
def demos(recipe):
    rng = random.Random(0)
    return [solve(p, recipe.policy, rng) for p in generate(1500, 1, split="train")]


def true(link):
    a, op, b, claimed = link
    return apply(op, int(a), int(b)) == int(claimed)


def test_solutions_are_tagged_chunks_with_the_arithmetic_they_claim(demos):
    for demo in demos:
        text = demo.completion()
        assert re.fullmatch(r"(<chunk>[^<>]+</chunk>\n)+\\boxed\{\d+\}", text)
        assert re.findall(r"<chunk>(.*?)</chunk>", text) == [c.text for c in demo.chunks]
        for chunk in demo.chunks:
            found = LINK.findall(chunk.text)
            assert found == [(str(x.a), x.op, str(x.b), str(x.claimed)) for x in chunk.links]
            assert (chunk.kind == "plan") == (not found)
            if chunk.kind in ("step", "wait") and not true(found[0]):
                assert not chunk.right


def test_the_box_holds_the_last_value_and_errors_go_on_consistently(demos):
    for demo in demos:
        value = demo.problem.start
        for chunk in demo.chunks:
            if chunk.kind == "step":
                assert chunk.links[0].a == value
            if chunk.links:
                value = chunk.links[-1].claimed
        assert demo.boxed == value
        assert demo.correct == (value == demo.problem.values[-1])


def test_what_the_world_calls_sound_is_what_the_demonstrations_meant(demos):
    for demo in demos:
        for chunk, ok in zip(demo.chunks, sound(demo.problem, [c.text for c in demo.chunks]), strict=True):
            # two slips of a check may cancel out: its result is right, and it is not sound
            assert ok == chunk.right or (chunk.kind == "check" and chunk.right)


def test_solutions_are_good_but_not_perfect_and_some_recover(demos):
    right = sum(d.correct for d in demos) / len(demos)
    slipped = [d for d in demos if not all(c.right for c in d.chunks)]
    recovered = sum(d.correct for d in slipped) / len(slipped)
    assert 0.55 < right < 0.8
    assert 0.2 < recovered < 0.6
    assert {"plan", "step", "wait", "check"} == {c.kind for d in demos for c in d.chunks}


def test_a_judgment_always_says_what_its_comparison_says(demos):
    rng = random.Random(1)
    agreed = {True: [], False: []}
    for demo in demos:
        for i, chunk in enumerate(demo.chunks):
            text = judge(demo, i, DOUBT, rng)
            verdict = parse_verdict(text)
            if not chunk.links:
                assert verdict == "positive"
                continue
            own, said = re.search(r"=(\d+)\. The chunk says (\d+)\.", text).groups()
            assert int(said) == chunk.links[-1].claimed
            assert verdict == ("positive" if own == said else "negative")
            agreed[chunk.right].append((verdict == "positive") == chunk.right)
    share = {right: sum(x) / len(x) for right, x in agreed.items()}
    assert share[True] == pytest.approx(1 - DOUBT.slip, abs=0.05)
    assert share[False] == pytest.approx(1 - DOUBT.stamp, abs=0.08)


def test_a_judge_without_noise_is_never_wrong(demos):
    sure = JudgeRates(slip=0, stamp=0, slip_on_wrong=0)
    rng = random.Random(2)
    for demo in demos[:500]:
        for i, chunk in enumerate(demo.chunks):
            assert parse_verdict(judge(demo, i, sure, rng)) == ("positive" if chunk.right else "negative")


def test_training_pairs_are_seeded_balanced_and_never_held_out(recipe):
    pairs = list(itertools.islice(examples(recipe, DOUBT, 1), 600))
    assert pairs == list(itertools.islice(examples(recipe, DOUBT, 1), 600))
    assert pairs != list(itertools.islice(examples(recipe, DOUBT, 2), 600))
    judged = [p for p, _ in pairs if p.startswith("<judge>")]
    assert 240 < len(judged) < 360
    held = {p.text for p in generate(5000, 0, split="heldout")}
    assert not [p for p, _ in pairs if re.split(r"\n", p)[0].split(">", 1)[1] in held]


def test_decoding_gives_the_text_back_and_keeps_the_tags(recipe):
    tokenizer = build_tokenizer()
    for prompt, completion in itertools.islice(examples(recipe, DOUBT, 3), 500):
        ids = tokenizer(prompt + completion)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == prompt + completion
        # prompt and completion may be encoded apart, as a rollout does
        assert ids == tokenizer(prompt)["input_ids"] + tokenizer(completion)["input_ids"]
    anything = "".join(TAGS) + "\n a{b}c ~`$%^&|\\ Zoe, zoe; 1e3 = <chunk"
    assert tokenizer.decode(tokenizer(anything)["input_ids"], skip_special_tokens=True) == anything
    assert tokenizer("é")["input_ids"] == [tokenizer.unk_token_id]
    assert all(len(tokenizer(tag)["input_ids"]) == 1 for tag in TAGS)
    assert len(tokenizer("1234567890")["input_ids"]) == 10


def test_recipes_with_unknown_or_missing_fields_are_refused(tmp_path, recipe):
    bad = tmp_path / "bad.yaml"
    bad.write_text((NANO / "recipe.yaml").read_text() + "\nmagic: 3\n")
    with pytest.raises(RecipeError, match=r"bad\.yaml.*\n?magic"):
        load_recipe(bad)
    bad.write_text("seed: 1\n")
    with pytest.raises(RecipeError, match="batch"):
        load_recipe(bad)
    bad.write_text("{")
    with pytest.raises(RecipeError, match=r"bad\.yaml"):
        load_recipe(bad)
    with pytest.raises(RecipeError, match="cannot read"):
        load_recipe(tmp_path / "none.yaml")


@pytest.fixture(scope="module")
def small(recipe, tmp_path_factory):
    """A far smaller base: one operation a problem, few steps."""
    tiny = recipe.model_copy(
        update={
            "batch": 32,
            "stages": [
                Stage(steps=210, learning_rate=3e-3, warmup=20, judge=DOUBT),
                Stage(steps=40, learning_rate=1e-3, warmup=1, judge=DOUBT),
            ],
            "lengths": [1],
            "model": recipe.model.model_copy(update={"layers": 2, "hidden": 96, "feed_forward": 192}),
        }
    )
    seen = []
    out = tmp_path_factory.mktemp("nano") / "small"
    summary = train_nano(tiny, out, lambda step, metrics: seen.append((step, metrics["loss"])))
    return out, summary, seen


def load(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), tokenizer


def complete(model, tokenizer, prompts):
    batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    ids = model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        max_new_tokens=160,
        do_sample=False,
    )
    return tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def test_nano_recipe_learns(small, recipe):
    out, summary, seen = small
    assert [step for step, _ in seen] == [50, 100, 150, 200, 210, 250]
    assert summary["last_loss"] < 0.3 * summary["first_loss"] and summary["last_loss"] < 0.6
    tiny = recipe.model_copy(update={"lengths": [1]})
    pairs = list(itertools.islice(examples(tiny, DOUBT, 99), 64))
    texts = complete(*load(out), [p for p, _ in pairs])
    solved = [t for (p, _), t in zip(pairs, texts, strict=True) if p.startswith("<solve>")]
    judged = [t for (p, _), t in zip(pairs, texts, strict=True) if p.startswith("<judge>")]
    form = re.compile(r"(<chunk>[^<>]+</chunk>\n)+\\boxed\{\d+\}")
    assert sum(bool(form.fullmatch(t)) for t in solved) > 0.9 * len(solved)
    assert sum(parse_verdict(t) is not None for t in judged) > 0.9 * len(judged)


def test_training_saves_a_whole_checkpoint(small):
    out, summary, _ = small
    names = {f.name for f in out.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "recipe.yaml"} <= names
    assert load_recipe(out / "recipe.yaml").lengths == [1]
    assert json.loads((out / "training_log.json").read_text())["summary"] == summary


def test_the_committed_checkpoint_is_safetensors_small_and_from_the_committed_recipe(recipe):
    files = [f for f in CHECKPOINT.rglob("*") if f.is_file()]
    assert not [f.name for f in files if f.suffix in {".bin", ".pt", ".pth", ".pkl", ".py"}]
    assert sum(f.stat().st_size for f in files) < 6_000_000
    assert load_recipe(CHECKPOINT / "recipe.yaml") == recipe


def test_the_committed_checkpoint_solves_and_judges_problems_it_never_saw():
    model, tokenizer = load(CHECKPOINT)
    assert tokenizer.get_vocab() == build_tokenizer().get_vocab()
    problems = generate(40, 11)
    texts = complete(model, tokenizer, [f"<solve>{p.text}\n" for p in problems])
    right = sum(t.endswith(f"\\boxed{{{p.answer}}}") for p, t in zip(problems, texts, strict=True))
    assert right >= 28
    cases = [(p, v) for p in problems for v in (p.values[0], p.values[0] + 1)]
    prompts = []
    for p, value in cases:
        op, b = p.ops[0]
        prompts.append(f"<judge>{p.text}\n<history></history>\n<new>{p.start}{op}{b}={value}.</new>\n")
    verdicts = [parse_verdict(t) for t in complete(model, tokenizer, prompts)]
    hits = sum(
        v == ("positive" if value == p.values[0] else "negative")
        for (p, value), v in zip(cases, verdicts, strict=True)
    )
    assert hits >= 60


def test_the_same_recipe_gives_the_same_weights(recipe, tmp_path):
    short = recipe.model_copy(
        update={
            "batch": 8,
            "stages": [Stage(steps=6, learning_rate=3e-3, warmup=2, judge=DOUBT)],
            "model": recipe.model.model_copy(update={"layers": 1, "hidden": 64, "feed_forward": 64}),
        }
    )
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        train_nano(short.model_copy(update={"seed": seed}), tmp_path / name)
    one, again, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "again", "other")
    )
    assert one == again != other
