"""The one way the parts of a segment say that its bytes are not what was written."""


class DamagedSegmentError(ValueError):
    """What is wrong with the bytes; whoever knows which segment it is says where and what to do."""
