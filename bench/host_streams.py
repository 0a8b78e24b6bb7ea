"""What streaming costs the host: a whole server over loopback, whose model only sleeps.

    python bench/host_streams.py --num-clients 1 8 32 64 --step-ms 5

Everything but the model is real: HTTP, tokens to text, scheduler, sampler. Counted is what the
kernel says that each thread of the server had of a processor, so a busy neighbour changes little:
the asyncio loop's microseconds for each streamed token, and the engine thread's for each step. The
last column is what a step took beyond its own work and the model's sleep while a processor was free
for it: what the engine's thread waited for Python's lock, and a timer's delay. The client only
counts events, in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from serving.client import ask, build_post

_SERVER = Path(__file__).parent / "host_parts/sleeping_server.py"
_PROMPT_TOKENS = 128
_OPENED = re.compile(r"Opened host=\S+ port=(\d+)")


def main() -> None:
    """Print one row for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-clients", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--step-ms", type=float, default=5.0, help="what the model sleeps")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--chat", action="store_true", help="stream chats instead of completions")
    parser.add_argument("--top-p", type=float, default=None, help="sample; else greedy")
    args = parser.parse_args()
    streamed = build_streamed(args.chat, args.steps, args.top_p)
    print("| clients | loop, us a token | engine, us a step | a step waits, us |")
    print("|---|---|---|---|")
    with started_server(args.step_ms, max(args.num_clients)) as server:
        asyncio.run(load(server, streamed, 2))
        for num_clients in args.num_clients:
            cost = measure(server, streamed, num_clients, args.step_ms / 1000)
            print(f"| {num_clients} | {' | '.join(f'{us:.0f}' for us in vars(cost).values())} |")


@dataclass(frozen=True)
class Streamed:
    """A request for a stream of so many tokens."""

    request: bytes
    num_tokens: int


def build_streamed(is_chat: bool, num_tokens: int, top_p: float | None) -> Streamed:
    """A completion, or a chat."""
    text = "word " * (_PROMPT_TOKENS // 5)
    asked: dict[str, object] = {"model": "bench", "stream": True, "max_tokens": num_tokens}
    asked |= {"temperature": 0} if top_p is None else {"temperature": 0.8, "top_p": top_p}
    if is_chat:
        asked["messages"] = [{"role": "user", "content": text}]
        return Streamed(build_post("/v1/chat/completions", asked), num_tokens)
    return Streamed(build_post("/v1/completions", asked | {"prompt": text}), num_tokens)


@dataclass(frozen=True)
class Spent:
    """Seconds: by the clock, on a processor by thread, and waiting for one in the engine's."""

    clock: float
    loop: float
    engine: float
    engine_queued: float


@dataclass(frozen=True)
class Reading:
    """The clock, and what each thread has had of a processor and waited for one, in seconds."""

    clock: float
    main_thread: int
    threads: dict[int, tuple[float, float]]

    def since(self, before: Reading) -> Spent:
        """The asyncio loop has the main thread; the engine's is the busiest other in between.

        Not the busiest since the start: the thread that loaded the model may lead there.
        """
        spent = {}
        for thread, (had, queued) in self.threads.items():
            had_before, queued_before = before.threads.get(thread, (0.0, 0.0))
            spent[thread] = (had - had_before, queued - queued_before)
        loop_seconds, _ = spent.pop(self.main_thread)
        return Spent(self.clock - before.clock, loop_seconds, *max(spent.values()))


@dataclass(frozen=True)
class Server:
    """A running server: its process, and where it listens."""

    process: subprocess.Popen[str]
    port: int

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def read(self) -> Reading:
        """What its threads have had until now."""
        threads = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            had, queued = (task / "schedstat").read_text().split()[:2]
            threads[int(task.name)] = (int(had) / 1e9, int(queued) / 1e9)
        return Reading(time.perf_counter(), self.process.pid, threads)


def started_server(step_ms: float, num_clients: int) -> Server:
    """Start a server whose model sleeps, and wait until it is ready."""
    command = [sys.executable, str(_SERVER), str(step_ms / 1000), str(num_clients)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    port = 0
    for line in process.stderr or ():
        if match := _OPENED.search(line):
            port = int(match[1])
        if "Became ready" in line:
            return Server(process, port)
    raise RuntimeError("the server ended before it was ready")


@dataclass(frozen=True)
class Cost:
    """Microseconds."""

    loop_us: float
    engine_us: float
    wait_us: float


def measure(server: Server, streamed: Streamed, num_clients: int, step_seconds: float) -> Cost:
    """Stream to so many clients at once; their prompts and heads count too."""
    before = server.read()
    asyncio.run(load(server, streamed, num_clients))
    spent, num_steps = server.read().since(before), streamed.num_tokens
    waited = spent.clock - spent.engine - spent.engine_queued - num_steps * step_seconds
    return Cost(
        1e6 * spent.loop / (num_steps * num_clients),
        1e6 * spent.engine / num_steps,
        1e6 * waited / num_steps,
    )


async def load(server: Server, streamed: Streamed, num_clients: int) -> None:
    """Post so many requests at once and read their streams to the end."""
    asking = (ask(server.port, streamed.request) for _ in range(num_clients))
    nums = [
        b"".join(data for _, data in arrivals).count(b"data: ")
        for _, arrivals in await asyncio.gather(*asking)
    ]
    if min(nums) < streamed.num_tokens // 2:
        raise RuntimeError(f"streams ended early: {nums}")


if __name__ == "__main__":
    main()
