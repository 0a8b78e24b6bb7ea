"""`make demo`: from a clone to a language model that answers, on a real Kubernetes.

`make cluster` does its first half, for the tests; `make demo-down` and `make clean` undo it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bring_up import bring_up
from cluster import Cluster, choose_cluster
from commands import CommandError
from environments import make_demo_environment
from home import BUILT, HOME, REPOSITORY
from prerequisites import find_missing
from readiness import NotReadyError, wait_until_ready
from steps import say, step

EXAMPLE = REPOSITORY / "examples/smollm2.yaml"
SERVICE, NAMESPACE = "smollm2", "default"
QUESTION = "Why does a river never run dry? Answer in three sentences."


def demo() -> None:
    """Set up what is missing, serve the example, and talk to it."""
    with step("Virtual environment"):
        python = make_demo_environment()
    cluster = bring_up()
    with step(f"kubectl apply -f {EXAMPLE.relative_to(REPOSITORY)}, until it is ready"):
        cluster.kubectl("apply", "-f", EXAMPLE)
        wait_until_ready(cluster.kubectl, SERVICE, NAMESPACE, 300, say)
    with step("Chat through the Service"):
        ask(cluster, python)
    print(cluster.kubectl("get", "inferenceservices.forebay.dev", "-n", NAMESPACE))
    say("Done; `make demo-down` stops all of it, and keeps what was built")
    print("To look around, with the commands of README.md:")
    folder, kubeconfig = cluster.kubectl.program.parent, cluster.kubectl.kubeconfig
    print(f"  export PATH={folder}:$PATH KUBECONFIG={kubeconfig}")


def ask(cluster: Cluster, python: Path) -> None:
    """Ask the served model a question, and print the answer as it comes."""
    print(f"\n> {QUESTION}\n", flush=True)
    with cluster.reach(NAMESPACE, SERVICE) as url:
        chat = Path(__file__).with_name("chat.py")
        subprocess.run(
            [python, chat, f"{url}/v1", SERVICE, QUESTION],
            env={**os.environ, "NO_PROXY": "*"},  # the Service is on this machine
            check=True,
        )
    print(flush=True)


def down() -> None:
    """Stop what runs, and keep what was built."""
    with step("Cluster down"):
        choose_cluster().down()


def clean() -> None:
    """Stop what runs, and remove what was built and fetched."""
    down()
    with step(f"Removal of images, and of what was built under {HOME}"):
        choose_cluster().remove_images()
        for name in BUILT:
            shutil.rmtree(HOME / name, ignore_errors=True)


def main(command: str) -> int:
    """Run one of the commands; 0 when it did what it should."""
    missing = find_missing()
    if missing:
        print("This cannot begin:", *missing, sep="\n  ", file=sys.stderr)
        return 1
    try:
        {"up": demo, "cluster": bring_up, "down": down, "clean": clean}[command]()
    except (CommandError, NotReadyError) as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError:
        return 1  # the chat has said why
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
