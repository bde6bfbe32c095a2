"""A configuration works as written, or everything wrong with it is said at once."""

from pathlib import Path

import pytest

from pydanube.kernel.policies import FsyncPolicy
from pydanube.server.config import Settings
from pydanube.server.config_file import ConfigError, key_paths, load_config
from pydanube.server.listeners import AddressFlags

SAMPLE = Path(__file__).parents[3] / "deploy" / "danube.yml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "danube.yml"


def load(file: Path, text: str, **environment: str) -> Settings:
    file.write_text(text)
    return load_config(file, environment=environment).settings


def problems(file: Path, text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, text, **environment)
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return list(caught.value.problems)


def test_without_anything_a_standalone_broker_comes_out() -> None:
    config = load_config(environment={})
    assert config.settings.cluster_name == "STANDALONE"
    assert str(config.listeners.client) == "127.0.0.1:6650"
    assert str(config.listeners.admin) == "127.0.0.1:50051"
    assert str(config.listeners.prometheus) == "127.0.0.1:9040"
    assert config.listeners.connect_url == "http://127.0.0.1:6650"
    assert not config.listeners.proxy
    assert config.settings.storage.wal.fsync is FsyncPolicy.ALWAYS
    assert config.wal_root == Path("danube-data/wal")
    assert config.warnings == ()


def test_the_sample_says_the_defaults() -> None:
    assert load_config(SAMPLE, environment={}).settings == Settings()


def test_the_sample_shows_every_key() -> None:
    text = SAMPLE.read_text()
    missing = [path for path in key_paths() if f"{path.rpartition('.')[2]}:" not in text]
    assert missing == []


def test_the_file_wins_over_defaults_environment_over_file_and_flags_over_all(file: Path) -> None:
    file.write_text(
        "meta_store: {data_dir: from-file}\ncluster_name: from-file\nbroker: {ports: {client: 1111}}"
    )
    environment = {"DANUBE_META_STORE__DATA_DIR": "from-env", "DANUBE_CLUSTER_NAME": "from-env"}
    config = load_config(file, environment=environment, data_dir="from-flag")
    assert config.settings.meta_store.data_dir == "from-flag"
    assert config.settings.cluster_name == "from-env"
    assert config.settings.broker.ports.client == 1111


def test_environment_values_take_the_type_of_their_key(file: Path) -> None:
    settings = load(
        file,
        "",
        DANUBE_BROKER__PORTS__CLIENT="6651",
        DANUBE_BROKER__PORTS__PROMETHEUS="null",
        DANUBE_AUTO_CREATE_TOPICS="false",
        DANUBE_BOOTSTRAP_NAMESPACES="one, two",
        DANUBE_CLUSTER_NAME="123",
        DANUBE_STORAGE__WAL__TOPIC_FSYNC="{'/logs/*': interval}",
        DANUBE_STORAGE__LOCAL_WAL_ROOT="null",
        DANUBE_LOG="debug",
        DANUBE_SERVICE_HOST="10.0.0.1",
        HOME="/root",
    )
    assert settings.broker.ports.client == 6651
    assert settings.broker.ports.prometheus is None
    assert settings.auto_create_topics is False
    assert settings.bootstrap_namespaces == ("one", "two")
    assert settings.cluster_name == "123"
    assert settings.storage.wal.topic_fsync == {"/logs/*": FsyncPolicy.INTERVAL}
    assert settings.storage.local_wal_root is None


def test_everything_wrong_is_said_with_path_place_and_help(file: Path) -> None:
    text = """\
broker:
  ports:
    clinet: 6650
    admin: many
dispatch:
  max_unacked_messages: 0
max_connections: 5
storage:
  wal:
    fsync: sometimes
"""
    assert problems(file, text, DANUBE_AUTO_CREATE_TOPICS="maybe", DANUBE_BROKER__PORT__CLIENT="1") == [
        "environment variable DANUBE_BROKER__PORT__CLIENT names no setting; did you mean DANUBE_BROKER__PORTS__CLIENT?",
        "broker.ports.clinet: unknown key; did you mean broker.ports.client? (danube.yml, line 3)",
        "max_connections: unknown key; did you mean limits.max_connections? (danube.yml, line 7)",
        "broker.ports.admin: expected `int`, got `str` (danube.yml, line 4)",
        "dispatch.max_unacked_messages: expected `int` >= 1 (danube.yml, line 6)",
        (
            "storage.wal.fsync: invalid enum value 'sometimes', expected one of: always, interval, never "
            "(danube.yml, line 10)"
        ),
        "auto_create_topics: expected `bool`, got `str` (environment variable DANUBE_AUTO_CREATE_TOPICS)",
    ]


def test_an_unknown_key_like_no_other_gets_the_list_of_known_ones(file: Path) -> None:
    [problem] = problems(file, "dispatch: {zzz: 1}")
    assert problem == "dispatch.zzz: unknown key; known here: max_unacked_messages (danube.yml, line 1)"


def test_a_variable_that_is_nearly_right_is_not_ignored(file: Path) -> None:
    [problem] = problems(file, "", DANUBE_CLUSTR_NAME="x")
    assert "did you mean DANUBE_CLUSTER_NAME?" in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("load_manager: {assignment_strategy: fair}", "load_manager: this release runs standalone"),
        (
            "meta_store: {seed_nodes: ['127.0.0.1:7650']}",
            "meta_store.seed_nodes: this release runs standalone",
        ),
        ("broker: {ports: {raft: 7650}}", "broker.ports.raft: this release runs standalone"),
        (
            "storage: {write_buffer: {backend: valkey}}",
            "storage.write_buffer: not needed: a publish is on disk before it is acknowledged",
        ),
        (
            "storage: {wal: {file_sync: {interval_ms: 5}}}",
            "use storage.wal.fsync and storage.wal.fsync_interval_ms",
        ),
        ("storage: {wal: {rotation: {max_hours: 5}}}", "use storage.wal.rotation.max_bytes"),
    ],
)
def test_what_this_release_cannot_honour_is_refused(file: Path, text: str, words: str) -> None:
    [problem] = problems(file, text)
    assert words in problem
    assert "hush" not in problem


def test_a_refused_key_that_asks_for_nothing_is_let_through(file: Path) -> None:
    load(file, "meta_store: {seed_nodes: []}\nload_manager: null")


def test_a_refused_key_is_refused_from_the_environment_too(file: Path) -> None:
    [problem] = problems(file, "", DANUBE_META_STORE__SEED_NODES="a:1,b:2")
    assert problem.startswith("meta_store.seed_nodes: this release runs standalone")
    assert problem.endswith("(environment variable DANUBE_META_STORE__SEED_NODES)")


def test_the_other_names_of_the_reference_work(file: Path) -> None:
    settings = load(file, "storage: {mode: local, root: /data/wal, wal: {retention: {time_minutes: 7}}}")
    assert settings.storage.local_wal_root == "/data/wal"
    assert settings.storage.local_retention.time_minutes == 7
    [problem] = problems(file, "storage: {root: /a, local_wal_root: /b}")
    assert "keep one of them" in problem


def test_the_root_of_a_shared_file_system_may_have_its_old_name(file: Path) -> None:
    settings = load(file, "storage: {mode: shared_fs, root: /mnt/danube, cache_root: /data}")
    assert settings.storage.durable is not None
    assert settings.storage.durable.root == "/mnt/danube"
    assert settings.storage.local_wal_root == "/data"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("storage: {mode: cloud}", "expected one of: local, shared_fs, object_store"),
        ("storage: {mode: shared_fs}", "storage.durable: mode shared_fs needs it"),
        ("storage: {durable: {root: /mnt}}", "storage.durable: has no effect in mode local"),
        (
            "storage: {retention: {size_mb: 5}}",
            "storage.retention: in mode local there is one copy of history",
        ),
        (
            "storage: {mode: shared_fs, durable: {root: /mnt}, local_retention: {until_consumed: true}}",
            "storage.local_retention: until_consumed and drop_unconsumed delete history",
        ),
        ("storage: {topic_retention: {logs: {size_mb: 5}}}", "'logs' matches no topic"),
        (
            "storage: {topic_retention: {/a/b: {drop_unconsumed: true}}}",
            "drop_unconsumed: has no effect without time_minutes or size_mb",
        ),
        ("storage: {segments: {size_mb: 0}}", "storage.segments.size_mb"),
    ],
)
def test_storage_that_cannot_be_meant_is_refused(file: Path, text: str, words: str) -> None:
    [problem] = problems(file, text)
    assert words in problem


def test_a_key_given_twice_is_refused(file: Path) -> None:
    [problem] = problems(file, "cluster_name: a\nauto_create_topics: true\ncluster_name: b")
    assert problem == "cluster_name: given twice (danube.yml, line 1, and danube.yml, line 3)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("auth: {mode: tls}", "auth: mode tls needs tls.cert_file"),
        ("admin_tls: true", "admin_tls: needs auth.mode tls or mtls"),
        (
            "auth: {jwt: {keys: [{id: a, algorithm: RS256, file: /none.pem}]}}",
            "auth.jwt.keys: no such file: /none.pem",
        ),
        ("auth: {jwt: {keys: [{id: a, algorithm: none}]}}", "auth.jwt.keys: invalid enum value 'none'"),
        (
            "auth: {tls: {cert_file: /none.crt, key_file: /none.key}}",
            "auth.tls.cert_file: no such file: /none.crt",
        ),
        ("auth: {tls: {cert_file: a}}", "missing required field `key_file`"),
        (
            "policies: {max_publish_rate: -1}",
            "policies.max_publish_rate: expected 0 (unlimited) to 4294967295",
        ),
        ("bootstrap_namespaces: [a/b]", "bootstrap_namespaces: 'a/b'"),
        ("storage: {wal: {topic_fsync: {logs: never}}}", "'logs' matches no topic"),
        (
            "storage: {local_retention: {drop_unconsumed: true, time_minutes: null, size_mb: null}}",
            "drop_unconsumed: has no effect",
        ),
        ("broker: {host: localhost}", "broker.host: 'localhost' is not an IP address"),
        ("broker: {ports: {admin: 6650}}", "address 127.0.0.1:6650 is given to two listeners"),
        ("- a list", "holds a list, expected keys and values"),
        ("a: [", "is not YAML"),
        ("broker: text", "broker: expected `object`, got `str`"),
        ("broker:\n  ports: &p {client: 1}\n  <<: *p", "unknown key"),
    ],
)
def test_values_that_cannot_work_are_refused(file: Path, text: str, words: str) -> None:
    assert any(words in problem for problem in problems(file, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yml cannot be read: No such file"):
        load_config(tmp_path / "missing.yml", environment={})


def test_an_empty_file_means_the_defaults(file: Path) -> None:
    assert load(file, "") == load(file, "# nothing\n") == Settings()


def test_tls_settings_without_effect_are_worth_a_warning(file: Path, tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.write_text("")
    tls = f"tls: {{cert_file: {pem}, key_file: {pem}, ca_file: {pem}}}"
    file.write_text(f"auth: {{mode: none, jwt: {{secret_key: hush}}, {tls}}}")
    warnings = load_config(file, environment={}).warnings
    assert [warning.split()[0] for warning in warnings] == ["auth.tls", "auth.jwt"]
    file.write_text(f"auth: {{mode: tls, {tls}}}")
    flags = AddressFlags(admin_addr="0.0.0.0:50051")
    nobody, exposed = load_config(file, environment={}, addresses=flags).warnings
    assert "nobody is let in" in nobody
    assert "0.0.0.0:50051" in exposed
    file.write_text(f"admin_tls: true\nauth: {{mode: tls, jwt: {{secret_key: hush}}, {tls}}}")
    assert load_config(file, environment={}, addresses=flags).warnings == ()


def test_listening_to_the_world_is_worth_a_warning() -> None:
    config = load_config(environment={}, addresses=AddressFlags(broker_addr="0.0.0.0:6650"))
    assert len(config.warnings) == 2
    assert "--advertised-addr" in config.warnings[0]
