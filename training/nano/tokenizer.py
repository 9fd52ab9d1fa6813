"""The nano tokenizer: tags, the phrases of problems and demonstrations, and single characters.

A phrase of a template is one token, so that a solution is some sixty tokens and training takes minutes;
anything else in printable ASCII is read character by character, digits always. Decoding gives the text
back exactly; only a character outside the vocabulary becomes <unk>.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from engine.worlds.nano import NAMES, STORIES, VERBS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<eos>", "<unk>")
# ordinary entries, not special ones: they must survive decoding with skip_special_tokens
TAGS = ("<solve>", "<judge>", "<history>", "</history>", "<new>", "</new>", "<chunk>", "</chunk>", "\\boxed{")
SOLVING = (
    *("Start with ", "Take ", ", then ", "Compute "),
    *("Plan: ", "add", "subtract", "multiply", ", ", ": ", "Wait, ", ", not ", "Check: "),
    *(f"{verb} " for verb in VERBS.values()),
    ". ",
)
JUDGING = (
    *("Goal: ", "plan", "check", "add ", "subtract ", "multiply ", ". I get ", ". I find "),
    *(". The chunk says ", ". The same. ", ". It agrees. ", ". Not the same. ", ". It differs. "),
    *(". No calculation here. ", "Positive", "Negative"),
)


def _phrases() -> list[str]:
    """What stands between the placeholders of the story templates."""
    found: set[str] = set(NAMES)
    for story in STORIES:
        for template in (story.start, *story.add, *story.take, *story.times, story.ask):
            found.update(part for part in re.split(r"\{\w+\}", template) if part)
    return sorted(found)


def vocabulary() -> list[str]:
    """Every token, in the order of its id."""
    characters = [
        c for c in string.printable if c in string.digits + string.ascii_letters + string.punctuation
    ]
    return list(
        dict.fromkeys([*SPECIAL, *TAGS, "\n", " ", "×", *characters, *SOLVING, *JUDGING, *_phrases()])
    )


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, ready for transformers and vLLM."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = vocabulary()
    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    # tags first, then the longest phrase that fits, then any one character
    phrases = sorted(
        (t for t in tokens if len(t) > 1 and t not in SPECIAL), key=lambda t: (t not in TAGS, -len(t))
    )
    pattern = "|".join(map(re.escape, phrases)) + r"|[\s\S]"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
