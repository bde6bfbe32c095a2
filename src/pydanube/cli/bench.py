"""`danube bench`: measure a broker from this machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.bench.plan import PENDING_BYTES, STAMP_BYTES, Plan, Protocol, Read, Send
from pydanube.cli.credentials import credential_options, given
from pydanube.cli.failures import INTERRUPTED
from pydanube.cli.tables import output_option, show_document
from pydanube.client.address import Address
from pydanube.kernel.errors import DanubeError, Rejected

if TYPE_CHECKING:
    from pydanube.bench.report import Report

WARMUP_MAX: Final = 10_000
RATE_DEFAULT: Final = 1000.0

Command = Callable[..., None]
Option = Callable[[Command], Command]


class BrokerAddress(click.ParamType[Address]):
    """`host:port`, also written as a URL."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        try:
            return Address.parse(value)
        except Rejected as error:
            self.fail(error.text, param, ctx)


def _options(*options: Option) -> Option:
    """Several options as one decorator, shown in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _count(flag: str, help: str = "", *, default: int = 1, most: int = 10_000) -> Option:  # noqa: A002
    return click.option(flag, type=click.IntRange(1, most), default=default, show_default=True, help=help)


_where: Final = _options(
    click.option(
        "--broker",
        type=BrokerAddress(),
        default="127.0.0.1:6650",
        show_default=True,
        help="Whom to measure; danubes://host:port by TLS.",
    ),
    credential_options("DANUBE"),
    click.option(
        "--protocol",
        type=click.Choice([each.value for each in Protocol]),
        default="native",
        show_default=True,
    ),
    _count("--connections", "Of each process at least one."),
    click.option(
        "--broker-pid", type=int, help="The broker's process, if it is here but not found by itself."
    ),
)
_messages: Final = _options(
    click.option("--size", type=int, default=128, show_default=True, help="Bytes of a message."),
    click.option("--count", type=int, default=100_000, show_default=True, help="Messages in all."),
    click.option("--reliable/--non-reliable", default=True, show_default=True, help="Kind of the topics."),
    click.option("--topic", metavar="NAME", help="Use this topic.  [default: a new one for each run]"),
    _count("--topics", "Messages are spread over so many.", most=100_000),
    _count("--batch", "Messages of a batch, at most.", default=1000, most=65_536),
    click.option("--compression", type=click.Choice(["lz4", "zstd"]), help="Of batches, by the client."),
    click.option(
        "--pending-bytes",
        type=click.IntRange(min=1),
        default=PENDING_BYTES,
        show_default=True,
        help="Sent and not yet answered, at most.",
    ),
    _count("--in-flight", "gRPC calls at a time, of each producer or consumer.", default=64),
    click.option("--seed", type=int, default=0, show_default=True, help="Of the messages' content."),
)
_producers: Final = _options(
    _count("--producers"),
    click.option(
        "--warmup",
        type=click.IntRange(min=0),
        help="Messages sent before the clock starts."
        f"  [default: a tenth of --count, at most {WARMUP_MAX:,} and a second of --rate]",
    ),
)
_consumers: Final = _options(
    _count("--subscriptions", "Of each topic; each reads everything.", most=1000),
    _count("--consumers", "Of each subscription.", most=1000),
    click.option(
        "--read",
        type=click.Choice([each.value for each in Read]),
        help="Take Arrow batches, iterate over messages, or receive and acknowledge one at a time.",
    ),
)
_processes: Final = _count(
    "--processes", "Share the load, when one process of Python is the limit.", most=256
)
_report: Final = _options(
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Give up when nothing happened for this long.",
    ),
    output_option,
    click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw a .png or .svg too."),
)


def _linger(default: float) -> Option:
    return click.option(
        "--linger",
        "linger_ms",
        type=click.FloatRange(min=0),
        default=default,
        show_default=True,
        metavar="MS",
        help="How long a batch waits to be filled.",
    )


@click.group()
def bench() -> None:
    """Measure a broker: publishing, reading, end-to-end latency.

    Topics are new for each run and stay on the broker: use one whose data may be deleted.
    """


@bench.command()
@_options(_where, _messages, _linger(5.0), _producers, _processes)
@click.option("--partitions", type=click.IntRange(1, 1024), help="Publish to partitions of each topic.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Messages a second.  [default: as many as possible]",
)
@click.option(
    "--send",
    type=click.Choice([each.value for each in Send]),
    default="nowait",
    show_default=True,
    help="One call of the client per message, or one per --batch.",
)
@_report
def publish(**options: Any) -> None:
    """Publish, and wait for the broker's receipts."""
    _Bench("publish", options).run()


@bench.command()
@_options(_where, _messages, _linger(5.0), _consumers, _processes)
@click.option(
    "--fill",
    type=click.Choice([each.value for each in Protocol]),
    default="native",
    show_default=True,
    help="Protocol to fill the topics by.",
)
@_report
def consume(**options: Any) -> None:
    """Fill topics, then read them from the beginning, and verify what came.

    With --topic, reads the first --count messages of a topic that is filled already.
    """
    _Bench("consume", options).run()


@bench.command()
@_options(_where, _messages, _linger(0.0), _producers, _consumers)
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    default=RATE_DEFAULT,
    show_default=True,
    help="Messages a second.",
)
@_report
def latency(**options: Any) -> None:
    """Publish at a rate, and measure how long messages take to the consumer.

    Counted from the moment a message was due, so that a wait before sending is not left out.
    """
    _Bench("latency", options).run()


class _Bench:
    """One call of the command: options in, report out."""

    def __init__(self, command: str, options: dict[str, Any]) -> None:
        self._command = command
        self._output: str = options.pop("output")
        self._plot: Path | None = options.pop("plot")
        self._broker_pid: int | None = options.pop("broker_pid")
        self._timeout: float = options.pop("timeout")
        self._fill = Protocol(options.pop("fill", "native"))
        self._plan = _plan(command, options)

    def run(self) -> None:
        try:
            _check(self._command, self._plan)
            report = self._measure()
        except Rejected as error:
            raise click.UsageError(error.text) from error
        except DanubeError as error:
            raise click.ClickException(error.text) from error
        except KeyboardInterrupt:
            click.secho("Stopped before anything was measured", fg="yellow", err=True)
            raise SystemExit(INTERRUPTED) from None
        _show(report, self._output)
        for text in report.error_texts():
            click.secho(f"Error: {text}", fg="red", err=True)
        if report.is_interrupted:
            raise SystemExit(INTERRUPTED)
        if report.errors:
            raise SystemExit(1)

    def _measure(self) -> "Report":
        # Here, because they bring libraries of an extra, and `--help` needs none of them.
        from pydanube.bench.plot import check_plot, plot  # noqa: PLC0415
        from pydanube.bench.progress import for_this_terminal  # noqa: PLC0415
        from pydanube.bench.report import Report  # noqa: PLC0415
        from pydanube.bench.run import Conductor, local_broker  # noqa: PLC0415

        if self._plot is not None:
            check_plot(self._plot)
        conductor = Conductor(
            broker_pid=self._broker_pid or local_broker(self._plan),
            patience_seconds=self._timeout,
            shown=for_this_terminal(),
        )
        match self._command:
            case "publish":
                result = conductor.publish(self._plan)
            case "consume":
                result = conductor.consume(self._plan, fill=None if self._plan.topic else self._fill)
            case _:
                result = conductor.latency(self._plan)
        report = Report(self._command, self._plan, result)
        if self._plot is not None:
            plot(report, self._plot)
        return report


def _plan(command: str, options: dict[str, Any]) -> Plan:
    protocol = Protocol(options.pop("protocol"))
    read = options.pop("read", None)
    if read is None:
        read = "batches" if protocol is Protocol.NATIVE and command == "consume" else "messages"
    if options.get("warmup") is None:
        # At a rate, a second is warm enough.
        options["warmup"] = min(options["count"] // 10, WARMUP_MAX, int(options.get("rate") or WARMUP_MAX))
    send = Send(options.pop("send", "nowait"))
    shown, broker = given(), options.pop("broker")
    if shown.wants_tls:
        broker = replace(broker, tls=True)
    return Plan(
        broker=broker,
        protocol=protocol,
        read=Read(read),
        send=send,
        run=token_hex(4),
        token=shown.token,
        ca=shown.ca,
        cert=shown.cert,
        cert_key=shown.cert_key,
        **options,
    )


def _check(command: str, plan: Plan) -> None:
    plan.check()
    if plan.protocol is Protocol.GRPC and plan.read is Read.BATCHES:
        raise Rejected("gRPC delivers single messages: --read batches needs the native protocol")
    if command == "consume" and not plan.reliable:
        raise Rejected("a non-reliable topic keeps nothing to read: measure it by `danube bench latency`")
    if command == "consume" and plan.topic and plan.protocol is Protocol.GRPC:
        raise Rejected(
            "a gRPC subscription begins with the next message, so it cannot read what --topic holds:"
            " leave out --topic, or use the native protocol"
        )
    if command == "latency" and plan.size < STAMP_BYTES:
        raise Rejected(
            f"--size {plan.size} has no room for the time of sending: at least {STAMP_BYTES} bytes"
        )


def _show(report: "Report", output: str) -> None:
    """On stdout: a table for people, one document for programs."""
    if output == "table":
        _show_table(report)
    else:
        show_document(report.fields(), output)


def _show_table(report: "Report") -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to load
    from rich.table import Table  # noqa: PLC0415

    plan = report.plan
    title = f"danube bench {report.command}: {plan.protocol.value}, {'' if plan.reliable else 'non-'}reliable"
    title += " (stopped early)" if report.is_interrupted else ""
    table = Table(title=title, title_justify="left", show_header=False, caption_justify="left")
    table.caption = f"latency: {report.latency_of}"
    table.add_column(style="bold", justify="right")
    table.add_column()
    for name, text in report.lines():
        table.add_row(name, text)
    Console().print(table)
