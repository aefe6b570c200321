"""Numbers that are none, or have no end: options refuse them, no rule takes them, and no JSON has them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from stripewise import _native
from stripewise.api import adapt as adapting
from stripewise.api import measured
from stripewise.api.json_text import json_text
from stripewise.cli import app as command_line
from stripewise.cli import console
from stripewise.pool import Pool


def strict(text):
    """The content of a JSON text; words that JSON does not have are refused."""

    def refused(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refused)


def float_options(command: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """All options below a command that take a number which may have a fraction."""
    for parameter in command.params:
        if parameter.type.name.startswith("float"):
            yield f"{name} {parameter.name}", command, parameter
    for below, one in getattr(command, "commands", {}).items():
        yield from float_options(one, f"{name} {below}")


def test_every_option_with_a_fraction_refuses_what_is_no_finite_number():
    command_line._add_commands([])
    found = list(float_options(typer.main.get_command(command_line.app), "stripewise"))
    assert {"stripewise adapt period_s", "stripewise top interval_s", "stripewise pool init dilation"} <= {
        name for name, *_ in found
    }
    for name, command, option in found:
        for word in ("nan", "inf", "-inf"):
            with pytest.raises(typer.BadParameter) as refused:
                option.process_value(typer.Context(command), word)
            assert word in str(refused.value), name


@pytest.mark.parametrize("option", ["--period", "--horizon", "--promote"])
@pytest.mark.parametrize("word", ["nan", "inf"])
def test_adapt_names_the_option_and_the_value_and_moves_nothing(pool, option, word):
    refused = pool.stripewise("adapt", pool.file, "--dry-run", option, word, check=False)
    said = " ".join(refused.stderr.replace("│", " ").split())
    assert refused.returncode == console.EXIT_USAGE
    assert option in said and f"{word} is no finite number: write one in digits" in said
    assert not adapting.state_file(Pool.load(pool.file)).exists()


@pytest.mark.parametrize("horizon_h", ["1e300", "1e308"])
def test_a_horizon_that_is_very_long_is_one(hot, horizon_h):
    stripewise, file = hot
    said = stripewise("adapt", file, "--once", "--horizon", horizon_h, "--limit", "100GB", "--json").stdout
    decision = strict(said)
    assert decision["verdict"] == "moved", decision
    assert decision["gain_s"] > decision["move_s"] and decision["horizon_s"] == adapting.LONGEST_HORIZON_S


def test_a_gain_that_is_no_number_pays_for_no_move(hot):
    _, file = hot
    pool = Pool.load(file)
    decision = adapting.reconsider(pool, adapting.Limits(horizon_s=float("nan")))
    assert decision["verdict"] == "kept" and "for moving" in decision["why"]
    # A line of what servers had done when the pool was used first stands before it.
    *_, line = [line for line in adapting.state_file(pool).read_text().splitlines() if line]
    assert strict(line)["gain_s"] is None and strict(line)["move_s"] == decision["move_s"]
    assert _native.file_stat(str(file), "f")["regions"][0]["round"] == ["hdd.0-1:64KiB"]


def test_json_has_null_for_what_is_no_finite_number(capsys):
    content = {"a": [1.5, float("nan"), (float("inf"), "NaN")], "b": {"c": -float("inf"), "d": True}, "e": None}
    expected = {"a": [1.5, None, [None, "NaN"]], "b": {"c": None, "d": True}, "e": None}
    assert strict(json_text(content)) == expected
    console.document(content)
    assert strict(capsys.readouterr().out) == expected
    console.record(content)
    assert strict(capsys.readouterr().out) == expected


def test_a_gain_in_the_state_file_that_is_no_number_is_not_believed():
    nan = float("nan")
    assert measured.last_gain([{"measured": {"ratio": nan, "predicted_ratio": 2.0}}]) is None
    assert measured.gain_of_last_move([{"verdict": "moved", "ratio": nan}]) is None
