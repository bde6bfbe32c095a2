"""What comes out of the log, for machines and for people."""

import io
import json
import logging

import pytest
import structlog

from pydanube.kernel.errors import Rejected
from pydanube.server.logging import configure_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_pipe_gets_json_with_stable_first_keys() -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    structlog.get_logger("pydanube.broker").info("topic created", topic="/default/a", size=3)
    [line] = json_lines(stream)
    assert list(line) == ["time", "level", "logger", "event", "topic", "size"]
    assert line | {"time": ""} == {
        "time": "",
        "level": "info",
        "logger": "pydanube.broker",
        "event": "topic created",
        "topic": "/default/a",
        "size": 3,
    }


def test_a_terminal_gets_key_value_lines() -> None:
    stream = Terminal()
    configure_logging(stream, environment={"NO_COLOR": "1"})
    structlog.get_logger("pydanube.log").warning("file full", file="a b", count=2, reason="")
    assert stream.getvalue().endswith('warning pydanube.log: file full file="a b" count=2 reason=""\n')


def test_a_terminal_gets_colours_unless_refused() -> None:
    stream = Terminal()
    configure_logging(stream, environment={})
    structlog.get_logger("x").error("bad")
    assert "\x1b[31merror" in stream.getvalue()


def test_a_line_stays_one_line_whatever_a_client_sends() -> None:
    stream = Terminal()
    configure_logging(stream, environment={"NO_COLOR": "1"})
    structlog.get_logger("x").info("name\nfaked line", name="a\nfaked line\x1b[2J")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    "name", ["token", "jwt_secret", "Password", "authorization", "api_key", "key", "access_key"]
)
def test_secrets_are_masked_by_name_at_any_depth(name: str) -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    structlog.get_logger("x").info("event", **{name: "hunter2"}, nested={"list": [{name: "hunter2"}]})
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("***") == 2


def test_secrets_are_masked_by_shape_in_any_text() -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    try:
        raise ValueError("refused: Bearer hunter2 at https://user:hunter2@host/x")
    except ValueError:
        structlog.get_logger("x").exception("got eyJhbGciOi.hunter2.sig", why="bearer hunter2")
    assert "hunter2" not in stream.getvalue()
    assert "https://***@host/x" in stream.getvalue()


def test_what_only_sounds_secret_is_shown() -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    structlog.get_logger("x").info("event", routing_key="k1", key_file="server.key", monkey="m")
    assert (
        json_lines(stream)[0].items()
        >= {"routing_key": "k1", "key_file": "server.key", "monkey": "m"}.items()
    )


def test_the_level_is_chosen_by_the_environment() -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={"DANUBE_LOG": "WARNING"})
    log = structlog.get_logger("x")
    log.info("quiet")
    log.warning("loud")
    assert [line["event"] for line in json_lines(stream)] == ["loud"]
    with pytest.raises(Rejected, match="expected one of debug, info, warning, error"):
        configure_logging(stream, environment={"DANUBE_LOG": "loud"})


def test_loggers_made_before_configuration_follow_it() -> None:
    log = structlog.get_logger("pydanube.early")
    stream = io.StringIO()
    configure_logging(stream, environment={})
    log.info("late")
    assert json_lines(stream)[0]["logger"] == "pydanube.early"


def test_lines_of_libraries_come_out_the_same_way() -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    library = logging.getLogger("some.library")
    library.warning("disk %s is %d%% full", "a", 93)
    library.info("chatter")
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        library.exception("failed")
    lines = json_lines(stream)
    assert [(line["logger"], line["level"], line["event"]) for line in lines] == [
        ("some.library", "warning", "disk a is 93% full"),
        ("some.library", "error", "failed"),
    ]
    assert "RuntimeError: boom" in str(lines[1]["exception"])


def test_values_json_does_not_know_are_shown_somehow() -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    structlog.get_logger("x").info("event", error=ValueError("x"), where=object)
    assert "ValueError" in str(json_lines(stream)[0]["error"])


def test_a_stream_nobody_reads_does_not_stop_the_broker() -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    stream.close()
    structlog.get_logger("x").info("into the void")
