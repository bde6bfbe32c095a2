import pytest

from pydanube.security.peer_identity import certificate_principal, certificate_uri
from pydanube.security.principals import Principal, PrincipalKind

USER, SERVICE, BROKER = PrincipalKind.USER, PrincipalKind.SERVICE_ACCOUNT, PrincipalKind.BROKER_INTERNAL


def certificate(*uris: str, names: tuple[str, ...] = ("app",)) -> dict[str, object]:
    return {
        "subject": tuple((("commonName", name),) for name in names),
        "subjectAltName": (("DNS", "app.example"), *(("URI", uri) for uri in uris)),
    }


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (certificate("spiffe://danube/user/alice"), Principal(USER, "alice")),
        (certificate("spiffe://danube/service_account/etl"), Principal(SERVICE, "etl")),
        (certificate("spiffe://danube/broker/17"), Principal(BROKER, "17")),
        # Names of other trust domains and other forms are taken as they stand, and never as a broker's.
        (certificate("spiffe://prod/broker/17"), Principal(SERVICE, "spiffe://prod/broker/17")),
        (
            certificate("spiffe://danube.example/broker/1"),
            Principal(SERVICE, "spiffe://danube.example/broker/1"),
        ),
        (certificate("spiffe://danube/broker/a/b"), Principal(SERVICE, "spiffe://danube/broker/a/b")),
        (
            certificate("spiffe://danube/broker_internal/1"),
            Principal(SERVICE, "spiffe://danube/broker_internal/1"),
        ),
        (certificate("https://danube/broker/1"), Principal(SERVICE, "https://danube/broker/1")),
        (certificate("spiffe://danube/"), Principal(SERVICE, "spiffe://danube/")),
        (certificate("spiffe://danube/broker/"), None),
        (certificate("spiffe://danube/user/a\nb"), None),
        (certificate("spiffe://danube/user/alice", "spiffe://danube/broker/1"), None),
        (certificate(), Principal(SERVICE, "app")),
        (certificate(names=("spiffe://danube/broker/1",)), Principal(SERVICE, "spiffe://danube/broker/1")),
        (certificate(names=("broker/17",)), Principal(SERVICE, "broker/17")),
        (certificate(names=()), None),
        (certificate(names=("a", "b")), None),
        (certificate(names=("",)), None),
        (certificate(names=("a\0b",)), None),
        ({}, None),
        (None, None),
    ],
)
def test_whom_a_certificate_speaks_for(shown, expected: Principal | None) -> None:
    assert certificate_principal(shown, "danube") == expected


@pytest.mark.parametrize("kind", [USER, SERVICE, BROKER])
def test_a_uri_of_ours_comes_back(kind: PrincipalKind) -> None:
    assert certificate_principal(certificate(certificate_uri("d", kind, "x")), "d") == Principal(kind, "x")
