"""Every case of h2spec, the strict ones too: RFC 9113 (as RFC 7540), RFC 7541 and the generic section."""

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

StartServer = Callable[..., AbstractContextManager[int]]


def run_h2spec(program: Path, port: int, *options: str) -> None:
    """Run all sections; the failed cases are in the output that the assertion shows."""
    arguments = [str(program), "--strict", "--port", str(port), "--timeout", "5", *options]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=110, check=False)
    passed = "146 tests, 146 passed, 0 skipped, 0 failed" in run.stdout
    assert passed, run.stdout[run.stdout.find("Failures:") :]


def test_h2spec_over_plain_text(h2spec: Path, start_server: StartServer) -> None:
    with start_server() as port:
        run_h2spec(h2spec, port)


def test_h2spec_over_tls(h2spec: Path, start_server: StartServer, certificate: tuple[Path, Path]) -> None:
    certificate_file, key_file = certificate
    with start_server("--certificate", str(certificate_file), "--key", str(key_file)) as port:
        run_h2spec(h2spec, port, "--tls", "--insecure")


@pytest.mark.parametrize("path", ["/test.Echo/Unary", "/no/such/method"])
def test_h2spec_whatever_the_path(h2spec: Path, start_server: StartServer, path: str) -> None:
    with start_server() as port:
        run_h2spec(h2spec, port, "--path", path)
