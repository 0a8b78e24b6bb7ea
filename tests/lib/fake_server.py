"""Run the real server around the fake engine: `python fake_server.py JSON`, JSON is two objects.

The first holds ServeOptions' fields, the second FakeEngine's. Started by server_process.
"""

import json
import logging
import sys
from pathlib import Path

from fake_engine import TEMPLATE, FakeEngine, build_byte_tokenizer
from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.config import EngineConfig
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.process import leave, run_server
from forebay_runtime.server.service import Listener, Model


def main() -> None:
    """Serve until told to stop."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    options, engine = json.loads(sys.argv[1])
    log = Path(options.pop("termination_log"))
    template = engine.pop("template", TEMPLATE)

    def load(listener: Listener) -> Model:
        tokenizer = build_byte_tokenizer()
        read = ChatTemplate(template, tokenizer.special.names)
        return Model(FakeEngine(**engine), tokenizer, read, EngineConfig(Path("fake")))

    leave(run_server(ServeOptions(termination_log=log, **options), load))


if __name__ == "__main__":
    main()
