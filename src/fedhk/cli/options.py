"""The options of `fedhk fit`: what they are called, what they take, and the default that holds when none is given."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhk.cli.algorithms import ALGORITHMS

# Under these headings `--help` lists what is not asked for every day.
MODEL, ROUNDS, TRUST = "Model", "Rounds", "Privacy and trust"

CHOICES = {
    "algorithm": tuple(ALGORITHMS),
    "protocol": ("statistics", "centers", "auto", "cores", "factors"),
    "scaling": ("standard", "minmax", "l2", "none"),
    "heat_coef": ("uniform", "minmax", "absdev"),
    "aggregator": ("sum", "robust", "median", "trimmed"),
}


def one_of(name: str, help: str, default: str, panel: str | None = None) -> Any:  # noqa: A002
    """An option that takes one of a few words, which the shell completes."""
    words = CHOICES[name]

    def check(value: str | None) -> str | None:
        if value is not None and value not in words:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(words)}.")
        return value

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return typer.Option(
        f"--{name.replace('_', '-')}",
        callback=check,
        autocompletion=complete,
        metavar="WORD",
        show_default=default,
        help=f"{help} One of: {', '.join(words)}.",
        rich_help_panel=panel,
    )


def number(name: str, help: str, default: Any, **limits: Any) -> Any:  # noqa: A002
    """An option that takes a number; what else it must satisfy is checked by the estimator."""
    return typer.Option(f"--{name}", show_default=str(default), help=help, **limits)


def parsed(name: str, words: Sequence[str], read: Callable[[str], Any]) -> Callable[[str | None], Any]:
    """What turns the text of an option into one of some words or into numbers."""

    def parse(value: str | None) -> Any:
        if value is None or value in words:
            return value
        try:
            return read(value)
        except ValueError:
            raise typer.BadParameter(f"{name} {value!r} is neither a number nor {' or '.join(words)}.") from None

    return parse


parse_fuzzifier = parsed("--fuzzifier", ("auto",), float)
parse_personalization = parsed("--personalization", ("auto",), float)
parse_view_weights = parsed(
    "--view-weights", ("auto", "uniform", "learned"), lambda text: [float(part) for part in text.split(",")]
)
parse_bounds = parsed("--bounds", ("private",), lambda text: [float(part) for part in text.split(",")])
parse_rank = parsed("--rank", ("auto",), lambda text: _one_or_several([_number(part) for part in text.split(",")]))


def _number(text: str) -> int | float:
    """A whole number where it is one: as a rank 1 and 1.0 are not the same."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _one_or_several(numbers: list[int | float]) -> int | float | list[int | float]:
    return numbers[0] if len(numbers) == 1 else numbers


def parse_privacy(epsilon: float | None, delta: float | None, bounds: str | None) -> dict[str, Any] | None:
    """A privacy budget, as it stands in a configuration; None where none was asked for."""
    given = {"epsilon": epsilon, "delta": delta, "bounds": parse_bounds(bounds)}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise typer.BadParameter(f"needs {' and '.join(missing)} too.", param_hint="a privacy budget")
    return given


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parameters from NAME=VALUE, the value as in a configuration; what is no TOML value is a word."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (equals and name and value):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="--set")
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice.", param_hint="--set")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value
    return found


Folder = Annotated[Path | None, typer.Argument(help="Federation folder: a sub-folder per site, in it a file per view.")]
Name = Annotated[str | None, one_of("algorithm", "What to run.", "e-fkmvc")]
Clusters = Annotated[int | None, typer.Option("--clusters", "-k", min=1, help="Number of clusters.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder to write.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Take all from a run's config.toml; options win.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists, once the new one is complete.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")]
Evaluate = Annotated[
    bool,
    typer.Option(
        "--evaluate", help="Also compare global, personal and alone models on held-out rows; takes some more fits."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]

Protocol = Annotated[
    str | None,
    one_of("protocol", "What a round sends; fedhk-tucker, fedhk-parafac2: auto.", "statistics", panel=ROUNDS),
]
LocalPasses = Annotated[
    int | None,
    number("local-passes", "Passes at a site per round, with centers and factors.", 5, min=1, rich_help_panel=ROUNDS),
]
Rank = Annotated[
    str | None,
    typer.Option(
        "--rank",
        metavar="auto|NUMBERS",
        show_default="auto",
        help="Rank of tensor centres: a share of energy such as 0.95, or whole numbers with commas between.",
        rich_help_panel=MODEL,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other parameter, as in config.toml; may be repeated.",
        rich_help_panel=MODEL,
    ),
]
Scaling = Annotated[str | None, one_of("scaling", "Units of features; l2 for text.", "standard", panel=MODEL)]
HeatCoef = Annotated[str | None, one_of("heat_coef", "Coefficient of each cell.", "uniform", panel=MODEL)]
HeatTime = Annotated[float | None, number("heat-time", "Bandwidth of the heat kernel.", 0.3, rich_help_panel=MODEL)]
Fuzzifier = Annotated[
    str | None,
    typer.Option(
        "--fuzzifier",
        metavar="auto|NUMBER",
        show_default="auto",
        help="How much clusters share rows.",
        rich_help_panel=MODEL,
    ),
]
ViewWeights = Annotated[
    str | None,
    typer.Option(
        "--view-weights",
        metavar="WORD|NUMBERS",
        show_default="auto",
        help="One of: auto, uniform, learned; or numbers with commas between, in the order of the views' names.",
        rich_help_panel=MODEL,
    ),
]
MaxRounds = Annotated[int | None, number("max-rounds", "Most rounds.", 100, min=1, rich_help_panel=ROUNDS)]
Tol = Annotated[
    float | None, number("tol", "Stop when the objective falls by less than this share.", 1e-5, rich_help_panel=ROUNDS)
]
NInit = Annotated[int | None, number("n-init", "Starts to compare.", 20, min=1, rich_help_panel=MODEL)]
Seed = Annotated[int | None, number("seed", "Seed of all random choices.", "drawn and recorded", min=0, max=2**32 - 1)]
Fraction = Annotated[
    float | None, number("fraction", "Share of the sites asked in a round.", 1.0, rich_help_panel=ROUNDS)
]
MinSites = Annotated[
    int | None, number("min-sites", "Fewest answers for a round to count.", 1, min=1, rich_help_panel=ROUNDS)
]
Epsilon = Annotated[
    float | None,
    typer.Option("--epsilon", help="Privacy budget of the run; with --delta and --bounds.", rich_help_panel=TRUST),
]
Delta = Annotated[
    float | None,
    typer.Option("--delta", help="Below 1 over the rows of any site, such as 1e-6.", rich_help_panel=TRUST),
]
Bounds = Annotated[
    str | None,
    typer.Option(
        "--bounds",
        metavar="LOW,HIGH|private",
        help="Range of all features, known without looking at rows; private spends a tenth of the budget on it.",
        rich_help_panel=TRUST,
    ),
]
Secure = Annotated[
    bool | None,
    typer.Option(
        "--secure/--no-secure",
        show_default="False",
        help="Let the server see sums over all sites only.",
        rich_help_panel=TRUST,
    ),
]
Aggregator = Annotated[
    str | None,
    one_of("aggregator", "How statistics are brought together; robust where sites may lie.", "sum", panel=TRUST),
]
Personalization = Annotated[
    str | None,
    typer.Option(
        "--personalization",
        metavar="auto|NUMBER",
        show_default="0.0; fedhk-person: auto",
        help="0 to 1: how far each site's model goes its own way; with fedhk-person auto learns it.",
        rich_help_panel=MODEL,
    ),
]
