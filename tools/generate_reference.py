"""Write docs/reference/ from the code, or with --check say whether it is current."""

import inspect
import sys
from pathlib import Path

import cli_reference
import config_reference

from pydanube.kernel import errors
from pydanube.server import metrics

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference"
NOTE = "<!-- Made by `python tools/generate_reference.py`: change the code, not this page. -->\n"


def errors_page() -> str:
    kinds = [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.DanubeError) and kind is not errors.DanubeError
    ]
    lines = [
        "# Errors",
        "",
        "Whatever is refused, over gRPC, the native protocol or by the command line, carries one of these codes: gRPC texts end",
        "with it, as in `(code 200)`. A number keeps its meaning for ever.",
        "",
        "In the Python client an error is of the kind that says what can be done about it:",
        "",
        "| kind | what to do |",
        "|---|---|",
        *(f"| `{kind.__name__}` | {inspect.getdoc(kind)} |" for kind in kinds),
        "",
        "| code | name | gRPC status | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {code.number} | `{code.name}` | {code.status.name} | {code.meaning} |"
        for code in sorted(errors.ErrorCode, key=lambda each: each.number)
    ]
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "What a broker tells Prometheus at `/metrics` of its port 9040 (`broker.ports.prometheus`). Every series also has the label",
        "`broker`, the broker's id. Counters begin with the process; summaries have quantiles, `_sum` and `_count`.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in sorted(metrics.TABLE, key=lambda each: each.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} |")
    return "\n".join([*lines, ""])


PAGES = {
    "configuration.md": config_reference.page,
    "cli.md": cli_reference.page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
}


def main() -> None:
    is_check = "--check" in sys.argv[1:]
    for name, make in PAGES.items():
        file = TARGET / name
        text = NOTE + "\n" + make()
        if not is_check:
            TARGET.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            sys.exit(f"{file.relative_to(ROOT)} is out of date: run `make reference`")


if __name__ == "__main__":
    main()
