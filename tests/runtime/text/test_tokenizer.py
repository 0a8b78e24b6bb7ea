"""Tokenizers from GGUF files and folders, against what `transformers` makes of the same files."""

import json
import threading
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import AutoTokenizer

from forebay_budget.gguf import read_gguf_header
from forebay_runtime.text.gguf_tokenizer import build_gguf_tokenizer
from forebay_runtime.text.tokenizer import Tokenizer, TokenizerError, read_folder_tokenizer
from forebay_runtime.text_parts import read_text_parts
from smollm2 import smollm2_path

NASTY = {
    "empty": "",
    "plain": "The quick brown fox jumps over the lazy dog.",
    "contractions": "I'm, you're, don't, WE'LL, they'd've",
    "one-space": " ",
    "spaces-in-front": "   three before",
    "spaces-behind": "three behind   ",
    "space-runs": "a  b   c    d",
    "tabs-and-lines": " \t\n x\r\n\r\n  y\n\n\n",
    "digits": "1234567890 3.14159 1,000,000 1½²٣",
    "code": "def f(x):\n    return {'a': x[1:-1]}  # ok?\n",
    "punctuation": "...!!!???---___***///\\\\\\|||~~~`",
    "accents": "Crème brûlée, naïve façade, e\u0301",
    "scripts": "日本語のテキスト 한국어 Русский العربية हिन्दी ไทย",
    "emoji": "😀👨‍👩‍👧‍👦🏳️‍🌈 ok 👍🏽",
    "odd-spaces": "\u00a0nbsp\u2003em\u200bzero\u3000wide\ufeff",
    "control": "\x00\x01\x1b[0m\x7f",
    "long-word": "a" * 200,
    "special-token": "<|im_start|>user\nhi<|im_end|>\n",
    "special-token-inside": "x<|im_end|> y <|endoftext|>",
    "almost-special": "<|im_start| > <|im_end",
}
CORPUS = [
    "The quick brown fox jumps over the lazy dog. " * 3,
    "She said: don't! I'll (we've) re-read it, 12345 times; 3.14159 and 2,000.",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))  # three\n",
    "Größe, café, naïve; русский язык; 日本語のテキスト。 한국어",
    "   leading spaces,\ttabs\r\nand lines\n\n\n  more   spaces  ",
]
nasty = pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())


@pytest.fixture(scope="module")
def smollm2(smollm2_oracle: Any) -> tuple[Tokenizer, Any]:
    return build_gguf_tokenizer(read_gguf_header(smollm2_path()).metadata), smollm2_oracle


@nasty
def test_smollm2_gives_the_ids_that_transformers_gives(
    smollm2: tuple[Tokenizer, Any], text: str
) -> None:
    ours, theirs = smollm2
    assert ours.encode(text) == theirs.encode(text)


@nasty
def test_smollm2_gives_the_text_back(smollm2: tuple[Tokenizer, Any], text: str) -> None:
    ours, _ = smollm2
    assert ours.decode(ours.encode(text)) == text


@nasty
def test_bytes_of_tokens_join_to_the_text_without_special_tokens(
    smollm2: tuple[Tokenizer, Any], text: str
) -> None:
    ours, theirs = smollm2
    ids = ours.encode(text)
    joined = b"".join(map(ours.token_bytes, ids)).decode()
    assert joined == theirs.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("text", [*NASTY.values(), "a  1", "x   42\n 7"])
def test_smollm2_cuts_words_as_its_published_pretokenizer_does(
    smollm2: tuple[Tokenizer, Any], text: str
) -> None:
    # Not as `transformers` does, which knows no pre-tokenizer named smollm and takes GPT-2's: that
    # one leaves a space before a digit alone.
    ours, theirs = smollm2
    backend = Backend.from_str(theirs.backend_tokenizer.to_str())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    assert ours.encode(text) == backend.encode(text, add_special_tokens=False).ids


def test_smollm2_ends_its_answers_at_the_end_of_a_turn_or_of_a_text(
    smollm2: tuple[Tokenizer, Any],
) -> None:
    ours, _ = smollm2
    assert ours.eos_token_ids == {*ours.encode("<|im_end|>"), *ours.encode("<|endoftext|>")}


def write_gguf(path: Path, metadata: dict[str, Any], vocabulary: list[str], **arrays: Any) -> Path:
    """A GGUF file that holds a tokenizer and nothing else."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(vocabulary)
    for name, values in arrays.items():
        getattr(writer, f"add_{name}")(values)
    for key, value in metadata.items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        (writer.add_bool if isinstance(value, bool) else add)(f"tokenizer.ggml.{key}", value)
    for name in ("block_count", "embedding_length", "attention.head_count"):
        writer.add_uint32(f"llama.{name}", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def train(backend: Backend, trainer: trainers.BpeTrainer) -> tuple[list[str], list[str]]:
    """A vocabulary, in the order of its ids, and its merges."""
    backend.train_from_iterator(CORPUS, trainer)
    model = json.loads(backend.to_str())["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return vocabulary, [" ".join(merge) for merge in model["merges"]]


def write_byte_level(path: Path, pretokenizer: str) -> Path:
    backend = Backend(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    vocabulary, merges = train(backend, trainer)
    types = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(vocabulary) - 3)
    metadata = {"model": "gpt2", "pre": pretokenizer, "bos_token_id": 0, "eos_token_id": 2}
    metadata["add_bos_token"] = False
    return write_gguf(path, metadata, vocabulary, token_types=types, token_merges=merges)


def write_sentencepiece(path: Path) -> Path:
    backend = Backend(BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=pieces, show_progress=False)
    vocabulary, _ = train(backend, trainer)
    types = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2
    types += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (len(vocabulary) - 259)
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(vocabulary) - 259)]
    metadata = {"model": "llama", "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    return write_gguf(path, metadata, vocabulary, token_types=types, token_scores=scores)


@pytest.fixture(scope="module", params=["gpt-2", "llama-bpe", "qwen2", "tekken"])
def byte_level(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = write_byte_level(tmp_path_factory.mktemp("gguf") / "model.gguf", request.param)
    theirs = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return build_gguf_tokenizer(read_gguf_header(path).metadata), theirs


def test_byte_level_vocabularies_give_the_ids_that_transformers_gives(
    byte_level: tuple[Tokenizer, Any],
) -> None:
    ours, theirs = byte_level
    assert {text: ours.encode(text) for text in NASTY.values()} == {
        text: theirs.encode(text) for text in NASTY.values()
    }


def test_byte_level_vocabularies_give_the_text_back(byte_level: tuple[Tokenizer, Any]) -> None:
    ours, _ = byte_level
    back = {name: ours.decode(ours.encode(text)) for name, text in NASTY.items()}
    assert back == NASTY


@pytest.fixture(scope="module")
def sentencepiece_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentencepiece(tmp_path_factory.mktemp("gguf") / "model.gguf")


def merge_by_score(metadata: dict[str, Any], text: str) -> list[int]:
    """The oracle: SentencePiece's rule by the letter, quadratic and slow."""
    tokens = metadata["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens, metadata["tokenizer.ggml.scores"], strict=True))
    types = dict(zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True))
    parts = list(("▁" + text.replace(" ", "▁")) if text else "")
    while True:
        pairs = [
            (-scores[left + right], at)
            for at, (left, right) in enumerate(zip(parts, parts[1:], strict=False))
            if types.get(left + right) == gguf.TokenType.NORMAL
        ]
        if not pairs:
            break
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    ids = {token: index for index, token in enumerate(tokens)}
    spelled = [[part] if part in ids else [f"<0x{b:02X}>" for b in part.encode()] for part in parts]
    return [ids[piece] for pieces in spelled for piece in pieces]


@nasty
def test_sentencepiece_vocabularies_merge_by_score(sentencepiece_file: Path, text: str) -> None:
    metadata = read_gguf_header(sentencepiece_file).metadata
    ours = build_gguf_tokenizer(metadata)
    assert ours.encode(text, add_special_tokens=False) == merge_by_score(metadata, text)


@nasty
def test_sentencepiece_vocabularies_give_the_text_back(sentencepiece_file: Path, text: str) -> None:
    ours = build_gguf_tokenizer(read_gguf_header(sentencepiece_file).metadata)
    assert ours.decode(ours.encode(text)) == "<s>" + text


def test_sentencepiece_vocabularies_give_the_ids_that_transformers_gives(
    sentencepiece_file: Path,
) -> None:
    # But for texts that begin with a space, where it leaves out the space that SentencePiece adds.
    ours = build_gguf_tokenizer(read_gguf_header(sentencepiece_file).metadata)
    folder, name = str(sentencepiece_file.parent), sentencepiece_file.name
    theirs = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    texts = [text for text in NASTY.values() if not text.startswith(" ")]
    assert {text: ours.encode(text) for text in texts} == {
        text: theirs.encode(text) for text in texts
    }


@pytest.mark.parametrize("adds_bos", [True, False, None])
def test_a_folder_gives_the_ids_that_transformers_gives(
    tmp_path: Path, adds_bos: bool | None
) -> None:
    backend = Backend(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<s>", "</s>", "<|eot_id|>"],
            show_progress=False,
        ),
    )
    if adds_bos is not False:
        backend.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    config["eos_token"] = "</s>"
    if adds_bos is not None:
        config["add_bos_token"] = adds_bos
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7]}))
    ours, theirs = read_folder_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in NASTY.values():
        assert ours.encode(text) == theirs.encode(text)
        assert ours.encode(text, False) == theirs.encode(text, add_special_tokens=False)
    assert ours.eos_token_ids == {1, 2, 7}


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"tokenizer.ggml.model": "t5"}, "'t5'"),
        ({}, "None"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "chameleon"}, "'chameleon'"),
        ({"tokenizer.ggml.model": "gpt2"}, "tokenizer.ggml.merges"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.tokens"),
    ],
    ids=["unknown-model", "no-model", "unknown-pretokenizer", "no-merges", "no-tokens"],
)
def test_a_gguf_tokenizer_that_is_not_known_is_refused_by_name(
    metadata: dict[str, Any], named: str
) -> None:
    with pytest.raises(TokenizerError, match=named):
        build_gguf_tokenizer(metadata)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({}, "no tokenizer.json"),
        ({"tokenizer.json": "{"}, "could not be read"),
        ({"tokenizer.json": None}, "empty vocabulary"),
        ({"tokenizer.json": None, "tokenizer_config.json": "["}, "not valid JSON"),
        ({"tokenizer.json": None, "config.json": "[" * 100_000}, "is not JSON"),
        ({"tokenizer.json": None, "config.json": '{"eos_token_id": [[2]]}'}, "no token"),
        ({"tokenizer.json": None, "generation_config.json": '{"eos_token_id": {}}'}, "no token"),
    ],
    ids=["absent", "broken", "empty", "broken-config", "deep-config", "nested-eos", "eos-object"],
)
def test_a_folder_without_a_usable_tokenizer_is_refused(
    tmp_path: Path, files: dict[str, str | None], named: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text or Backend(BPE()).to_str())
    with pytest.raises(TokenizerError, match=named):
        read_folder_tokenizer(tmp_path)


def test_other_threads_run_while_a_long_text_is_tokenised() -> None:
    tokenizer, _ = read_text_parts(smollm2_path())
    num_ticks, is_over = 0, threading.Event()

    def tick() -> None:
        nonlocal num_ticks
        while not is_over.wait(0.001):
            num_ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    most = 0
    for _ in range(20):  # a busy machine may give the ticker nothing for a while
        before = num_ticks
        tokenizer.encode("qzx7é" * 40_000)
        most = max(most, num_ticks - before)
        if most >= 10:
            break
    is_over.set()
    ticker.join()
    assert most >= 10


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("merges", ["ab"]),
        ("merges", ["a z"]),
        ("tokens", 5),
        ("token_type", 5),
        ("eos_token_id", [2]),
        ("bos_token_id", "x"),
    ],
    ids=["merge-of-one", "unknown-merge", "tokens", "types", "eos", "bos"],
)
def test_a_damaged_gguf_tokenizer_is_refused_in_one_sentence(key: str, value: Any) -> None:
    fields = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
    metadata = {f"tokenizer.ggml.{name}": field for name, field in fields.items()}
    assert build_gguf_tokenizer(metadata).encode("ab") == [2]
    with pytest.raises(TokenizerError, match="The GGUF file's tokenizer is damaged"):
        build_gguf_tokenizer(metadata | {f"tokenizer.ggml.{key}": value})
