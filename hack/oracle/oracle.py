"""The reference tokenizers, under the names that goldens and tests use.

qwen3, llama3_1, deepseek_v3, gptoss and gemma3 are Hugging Face tokenizers, read
from <models>/<name>/tokenizer.json. tiktoken-o200k and tiktoken-kimi are OpenAI's
tiktoken over the vocabulary of gptoss, written as a tiktoken file, with the
pattern of o200k and with the one that Kimi's models use. tiktoken-kimi-runs cuts
long texts before anything else, as these models' own code does.
"""

import base64
import json
import os
import re

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAYON_NUM_THREADS", "1")

HUGGING_FACE = ["qwen3", "llama3_1", "deepseek_v3", "gptoss", "gemma3"]
TIKTOKEN = ["tiktoken-o200k", "tiktoken-kimi", "tiktoken-kimi-runs"]

# Where tiktoken-kimi-runs cuts long texts and runs, in characters: Kimi's limits.
MAX_TEXT, MAX_RUN = 400_000, 25_000

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _cased(upper, lower):
    """Words of o200k: upper and lower are classes, the words end in a contraction."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return [
        f"{lead}{upper}*{lower}+{_CONTRACTION}",
        f"{lead}{upper}+{lower}*{_CONTRACTION}",
        r"\p{N}{1,3}",
    ]


_SPACE = [r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]

PATTERNS = {
    "tiktoken-o200k": "|".join(
        _cased(f"[{_UPPER}]", f"[{_LOWER}]") + [r" ?[^\s\p{L}\p{N}]+[\r\n/]*"] + _SPACE
    ),
    "tiktoken-kimi": "|".join(
        [r"[\p{Han}]+"]
        + _cased(rf"[{_UPPER}&&[^\p{{Han}}]]", rf"[{_LOWER}&&[^\p{{Han}}]]")
        + [r" ?[^\s\p{L}\p{N}]+[\r\n]*"]
        + _SPACE
    ),
}

PATTERNS["tiktoken-kimi-runs"] = PATTERNS["tiktoken-kimi"]

# Tokens beside the ranks. None begins another one: tiktoken does not say which
# of two such would win.
SPECIAL = {
    "tiktoken-o200k": ["<|startoftext|>", "<|endoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>"],
    "tiktoken-kimi": ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"],
}

SPECIAL["tiktoken-kimi-runs"] = SPECIAL["tiktoken-kimi"]


def byte_of_char():
    """The alphabet in which byte-level vocabularies spell bytes, by character."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in plain}
    rest = (b for b in range(256) if b not in set(plain))
    table.update((chr(0x100 + i), b) for i, b in enumerate(rest))
    return table


def spelled(token, alphabet=byte_of_char()):
    """The bytes that a token of a byte-level vocabulary stands for."""
    return bytes(alphabet[c] for c in token)


def model_file(models, name, file="tokenizer.json"):
    return os.path.join(models, name, file)


def tiktoken_ranks(models):
    """The vocabulary of gptoss as {bytes: rank}."""
    with open(model_file(models, "gptoss"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    return {spelled(token): rank for token, rank in vocab.items()}


def tiktoken_file(ranks):
    """The text of a tiktoken file."""
    lines = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in lines)


def tiktoken_special(name, ranks):
    first = max(ranks.values()) + 1
    return {token: first + i for i, token in enumerate(SPECIAL[name])}


def version():
    """The name and version of Hugging Face tokenizers."""
    import tokenizers

    return "tokenizers " + tokenizers.__version__


class HuggingFaceText:
    """The text of a tokenizer.json, read by Hugging Face tokenizers."""

    def __init__(self, text):
        import tokenizers

        self.version = version()
        self.tokenizer = tokenizers.Tokenizer.from_str(text)

    def encode(self, texts, special):
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=special)]


class HuggingFace(HuggingFaceText):
    """The tokenizer of a model."""

    def __init__(self, models, name):
        with open(model_file(models, name), encoding="utf-8") as f:
            text = f.read()
        super().__init__(text)
        data = json.loads(text)
        self.added = {t["content"]: t["id"] for t in data["added_tokens"]}
        vocab = data["model"]["vocab"]
        if data["model"].get("byte_fallback"):
            self.vocabulary = [token.replace("▁", " ").encode() for token in vocab]
        else:
            self.vocabulary = [spelled(t) for t in vocab if t not in self.added]


def cut_runs(text):
    """The parts of a text without special tokens that are encoded on their own."""
    for i in range(0, len(text), MAX_TEXT):
        part = text[i : i + MAX_TEXT]
        start = run = 0
        for at, c in enumerate(part):
            if at == 0 or c.isspace() != part[at - 1].isspace():
                run = 0
            if run == MAX_RUN:
                yield part[start:at]
                start, run = at, 0
            run += 1
        yield part[start:]


class Tiktoken:
    """The vocabulary of gptoss, read by tiktoken."""

    def __init__(self, models, name):
        import tiktoken

        self.version = "tiktoken " + tiktoken.__version__
        ranks = tiktoken_ranks(models)
        special = tiktoken_special(name, ranks)
        self.added = special
        self.vocabulary = list(ranks)
        self.encoding = tiktoken.Encoding(
            name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens=special
        )
        self.specials = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        self.cuts = name.endswith("-runs")

    def encode(self, texts, special):
        del special  # there is no post-processor
        if self.cuts:
            return [self.encode_cut(t) for t in texts]
        return [self.encoding.encode(t, allowed_special="all") for t in texts]

    def encode_cut(self, text):
        ids = []
        for i, part in enumerate(self.specials.split(text)):
            if i % 2:
                ids.append(self.added[part])
                continue
            for cut in cut_runs(part):
                ids += self.encoding.encode_ordinary(cut)
        return ids


def load(models, name):
    """The oracle of that name."""
    if name in HUGGING_FACE:
        return HuggingFace(models, name)
    if name in TIKTOKEN:
        return Tiktoken(models, name)
    raise SystemExit(f"no oracle {name!r}; have {', '.join(HUGGING_FACE + TIKTOKEN)}")
