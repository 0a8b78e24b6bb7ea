"""The command line of `forebay serve`: the plan as flags, then what the user adds."""

from forebay_budget.sizing import Fit
from forebay_operator.planning.model_source import model_argument
from forebay_operator.service import Service

PORT = 8000
_DEVICES = {"GPU": "cuda", "CPU": "cpu"}


def build_arguments(service: Service, fit: Fit, model_revision: str) -> list[str]:
    """Every planned flag with its number, so that the runtime decides nothing anew."""
    planned: dict[str, object] = {
        "host": "0.0.0.0",
        "port": PORT,
        "served-model-name": service.model.name,
        "device": _DEVICES[fit.device],
        "dtype": fit.dtype,
        "max-model-len": fit.max_model_len,
        "max-num-seqs": fit.max_num_seqs,
        "max-num-batched-tokens": fit.max_num_batched_tokens,
        "gpu-memory-utilization": fit.gpu_memory_utilization,
        "kv-cache-memory-bytes": fit.terms.kv_cache_bytes,
        "tensor-parallel-size": fit.tensor_parallel_size,
        "quantization": fit.quantization,
        "kv-cache-dtype": fit.kv_cache_dtype,
        "shutdown-timeout": service.drain.timeout_seconds,
        "lame-duck-seconds": service.drain.lame_duck_seconds,
    }
    flags = [f"--{name}={value}" for name, value in planned.items() if value is not None]
    model = model_argument(service.model, model_revision)
    return ["serve", model, *flags, *service.engine.extra_args]
