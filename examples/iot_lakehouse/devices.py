"""Devices that measure rooms: how warm it is and what is used, a reading every ten minutes, some of them broken."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

START = datetime(2026, 6, 1, tzinfo=UTC)
STEP = timedelta(minutes=10)
SITES = {"Regensburg": 21.0, "Passau": 19.5, "Vienna": 23.0, "Budapest": 25.0}
"""How warm it is there on average."""
BAD_SHARE = 0.0005


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    site: str
    bias: float
    watts: float

    def measure(self, moment: datetime, dice: random.Random, *, firmware: int) -> dict[str, object]:
        hour = moment.hour + moment.minute / 60
        # Coldest at five, warmest at five in the afternoon.
        warmth = -math.cos((hour - 5) / 12 * math.pi)
        temperature = SITES[self.site] + 6 * warmth + self.bias + dice.gauss(0, 0.3)
        is_at_work = moment.weekday() < 5 and 7 <= hour < 18
        power = self.watts * (1.0 if is_at_work else 0.15) * dice.uniform(0.9, 1.1)
        reading: dict[str, object] = {
            "device": self.name,
            "site": self.site,
            "measured_at": moment.isoformat(),
            "temperature": round(temperature, 2),
            "power": round(power, 1),
        }
        if firmware == 2:
            reading["humidity"] = round(min(100.0, max(5.0, 60 - 18 * warmth + dice.gauss(0, 2))), 1)
        return reading


def make_devices(count: int) -> list[Device]:
    dice = random.Random(1)
    sites = list(SITES)
    return [
        Device(f"room-{number:04}", sites[number % len(sites)], dice.gauss(0, 1), dice.uniform(50, 400))
        for number in range(count)
    ]


def readings(devices: list[Device], first: int, last: int, *, firmware: int) -> Iterator[pa.Table]:
    """What all of them send from one hour to another, an hour at a time; the time of a reading is its publish time."""
    dice = random.Random(first)
    for hour in range(first, last):
        payloads: list[bytes] = []
        keys: list[str] = []
        times: list[datetime] = []
        for step in range(timedelta(hours=1) // STEP):
            moment = START + timedelta(hours=hour) + step * STEP
            for device in devices:
                text = json.dumps(device.measure(moment, dice, firmware=firmware))
                payloads.append(_broken(text, dice).encode() if dice.random() < BAD_SHARE else text.encode())
                keys.append(device.name)
                times.append(moment)
        yield pa.table({"payload": payloads, "routing_key": keys, "publish_time": times})


def _broken(text: str, dice: random.Random) -> str:
    """As it comes from devices in the field: cut off, a word for a number, a clock that was never set."""
    reading = json.loads(text)
    match dice.randrange(3):
        case 0:
            return text[: len(text) // 2]
        case 1:
            return json.dumps({**reading, "temperature": "n/a"})
        case _:
            return json.dumps({**reading, "measured_at": "never"})
