"""The commands for clusters, run against a broker that is alone: each answers with what is so, and changes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from broker_harness.admin_process import AdminProcess, admin_process
from click.testing import CliRunner, Result

from pydanube.cli.main import main


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    with admin_process(tmp_path_factory.mktemp("broker")) as process:
        yield process


def danube(process: AdminProcess, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"DANUBE_ADMIN_ADDR": process.admin_addr})


def document(process: AdminProcess, *arguments: str) -> Any:
    """What a command that must succeed says, which is the same in JSON and YAML."""
    shown = {form: danube(process, *arguments, "--output", form) for form in ("table", "json", "yaml")}
    assert {result.exit_code for result in shown.values()} == {0}, [each.output for each in shown.values()]
    found = json.loads(shown["json"].stdout)
    assert yaml.safe_load(shown["yaml"].stdout) == found
    return found


def own_id(process: AdminProcess) -> str:
    [broker] = document(process, "brokers", "list")
    identity: str = broker["broker_id"]
    return identity


def test_the_only_broker_is_the_whole_list(alone: AdminProcess) -> None:
    [broker] = document(alone, "brokers", "list")
    assert broker["broker_status"] == "active"
    assert broker["broker_addr"].endswith(alone.address)
    assert broker["admin_addr"].endswith(alone.admin_addr)


def test_it_leads_nobody_and_votes_for_itself(alone: AdminProcess) -> None:
    identity = int(own_id(alone))
    assert document(alone, "brokers", "leader") == {"leader": "not_found"}
    assert document(alone, "brokers", "leader-broker") == {"leader": "not_found"}
    status = document(alone, "cluster", "status")
    assert (status["self_node_id"], status["leader_id"], status["voters"]) == (identity, identity, [identity])
    assert status["learners"] == []
    assert document(alone, "brokers", "namespaces") == ["default", "system"]


NOT_ALONE = [
    (("brokers", "balance"), "CLUSTER_ONLY 110"),
    (("brokers", "rebalance"), "CLUSTER_ONLY 110"),
    (("brokers", "rebalance", "--dry-run", "--max-moves", "3"), "CLUSTER_ONLY 110"),
    (("cluster", "promote-node", "--node-id", "7"), "CLUSTER_ONLY 110"),
    (("cluster", "remove-node", "--node-id", "7"), "CLUSTER_ONLY 110"),
    (("cluster", "add-node", "--node-addr", "ITSELF"), "CLUSTER_ONLY 110"),
    (("brokers", "unload", "--broker-id", "OWN"), "BROKER_ALONE 316"),
    (("brokers", "unload", "--broker-id", "OWN", "--dry-run"), "BROKER_ALONE 316"),
]


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize(("words", "code"), NOT_ALONE, ids=lambda value: " ".join(value) if value else "")
def test_what_takes_others_is_refused_and_says_why(
    alone: AdminProcess, words: tuple[str, ...], code: str, form: str
) -> None:
    values = {"OWN": own_id(alone), "ITSELF": alone.admin_addr}
    refused = danube(alone, *(values.get(word, word) for word in words), "--output", form)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"(code {code.split()[1]})" in refused.stderr
    assert "not part of a cluster" in refused.stderr or "the only one" in refused.stderr
    [broker] = document(alone, "brokers", "list")
    assert broker["broker_status"] == "active"


def test_a_node_that_cannot_be_asked_to_join_is_not_there(alone: AdminProcess) -> None:
    nobody = danube(alone, "cluster", "add-node", "--node-addr", "127.0.0.1:1")
    assert (nobody.exit_code, nobody.stdout) == (3, "")
    assert "127.0.0.1:1" in nobody.stderr


def test_an_active_broker_stays_active(alone: AdminProcess) -> None:
    identity = own_id(alone)
    assert document(alone, "brokers", "activate", "--broker-id", identity) == {
        "broker_id": identity,
        "success": True,
    }
    [broker] = document(alone, "brokers", "list")
    assert broker["broker_status"] == "active"
    nameless = danube(alone, "brokers", "activate", "--broker-id", "")
    assert (nameless.exit_code, nameless.stdout) == (1, "")
    assert "which broker" in nameless.stderr


def test_a_topic_has_nowhere_to_go(alone: AdminProcess) -> None:
    assert danube(alone, "topics", "create", "/default/stays").exit_code == 0
    refused = danube(alone, "topics", "unload", "/default/stays")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "(code " in refused.stderr
    assert "/default/stays" in danube(alone, "topics", "list").stdout
