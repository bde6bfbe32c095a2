"""Conformance: brokers as processes, clients in their own languages.

Which clients play the scenarios is chosen by DANUBE_CONFORMANCE_CLIENTS, a list such as `python,rust`: each
one named must be runnable. Unset, it means every client whose tools are on this machine; the summary at the
end says which ones that leaves out and why.
"""

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "clients"))
pytest.register_assert_rewrite("client_harness")

from client_harness.agent import Agent  # noqa: E402
from client_harness.broker_process import BrokerProcess  # noqa: E402
from client_harness.programs import PROGRAMS, BuildError, ClientProgram  # noqa: E402
from client_harness.schemas import Schemas  # noqa: E402

SELECTION = "DANUBE_CONFORMANCE_CLIENTS"

H2SPEC = Path(__file__).parents[2] / ".tools" / "bin" / "h2spec"
CAN_RUN_H2SPEC = H2SPEC.exists() or shutil.which("go") is not None
collect_ignore = [] if CAN_RUN_H2SPEC else ["http2/test_h2spec.py"]

_commands = pytest.StashKey[dict[str, list[str] | BuildError]]()
_agents = pytest.StashKey[list[Agent]]()
_topic_numbers = itertools.count(1)


# --- fixtures


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all scenarios that leave it running; each scenario has topics of its own."""
    broker = BrokerProcess(tmp_path_factory.mktemp("shared-broker"))
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the scenario's own, to be stopped, killed and started at will."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name nobody else uses."""
    scenario = request.node.originalname.removeprefix("test_")
    return f"/default/{scenario[:80]}-{next(_topic_numbers)}"


@pytest.fixture
def subject(topic: str) -> str:
    """A schema subject nobody else uses."""
    return topic.removeprefix("/").replace("/", "-")


@pytest.fixture(scope="session")
def client(request: pytest.FixtureRequest) -> ClientProgram:
    """The client under test; its program is built before the first test runs."""
    outcome = request.config.stash[_commands][request.param]
    if isinstance(outcome, BuildError):
        pytest.fail(f"the {request.param} client could not be built: {outcome}", pytrace=False)
    return PROGRAMS[request.param]


@pytest.fixture
def start_agent(
    request: pytest.FixtureRequest, client: ClientProgram
) -> Iterator[Callable[[BrokerProcess], Agent]]:
    """Starts client processes of the scenario's own, connected to a given broker."""
    agents: list[Agent] = request.node.stash.setdefault(_agents, [])
    command = request.config.stash[_commands][client.name]

    def start(broker: BrokerProcess) -> Agent:
        assert not isinstance(command, BuildError)
        agents.append(Agent(client.name, command, broker.url))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


@pytest.fixture(scope="session")
def shared_agent_slot(client: ClientProgram) -> Iterator[list[Agent]]:
    """Holds the one process per client that most scenarios share."""
    slot: list[Agent] = []
    yield slot
    for agent in slot:
        agent.close()


@pytest.fixture
def agent(
    request: pytest.FixtureRequest,
    client: ClientProgram,
    shared_broker: BrokerProcess,
    shared_agent_slot: list[Agent],
) -> Agent:
    """A client process connected to the shared broker; replaced if a scenario has broken it."""
    if not shared_agent_slot or not shared_agent_slot[-1].alive:
        command = request.config.stash[_commands][client.name]
        assert not isinstance(command, BuildError)
        shared_agent_slot.append(Agent(client.name, command, shared_broker.url))
    return shared_agent_slot[-1]


@pytest.fixture
def schemas(agent: Agent) -> Schemas:
    """The schema registry as the client under test sees it."""
    return Schemas(agent)


# --- selection, builds and the summary


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(feature): the scenario needs a client that has this feature")
    for name in PROGRAMS:
        config.addinivalue_line("markers", f"client_{name}: played by the {name} client")
    config.stash[_commands] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "client" in metafunc.fixturenames:
        names = [
            pytest.param(name, marks=getattr(pytest.mark, f"client_{name}")) for name in _selected_clients()
        ]
        metafunc.parametrize("client", names, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a client has no words for; the summary says so."""
    left_out = [item for item in items if (name := _client_of(item)) and _missing_features(item, name)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test, so that no test's time limit counts a compiler run."""
    if session.config.option.collectonly:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for name in dict.fromkeys(filter(None, map(_client_of, session.items))):
        if reporter is not None:
            reporter.write_line(f"conformance: preparing the {name} client (the first time may take minutes)")
        try:
            session.config.stash[_commands][name] = PROGRAMS[name].build()
        except BuildError as failure:
            session.config.stash[_commands][name] = failure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which clients were played and, loudly, what was not."""
    if not CAN_RUN_H2SPEC:
        terminalreporter.write_line(
            "h2spec: NOT RUN, this machine has no go to build it", red=True, bold=True
        )
    ended = (terminalreporter.getreports(outcome) for outcome in ("passed", "failed", "error"))
    reports = [report for group in ended for report in group if isinstance(report, pytest.TestReport)]
    played = {
        name: [report for report in reports if f"client_{name}" in report.keywords] for name in PROGRAMS
    }
    if not any(played.values()):
        return
    terminalreporter.section("clients played against the broker", sep="=")
    for name, program in PROGRAMS.items():
        if played[name]:
            failures = sum(report.failed for report in played[name])
            words = f"{name}: {len(played[name])} scenarios, {failures} failed ({program.under_test})"
            terminalreporter.write_line(words, red=failures > 0, green=failures == 0)
            if program.lacks:
                lacks = ", ".join(sorted(program.lacks))
                terminalreporter.write_line(
                    f"    left out, as this client has none of it: {lacks}", yellow=True
                )
        else:
            missing = ", ".join(program.missing_tools)
            why = f"this machine has no {missing}" if missing else "not selected"
            terminalreporter.write_line(f"{name}: NOT RUN, {why}", red=True, bold=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the broker's log and the client's stderr beside a failure."""
    report = yield
    if report.failed:
        for value in [*getattr(item, "funcargs", {}).values(), *item.stash.get(_agents, [])]:
            if isinstance(value, BrokerProcess):
                report.sections.append(("broker log (end)", value.log[-8_000:]))
            elif isinstance(value, Agent):
                report.sections.append((f"{value.name} client stderr (end)", value.stderr))
    return report


def _selected_clients() -> list[str]:
    """The clients to play: those named, all of which must be runnable, or those whose tools are here."""
    named = os.environ.get(SELECTION)
    if named is None:
        return [name for name, program in PROGRAMS.items() if not program.missing_tools]
    names = [name.strip() for name in named.split(",") if name.strip()]
    for name in names:
        if name not in PROGRAMS:
            raise pytest.UsageError(f"{SELECTION} names {name!r}; known clients: {', '.join(PROGRAMS)}")
        if missing := PROGRAMS[name].missing_tools:
            raise pytest.UsageError(
                f"{SELECTION} names {name!r}, but this machine has no {', '.join(missing)}"
            )
    if not names:
        raise pytest.UsageError(
            f"{SELECTION} is empty; name some of: {', '.join(PROGRAMS)}, or leave it unset"
        )
    return names


def _client_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get("client") if callspec else None
    return name if name in PROGRAMS else None


def _missing_features(item: pytest.Item, client_name: str) -> set[str]:
    needed = {feature for marker in item.iter_markers("needs") for feature in marker.args}
    return needed & PROGRAMS[client_name].lacks
