"""The API server itself goes: it restarts, and its etcd comes back from a backup."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from api_server import ApiServer
from fault_proxy import FaultProxy
from faulted_stage import Stage, build_stage, create_account
from operator_process import wait_until

pytestmark = [pytest.mark.component, pytest.mark.long]


def test_a_restart_of_the_api_server_is_survived(stage: Stage) -> None:
    server = stage.node.server
    with stage.keep_running():
        stage.apply()
        wait_until("A Job", lambda: stage.node.list("jobs"))
        server.program.stop()
        server.program.start()
        server.wait_until_ready()
        stage.wait_ready()
        stage.expect_undisturbed()
        stage.kubectl("delete", "service/smollm2", "deployment/smollm2")
        stage.expect_undisturbed()


def test_an_etcd_that_comes_back_from_a_backup_is_noticed(
    api_server: ApiServer, tmp_path: Path
) -> None:
    create_account(api_server)
    proxy = FaultProxy(api_server.url, api_server.folder)
    with proxy.running():
        stage = build_stage(api_server, "restored", proxy, tmp_path)
        with stage.keep_running(resync__INTERVAL_SECONDS=1.0) as ends:
            stage.apply()
            job = wait_until("A Job", lambda: stage.node.list("jobs"))[0]
            restart_etcd(api_server, lambda: shutil.copytree(data(api_server), tmp_path / "backup"))
            for number in range(50):
                stage.kubectl("annotate", "fisvc/smollm2", "--overwrite", f"number={number}")
            time.sleep(1)  # for its watch to have shown them
            restart_etcd(api_server, lambda: restore(data(api_server), tmp_path / "backup"))
            wait_until("It ends", lambda: ends)
            stage.node.finish_inspection(job)
            wait_until("A Deployment", lambda: stage.node.get("deployments", "smollm2"))
    assert "restored from a backup" in (tmp_path / "operator-1").read_text()


def data(server: ApiServer) -> Path:
    return server.folder / "etcd"


def restore(folder: Path, backup: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def restart_etcd(server: ApiServer, meanwhile: Callable[[], object]) -> None:
    server.program.stop()
    server.etcd.stop()
    meanwhile()
    server.etcd.start()
    server.program.start()
    server.wait_until_ready()
