import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import jwt
import pytest

from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Status
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.settings import JwtSettings, TokenKey
from pydanube.security.token_keys import private_signing_key, secret_signing_key
from pydanube.security.tokens import REMEMBERED_MAX, TokenVerifier, mint_token

SECRET = "a secret of more than thirty-two bytes"
NOW = 1_800_000_000
ALICE = Principal(PrincipalKind.USER, "alice")


def claims(**changed: Any) -> dict[str, Any]:
    made = {
        "iss": "danube-auth",
        "sub": "alice",
        "exp": NOW + 3600,
        "principal_type": "user",
        "principal_name": "alice",
    } | changed
    return {name: value for name, value in made.items() if value is not None}


def signed(secret: str = SECRET, headers: dict[str, Any] | None = None, **changed: Any) -> str:
    return jwt.encode(claims(**changed), secret, algorithm="HS256", headers=headers)


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.fixture
def verifier(clock) -> TokenVerifier:
    return TokenVerifier(JwtSettings(secret_key=SECRET, issuer="danube-auth"), clock)


def test_a_token_of_the_reference_tools_is_accepted(verifier: TokenVerifier) -> None:
    assert verifier.verify(signed()).principal == ALICE


@pytest.mark.parametrize(
    ("claimed", "kind"),
    [
        ("user", PrincipalKind.USER),
        ("service_account", PrincipalKind.SERVICE_ACCOUNT),
        ("broker_internal", PrincipalKind.BROKER_INTERNAL),
        ("anonymous", PrincipalKind.SERVICE_ACCOUNT),
        ("robot", PrincipalKind.SERVICE_ACCOUNT),
        ("USER", PrincipalKind.SERVICE_ACCOUNT),
    ],
)
def test_the_kind_of_a_principal_is_claimed(
    verifier: TokenVerifier, claimed: str, kind: PrincipalKind
) -> None:
    assert verifier.verify(signed(principal_type=claimed)).principal.kind is kind


def refusal(verifier: TokenVerifier, token: str) -> DanubeError:
    with pytest.raises(Rejected) as caught:
        verifier.verify(token)
    error = caught.value
    assert error.status is Status.UNAUTHENTICATED
    assert SECRET not in error.text
    assert len(token) < 20 or token not in error.text
    return error


@pytest.mark.parametrize("missing", ["iss", "exp", "sub", "principal_type", "principal_name"])
def test_a_required_claim_is_missing(verifier: TokenVerifier, missing: str) -> None:
    assert "required" in refusal(verifier, signed(**{missing: None})).text


@pytest.mark.parametrize(
    "alg", ["none", "None", "NONE", "nOnE", "", "HS384", "HS512", "RS256", "ES256", "Ed25519"]
)
def test_an_algorithm_without_a_key_is_refused(verifier: TokenVerifier, alg: str) -> None:
    token = f"{part({'alg': alg, 'typ': 'JWT'})}.{part(claims())}"
    signature = signed().rpartition(".")[2]
    assert "no key is set" in refusal(verifier, f"{token}.{signature}").text
    refusal(verifier, token + ".")  # the classic form of alg none: nothing behind the last dot


@pytest.mark.parametrize(
    "header", [{}, [], "HS256", None, {"alg": None}, {"alg": 5}, {"alg": ["HS256"]}, {"alg": {}}]
)
def test_a_header_of_another_shape_is_refused(verifier: TokenVerifier, header: object) -> None:
    refusal(verifier, f"{part(header)}.{part(claims())}.{signed().rpartition('.')[2]}")


@pytest.mark.parametrize("kid", [5, ["a"], {"a": 1}, True])
def test_a_key_id_that_is_no_text_is_refused(verifier: TokenVerifier, kid: object) -> None:
    refusal(verifier, f"{part({'alg': 'HS256', 'kid': kid})}.{part(claims())}.AAAA")


@pytest.mark.parametrize("kid", ["../../dev/null", "' or 1=1", "", "no-such-key", "x" * 4000])
def test_a_key_id_is_only_looked_up(verifier: TokenVerifier, kid: str) -> None:
    error = refusal(verifier, signed(headers={"kid": kid}))
    assert len(error.text) < 200


@pytest.mark.parametrize(
    "header", [{"crit": ["exp"]}, {"crit": ["b64"], "b64": False}, {"b64": False}, {"b64": True}]
)
def test_extensions_are_refused_even_well_signed(verifier: TokenVerifier, header: dict[str, Any]) -> None:
    start = f"{part({'alg': 'HS256'} | header)}.{part(claims())}"
    signature = (
        urlsafe_b64encode(secret_signing_key(SECRET.encode()).sign(start.encode())).rstrip(b"=").decode()
    )
    assert "extensions" in refusal(verifier, f"{start}.{signature}").text


def test_keys_a_token_brings_along_are_not_used(verifier: TokenVerifier) -> None:
    own = {"kty": "oct", "k": urlsafe_b64encode(b"mine" * 10).decode()}
    token = signed(
        secret="mine" * 10, headers={"jwk": own, "jku": "http://127.0.0.1/keys", "x5u": "http://127.0.0.1/"}
    )
    assert "signature" in refusal(verifier, token).text


def test_a_public_key_is_no_secret(clock, rsa_pair, tmp_path: Path) -> None:
    file = tmp_path / "rsa.pem"
    file.write_bytes(rsa_pair.public_pem)
    verifier = TokenVerifier(
        JwtSettings(keys=(TokenKey(id="r", algorithm="RS256", file=str(file)),), secret_key=SECRET), clock
    )
    # Key confusion: HS256, with the text of the public key as the secret.
    for header in ({"alg": "HS256", "kid": "r"}, {"alg": "HS256"}):
        start = f"{part(header)}.{part(claims())}"
        for text in (rsa_pair.public_pem, rsa_pair.public_pem.strip()):
            forged = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
                start.encode(), text
            )
            refusal(verifier, f"{start}.{urlsafe_b64encode(forged).rstrip(b'=').decode()}")


def test_a_key_is_used_with_its_own_algorithm_only(clock, rsa_pair, ed_pair, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(rsa_pair.public_pem)
    (tmp_path / "e").write_bytes(ed_pair.public_pem)
    verifier = TokenVerifier(
        JwtSettings(
            keys=(
                TokenKey(id="r", algorithm="RS256", file=str(tmp_path / "r")),
                TokenKey(id="e", algorithm="Ed25519", file=str(tmp_path / "e")),
                TokenKey(id="h", algorithm="HS256", secret=SECRET),
            )
        ),
        clock,
    )
    keys = {"RS256": ("r", rsa_pair.private_pem), "EdDSA": ("e", ed_pair.private_pem), "HS256": ("h", SECRET)}
    for algorithm, (_, key) in keys.items():
        for kid in ("r", "e", "h"):
            token = jwt.encode(claims(), key, algorithm=algorithm, headers={"kid": kid})
            if kid == keys[algorithm][0]:
                assert verifier.verify(token).principal == ALICE
            else:
                refusal(verifier, token)
        assert verifier.verify(jwt.encode(claims(), key, algorithm=algorithm)).principal == ALICE
    # RS384 and PS256 with the right key are still not what the key is for.
    for algorithm in ("RS384", "RS512", "PS256"):
        refusal(
            verifier, jwt.encode(claims(), rsa_pair.private_pem, algorithm=algorithm, headers={"kid": "r"})
        )


@pytest.mark.parametrize("alg", ["none", "RS256", "EdDSA", "HS512", ""])
def test_the_right_key_does_not_excuse_the_wrong_algorithm(clock, alg: str) -> None:
    verifier = TokenVerifier(JwtSettings(keys=(TokenKey(id="h", algorithm="HS256", secret=SECRET),)), clock)
    start = f"{part({'alg': alg, 'kid': 'h'})}.{part(claims())}"
    signature = secret_signing_key(SECRET.encode()).sign(start.encode())
    assert (
        "is for HS256"
        in refusal(verifier, f"{start}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}").text
    )


def test_ed25519_goes_by_both_its_names(clock, ed_pair, tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(ed_pair.public_pem)
    verifier = TokenVerifier(
        JwtSettings(keys=(TokenKey(id="e", algorithm="Ed25519", file=str(tmp_path / "e")),)), clock
    )
    for name in ("EdDSA", "Ed25519"):
        start = f"{part({'alg': name})}.{part(claims())}"
        signature = private_signing_key(ed_pair.private_pem).sign(start.encode())
        token = f"{start}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        assert verifier.verify(token).principal == ALICE


def test_every_changed_character_is_noticed(verifier: TokenVerifier) -> None:
    token = signed()
    # The last character of a part may hold unused bits; what it decodes to is then the same.
    dots = [index for index, character in enumerate(token) if character == "."]
    for index, character in enumerate(token):
        if index == len(token) - 1 or index in dots:
            continue
        for other in ("A", "B"):
            if other != character:
                refusal(verifier, token[:index] + other + token[index + 1 :])


@pytest.mark.parametrize(
    "make",
    [
        lambda token: "",
        lambda token: ".",
        lambda token: "..",
        lambda token: "...",
        lambda token: token + ".",
        lambda token: "." + token,
        lambda token: token + "." + token.rpartition(".")[2],
        lambda token: token.rpartition(".")[0],
        lambda token: token[:-1],
        lambda token: token + "A",
        lambda token: token + "=",
        lambda token: token + "\n",
        lambda token: " " + token,
        lambda token: token.replace(".", ". "),
        lambda token: token + "," + token,
        lambda token: token + "é",
        lambda token: "٣" + token[1:],
        lambda token: token + "\0",
        lambda token: token.rpartition(".")[0] + ".",
        lambda token: "A" * 8192,
    ],
)
def test_what_is_not_exactly_a_token_is_refused(verifier: TokenVerifier, make) -> None:
    refusal(verifier, make(signed()))


def test_a_large_token_is_refused_before_it_is_read(verifier: TokenVerifier) -> None:
    fits = signed(filler="x" * 5700)
    assert len(fits) <= 8192
    assert verifier.verify(fits).principal == ALICE
    assert "longer than 8192" in refusal(verifier, signed(filler="x" * 6500)).text
    assert "longer than 8192" in refusal(verifier, "x" * 10_000_000).text


def test_time(verifier: TokenVerifier, clock) -> None:
    assert verifier.verify(signed(exp=NOW - 60)).principal == ALICE
    error = refusal(verifier, signed(exp=NOW - 61))
    assert error.code is ErrorCode.TOKEN_EXPIRED
    assert "61 s ago" in error.text
    assert verifier.verify(signed(nbf=NOW + 60)).principal == ALICE
    assert "nbf" in refusal(verifier, signed(nbf=NOW + 61)).text
    assert verifier.verify(signed(exp=NOW + 0.5)).expires_ms == (NOW + 60) * 1000 + 500


@pytest.mark.parametrize("end", [0, -1, -(10**30), -1e300])
def test_a_token_of_long_ago(verifier: TokenVerifier, end: float) -> None:
    refusal(verifier, signed(exp=end))


@pytest.mark.parametrize("end", [10**12, 10**18, 1e300])
def test_a_token_for_ever(verifier: TokenVerifier, end: float) -> None:
    assert verifier.verify(signed(exp=end)).principal == ALICE


@pytest.mark.parametrize("end", ["soon", "1900000000", True, [NOW + 1], {}, ""])
def test_an_end_that_is_no_number_is_refused(verifier: TokenVerifier, end: object) -> None:
    start = f"{part({'alg': 'HS256'})}.{part(claims() | {'exp': end})}"
    signature = (
        urlsafe_b64encode(secret_signing_key(SECRET.encode()).sign(start.encode())).rstrip(b"=").decode()
    )
    refusal(verifier, f"{start}.{signature}")


def test_the_issuer_is_compared_if_one_is_set(clock) -> None:
    strict = TokenVerifier(JwtSettings(secret_key=SECRET, issuer="danube-auth"), clock)
    assert "'elsewhere'" in refusal(strict, signed(iss="elsewhere")).text
    lax = TokenVerifier(JwtSettings(secret_key=SECRET), clock)
    assert lax.verify(signed(iss="elsewhere")).principal == ALICE


@pytest.mark.parametrize(
    ("configured", "claimed", "good"),
    [
        (None, None, True),
        (None, "danube", False),
        (None, ["danube"], False),
        (None, [], False),
        (None, "", False),
        ("danube", None, False),
        ("danube", "danube", True),
        ("danube", ["other", "danube"], True),
        ("danube", ["other"], False),
        ("danube", "danube2", False),
        ("danube", "dan", False),
        ("danube", [], False),
    ],
)
def test_the_audience(clock, configured: str | None, claimed: object, good: bool) -> None:
    verifier = TokenVerifier(JwtSettings(secret_key=SECRET, audience=configured), clock)
    token = signed(aud=claimed)
    if good:
        assert verifier.verify(token).principal == ALICE
    else:
        assert "aud" in refusal(verifier, token).text


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00b", "x" * 256])
def test_a_name_no_principal_can_have(verifier: TokenVerifier, name: str) -> None:
    refusal(verifier, signed(principal_name=name))


def test_keys_change_while_both_are_valid(clock, tmp_path: Path) -> None:
    old, new = "o" * 40, "n" * 40
    keys = (
        TokenKey(id="old", algorithm="HS256", secret=old),
        TokenKey(id="new", algorithm="HS256", secret=new),
    )
    verifier = TokenVerifier(JwtSettings(keys=keys), clock)
    by_old, by_new = signed(old, {"kid": "old"}), signed(new, {"kid": "new"})
    assert {verifier.verify(token).principal for token in (by_old, by_new)} == {ALICE}
    refusal(verifier, signed(old, {"kid": "new"}))
    verifier.reload(JwtSettings(keys=keys[1:]))
    refusal(verifier, by_old)
    assert verifier.verify(by_new).principal == ALICE
    with pytest.raises(Rejected):
        verifier.reload(JwtSettings(keys=(TokenKey(id="x", algorithm="RS256", file=str(tmp_path / "none")),)))
    assert verifier.verify(by_new).principal == ALICE


def test_a_remembered_token_still_ends(verifier: TokenVerifier, clock) -> None:
    token = signed(exp=NOW + 5)
    verifier.verify(token)
    clock.advance(65_000)
    verifier.verify(token)
    clock.advance(1)
    assert refusal(verifier, token).code is ErrorCode.TOKEN_EXPIRED


def test_memory_of_tokens_is_bounded_and_holds_none(verifier: TokenVerifier) -> None:
    for number in range(REMEMBERED_MAX + 10):
        verifier.verify(signed(jti=number))
    remembered = verifier._remembered
    assert len(remembered) == REMEMBERED_MAX
    assert all(isinstance(key, bytes) and len(key) == 32 for key in remembered)


def test_minted_tokens_are_accepted_here_and_by_others(clock, rsa_pair, ed_pair, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(rsa_pair.public_pem)
    (tmp_path / "e").write_bytes(ed_pair.public_pem)
    verifier = TokenVerifier(
        JwtSettings(
            issuer="here",
            audience="danube",
            keys=(
                TokenKey(id="r", algorithm="RS256", file=str(tmp_path / "r")),
                TokenKey(id="e", algorithm="Ed25519", file=str(tmp_path / "e")),
                TokenKey(id="h", algorithm="HS256", secret=SECRET),
            ),
        ),
        clock,
    )
    keys = [
        (private_signing_key(rsa_pair.private_pem, "r"), rsa_pair.public_pem),
        (private_signing_key(ed_pair.private_pem, "e"), ed_pair.public_pem),
        (secret_signing_key(SECRET.encode(), "h"), SECRET),
    ]
    for key, public in keys:
        token = mint_token(key, ALICE, issuer="here", ttl_seconds=60, now_ms=NOW * 1000, audience="danube")
        assert verifier.verify(token) == (ALICE, (NOW + 120) * 1000)
        options = {"verify_exp": False, "verify_iat": False}
        told = jwt.decode(token, public, ["RS256", "EdDSA", "HS256"], options=options, audience="danube")
        assert told == claims(iss="here", aud="danube", iat=NOW, exp=NOW + 60)


@pytest.mark.parametrize("seconds", [0, -1, 10**12])
def test_a_token_must_end_in_time(seconds: int) -> None:
    with pytest.raises(Rejected):
        mint_token(secret_signing_key(b"x" * 32), ALICE, issuer="i", ttl_seconds=seconds, now_ms=0)


def test_claims_are_told_for_tools(verifier: TokenVerifier) -> None:
    told = verifier.claims(signed())
    assert (told.iss, told.sub, told.exp, told.principal_type) == ("danube-auth", "alice", NOW + 3600, "user")
    with pytest.raises(Rejected):
        verifier.claims(signed("not the right one, although long enough"))


def test_a_key_file_that_is_replaced_counts_without_a_restart(clock, tmp_path: Path, caplog) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    keys = (TokenKey(id="k", algorithm="HS256", file=str(file)),)
    verifier = TokenVerifier(JwtSettings(keys=keys), clock)
    old = signed(headers={"kid": "k"})
    assert verifier.verify(old).principal == ALICE
    assert not verifier.reload_if_changed()
    other = "another secret of more than thirty-two bytes"
    file.unlink()
    assert not verifier.reload_if_changed()
    assert "the token keys in use stay" in caplog.text
    assert verifier.verify(old).principal == ALICE
    file.write_text(other)
    assert verifier.reload_if_changed()
    assert verifier.verify(signed(other, headers={"kid": "k"})).principal == ALICE
    with pytest.raises(Rejected):
        verifier.verify(old)
