"""Whom a verified client certificate speaks for.

The URI `spiffe://{trust domain}/{kind}/{name}` among the certificate's alternative names says it outright, with kind
`user`, `service_account` or `broker`; any other URI is the name of a service account, as it stands. Without a URI, the
common name is that of a service account. Only the first form can speak for a broker, so that an authority which signs
certificates for clients does not make brokers by accident.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import check_name
from pydanube.security.principals import Principal, PrincipalKind

_KINDS: Final = {
    "user": PrincipalKind.USER,
    "service_account": PrincipalKind.SERVICE_ACCOUNT,
    "broker": PrincipalKind.BROKER_INTERNAL,
}


def certificate_uri(trust_domain: str, kind: PrincipalKind, name: str) -> str:
    """The alternative name that gives a certificate's holder this identity."""
    (word,) = (word for word, known in _KINDS.items() if known is kind)
    return f"spiffe://{trust_domain}/{word}/{name}"


def certificate_principal(certificate: Mapping[str, Any] | None, trust_domain: str) -> Principal | None:
    """The holder of a certificate as `ssl` describes a *verified* one (`getpeercert()`); None if it names nobody."""
    if not certificate:
        return None
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    try:
        if uris:
            # Two identities in one certificate are none: which one was meant?
            return _of_uri(uris[0], trust_domain) if len(uris) == 1 else None
        if len(names) == 1:
            return _service_account(names[0])
    except DanubeError:
        pass  # a name no principal can have
    return None


def _of_uri(uri: str, trust_domain: str) -> Principal | None:
    path = uri.removeprefix(f"spiffe://{trust_domain}/")
    if path == uri:
        return _service_account(uri)
    word, _, name = path.partition("/")
    kind = _KINDS.get(word)
    if kind is None or "/" in name:
        return _service_account(uri)
    return Principal(kind, check_name(name, what="principal name"))


def _service_account(name: str) -> Principal:
    return Principal(PrincipalKind.SERVICE_ACCOUNT, check_name(name, what="principal name"))
