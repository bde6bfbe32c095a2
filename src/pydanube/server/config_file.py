"""From file, environment and flags to a `ServerConfig`, or to a list of everything that is wrong.

Later layers win: defaults, file, environment, flags. No key is ever ignored: it works, or the broker
does not start and says why, with the key's full path and where it was set.
"""

import difflib
import fnmatch
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
import yaml

from pydanube.kernel.errors import Rejected
from pydanube.server.config import ServerConfig, Settings, Storage
from pydanube.server.listeners import Address, AddressFlags, resolve_listeners
from pydanube.server.refused_keys import MOVED, REFUSED
from pydanube.stores.settings import problems

ENVIRONMENT_PREFIX: Final = "DANUBE_"
_NOT_SETTINGS: Final = frozenset(
    {"DANUBE_LOG", "DANUBE_TOKEN", "DANUBE_CA", "DANUBE_CERT", "DANUBE_KEY", "DANUBE_JWT_SECRET_KEY"}
    | {
        f"DANUBE_ADMIN_{name}"
        for name in ("ADDR", "ENDPOINT", "TOKEN", "API_KEY", "CA", "CERT", "KEY", "DOMAIN")
    }
)
"""Variables of our own that say something to other commands."""
FILE_BYTES_MAX: Final = 1 << 20
_DEPTH_MAX: Final = 20


class ConfigError(Rejected):
    """Everything wrong with a configuration, one line each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "invalid configuration:\n" + "\n".join(f"  - {problem}" for problem in self.problems)
        )


@dataclass
class Layers:
    """The raw keys gathered so far, and where each came from."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def say(self, path: str, text: str) -> None:
        """Note a problem with the key at this path, naming the place that set it."""
        origin = self.origins.get(path) or self.origins.get(path.rpartition(".")[0])
        self.problems.append(f"{path or 'the file'}: {text}" + (f" ({origin})" if origin else ""))

    def set(self, path: str, value: Any, origin: str) -> None:
        *sections, key = path.split(".")
        target = self.data
        for section in sections:
            below = target.get(section)
            if not isinstance(below, dict):
                below = target[section] = {}
            target = below
        target[key] = value
        self.origins[path] = origin


def load_config(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    data_dir: str | None = None,
    addresses: AddressFlags | None = None,
) -> ServerConfig:
    """Build the configuration a broker runs with; raise ConfigError naming every problem found."""
    layers = Layers()
    if file is not None:
        _read_file(layers, file)
    _read_environment(layers, environment)
    if data_dir is not None:
        layers.set("meta_store.data_dir", data_dir, "flag --data-dir")
    _refuse(layers)
    _drop_unknown(layers, Settings, layers.data, "")
    settings = _convert(layers)
    _check_values(layers, settings)
    _raise(layers)
    return _resolve(settings, addresses or AddressFlags())


def key_paths(struct: type[msgspec.Struct] = Settings, prefix: str = "") -> dict[str, Any]:
    """Every key of the file with its type, sections included, as dotted paths."""
    paths: dict[str, Any] = {}
    for info in msgspec.structs.fields(struct):
        path = prefix + info.name
        paths[path] = info.type
        if (section := _section_of(info.type)) is not None:
            paths |= key_paths(section, path + ".")
    return paths


def _read_file(layers: Layers, file: Path) -> None:
    try:
        content = file.read_bytes()
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError([f"{file} has {len(content)} bytes, {FILE_BYTES_MAX} at most"])
        loader = yaml.SafeLoader(content)
        try:
            node = loader.get_single_node()
            _note_lines(layers, node, "", file.name, depth=0)
            data = loader.construct_document(node) if node is not None else {}
        finally:
            loader.dispose()
    except OSError as error:
        raise ConfigError([f"{file} cannot be read: {error.strerror}"]) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise ConfigError([f"{file} is not YAML: {' '.join(str(error).split())}"]) from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError([f"{file} holds a {type(data).__name__}, expected keys and values"])
    layers.data = data


def _note_lines(layers: Layers, node: yaml.Node | None, path: str, name: str, *, depth: int) -> None:
    """Remember the line of every key; refuse keys given twice, of which YAML would keep the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    if depth > _DEPTH_MAX:
        raise ConfigError([f"{path} is nested deeper than {_DEPTH_MAX} levels"])
    for key, value in node.value:
        below = f"{path}.{key.value}" if path else str(key.value)
        line = f"{name}, line {key.start_mark.line + 1}"
        if below in layers.origins:
            layers.problems.append(f"{below}: given twice ({layers.origins[below]}, and {line})")
        layers.origins[below] = line
        _note_lines(layers, value, below, name, depth=depth + 1)


def _read_environment(layers: Layers, environment: Mapping[str, str]) -> None:
    paths = key_paths()
    variables = {ENVIRONMENT_PREFIX + path.replace(".", "__").upper(): path for path in paths}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_SETTINGS:
            continue
        path = variables.get(variable)
        if path is None:
            path = variable.removeprefix(ENVIRONMENT_PREFIX).replace("__", ".").lower()
            if path in REFUSED:
                layers.set(path, environment[variable], f"environment variable {variable}")
                continue
            near = difflib.get_close_matches(variable, variables, n=1, cutoff=0.85)
            # Other programs may own DANUBE_… names (a cluster's service links do); ours have two underscores
            # between parts, and a name that is nearly right is meant for us.
            if "__" in variable or near:
                hint = f"; did you mean {near[0]}?" if near else ""
                layers.problems.append(f"environment variable {variable} names no setting{hint}")
            continue
        try:
            value = _parse_variable(environment[variable], paths[path])
        except yaml.YAMLError:
            layers.problems.append(
                f"environment variable {variable}: {environment[variable]!r} cannot be read as YAML"
            )
            continue
        layers.set(path, value, f"environment variable {variable}")


def _parse_variable(text: str, wanted: Any) -> Any:
    kinds = _alternatives(wanted)
    if str in kinds and not (type(None) in kinds and text in ("", "null")):
        return text
    if any(get_origin(kind) is tuple for kind in kinds) and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    return yaml.safe_load(text)


def _refuse(layers: Layers) -> None:
    """Take out the keys this release cannot honour; complain unless their value asks for nothing."""
    moved = dict(MOVED)
    if layers.data.get("storage", {}).get("mode") == "shared_fs":
        moved["storage.root"] = "storage.durable.root"
    for old, new in moved.items():
        if _has(layers.data, old):
            value = _take(layers.data, old)
            if _has(layers.data, new):
                layers.say(old, f"the same as {new}, which is set too: keep one of them")
            else:
                layers.set(new, value, layers.origins.get(old, ""))
    for path, (harmless, reason) in REFUSED.items():
        if _has(layers.data, path) and _take(layers.data, path) not in (None, *harmless):
            layers.say(path, reason)


def _drop_unknown(layers: Layers, struct: type[msgspec.Struct], data: dict[Any, Any], prefix: str) -> None:
    """Name the unknown keys and take them out, so that the rest can still be checked."""
    known = {info.name: info.type for info in msgspec.structs.fields(struct)}
    for key, value in list(data.items()):
        path = f"{prefix}{key}"
        if key not in known:
            layers.say(path, _unknown_key(str(key), prefix, list(known)))
            del data[key]
        elif isinstance(value, dict) and (section := _section_of(known[key])) is not None:
            _drop_unknown(layers, section, value, path + ".")


def _unknown_key(key: str, prefix: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"unknown key; did you mean {prefix}{near[0]}?"
    # Right name, wrong place?
    elsewhere = [path for path in key_paths() if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"unknown key; did you mean {elsewhere[0]}?"
    return f"unknown key; known here: {', '.join(known)}"


def _convert(layers: Layers) -> Settings:
    """Check types and ranges. msgspec stops at the first problem, so drop what is bad and go on to the next."""
    data = layers.data
    kinds = key_paths()
    while True:
        try:
            settings = msgspec.convert(data, Settings)
        except msgspec.ValidationError as error:
            text, _, where = str(error).partition(" - at ")
            path = re.sub(r"^`(?:key in )?\$\.?|`$", "", where).split("[")[0].rstrip(".")
            choices = _choices(kinds.get(path))
            layers.say(
                path, text[0].lower() + text[1:] + (f", expected one of: {choices}" if choices else "")
            )
            if not path or not _has(data, path):
                _raise(layers)
            _take(data, path)
        else:
            _raise(layers)
            return settings


def _choices(kind: Any) -> str:
    """The words a key accepts, if it accepts only some."""
    words: list[str] = []
    for plain in _alternatives(kind):
        if get_origin(plain) is Literal:
            words += get_args(plain)
        elif isinstance(plain, type) and issubclass(plain, Enum):
            words += [str(member.value) for member in plain]
        elif get_origin(plain) is dict:
            words.append(_choices(get_args(plain)[1]))
    return ", ".join(words)


def _check_values(layers: Layers, settings: Settings) -> None:
    """What a type cannot say: ranges of shared structs, files, combinations."""
    for name in settings.policies.__struct_fields__:
        if not 0 <= getattr(settings.policies, name) < 1 << 32:
            layers.say(f"policies.{name}", "expected 0 (unlimited) to 4294967295")
    _check_security(layers, settings)
    for namespace in settings.bootstrap_namespaces:
        if re.fullmatch(r"[\w-]{1,120}", namespace) is None:
            layers.say("bootstrap_namespaces", f"{namespace!r}: expected letters, digits, '_' and '-'")
    _check_storage(layers, settings.storage)


def _check_security(layers: Layers, settings: Settings) -> None:
    auth = settings.auth
    if settings.admin_tls and auth.mode == "none":
        layers.say("admin_tls", "needs auth.mode tls or mtls, and the files of auth.tls")
    if auth.tls is not None:
        for name in ("cert_file", "key_file", "ca_file"):
            file = getattr(auth.tls, name)
            if file is not None and not Path(file).is_file():
                layers.say(f"auth.tls.{name}", f"no such file: {file}")
    for key in () if auth.jwt is None else auth.jwt.keys:
        if key.file is not None and not Path(key.file).is_file():
            layers.say("auth.jwt.keys", f"no such file: {key.file}")


def _check_storage(layers: Layers, storage: Storage) -> None:
    policies = {"local_retention": storage.local_retention, "retention": storage.retention}
    policies |= {f"topic_retention.{pattern}": policy for pattern, policy in storage.topic_retention.items()}
    for name, policy in policies.items():
        if policy is not None and policy.drop_unconsumed and policy.time_minutes is policy.size_mb is None:
            layers.say(f"storage.{name}.drop_unconsumed", "has no effect without time_minutes or size_mb")
    for key, patterns in (
        ("wal.topic_fsync", storage.wal.topic_fsync),
        ("topic_retention", storage.topic_retention),
    ):
        for pattern in patterns:
            if not pattern.startswith("/") and not fnmatch.fnmatchcase("/", pattern[:1]):
                layers.say(f"storage.{key}", f"{pattern!r} matches no topic: names are /namespace/topic")
    if storage.mode == "local":
        if storage.durable is not None:
            layers.say(
                "storage.durable",
                "has no effect in mode local: set storage.mode to shared_fs or object_store",
            )
        if storage.retention is not None:
            layers.say(
                "storage.retention", "in mode local there is one copy of history: use storage.local_retention"
            )
        return
    if storage.local_retention.until_consumed or storage.local_retention.drop_unconsumed:
        layers.say(
            "storage.local_retention",
            f"until_consumed and drop_unconsumed delete history, local copies are not all of it in mode {storage.mode}: "
            "set them in storage.retention",
        )
    if storage.durable is None:
        layers.say("storage.durable", f"mode {storage.mode} needs it: say where segments are to be kept")
    else:
        for key, text in problems(storage.durable, storage.mode):
            layers.say(f"storage.durable.{key}", text)


def _resolve(settings: Settings, flags: AddressFlags) -> ServerConfig:
    broker = settings.broker
    listed = broker.advertised_listeners
    tls = settings.auth.mode != "none"
    try:
        listeners = resolve_listeners(
            host=broker.host,
            client_port=broker.ports.client,
            admin_port=broker.ports.admin,
            prometheus_port=broker.ports.prometheus,
            advertised=None if listed is None else (listed.broker_url, listed.connect_url),
            tls=tls,
            flags=flags,
        )
    except Rejected as error:
        raise ConfigError([error.text]) from error
    used = [
        str(a) for a in (listeners.client, listeners.admin, listeners.prometheus) if a is not None and a.port
    ]
    doubles = sorted({address for address in used if used.count(address) > 1})
    if doubles:
        raise ConfigError([f"address {address} is given to two listeners" for address in doubles])
    warnings: list[str] = []
    if listeners.client.is_wildcard and str(listeners.client) in listeners.connect_url:
        warnings.append(
            f"clients are told to dial {listeners.connect_url}, which works on this machine only: set "
            "broker.advertised_listeners or --advertised-addr to a name they can reach"
        )
    if not _is_loopback(listeners.client) and not tls:
        warnings.append(
            f"{listeners.client} is open to the network without TLS: set auth.mode tls, or bind to 127.0.0.1"
        )
    warnings += _security_warnings(settings, listeners.admin)
    return ServerConfig(settings=settings, listeners=listeners, warnings=tuple(warnings))


def _security_warnings(settings: Settings, admin: Address) -> list[str]:
    auth = settings.auth
    if auth.mode == "none":
        return [
            f"auth.{name} is set but auth.mode is none: nothing is encrypted, everybody may do everything"
            for name in ("tls", "jwt")
            if getattr(auth, name) is not None
        ]
    warnings = []
    if auth.mode == "tls" and auth.jwt is None:
        warnings.append(
            "auth.mode is tls but auth.jwt is not set: callers have no way to say who they are, so nobody is let in"
        )
    if auth.mode == "tls" and not settings.admin_tls and not _is_loopback(admin):
        warnings.append(
            f"the admin port {admin} is open to the network without TLS, and tokens are sent to it: set admin_tls"
        )
    return warnings


def _is_loopback(address: Address) -> bool:
    return address.host.startswith("127.") or address.host == "::1"


def _raise(layers: Layers) -> None:
    if layers.problems:
        raise ConfigError(layers.problems)


def _has(data: Mapping[str, Any], path: str) -> bool:
    for part in path.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def _take(data: dict[str, Any], path: str) -> Any:
    *sections, key = path.split(".")
    for section in sections:
        data = data[section]
    return data.pop(key)


def _section_of(kind: Any) -> type[msgspec.Struct] | None:
    for alternative in _alternatives(kind):
        if isinstance(alternative, type) and issubclass(alternative, msgspec.Struct):
            return alternative
    return None


def _alternatives(kind: Any) -> list[Any]:
    """The plain types a field may have, without `Annotated` and unions around them."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [plain for part in get_args(kind) for plain in _alternatives(part)]
    return [kind]
