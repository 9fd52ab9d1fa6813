"""A tiny Llama with random weights and a character tokenizer, for tests of the door. It has learnt nothing."""

from __future__ import annotations

from pathlib import Path

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
TAGS = ("<chunk>", "</chunk>")
# Tokens of several characters, as real vocabularies have them: a stop string may end inside one.
PIECES = (*TAGS, "ab", "\n\n", "12")
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzABC +-*=().,:?\\{}\n鸡兔"
CONTEXT = 512
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def make_tiny_llama(folder: Path, *, seed: int = 0, context: int = CONTEXT, chat: bool = True) -> Path:
    """Write the checkpoint (about 200 KB) to ``folder`` and return it. The same seed writes the same weights."""
    import torch
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = [*SPECIAL, *PIECES, *CHARACTERS]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    pattern = "|".join(piece for piece in PIECES if piece not in TAGS) + r"|[\s\S]"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    if chat:
        fast.chat_template = CHAT_TEMPLATE
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=context,
        bos_token_id=vocabulary["<s>"],
        eos_token_id=vocabulary["</s>"],
        pad_token_id=vocabulary["<pad>"],
        # Wide weights make the next token depend on the text so far, as a trained LLM's does.
        initializer_range=0.3,
        dtype="float32",
    )
    torch.manual_seed(seed)
    llama = LlamaForCausalLM(config)
    with torch.no_grad():
        llama.lm_head.weight.mul_(
            0.5
        )  # and no token so likely, or unlikely, that a few hundred draws miss it
    llama.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
