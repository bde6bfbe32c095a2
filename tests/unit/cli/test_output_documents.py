"""What commands without a broker say to programs: the same in JSON and YAML, and on stdout alone."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pydanube import __version__
from pydanube.cli.main import main

SECRET = "a secret that is long enough to be one"


def danube(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"DANUBE_JWT_SECRET_KEY": SECRET})


def read(result: Result, form: str) -> Any:
    return json.loads(result.stdout) if form == "json" else yaml.safe_load(result.stdout)


both_forms = pytest.mark.parametrize("form", ["json", "yaml"])


@both_forms
def test_a_good_configuration(tmp_path: Path, form: str) -> None:
    file = tmp_path / "good.yml"
    file.write_text("cluster_name: mine\n")
    checked = danube("config", "check", str(file), "--output", form)
    assert checked.exit_code == 0
    assert read(checked, form) == {"file": str(file), "valid": True, "problems": [], "warnings": []}


@both_forms
def test_every_problem_of_a_bad_configuration(tmp_path: Path, form: str) -> None:
    file = tmp_path / "bad.yml"
    file.write_text("cluster_nam: mine\nauto_create_topics: perhaps\n")
    checked = danube("config", "check", str(file), "--output", form)
    assert checked.exit_code == 1
    document = read(checked, form)
    assert (document["valid"], len(document["problems"])) == (False, 2)
    assert "cluster_name" in document["problems"][0]


@both_forms
def test_effective_settings_are_masked_in_every_form(tmp_path: Path, form: str) -> None:
    file = tmp_path / "danube.yml"
    file.write_text(f"auth: {{jwt: {{secret_key: {SECRET}}}}}\n")
    shown = danube("config", "show", "--config-file", str(file), "--output", form)
    assert read(shown, form)["broker"]["ports"]["client"] == 6650
    table = danube("config", "show", "--config-file", str(file), "--output", "table")
    assert "broker.ports.client" in table.stdout
    assert SECRET not in shown.output + table.output
    assert danube("config", "show").stdout == danube("config", "show", "-o", "yaml").stdout


@both_forms
def test_a_token_and_what_it_says(form: str) -> None:
    made = danube("security", "tokens", "create", "--subject", "ada", "--type", "user", "--output", form)
    document = read(made, form)
    validated = danube("security", "tokens", "validate", "--token", document["token"], "--output", form)
    claims = read(validated, form)
    said = {name: document[name] for name in ("principal_type", "principal_name", "iss", "exp")}
    assert said == {name: claims[name] for name in said}
    assert (claims["principal_type"], claims["principal_name"]) == ("user", "ada")


@both_forms
def test_the_files_of_a_quickstart(tmp_path: Path, form: str) -> None:
    made = danube("security", "quickstart", str(tmp_path / form), "--output", form)
    document = read(made, form)
    assert {"ca", "server", "client", "admin_token", "broker_config"} <= document.keys()
    assert all(Path(file).is_file() for file in document.values())


@both_forms
def test_versions(form: str) -> None:
    assert read(danube("version", "--output", form), form)["danube"] == __version__
