from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Status


def test_no_number_is_given_twice() -> None:
    numbers = [code.number for code in ErrorCode.__members__.values()]
    assert len(numbers) == len(set(numbers))


def test_an_error_carries_code_status_and_text() -> None:
    error = Rejected("no such topic /a/b", ErrorCode.TOPIC_UNKNOWN)
    assert isinstance(error, DanubeError)
    assert (error.code.number, error.status, str(error)) == (200, Status.NOT_FOUND, "no such topic /a/b")


def test_a_group_has_a_code_of_its_own_by_default() -> None:
    assert Conflict("changed").code is ErrorCode.VERSION_MISMATCH
