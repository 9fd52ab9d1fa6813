"""Tokenizers for tests of prompts: nano's, SmolLM2's, and two small BPEs trained here (byte-level, and with sentencepiece's
space before a text). No weights."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from engine.checkpoints import PACKAGED
from engine.llm.tokens import Tokens

SMOLLM2 = Path(__file__).parent / "smollm2_tokenizer.json.xz"
"""tokenizer.json of HuggingFaceTB/SmolLM2-135M-Instruct (Apache 2.0), as `stepwiser smollm2 fetch` saves it."""
SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NANO_TEMPLATE = "{% for m in messages %}{{ m['content'] }}={% endfor %}"
# As the big families write theirs: with the begin token, trimmed, and an answer that begins after two line ends.
BYTE_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m['role'] }}\n\n{{ m['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant\n\n{% endif %}"
)
SPACED_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] | trim }} [/INST]"
    "{% else %} {{ m['content'] | trim }} {{ eos_token }}{% endif %}{% endfor %}"
)
CORPUS = (
    "Mia has 12 shells. She finds 7 more. So 12 + 7 = 19.\n\n<chunk>12 + 7 = 19</chunk>\n\\boxed{19}",
    "First, add 3 and 4: 3+4=7.\n\n\nThen double it. 7 × 2 = 14, and that is all. [INST] [/INST] user assistant",
    "The answer is 鸡兔 19 🙂.\n" * 3,
)


def load(folder: Path) -> Tokens:
    """``Tokens.load`` without transformers' choice of class, which loads torch."""
    from transformers import PreTrainedTokenizerFast

    return Tokens(PreTrainedTokenizerFast.from_pretrained(folder), folder.name)


def nano() -> Tokens:
    """Nano's own tokenizer, with a template put on it: nano has none."""
    tokens = load(PACKAGED["nano"])
    tokens.tokenizer.chat_template = NANO_TEMPLATE
    return tokens


def smollm2(folder: Path) -> Tokens:
    """SmolLM2's tokenizer, unpacked into ``folder``."""
    (folder / "tokenizer.json").write_bytes(lzma.decompress(SMOLLM2.read_bytes()))
    marks = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    config = marks | {"pad_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(SMOLLM2_TEMPLATE)
    return load(folder)


@cache
def _trained(spaced: bool) -> str:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    special = ["<unk>", "<s>", "</s>", "<|head|>", "<|eot|>"]
    if spaced:
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        alphabet = [chr(code) for code in range(33, 127)]
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in ("<chunk>", "</chunk>")])
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    return str(tokenizer.to_str())


def _bpe(spaced: bool, template: str) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained(spaced)),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=["<|head|>", "<|eot|>"],
    )
    fast.chat_template = template
    return fast


def byte_level(template: str = BYTE_TEMPLATE) -> Tokens:
    """A byte-level BPE that adds a begin token to every text."""
    return Tokens(_bpe(False, template), "byte-level")


def spaced() -> Tokens:
    """A BPE that puts a space before every text and takes one off when it decodes, as sentencepiece's do."""
    return Tokens(_bpe(True, SPACED_TEMPLATE), "spaced")
