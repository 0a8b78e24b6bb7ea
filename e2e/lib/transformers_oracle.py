"""What transformers makes of the same GGUF file, greedily, in float32: the source of right answers.

`python e2e/lib/transformers_oracle.py MODEL.gguf` follows the candidates below
and stores those paths that are long enough and have no near ties (see prompts.py).
"""

import sys
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from prompts import LEAST_GAP, Endpoint, GreedyPath, write_paths

PATH_TOKENS = 240
NUM_PATHS_PER_ENDPOINT = 4
CANDIDATES: dict[Endpoint, tuple[str, ...]] = {
    "chat": (
        "Tell me a long story about a lighthouse keeper and her cat.",
        "Explain in detail how a bicycle stays upright.",
        "Describe the life of a honey bee from egg to old age.",
        "How do I bake a loaf of bread? Explain every step.",
        "Write a letter from a sailor to his sister about the sea.",
        "What happened in the history of the city of Rome?",
        "Explain how rain is made, as if to a child.",
        "Give me advice on how to learn to play the piano.",
    ),
    "completion": (
        "Once upon a time, in a small village by the sea,",
        "Water is essential for life because",
        "The train left the station in the morning, and",
        "The most important inventions in history are",
        "A good garden begins with",
        "The museum was built in 1882 by",
        "Photosynthesis is the process by which",
        "In the mountains, winter comes early, and",
    ),
}


class Oracle:
    """SmolLM2 as transformers runs it, one thread, one request at a time."""

    def __init__(self, gguf_path: Path) -> None:
        # Two threads wait for each other wherever the served pods are at work as well.
        torch.set_num_threads(1)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(
            gguf_path.parent, gguf_file=gguf_path.name
        )
        self._model: Any = load_llama(GGUFReader(gguf_path))

    def render_chat(self, message: str) -> str:
        """Return the prompt that the model's own chat template makes of one user message."""
        turns = [{"role": "user", "content": message}]
        rendered: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        return rendered

    def greedy(self, endpoint: Endpoint, prompt: str, max_tokens: int) -> GreedyPath:
        """Follow the best token from `prompt` for `max_tokens`, or to the end of the sequence."""
        text = self.render_chat(prompt) if endpoint == "chat" else prompt
        prompt_ids = torch.tensor([self.tokenizer(text).input_ids])
        output = self._model.generate(
            prompt_ids,
            attention_mask=torch.ones_like(prompt_ids),
            generation_config=GenerationConfig(  # type: ignore[no-untyped-call]
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=self.tokenizer.eos_token_id,
                pad_token_id=self.tokenizer.pad_token_id,
                output_logits=True,
                return_dict_in_generate=True,
            ),
        )
        token_ids = output.sequences[0, prompt_ids.shape[1] :].tolist()
        if token_ids[-1] == self.tokenizer.eos_token_id:
            token_ids.pop()
        best = torch.cat(output.logits).topk(2).values
        gap = float((best[:, 0] - best[:, 1]).min())
        return GreedyPath(endpoint, prompt, self._pieces(token_ids), gap)

    def _pieces(self, token_ids: list[int]) -> tuple[str, ...]:
        """Split a text into what each token adds to it."""
        ends = [""]
        for num_tokens in range(1, len(token_ids) + 1):
            ends.append(
                self.tokenizer.decode(token_ids[:num_tokens], clean_up_tokenization_spaces=False)
            )
        return tuple(after.removeprefix(before) for before, after in pairwise(ends))


def load_llama(reader: GGUFReader) -> Any:
    """Build the float32 model from a GGUF file's own metadata and tensors."""
    config = LlamaConfig(
        hidden_size=_read(reader, "embedding_length"),
        intermediate_size=_read(reader, "feed_forward_length"),
        num_hidden_layers=_read(reader, "block_count"),
        num_attention_heads=_read(reader, "attention.head_count"),
        num_key_value_heads=_read(reader, "attention.head_count_kv"),
        max_position_embeddings=_read(reader, "context_length"),
        rms_norm_eps=_read(reader, "attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": _read(reader, "rope.freq_base")},
        vocab_size=_read(reader, "vocab_size"),
        tie_word_embeddings=True,
        dtype="float32",
    )
    model: Any = LlamaForCausalLM(config)
    num_heads = {
        "attn_q": _read(reader, "attention.head_count"),
        "attn_k": _read(reader, "attention.head_count_kv"),
    }
    state = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        part = tensor.name.split(".")[-2]
        if part in num_heads:
            weight = _unpermute(weight, num_heads[part])
        state[_hugging_face_name(tensor.name)] = weight
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model.eval()


def _read(reader: GGUFReader, key: str) -> Any:
    return reader.fields[f"llama.{key}"].contents()


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo GGUF's interleaving of the rows that RoPE rotates together."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _hugging_face_name(name: str) -> str:
    whole = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }
    if name in whole:
        return whole[name]
    _, layer, part, _ = name.split(".")
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    return f"model.layers.{layer}.{parts[part]}.weight"


def search_paths(oracle: Oracle, endpoint: Endpoint) -> list[GreedyPath]:
    """Return the first candidates whose path is long enough and has no near tie."""
    found: list[GreedyPath] = []
    for prompt in CANDIDATES[endpoint]:
        path = oracle.greedy(endpoint, prompt, PATH_TOKENS)
        fits = len(path.pieces) == PATH_TOKENS and path.smallest_gap > LEAST_GAP
        verdict = "kept" if fits else "dropped"
        print(f"{verdict}, {len(path.pieces)} tokens, gap {path.smallest_gap:.4f}: {prompt}")
        found += [path] if fits else []
        if len(found) == NUM_PATHS_PER_ENDPOINT:
            break
    return found


if __name__ == "__main__":
    oracle = Oracle(Path(sys.argv[1]))
    both = search_paths(oracle, "chat"), search_paths(oracle, "completion")
    write_paths(list(chain.from_iterable(zip(*both, strict=True))))
