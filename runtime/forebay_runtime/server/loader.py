"""Load a model as the command line named it: engine, tokenizer, chat template.

Runs on the engine's thread. torch is imported here and nowhere above, so that the server can
answer while that takes its seconds.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from pathlib import Path

from forebay_budget.hub import parse_hub_uri
from forebay_kernels.cpu.library import native
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.description import Description, describe_model
from forebay_runtime.loading.hub import find_model
from forebay_runtime.models.topology import Topology
from forebay_runtime.parallel.followers import start_followers
from forebay_runtime.server.draft_source import find_draft
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.service import Listener, Model, Words
from forebay_runtime.start.refusals import check_length, check_topology
from forebay_runtime.text_parts import read_text_parts

logger = logging.getLogger(__name__)


def describe_local(
    model: str, config: EngineConfig, *, is_on_cpu: bool = False
) -> Description | None:
    """Read a model's headers before the port is opened; None where the hub has yet to be asked.

    What they rule out is then told alone, and within a second. is_on_cpu: nothing else can be what
    it runs on.
    Raises: ModelError or StartError.
    """
    if is_on_cpu:
        _check_kernels()
    if model.startswith("hf://"):
        parse_hub_uri(model)
        return None
    return _describe(find_model(model), config)


def load_model(
    model: str,
    config: EngineConfig,
    options: ServeOptions,
    listener: Listener | None = None,
    described: Description | None = None,
) -> Model:
    """Load the model; config's model_path is set to where it was found.

    listener: told when a rank that shares the model is lost, on a thread of its own.
    described: what describe_local gave.
    Raises: ModelError, StartError, TokenizerError or RankLost with a sentence that leads to the
    cause.
    """
    # Before any rank is started for what the model cannot have.
    described = described or _describe(find_model(model), config)
    path = described.path
    # The other ranks first, as they have much to import.
    followers = start_followers(config, None if listener is None else listener.on_loss)
    # Then the tokenizer: it is quick, and where it is at fault nothing was loaded for nothing.
    tokenizer, template = read_text_parts(path, options.chat_template)
    if template.fault is not None:
        logger.warning("Found a fault by which chats will be refused: %s", template.fault)
    if listener is not None:
        sizes = described.inspection.config
        listener.on_words(Words(tokenizer, tokenizer.eos_token_ids, sizes.vocab_size))
    from forebay_runtime.assembly import build_engine

    # All that was imported stays.
    gc.freeze()
    gc.enable()
    config = replace(config, model_path=path)
    config = find_draft(config, tokenizer, lambda found: read_text_parts(found)[0])
    engine = build_engine(config, tokenizer.eos_token_ids, followers, described)
    return Model(engine, tokenizer, template, config)


def _check_kernels() -> None:
    """Raises: StartError for kernels, or a set of instructions, that a CPU has not."""
    try:
        native()
    except ValueError as error:
        raise StartError(str(error)) from error


def _describe(path: Path, config: EngineConfig) -> Description:
    """Raises: ModelError, or StartError for sizes that the model cannot have."""
    described = describe_model(path)
    sizes = described.inspection.config
    topology = Topology(config.tensor_parallel_size, config.pipeline_parallel_size)
    check_topology(topology, sizes, config.quantization)
    check_length(config.max_model_len, sizes.max_position_embeddings)
    return described
