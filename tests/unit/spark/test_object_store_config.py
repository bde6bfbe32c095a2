"""A broker's `storage.durable` in the words of Spark's S3 file system, and of the data source."""

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.spark.object_store import S3A, object_store_config, store_options
from pydanube.stores.settings import Backend, DurableSettings


def config(**settings: object) -> dict[str, str]:
    made = object_store_config(DurableSettings(backend=Backend.S3, root="history/a", **settings))  # type: ignore[arg-type]
    return {name.removeprefix(S3A): value for name, value in made.items()}


def provider(**settings: object) -> str:
    return config(**settings)["aws.credentials.provider"].rpartition(".")[2]


def test_endpoint_keys_and_style_are_handed_on() -> None:
    made = config(endpoint="http://127.0.0.1:9000", access_key="me", secret_key="hush")
    assert made["endpoint"] == "http://127.0.0.1:9000"
    assert (made["access.key"], made["secret.key"]) == ("me", "hush")
    assert made["path.style.access"] == "true"
    assert made["endpoint.region"] == "us-east-1"
    assert config(virtual_host_style=True, region="eu-west-1")["path.style.access"] == "false"
    assert "endpoint" not in config(region="eu-west-1")


def test_who_asks_decides_how_spark_shows_who_it_is() -> None:
    keys = {"access_key": "me", "secret_key": "hush"}
    assert provider(**keys) == "SimpleAWSCredentialsProvider"
    assert provider(**keys, session_token="soon over") == "TemporaryAWSCredentialsProvider"
    assert provider(anonymous=True) == "AnonymousAWSCredentialsProvider"
    assert provider() == "DefaultCredentialsProvider"
    role = config(**keys, role_arn="arn:aws:iam::1:role/r")
    assert role["assumed.role.arn"] == "arn:aws:iam::1:role/r"
    assert role["assumed.role.credentials.provider"].endswith("SimpleAWSCredentialsProvider")


def test_a_profile_is_refused_with_what_to_do() -> None:
    with pytest.raises(Rejected, match="AWS_PROFILE"):
        config(profile="mine")


def test_other_stores_need_nothing_of_spark() -> None:
    assert object_store_config(DurableSettings(root="/history")) == {}
    assert object_store_config(DurableSettings(backend=Backend.GCS, root="history")) == {}


def test_the_data_source_gets_what_was_set() -> None:
    settings = DurableSettings(
        backend=Backend.S3, root="b", access_key="me", secret_key="x", sign_payload=True
    )
    assert store_options(settings) == {"access_key": "me", "secret_key": "x", "sign_payload": "true"}
