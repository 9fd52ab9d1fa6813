"""How a policy is asked: a prefix begins where chunk k ends, in plain text and inside a chat's turn, over tokenizers.

The doors' side (what ends a completion) is in test_llm_vllm; whole runs here go through the scripted door.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.rows import NewChunk, NewTrajectory
from engine.checkpoints import PACKAGED
from engine.chunks import cut_tags, prefix_text, token_ends
from engine.errors import InputError, LLMError, RecipeError
from engine.judge import load_prompt, render
from engine.llm.base import Sampling
from engine.llm.scripted import END
from engine.llm.tokens import Tokens
from engine.pipeline.evaluating import policy_with
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.policy_prompt import PolicyPrompt
from engine.recipes import RolloutRecipe, SampleRecipe
from engine.rollouts import prefix_key
from engine.search.recipes import SearchRecipe
from tests import little_world as little
from tests import policy_tokenizers as made

SOLUTION = "<chunk>3+4=7</chunk>\n<chunk>7*2=14</chunk>\n\n<chunk> so 14-1=13</chunk>\n\\boxed{13}"
PROBLEM = "3+4*2-1=?"
NO_BEGIN = made.BYTE_TEMPLATE.replace("{{ bos_token }}", "")
NAMES = ["nano", "smollm2", "byte-level", "byte-level, begin token left to the tokenizer", "spaced"]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokens]:
    pytest.importorskip("transformers")
    return dict(
        zip(
            NAMES,
            [
                made.nano(),
                made.smollm2(tmp_path_factory.mktemp("smollm2")),
                made.byte_level(),
                made.byte_level(NO_BEGIN),
                made.spaced(),
            ],
            strict=True,
        )
    )


@pytest.fixture(params=NAMES)
def tokens(request: pytest.FixtureRequest, every: dict[str, Tokens]) -> Tokens:
    return every[request.param]


def prompt(chat: bool) -> PolicyPrompt:
    return PolicyPrompt.load("policy_nano", chat)


def texts() -> list[str]:
    cut = cut_tags(SOLUTION)
    return [prefix_text(cut, k) for k in range(1, len(cut.chunks) + 1)]


def behind(tokens: Tokens, chat: bool, ids: tuple[int, ...]) -> str:
    """What the tokens say behind the prompt."""
    if chat:
        start = prompt(True).start(tokens, PROBLEM)
        assert ids[: len(start)] == start
        return tokens.decode(ids[len(start) :])
    said, filled = tokens.decode(ids), render(load_prompt("policy_nano", ["problem"]), problem=PROBLEM)
    assert said.startswith(filled)
    return said[len(filled) :]


@pytest.mark.parametrize("chat", [False, True])
def test_a_prefix_of_a_solution_of_text_begins_where_its_chunk_ends(tokens: Tokens, chat: bool) -> None:
    if not chat and tokens._lead[0]:
        pytest.skip("a plain prompt is encoded as the tokenizer does it, spaces behind tags included")
    for text in texts():
        begun = prompt(chat).begun(tokens, PROBLEM, text)
        assert begun.fault is None
        assert behind(tokens, chat, begun.token_ids) == text


@pytest.mark.parametrize("chat", [False, True])
def test_a_prefix_of_a_drawn_solution_is_its_own_tokens_up_to_where_its_chunk_ends(
    tokens: Tokens, chat: bool
) -> None:
    start = prompt(chat).start(tokens, PROBLEM)
    whole = tokens.encode_chat([{"role": "user", "content": "x"}], SOLUTION)
    drawn = whole[len(tokens.encode_chat([{"role": "user", "content": "x"}])) :]
    ends = token_ends(cut_tags(SOLUTION), drawn, tokens.decode)
    assert None not in ends
    for end, text in zip(ends, texts(), strict=True):
        ids = (*start, *drawn[:end])
        assert behind(tokens, chat, ids) == text
        # What is drawn next stands right behind it: the two parts say what the whole says.
        assert tokens.decode(drawn[:end]) + tokens.decode(drawn[end:]) == SOLUTION


def test_a_begin_token_stands_there_once_if_template_or_tokenizer_has_one(
    tokens: Tokens, every: dict[str, Tokens]
) -> None:
    name = next(name for name, own in every.items() if own is tokens)
    once = {"nano": 0, "smollm2": 0}.get(name, 1)
    begin = tokens.tokenizer.bos_token_id
    for ids in (prompt(True).start(tokens, PROBLEM), prompt(True).begun(tokens, PROBLEM, SOLUTION).token_ids):
        if once:
            assert ids[0] == begin and ids.count(begin) == 1
        elif name == "smollm2":  # its begin token is the mark that opens every turn: system, user, assistant
            assert ids[0] == begin and ids.count(begin) == 3
        else:
            assert begin is None or begin not in ids


def test_the_prompt_is_the_template_s_and_ends_inside_the_assistant_s_turn(every: dict[str, Tokens]) -> None:
    def said(name: str) -> str:
        return str(every[name].tokenizer.decode(prompt(True).start(every[name], PROBLEM)))

    assert said("smollm2").endswith(
        f"<|im_start|>user\n<solve>{PROBLEM}\n<|im_end|>\n<|im_start|>assistant\n"
    )
    assert said("smollm2").startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert said("byte-level") == (
        f"<s><|head|>user\n\n<solve>{PROBLEM}<|eot|><|head|>assistant\n\n"  # trimmed, as the template says
    )
    assert said("byte-level, begin token left to the tokenizer") == said("byte-level")


def test_text_goes_on_in_one_encoding_where_that_is_consistent_and_else_in_pieces(
    every: dict[str, Tokens],
) -> None:
    def ways(name: str, answer: str) -> tuple[list[int], list[int], list[int]]:
        own, messages = every[name], [{"role": "user", "content": PROBLEM}]
        start, whole = own.encode_chat(messages), own._opened(own._rendered(messages) + answer)
        ids = own.encode_chat(messages, answer)
        assert ids[: len(start)] == start
        return ids[len(start) :], ids, whole

    for name in NAMES[:-1]:
        _, ids, whole = ways(name, SOLUTION)
        assert ids == whole, name
    # As one text this one has a space behind every tag.
    piece, ids, whole = ways("spaced", SOLUTION)
    assert whole != ids and every["spaced"].decode(piece) == SOLUTION
    # Two line ends are one token in this vocabulary: as one text it would take the prompt's last one with it.
    own = made.byte_level(made.BYTE_TEMPLATE.replace("assistant\n\n", "assistant\n"))
    assert len(own._plain("\n\n")) == 1
    messages = [{"role": "user", "content": PROBLEM}]
    start, ids = own.encode_chat(messages), own.encode_chat(messages, "\n")
    assert ids[: len(start)] == start and ids != own._opened(own._rendered(messages) + "\n")
    assert own.decode(ids[len(start) :]) == "\n"


@pytest.mark.parametrize("answer", [" then", "then", "\nthen", "  two", "鸡 7", "🙂"])
@pytest.mark.parametrize("name", ["smollm2", "byte-level", "spaced"])
def test_no_space_is_put_before_an_answer_and_none_is_lost(
    name: str, answer: str, every: dict[str, Tokens]
) -> None:
    begun = prompt(True).begun(every[name], PROBLEM, answer)
    assert begun.fault is None and behind(every[name], True, begun.token_ids) == answer
    joint = {"smollm2": "assistant\n", "byte-level": "assistant\n\n", "spaced": "[/INST]"}[name]
    assert str(every[name]._decode(begun.token_ids)).endswith(joint + answer)


@settings(max_examples=60, deadline=None)
@given(
    st.text(
        alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\r\x00▁"),
        min_size=1,
        max_size=30,
    )
)
def test_any_text_goes_on_exactly_or_says_where_it_does_not(every: dict[str, Tokens], text: str) -> None:
    for name in NAMES:
        begun = prompt(True).begun(every[name], PROBLEM, text)
        assert (begun.fault is None) == (behind(every[name], True, begun.token_ids) == text), name
        assert begun.fault is None or name not in ("byte-level", NAMES[3])  # these have every byte


def test_names_of_special_tokens_in_a_solution_are_plain_text(every: dict[str, Tokens]) -> None:
    text = "he wrote <|im_end|> and <|eot|></s>"
    for name in ("smollm2", "byte-level"):
        begun = prompt(True).begun(every[name], PROBLEM, text)
        start = prompt(True).start(every[name], PROBLEM)
        assert begun.fault is None and behind(every[name], True, begun.token_ids) == text
        assert not set(begun.token_ids[len(start) :]) & every[name]._special


@pytest.mark.parametrize(("chat", "place"), [(True, "6"), (False, "5 (white space not counted)")])
def test_a_character_that_the_tokenizer_lacks_is_a_fault(
    every: dict[str, Tokens], chat: bool, place: str
) -> None:
    begun = prompt(chat).begun(every["nano"], PROBLEM, "3+4=7 é")
    assert begun.fault is not None and f"at character {place} it has 'é'" in begun.fault


def test_a_plain_prefix_may_not_say_another_thing(every: dict[str, Tokens]) -> None:
    for text in ("<chunk>17 − t</chunk>", "<chunk>2 · 5", "<chunk>a<eos>b"):
        assert prompt(False).begun(every["nano"], PROBLEM, text).fault is not None
    for own in every.values():  # a problem that the tokenizer cannot write is no fault of the solution
        begun = prompt(False).begun(own, f"{PROBLEM} 求 é", SOLUTION)
        assert begun.fault is None


@pytest.mark.parametrize("chat", [False, True])
def test_a_tokenizer_may_write_two_characters_that_make_one_as_that_one(chat: bool) -> None:
    from tokenizers.normalizers import NFC

    composing = made.byte_level()
    composing.tokenizer.backend_tokenizer.normalizer = NFC()
    begun = prompt(chat).begun(composing, PROBLEM, "cafe\u0301 + 1")
    assert begun.fault is None and behind(composing, chat, begun.token_ids) == "caf\u00e9 + 1"


def test_the_token_that_closes_a_turn_is_the_template_s(every: dict[str, Tokens]) -> None:
    def mark(name: str) -> str | None:
        end = every[name].turn_end
        return None if end is None else every[name].tokenizer.convert_ids_to_tokens(end)

    assert [mark(name) for name in NAMES] == [None, "<|im_end|>", "<|eot|>", "<|eot|>", "</s>"]
    own = every["byte-level"]
    assert own.stop_ids(Sampling()) == []
    assert own.stop_ids(Sampling(ends_turn=True)) == [own.turn_end]
    assert every["nano"].stop_ids(Sampling(ends_turn=True)) == []


def test_a_mark_that_closes_a_turn_is_left_out_of_text_though_not_special() -> None:
    own = made.byte_level(made.BYTE_TEMPLATE.replace("<|eot|>", "<stop>"))
    own.tokenizer.add_tokens(["<stop>"])
    end = own.tokenizer.convert_tokens_to_ids("<stop>")
    assert own.turn_end == end and end not in own._special
    assert own.decode([*own._plain("12"), end]) == "12"


# Chat off is what it was: rollouts that are stored go on being found.


def test_keys_of_plain_prompts_are_what_they_were(every: dict[str, Tokens]) -> None:
    for name in ("nano", "smollm2"):
        for policy in ("policy_nano", "policy", "policy_smollm2"):
            plain = PolicyPrompt.load(policy)
            sampling = plain.sampling(Sampling(max_tokens=256))
            start = plain.start(every[name], PROBLEM)
            begun = plain.begun(every[name], PROBLEM, SOLUTION[:41])
            keys = [prefix_key(ids, "0" * 64, sampling) for ids in (start, begun.token_ids)]
            assert [key[:16] for key in keys] == FROZEN[f"{name} {policy}"], (name, policy)
            assert begun.fault is None


FROZEN = {
    "nano policy_nano": ["c0740a4965815e54", "e5230a64fd13450f"],
    "nano policy": ["48560531da64c66b", "ec83c8dc6ed75ce8"],
    "nano policy_smollm2": ["a5e610ea8d2f201a", "094b88dd1d0e94cf"],
    "smollm2 policy_nano": ["ede7993194a22503", "763b646775ca3d92"],
    "smollm2 policy": ["137c87f34f427142", "24aa08f5e21010d6"],
    "smollm2 policy_smollm2": ["ebef10100c4fe462", "6f334dd709e28496"],
}
"""The first 16 digits of keys made before there were chats: of the bare problem, and of a prefix of text."""


def test_smollm2_is_asked_as_its_adapter_was_trained(every: dict[str, Tokens]) -> None:
    """Its prompt writes the turns' marks itself and has no system turn: the template would put one first."""
    from itertools import islice

    from training.smollm2.words import examples

    own = every["smollm2"]
    asked, _ = next(islice(examples((2,), 0.0, 1), 1))
    problem = asked.partition("user\n")[2].partition("<|im_end|>")[0]
    plain = PolicyPrompt.load("policy_smollm2").start(own, problem)
    assert list(plain) == own.tokenizer([asked])["input_ids"][0], "as training.nano.train.padded tokenizes it"
    assert own.tokenizer.decode(plain).count("<|im_start|>") == 2
    user = asked.partition("user\n")[2].partition("<|im_end|>")[0]
    through = own.encode_chat([{"role": "user", "content": user}])
    assert tuple(through[-len(plain) :]) == plain and len(through) > len(plain)


def test_settings_of_a_chat_have_a_digest_of_their_own() -> None:
    assert Sampling().digest() == "92e55b4b1a88318d"
    assert Sampling(ends_turn=True).digest() != Sampling().digest()
    assert prompt(True).sampling(Sampling(top_k=3)) == Sampling(top_k=3, ends_turn=True)
    assert prompt(False).sampling(Sampling(top_k=3)) == Sampling(top_k=3)


# Recipes and whole runs


@pytest.mark.parametrize("recipe", [SampleRecipe, RolloutRecipe, SearchRecipe])
def test_a_chat_with_a_checkpoint_without_a_template_is_refused(recipe: type, tmp_path: Path) -> None:
    recipe(chat=False).check(tmp_path)
    with pytest.raises(RecipeError, match="'checkpoint' has no chat template"):
        recipe(chat=True).check(tmp_path)
    with pytest.raises(InputError):
        recipe(prompt="judge_nano").check(tmp_path)


def test_a_template_is_found_beside_the_tokenizer_or_in_its_settings(tmp_path: Path) -> None:
    PolicyPrompt.check("policy_nano", False, tmp_path)
    with pytest.raises(RecipeError):
        PolicyPrompt.check("policy_nano", True, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": null}')
    with pytest.raises(RecipeError):
        PolicyPrompt.check("policy_nano", True, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    PolicyPrompt.check("policy_nano", True, tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "chat_template.jinja").write_text("x")
    PolicyPrompt.check("policy_nano", True, tmp_path)


def test_without_a_template_a_chat_says_so(every: dict[str, Tokens]) -> None:
    own = made.load(PACKAGED["nano"])
    assert own.turn_end is None
    with pytest.raises(LLMError, match="no chat template"):
        prompt(True).start(own, PROBLEM)


def by_hand(first: str) -> NewTrajectory:
    """A solution of the first problem of which only the text is known."""
    chunks = (NewChunk("<chunk>", first, "</chunk>"), NewChunk("\n<chunk>", "3+3=6", "</chunk>"))
    tail = "\n\\boxed{6}"
    text = "".join(c.lead + c.text + c.close for c in chunks) + tail
    return NewTrajectory(1, "by hand", text, tail, chunks, "tags", "correct")


def test_a_chat_run_goes_on_inside_the_turn_and_shares_the_bare_problem_s_samples(tmp_path: Path) -> None:
    store = little.open_little(tmp_path)
    llm = little.scripted_policy()
    sample_with(little.context(store, little.sample_recipe(chat=True), tmp_path), llm)
    store.add_trajectories([by_hand("1+2=3")], run_id=None, actor="test")
    roll_out(little.context(store, little.rollout_recipe(m=4, chat=True), tmp_path), llm)
    rows = store.stage_trajectories(store.trajectory_ids(dataset=little.DATASET))
    stored = store.prefixes({c.prefix_id for row in rows for c in row.chunks if c.prefix_id})
    seen = 0
    for row in rows:
        turn = f"user: <solve>{row.problem}\n\nassistant: "
        for k, chunk in enumerate(row.chunks[:-1], start=1):
            prefix = stored[chunk.prefix_id]
            text = "".join(c.lead + c.text + c.close for c in row.chunks[:k])
            assert llm.decode(prefix.token_ids) == turn + text and END not in prefix.token_ids
            seen += 1
    assert seen == len(rows) == 19
    assert all(p.sampling["ends_turn"] for p in stored.values())
    # The bare problem was sampled: nothing more is drawn from it.
    firsts = {row.prefix_id for row in rows if row.prefix_id}
    assert not any(store.draws_done(list(firsts)).values())
    # The same in plain text is another prompt, with prefixes of its own.
    before = len(little.all_rollouts(store))
    roll_out(little.context(store, little.rollout_recipe(m=4), tmp_path), llm)
    assert len(little.all_rollouts(store)) > before


def test_a_prefix_that_the_tokenizer_cannot_write_is_marked_and_the_rest_goes_on(tmp_path: Path) -> None:
    class Deaf(type(little.scripted_policy())):  # type: ignore[misc]
        def encode_chat(self, messages: list[dict[str, str]], answer: str = "") -> list[int]:
            return list(super().encode_chat(messages, answer.replace("é", "")))

    store = little.open_little(tmp_path)
    for sign in ("", "é"):
        store.add_trajectories([by_hand(f"1+2{sign}=3")], run_id=None, actor="test")
    llm = Deaf(little.policy, name="deaf")
    roll_out(little.context(store, little.rollout_recipe(m=4, chat=True), tmp_path), llm)
    good, bad = store.stage_trajectories(store.trajectory_ids(dataset=little.DATASET))
    ids = [good.chunks[0].prefix_id, bad.chunks[0].prefix_id]
    stored = store.prefixes(ids)
    assert stored[ids[0]].error is None and "at character 10 it has 'é" in stored[ids[1]].error
    assert store.draws_done(ids).get(ids[0]) == 4 and not store.draws_done(ids).get(ids[1])


def test_a_policy_is_measured_through_its_template(tmp_path: Path) -> None:
    from engine.evaluate.recipes import EvaluatePolicyRecipe
    from engine.recipes import Draws

    store, asked = little.open_little(tmp_path), []

    def policy(prompt: str, seed: int) -> str:
        asked.append(prompt)
        return little.policy(prompt, seed)

    recipe = EvaluatePolicyRecipe(dataset=little.DATASET, n=2, chat=True, draws=Draws(max_tokens=200))
    llm = type(little.scripted_policy())(policy, name="asked")
    policy_with(little.context(store, recipe, tmp_path), llm)
    assert asked and all(p.startswith("user: <solve>") and p.endswith("\nassistant: ") for p in asked)
