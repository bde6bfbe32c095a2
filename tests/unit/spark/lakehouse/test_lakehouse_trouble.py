"""Which trouble is worth another try, and what is said about catalogs."""

import pytest
from pyspark.errors import PySparkException

from pydanube.kernel.errors import ErrorCode, Rejected, Unavailable
from pydanube.spark.lakehouse.trouble import of_catalog, passes

REFUSED = "Connect to http://127.0.0.1:1 failed: Connection refused"


@pytest.mark.parametrize(
    ("text", "is_passing"),
    [
        (REFUSED, True),
        ("org.apache.iceberg.exceptions.CommitStateUnknownException: Service failed: 504", True),
        ("org.apache.iceberg.exceptions.ServiceUnavailableException: Service unavailable", True),
        ("org.apache.hc.core5.http.NoHttpResponseException: 127.0.0.1:1 failed to respond", True),
        ("org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized: who?", False),
        ("[TABLE_OR_VIEW_NOT_FOUND] a.b", False),
    ],
)
def test_trouble_of_servers_passes_and_refusals_do_not(text: str, is_passing: bool) -> None:
    assert passes(PySparkException(text)) is is_passing


def test_a_catalog_is_named_with_what_can_be_done_about_it() -> None:
    away = of_catalog(PySparkException(REFUSED), "http://127.0.0.1:1")
    assert isinstance(away, Unavailable)
    assert "http://127.0.0.1:1 cannot be reached" in away.text
    refused = of_catalog(PySparkException("NotAuthorizedException: who?"), "http://127.0.0.1:1")
    assert refused.code is ErrorCode.PERMISSION_DENIED
    assert "DANUBE_CATALOG_TOKEN" in refused.text
    wrong = of_catalog(PySparkException("no such warehouse"), "http://127.0.0.1:1")
    assert isinstance(wrong, Rejected)
    assert "no such warehouse; check --uri, --warehouse" in wrong.text
