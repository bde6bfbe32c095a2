"""The Huffman code of HPACK (RFC 7541, appendix B), decoded four bits at a time.

The code is canonical: sorted by length, then by symbol, each code is the previous one plus one. So the
lengths say everything, and the state machine is grown from them when the module loads.
"""

from typing import Final

from librt.strings import BytesWriter

EOS: Final = 256

# Code length of the symbols 0 … 255 and of the end-of-string symbol.
CODE_LENGTHS: Final = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c"
    "060a0a0c0d06080b0a0a080b080606060505050606060606060607080f060c0a"
    "0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c"
    "1416141416161617161717171717181718181617181717171715161716171718"
    "1615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
    "1e"
)

# A transition is next state (9 bits), symbol (8 bits), "a symbol ended here" (1 bit); or FAIL.
_EMIT: Final = 1 << 17
_FAIL: Final = -1


class HuffmanError(Exception):
    """The bits are no Huffman code, hold EOS, or are padded otherwise than with up to seven ones."""


def decode_huffman(data: bytes) -> bytes:
    """Return the decoded bytes; raise HuffmanError."""
    state = 0
    out = BytesWriter()
    for byte in data:
        step = _STEPS[(state << 4) | (byte >> 4)]
        if step < 0:
            raise HuffmanError
        if step & _EMIT:
            out.append((step >> 9) & 0xFF)
        step = _STEPS[((step & 0x1FF) << 4) | (byte & 0xF)]
        if step < 0:
            raise HuffmanError
        if step & _EMIT:
            out.append((step >> 9) & 0xFF)
        state = step & 0x1FF
    if not _MAY_END[state]:
        raise HuffmanError
    return out.getvalue()


def _grow_tree() -> list[list[int]]:
    """Inner nodes as [child for 0, child for 1]; a child below zero is the leaf of symbol ~child."""
    nodes: list[list[int]] = [[0, 0]]
    code = 0
    length = 0
    for symbol in sorted(range(257), key=lambda s: (CODE_LENGTHS[s], s)):
        code <<= CODE_LENGTHS[symbol] - length
        length = CODE_LENGTHS[symbol]
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = (code >> shift) & 1
            if nodes[node][bit] == 0:
                nodes[node][bit] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node][bit]
        nodes[node][code & 1] = ~symbol
        code += 1
    return nodes


def _build_steps(nodes: list[list[int]]) -> list[int]:
    return [_step(nodes, state, nibble) for state in range(len(nodes)) for nibble in range(16)]


def _step(nodes: list[list[int]], state: int, nibble: int) -> int:
    emitted = 0
    node = state
    for shift in (3, 2, 1, 0):
        node = nodes[node][(nibble >> shift) & 1]
        if node < 0:
            symbol = ~node
            if symbol == EOS:
                return _FAIL
            # The shortest code has five bits, so four bits end at most one symbol.
            emitted = _EMIT | (symbol << 9)
            node = 0
    return emitted | node


def _ending_states(nodes: list[list[int]]) -> list[bool]:
    """Which states the input may end in: at a symbol's end, or up to seven one-bits after it."""
    may_end = [False] * len(nodes)
    node = 0
    for _ in range(8):
        may_end[node] = True
        node = nodes[node][1]
    return may_end


_NODES: Final = _grow_tree()
_STEPS: Final = _build_steps(_NODES)
_MAY_END: Final = _ending_states(_NODES)
