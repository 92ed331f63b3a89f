"""Writes a model directory of a few KB whose token ids are byte values.

    tiny_model.py DIR

Text becomes one token per UTF-8 byte, 0 to 255, so a test knows the token ids of
a prompt without a tokenizer. 256, 257 and 258 are the special tokens below. The
chat template is the plain one of this file.
"""

import json
import os
import sys

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters():
    """The letter that byte-level tokenizers write for each byte value.

    Printable Latin-1 characters stand for themselves; the other bytes take the
    code points from 256 upward, in order.
    """
    spare = iter(range(256, 512))
    letters = []
    for value in range(256):
        printable = 33 <= value <= 126 or 161 <= value <= 172 or 174 <= value <= 255
        letters.append(chr(value if printable else next(spare)))
    return letters


def special_token(content):
    return {
        "content": content,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "single_word": False,
        "special": True,
    }


def tokenizer():
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 256 + i, **special_token(s)} for i, s in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {letter: value for value, letter in enumerate(byte_letters())},
            "merges": [],
        },
    }


def tokenizer_config():
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 8192,
        "added_tokens_decoder": {str(256 + i): special_token(s) for i, s in enumerate(SPECIAL)},
        "chat_template": TEMPLATE,
    }


def config():
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 8192,
        "eos_token_id": 257,
        "bos_token_id": 258,
        "torch_dtype": "bfloat16",
    }


def main():
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    files = {
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": tokenizer_config(),
        "config.json": config(),
        "generation_config.json": {"bos_token_id": 258, "eos_token_id": [257], "pad_token_id": 258},
    }
    for name, content in files.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
