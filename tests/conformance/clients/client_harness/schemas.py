"""The schema commands of an agent, as a scenario says them."""

from typing import Any

from client_harness.agent import Agent

PERSON = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
WIDER = PERSON.replace('"string"', '["string", "null"]')
"""Accepts all that PERSON accepts, and more."""
NARROWER = PERSON.replace('["name"]', '["name", "age"]')
"""Wants what PERSON never asked for."""


class Schemas:
    """The registry through a client's eyes; every refusal is a ClientError."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def register(self, subject: str, definition: str = PERSON, kind: str = "json_schema") -> int:
        answer = self._agent.call("register_schema", subject=subject, type=kind, definition=definition)
        return int(answer["schema_id"])

    def latest(self, subject: str) -> dict[str, Any]:
        return dict(self._agent.call("get_schema", subject=subject))

    def by_id(self, schema_id: int | None, version: int | None = None) -> dict[str, Any]:
        """One version, or the latest one."""
        return dict(self._agent.call("get_schema", schema_id=schema_id, version=version))

    def versions(self, subject: str) -> list[int]:
        return list(self._agent.call("schema_versions", subject=subject)["versions"])

    def problems(
        self, subject: str, definition: str, kind: str = "json_schema", *, mode: str | None = None
    ) -> list[str]:
        """Why the definition may not become a version of the subject; empty if it may."""
        verdict = self._agent.call(
            "check_schema", subject=subject, type=kind, definition=definition, mode=mode
        )
        assert verdict["is_compatible"] == (not verdict["errors"]), verdict
        return list(verdict["errors"])

    def set_mode(self, subject: str, mode: str) -> None:
        assert self._agent.call("set_schema_mode", subject=subject, mode=mode)["success"]

    def delete(self, subject: str, version: int) -> None:
        assert self._agent.call("delete_schema", subject=subject, version=version)["success"]

    def configure(self, topic: str, subject: str, policy: str, *, payloads: bool) -> None:
        """Bind the topic to the subject, whatever producers have bound it to."""
        answer = self._agent.call(
            "configure_topic", topic=topic, subject=subject, policy=policy, payloads=payloads
        )
        assert answer["success"], answer
        assert topic in answer["message"], answer
        assert subject in answer["message"], answer

    def set_policy(self, topic: str, policy: str, *, payloads: bool) -> None:
        assert self._agent.call("set_topic_policy", topic=topic, policy=policy, payloads=payloads)["success"]

    def of_topic(self, topic: str) -> dict[str, Any]:
        return dict(self._agent.call("topic_schema", topic=topic))
