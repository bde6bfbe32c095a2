"""Tables behind JDBC."""

import os

from pydanube.kernel.errors import Rejected
from pydanube.spark.pipelines.document import JdbcTable
from pydanube.spark.pipelines.environment import filled, filled_all


def jdbc_options(table: JdbcTable) -> dict[str, str]:
    """In Spark's words."""
    options = {"url": filled(table.url), "dbtable": filled(table.table), **filled_all(table.options)}
    if table.user is not None:
        options["user"] = filled(table.user)
    if table.password_env is not None:
        password = os.environ.get(table.password_env)
        if password is None:
            raise Rejected(
                f"the environment variable {table.password_env} with the password of {table.table} is not set"
            )
        options["password"] = password
    return options
