"""The head of an HTTP request: read one way only, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.wire.http_requests import FIELDS_MAX, parse_head


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def test_a_request_is_a_method_a_path_and_fields() -> None:
    request = parse_head(
        head("GET /metrics?x=1 HTTP/1.1", "Host: a:1", "AUTHORIZATION:  Bearer t \t", "Empty:")
    )
    assert request == ("GET", "/metrics", {"host": "a:1", "authorization": "Bearer t", "empty": ""})


def test_a_field_given_twice_is_not_one_of_its_values() -> None:
    request = parse_head(head("GET / HTTP/1.1", "Authorization: Bearer a", "authorization: Bearer b"))
    assert request.fields == {"authorization": "Bearer a, Bearer b"}


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["GET"],
        ["GET /"],
        ["GET  / HTTP/1.1"],
        ["get / HTTP/1.1"],
        ["GET metrics HTTP/1.1"],
        ["GET http://host/metrics HTTP/1.1"],
        ["GET / HTTP/2.0"],
        ["GET / HTTP/1.1 "],
        ["GET /\u00e9 HTTP/1.1"],
        ["GET / HTTP/1.1", "no colon"],
        ["GET / HTTP/1.1", ": no name"],
        ["GET / HTTP/1.1", "Authorization : Bearer t"],
        ["GET / HTTP/1.1", "A: 1", " folded: 2"],
        ["GET / HTTP/1.1", "A: 1\nAuthorization: Bearer t"],
        ["GET / HTTP/1.1", "A: 1\rB: 2"],
        ["GET / HTTP/1.1", "A: \0"],
        ["GET / HTTP/1.1", *["A: 1"] * (FIELDS_MAX + 1)],
    ],
)
def test_what_could_be_understood_in_two_ways_is_refused(lines: list[str]) -> None:
    with pytest.raises(Rejected, match="no HTTP request") as caught:
        parse_head(head(*lines))
    assert caught.value.code is ErrorCode.MALFORMED_REQUEST


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(junk: bytes) -> None:
    for data in (junk, b"GET / HTTP/1.1\r\n" + junk, b"GET / HTTP/1.1\r\n" + junk + b"\r\n\r\n"):
        try:
            fields = parse_head(data).fields
        except Rejected:
            continue
        assert all(name == name.lower() and "\n" not in value for name, value in fields.items())
