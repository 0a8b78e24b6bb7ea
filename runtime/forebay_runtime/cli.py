"""The `forebay` command: serve a model, size one, look into one, or quantise and evaluate one.

`budget` and `inspect` belong to forebay_budget and run on the standard library alone; what the
others need is imported only when one is asked for, and torch only when its flags were found good.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from forebay_budget.inspection import ModelError
from forebay_runtime.config import StartError
from forebay_runtime.ending import run_until_ended

_BUDGET_COMMANDS = {
    "budget": "show how a model's memory splits, and on what it would fit",
    "inspect": "read a model's headers without loading its weights",
}
_RUNTIME_COMMANDS = {
    "serve": "serve a model over OpenAI's API",
    "quantize": "write a model's matrices in four or eight bits",
    "evaluate": "measure a model on a golden set, and what it lost against another",
}
_SERVE_EPILOG = """\
SIGTERM drains: newcomers are served for --lame-duck-seconds more, then get 503, and what is in
progress is finished within --shutdown-timeout. A second signal ends the process at once.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    started_at = time.monotonic()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _BUDGET_COMMANDS:
        from forebay_budget.cli import main as budget_main

        return budget_main(arguments)
    parser, commands = _build_parsers()
    if not arguments or arguments[0] not in _RUNTIME_COMMANDS:
        parser.parse_args(arguments)
        parser.print_help()
        return 2
    command, *rest = arguments
    own = commands[command]
    try:
        if command in _ENDABLE:
            return run_until_ended(f"forebay {command}", lambda: _ENDABLE[command](own, rest))
        from forebay_runtime.serve_flags import add_flags
    except ModuleNotFoundError as exc:
        return _refuse_without(exc, command)
    add_flags(own)
    return _serve(own.parse_args(rest), started_at)


class _Parser(argparse.ArgumentParser):
    """One sentence about what was wrong, instead of a screenful of usage before it."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        message = message.removeprefix("argument ")
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _build_parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """The command's, and those of the commands whose flags are still to be added."""
    parser = _Parser(prog="forebay", description="Serve large language models, sized and drained.")
    version = importlib.metadata.version("forebay")
    parser.add_argument("--version", action="version", version=f"forebay {version}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for name, text in _BUDGET_COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    own = {
        name: commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, text in _RUNTIME_COMMANDS.items()
    }
    own["serve"].epilog = _SERVE_EPILOG
    return parser, own


def _quantize(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    from forebay_runtime.quantizing.flags import DESCRIPTION, EPILOG, add_flags, to_settings
    from forebay_runtime.quantizing.refusal import QuantizeError

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_flags(parser)
    try:
        settings = to_settings(parser.parse_args(arguments))
    except QuantizeError as exc:
        print(f"forebay quantize: {exc}", file=sys.stderr)
        return 2
    from forebay_runtime.quantizing.command import run_quantize

    return run_quantize(settings)


def _evaluate(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    from forebay_runtime.evaluating.flags import DESCRIPTION, EPILOG, add_flags, to_settings

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_flags(parser)
    try:
        settings = to_settings(parser.parse_args(arguments))
    except ValueError as exc:
        parser.error(str(exc))
    from forebay_runtime.evaluating.command import run_evaluate

    return run_evaluate(settings)


_ENDABLE: dict[str, Callable[[argparse.ArgumentParser, list[str]], int]] = {
    "quantize": _quantize,
    "evaluate": _evaluate,
}


def _serve(parsed: argparse.Namespace, started_at: float) -> int:
    # Imports make no garbage, and to look for it among what they make takes a fifth of their time;
    # load_model begins to look again.
    gc.disable()
    from forebay_runtime.serve_settings import may_have_gpu, to_engine_config, to_options

    try:
        config, options = to_engine_config(parsed), to_options(parsed, started_at)
    except StartError as exc:
        print(f"forebay serve: {exc}", file=sys.stderr)
        return 2
    # Until the server owns the signals there is nothing to drain; and in a container this process
    # is the first one, which the kernel would not end by a signal that it does not handle. What
    # Python makes of SIGINT, a library that is being imported may take for its own failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # Its warnings are of what clients sent, and of packages that it could do with.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    from forebay_runtime.start.threads import prepare_libraries

    prepare_libraries()
    try:
        from forebay_runtime.server.last_words import speak_last_words
        from forebay_runtime.server.loader import describe_local, load_model
        from forebay_runtime.server.process import leave, run_server
        from forebay_runtime.server.service import Listener, Model
    except ModuleNotFoundError as exc:
        return _refuse_without(exc, "serve")
    try:
        is_on_cpu = not may_have_gpu(config.device)
        described = describe_local(parsed.model, config, is_on_cpu=is_on_cpu)
    except (ModelError, StartError) as exc:
        speak_last_words(str(exc), options.termination_log)
        return 1

    def load(listener: Listener) -> Model:
        return load_model(parsed.model, config, options, listener, described)

    leave(run_server(options, load))


def _refuse_without(missing: ModuleNotFoundError, command: str) -> int:
    message = f"{missing.name} is not installed; {command} needs the extra `runtime`"
    how = "run `pip install -c constraints.txt '.[runtime]'` in a clone of Forebay"
    print(f"forebay {command}: {message}: {how}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
