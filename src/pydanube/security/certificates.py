"""The broker's side of TLS: its certificate, whom it asks for theirs, and both read again when the files change.

A server keeps the one context it was opened with. That context decides nothing: as each connection begins, it hands the
connection to the newest context that could be made whole of the files. A certificate without its key, or half a file,
therefore never serves anybody.
"""

import logging
import os
import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Rejected
from pydanube.protocol.native.frames import ALPN as NATIVE_ALPN
from pydanube.security.settings import Mode, TlsFiles

log = logging.getLogger("pydanube.security")

CLIENT_PORT_ALPN: Final = ("h2", NATIVE_ALPN)


class _Stamp(NamedTuple):
    """Tells one state of a file from another."""

    inode: int
    modified_ns: int
    size: int


class ServerTls:
    """The TLS of a broker's ports.

    Mode tls asks clients for a certificate if there is an authority to check it by, and takes none for an answer: other
    brokers show theirs. Mode mtls insists on one.
    """

    def __init__(
        self, mode: Mode, files: TlsFiles, clock: Clock, *, alpn: Sequence[str] = CLIENT_PORT_ALPN
    ) -> None:
        if mode == "mtls" and files.ca_file is None:
            raise Rejected(
                "auth.mode mtls needs auth.tls.ca_file, the authority of the clients' certificates"
            )
        self._mode = mode
        self._files = files
        self._clock = clock
        self._changed_at_seconds = 0
        self._alpn = list(alpn)
        self._stamps = self._look()
        self._current = self._read()
        self._problem = ""
        self.reloads_total = 0
        self.failures_total = 0
        self.not_after_ms = self._end_of_certificate()
        self.context: Final = self._read()
        """For servers to listen with; stays the same when the files are read again."""
        self.context.sni_callback = self._hand_over

    def reload_if_changed(self) -> bool:
        """Read the files again if they changed; True if new connections now get something new. Call it on a timer.

        What cannot be used is logged, and what was in use stays.
        """
        try:
            stamps = self._look()
            if stamps == self._stamps:
                self._problem = ""
                return False
            fresh = self._read()
            not_after_ms = self._end_of_certificate()
        except Rejected as error:
            self.failures_total += 1
            if error.text != self._problem:  # once, not at every look
                self._problem = error.text
                log.error("the certificate in use stays: %s", error.text)
            return False
        self._problem = ""
        self._current, self._stamps, self.not_after_ms = fresh, stamps, not_after_ms
        self._changed_at_seconds = self._clock.now_ms() // 1000
        self.reloads_total += 1
        log.info("the certificate was read again from %s", self._files.cert_file)
        return True

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> int | None:
        # Called for every connection, with or without a server name.
        connection.context = self._current
        # A session of TLS 1.2 that is taken up again shows no certificate: one begun before the files changed may
        # rest on an authority that counts no more. Told so, a client forgets it and begins anew.
        if connection.session_reused:
            session = connection.session
            if session is None or session.time <= self._changed_at_seconds:
                return ssl.ALERT_DESCRIPTION_CERTIFICATE_UNKNOWN
        return None

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No tickets: they are sessions that outlive any memory of ours.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.num_tickets = 0
        context.set_alpn_protocols(self._alpn)
        files = self._files
        try:
            context.load_cert_chain(files.cert_file, files.key_file, password=_no_password)
            if files.ca_file is not None:
                context.load_verify_locations(files.ca_file)
                context.verify_mode = ssl.CERT_REQUIRED if self._mode == "mtls" else ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError) as error:
            raise _unusable(files, error) from error
        return context

    def _look(self) -> tuple[_Stamp, ...]:
        return tuple(
            _stamp(self._files, path)
            for path in (self._files.cert_file, self._files.key_file, self._files.ca_file)
            if path is not None
        )

    def _end_of_certificate(self) -> int:
        try:
            with open(self._files.cert_file, "rb") as file:
                certificate = x509.load_pem_x509_certificates(file.read())[0]
        except (OSError, ValueError) as error:
            raise _unusable(self._files, error) from error
        return int(certificate.not_valid_after_utc.timestamp() * 1000)


def _stamp(files: TlsFiles, path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _unusable(files, error) from error
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)


def _unusable(files: TlsFiles, error: Exception) -> Rejected:
    names = ", ".join(path for path in (files.cert_file, files.key_file, files.ca_file) if path is not None)
    return Rejected(f"auth.tls: these files cannot be used together ({names}): {error}")


def _no_password() -> str:
    """Instead of asking on the terminal, which nobody watches."""
    raise ssl.SSLError("the key is protected by a password; give it without one, readable by the broker only")
