"""Options, messages and exit statuses of the commands, as far as no broker is needed."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import pydanube
from pydanube.cli import broker as broker_module
from pydanube.cli.main import _COMMANDS, main
from pydanube.server.config import ServerConfig

URL = "http://127.0.0.1:1"


def danube(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


def test_help_lists_every_command_without_loading_it() -> None:
    code = (
        "import sys; from pydanube.cli.main import main; main(['--help'], standalone_mode=False); "
        "heavy = {'grpc', 'rich', 'msgspec', 'structlog', 'yaml', 'asyncio'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in [*_COMMANDS, "version"]:
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("name", [*_COMMANDS, "version"])
def test_every_command_explains_itself(name: str) -> None:
    result = danube(name, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {name}")


def test_version_tells_the_version() -> None:
    assert f"danube {pydanube.__version__}" in danube("version").output
    assert pydanube.__version__ in danube("--version").output


# danube broker


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServerConfig]:
    """What `danube broker` would have run."""
    configs: list[ServerConfig] = []

    def run(config: ServerConfig) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(broker_module, "run", run)
    monkeypatch.setattr(broker_module, "configure_logging", lambda: None)
    return configs


def test_broker_flags_reach_the_configuration(started: list[ServerConfig], tmp_path: Path) -> None:
    file = tmp_path / "danube.yml"
    file.write_text("cluster_name: mine\nmeta_store: {data_dir: elsewhere}\n")
    result = danube(
        *("broker", "--mode", "Standalone", "--config-file", str(file), "--data-dir", "here"),
        *("--broker-addr", "127.0.0.1:1111", "--admin-addr", "127.0.0.1:2222", "--prom-exporter", "off"),
        *("--advertised-addr", "broker.example:3333", "--connect-url", "proxy.example:4444"),
        env={"DANUBE_DISPATCH__MAX_UNACKED_MESSAGES": "77"},
    )
    assert result.exit_code == 0, result.output
    [config] = started
    assert config.settings.cluster_name == "mine"
    assert config.settings.dispatch.max_unacked_messages == 77
    assert str(config.data_dir) == "here"
    assert (str(config.listeners.client), str(config.listeners.admin)) == ("127.0.0.1:1111", "127.0.0.1:2222")
    assert config.listeners.prometheus is None
    assert config.listeners.broker_url == "http://broker.example:3333"
    assert config.listeners.connect_url == "http://proxy.example:4444"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--mode", "cluster"], "mode cluster is not supported yet"),
        (["--mode", "edge"], "mode edge is not supported yet"),
        (["--mode", "nonsense"], "Invalid value for '--mode'"),
        (["--join"], "--join needs a cluster"),
        (["--seed-nodes", "a:1"], "--seed-nodes needs a cluster"),
        (["--raft-addr", "127.0.0.1:1"], "--raft-addr needs a cluster"),
        (["--edge-token", "hush"], "--edge-token needs a cluster or an edge"),
        (["--nonsense"], "No such option"),
    ],
)
def test_broker_refuses_what_it_cannot_do_with_status_2(
    started: list[ServerConfig], flags: list[str], words: str
) -> None:
    result = danube("broker", *flags)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "hush" not in result.output
    assert started == []


def test_broker_with_a_bad_configuration_does_not_start(started: list[ServerConfig]) -> None:
    result = danube("broker", "--broker-addr", "localhost:1")
    assert result.exit_code == 1
    assert "--broker-addr: 'localhost' is not an IP address" in result.stderr
    assert started == []


# danube config


def test_config_check_says_all_is_well(tmp_path: Path) -> None:
    file = tmp_path / "good.yml"
    file.write_text("broker: {host: 0.0.0.0}\n")
    result = danube("config", "check", str(file), env={"DANUBE_BROKER__NONSENSE": "1"})
    assert result.exit_code == 0
    assert "is a valid configuration" in result.stdout
    assert "warning: clients are told to dial" in result.stderr


def test_config_check_says_all_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "bad.yml"
    file.write_text("brokr: {}\ndispatch: {max_unacked_messages: 0}\n")
    result = danube("config", "check", str(file))
    assert result.exit_code == 1
    assert "brokr: unknown key; did you mean broker? (bad.yml, line 1)" in result.stderr
    assert "dispatch.max_unacked_messages: expected `int` >= 1 (bad.yml, line 2)" in result.stderr


def test_what_config_show_prints_is_a_configuration(tmp_path: Path) -> None:
    shown = danube("config", "show", "--data-dir", "x", env={"DANUBE_CLUSTER_NAME": "from-env"})
    assert shown.exit_code == 0
    assert "cluster_name: from-env" in shown.stdout
    assert "data_dir: x" in shown.stdout
    file = tmp_path / "shown.yml"
    file.write_text(shown.stdout)
    assert danube("config", "check", str(file)).exit_code == 0


# danube produce, danube consume


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce", "-m", "x"], "Missing option '-s' / '--service-addr'"),
        (["produce", "-s", "no/where", "-m", "x"], "invalid broker address 'no/where'"),
        (["produce", "-s", URL], "give a --message, or a --file"),
        (["produce", "-s", URL, "-m", "x", "-i", "99"], "99 is not in the range x>=100"),
        (["produce", "-s", URL, "-m", "x", "-c", "0"], "0 is not in the range"),
        (
            ["produce", "-s", URL, "-m", "x", "-a", "novalue"],
            "'novalue' is no attribute: expected name:value",
        ),
        (["produce", "-s", URL, "-f", "-", "-c", "3"], "each line of stdin is one message"),
        (["produce", "-s", URL, "-m", "x", "--schema-version", "1"], "need --schema-subject"),
        (
            [
                "produce",
                "-s",
                URL,
                "-m",
                "x",
                "--schema-subject",
                "s",
                "--schema-version",
                "1",
                "--schema-min-version",
                "1",
            ],
            "exclude each other",
        ),
        (["produce", "-s", URL, "-m", "x", "--schema-type", "avro"], "go together"),
        (["produce", "-s", URL, "-m", "x", "--schema-file", __file__, "--schema-subject", "s"], "leave out"),
        (["consume", "-s", URL], "Missing option '-m' / '--subscription'"),
        (["consume", "-s", URL, "-m", "s", "--sub-type", "solo"], "'solo' is not one of"),
        (["consume", "-s", URL, "-m", "s", "--start", "soon"], "'soon' is neither earliest, latest"),
        (["consume", "-s", URL, "-m", "s", "--start", "5", "--protocol", "grpc"], "--start needs the native"),
    ],
)
def test_usage_errors_exit_with_2_and_say_what_to_do(arguments: list[str], words: str) -> None:
    result = danube(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
