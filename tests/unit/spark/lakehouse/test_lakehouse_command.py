"""What `danube lakehouse` refuses before anything is started."""

import pytest
from click.testing import CliRunner

from pydanube.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["sync", "/default/a"], "Missing option '--table'"),
        (["sync", "orders", "--table", "a/b/c"], "has no namespace"),
        (["sync", "/default/a", "--table", "a.b", "--catalog", "rest"], "give --uri"),
        (["sync", "/default/a", "--table", "a.b", "--catalog", "hadoop"], "give --warehouse"),
        (["sync", "/default/a", "--table", "a/b/c", "--schema-type", "avro"], "go together"),
        (["sync", "/default/a", "--table", "a/b/c", "--commit-rows", "0"], "'--commit-rows'"),
        (["sync", "/default/a", "--table", "a/b/c", "--catalog-property", "token"], "expected NAME=VALUE"),
        (["register", "/default/a", "--table", "a/b", "--format", "delta"], "only Iceberg tables"),
        (["status", "--table", "/t"], "WAREHOUSE/NAMESPACE/TABLE"),
    ],
)
def test_wrong_options_are_told_and_exit_with_2(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, ["lakehouse", *arguments])
    assert result.exit_code == 2
    assert text in result.output
