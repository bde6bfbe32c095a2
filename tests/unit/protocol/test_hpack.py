"""Our HPACK decoder, with the `hpack` package as the oracle in both directions."""

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from pydanube.protocol.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, GoAwayError
from pydanube.protocol.http2.hpack import STATIC_TABLE, HpackDecoder, encode_fields
from pydanube.protocol.http2.huffman import CODE_LENGTHS, HuffmanError, decode_huffman

Fields = list[tuple[bytes, bytes]]
names = st.sampled_from([b":path", b"te", b"authorization", b"x-danube-broker-url", b"a", b""]) | st.binary(
    max_size=40
)
fields = st.lists(st.tuples(names, st.binary(max_size=200)), max_size=12)


def decoder(list_bytes_max: int = 1 << 20, fields_max: int = 1000) -> HpackDecoder:
    return HpackDecoder(list_bytes_max=list_bytes_max, fields_max=fields_max)


@given(st.lists(st.tuples(fields, st.booleans(), st.none() | st.integers(0, 4096)), max_size=8))
def test_reads_what_the_oracle_writes(blocks: list[tuple[Fields, bool, int | None]]) -> None:
    oracle, ours = Encoder(), decoder()
    for sent, huffman, table_size in blocks:
        if table_size is not None:
            oracle.header_table_size = table_size
        assert ours.decode(oracle.encode(sent, huffman=huffman)) == sent


@given(fields)
def test_the_oracle_reads_what_we_write(sent: Fields) -> None:
    assert Decoder().decode(encode_fields(sent), raw=True) == sent


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_garbage_is_judged_as_by_the_oracle(blocks: list[bytes]) -> None:
    oracle, ours = Decoder(), decoder()
    oracle.max_allowed_table_size = 4096
    for block in blocks:
        try:
            expected = [(bytes(name), bytes(value)) for name, value in oracle.decode(block, raw=True)]
        except HPACKError:
            with pytest.raises(GoAwayError):
                ours.decode(block)
            return
        assert ours.decode(block) == expected


@given(st.binary(max_size=100))
def test_huffman_reads_what_the_oracle_writes(text: bytes) -> None:
    packed = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)
    assert decode_huffman(packed) == text


def test_every_symbol_has_the_oracles_code_length() -> None:
    assert list(CODE_LENGTHS) == list(REQUEST_CODES_LENGTH)


@pytest.mark.parametrize(
    "packed",
    [
        b"\xff\xff\xff\xff",  # EOS
        b"\x00",  # three bits of padding that are not ones
        b"\xff",  # eight bits of padding
        b"\x1f\xff",  # a symbol, then more than seven bits of padding
    ],
)
def test_wrong_huffman_endings_are_refused(packed: bytes) -> None:
    with pytest.raises(HuffmanError):
        decode_huffman(packed)


def test_the_static_table_is_the_oracles() -> None:
    assert [Decoder().header_table.get_by_index(n) for n in range(1, 62)] == STATIC_TABLE[1:]


def test_old_entries_leave_a_full_table() -> None:
    ours = decoder()
    ours.decode(b"\x40\x01a\x01b")
    assert ours.decode(b"\xbe") == [(b"a", b"b")]
    # An entry larger than the whole table empties it (section 4.4).
    ours.decode(b"\x40\x01a\x7f\x81\x1f" + b"v" * (127 + 1 + 31 * 128))
    with pytest.raises(GoAwayError) as refusal:
        ours.decode(b"\xbe")
    assert refusal.value.code == COMPRESSION_ERROR


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # beyond the table
        b"\x7f",  # an integer that does not end
        b"\xff\xff\xff\xff\xff\xff\x7f",  # an integer out of bounds
        b"\x3f\xe2\x1f",  # a table larger than advertised (4097)
        b"\x82\x20",  # a table size update after a field
        b"\x00",  # no name
        b"\x00\x05ab",  # a name cut short
        b"\x00\x01a",  # no value
        b"\x00\x81\x00\x00",  # bad Huffman padding
    ],
)
def test_broken_blocks_are_compression_errors(block: bytes) -> None:
    with pytest.raises(GoAwayError) as refusal:
        decoder().decode(block)
    assert refusal.value.code == COMPRESSION_ERROR


def test_a_header_bomb_stops_at_the_list_limit() -> None:
    """A small block that refers to one large table entry over and over."""
    ours = decoder(list_bytes_max=10_000)
    block = b"\x40\x01a\x7f\x81\x0f" + b"v" * (127 + 1 + 15 * 128) + b"\xbe" * 1000
    with pytest.raises(GoAwayError) as refusal:
        ours.decode(block)
    assert refusal.value.code == ENHANCE_YOUR_CALM


def test_too_many_tiny_fields_stop_at_the_field_limit() -> None:
    with pytest.raises(GoAwayError) as refusal:
        decoder(fields_max=100).decode(b"\x82" * 101)
    assert refusal.value.code == ENHANCE_YOUR_CALM


def test_only_blocks_that_change_the_table_say_so() -> None:
    ours = decoder()
    ours.decode(b"\x82\x86")
    assert not ours.table_changed
    ours.decode(b"\x40\x01a\x01b")
    assert ours.table_changed
    ours.decode(b"\xbe\x00\x01c\x01d")
    assert not ours.table_changed
    ours.decode(b"\x20")
    assert ours.table_changed
