"""The write-ahead log: one journal per broker, shared by all topics; appends, group commit, recovery.

May import segments, metadata and kernel. Start reading at `journal.py` (the face), then `commit.py`
(the loop's side of group commit), `writer.py` (the thread's side), `recovery.py` (reading it back),
`producers.py` (what keeps a message sent twice from being stored twice);
`docs/journal-format.md` has the bytes.
"""

from pydanube.log.commit import Done
from pydanube.log.journal import Journal
from pydanube.log.producers import PRODUCERS_REMEMBERED_MAX
from pydanube.log.recovery import Progress, RecoveredTopic
from pydanube.log.settings import JournalSettings
from pydanube.log.tail import Row
from pydanube.log.topic_log import OffsetGone, TopicLog

__all__ = [
    "PRODUCERS_REMEMBERED_MAX",
    "Done",
    "Journal",
    "JournalSettings",
    "OffsetGone",
    "Progress",
    "RecoveredTopic",
    "Row",
    "TopicLog",
]
