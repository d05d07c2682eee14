"""The options of `fedhk fit`, and options that several commands share."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhk._names import suggest
from fedhk.cli.algorithms import ALGORITHMS

# Under these headings `--help` lists what is not asked for every day.
MODEL, ROUNDS, TRUST = "Model", "Rounds", "Privacy and trust"

CHOICES = {
    "algorithm": tuple(ALGORITHMS),
    "protocol": ("statistics", "centers", "auto", "cores", "factors", "personalized"),
    "scaling": ("auto", "standard", "minmax", "l2", "none", "root", "histogram", "magnitude", "tfidf"),
    "heat-coef": ("uniform", "minmax", "absdev", "minmax-local", "absdev-local"),
    "aggregator": ("sum", "robust", "median", "trimmed"),
}


def _read_numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _read_rank(text: str) -> Any:
    """Read one or several numbers; a whole number stays one, because as a rank 1 and 1.0 are not the same."""
    numbers = [float(part) if "." in part or "e" in part.lower() else int(part) for part in text.split(",")]
    return numbers[0] if len(numbers) == 1 else numbers


def _read_clusters(text: str) -> int | str:
    """Read a number of at least 1, or the least and the largest to try."""
    ends = [int(part) for part in text.split("-")]
    if len(ends) > 2 or min(ends) < 1:
        raise ValueError(text)
    return ends[0] if len(ends) == 1 else text


# Bounds that are the ranges of the data dictionary.
DICTIONARY_BOUNDS = "dictionary"

# Options that take words or numbers: what `--help` shows, the words, and how numbers are read.
FORMS: dict[str, tuple[str, tuple[str, ...], Callable[[str], Any]]] = {
    "fuzzifier": ("auto|NUMBER", ("auto",), float),
    "personalization": ("auto|NUMBER", ("auto",), float),
    "view-weights": ("auto|uniform|learned|NUMBERS", ("auto", "uniform", "learned"), _read_numbers),
    "bounds": ("LOW,HIGH|private|dictionary", ("private", DICTIONARY_BOUNDS), _read_numbers),
    "rank": ("auto|NUMBERS", ("auto",), _read_rank),
    "clusters": ("NUMBER|LOW-HIGH|auto", ("auto",), _read_clusters),
}


def option(
    name: str,
    help: str,  # noqa: A002
    default: Any = None,
    panel: str | None = None,
    words: Sequence[str] = (),
    **others: Any,
) -> Any:
    """Make an option; if it takes one of a few words, the shell completes them. Estimators check values further."""
    allowed = words or CHOICES.get(name, ())

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(allowed)}.{suggest(value, allowed)}")
        return value

    def complete(incomplete: str) -> list[str]:
        return [word for word in allowed if word.startswith(incomplete)]

    if allowed:
        help = f"{help} One of: {', '.join(allowed)}."  # noqa: A001
        others |= {"callback": check, "autocompletion": complete, "metavar": "WORD"}
    if name in FORMS:
        others.setdefault("metavar", FORMS[name][0])
    if default is not None:
        help = f"{help} Default: {default}."  # noqa: A001
    return typer.Option(f"--{name}", help=help, show_default=default is None, rich_help_panel=panel, **others)


def parse(name: str, text: str | None) -> Any:
    """Read the text of an option that takes words or numbers."""
    form, words, read = FORMS[name]
    if text is None or text in words:
        return text
    try:
        return read(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not {form}.", param_hint=f"--{name}") from None


def parse_privacy(epsilon: float | None, delta: float | None, bounds: str | None) -> dict[str, Any] | None:
    """Read a privacy budget, as it stands in a configuration; None where none was asked for.

    Where nothing else is given, bounds are the word for those of the data dictionary.
    """
    budget = {"epsilon": epsilon, "delta": delta, "bounds": parse("bounds", bounds)}
    missing = [f"--{name}" for name, value in budget.items() if value is None]
    if len(missing) == len(budget):
        return None
    if bounds is None:
        missing.remove("--bounds")
        budget["bounds"] = DICTIONARY_BOUNDS
    if missing:
        raise typer.BadParameter(f"needs {' and '.join(missing)} too.", param_hint="a privacy budget")
    return budget


def parse_settings(texts: Sequence[str] | None, options: Collection[str] = ()) -> dict[str, Any]:
    """Read parameters from NAME=VALUE, the value as in a configuration; what is no TOML value is a word.

    `options` are parameters that may not stand there, because they were given by options of their own.
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (equals and name and value):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="--set")
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice.", param_hint="--set")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            if value[0] in "{[":
                raise typer.BadParameter(f"{text!r} is no TOML: {error}", param_hint="--set") from None
            found[name] = value
    for name in found:
        if name in options:
            raise typer.BadParameter(f"{name!r} is given by its own option too.", param_hint="--set")
    return found


Folder = Annotated[Path | None, typer.Argument(help="Federation folder: a sub-folder per site, in it a file per view.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a finished run.")]
RowsFolder = Annotated[
    Path | None, typer.Option("--data", help="Federation folder with the rows, if it is not where the run says.")
]
DataPath = Annotated[Path, typer.Argument(help="A federation folder, or the folder of one site.")]
Name = Annotated[str | None, option("algorithm", "What to run.", "e-fkmvc")]
Clusters = Annotated[
    str | None,
    typer.Option("--clusters", "-k", metavar="NUMBER|LOW-HIGH|auto", help="Number of clusters, or where to find one."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder to write.")]
ConfigFile = Annotated[Path | None, option("config", "Take everything from a run's config.toml; options win.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists, once the new one is complete.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")]
Evaluate = Annotated[
    bool, typer.Option("--evaluate", help="Also compare global, personal and alone models on held-out rows; more fits.")
]
IdColumn = Annotated[str | None, option("id", "Column that says whose a row is.", "id", metavar="NAME")]
IdOfSite = Annotated[
    str | None,
    option("id", "Column that says whose a row is.", "that of the site's data dictionary, else id", metavar="NAME"),
]
IdOfRows = Annotated[str | None, option("id", "Column that says whose a row is.", "that of the run", metavar="NAME")]
IdOfRun = Annotated[
    str | None,
    option("id", "Column of --also, else of --data, that says whose a row is.", "that of the run", metavar="NAME"),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="PATTERN", help="Pass over files and folders of such names; may be repeated."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse data about which there is a doubt, instead of a note.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Seed = Annotated[int | None, option("seed", "Seed of all random choices.", "drawn and recorded", min=0, max=2**32 - 1)]

Settings = Annotated[
    list[str] | None,
    option("set", "Any parameter, as in config.toml; may be repeated.", panel=MODEL, metavar="NAME=VALUE"),
]
Scaling = Annotated[str | None, option("scaling", "Units of features; auto chooses for each view.", "auto", MODEL)]
HeatCoef = Annotated[str | None, option("heat-coef", "Coefficient of each cell.", "uniform", MODEL)]
HeatTime = Annotated[float | None, option("heat-time", "Bandwidth of the heat kernel.", 0.3, MODEL)]
Fuzzifier = Annotated[str | None, option("fuzzifier", "How much clusters share rows.", "auto", MODEL)]
ViewWeights = Annotated[
    str | None, option("view-weights", "A rule, or numbers such as 0.5,0.5 in the order of the views.", "auto", MODEL)
]
Paper = Annotated[
    int | None,
    option(
        "paper", "Settings of one of the paper's algorithms, by its number; refuses what contradicts it.", panel=MODEL
    ),
]
NInit = Annotated[int | None, option("n-init", "Starts to compare.", 20, MODEL, min=1)]
Rank = Annotated[
    str | None,
    option("rank", "Rank of tensor centres: a share of energy such as 0.95, or whole numbers.", "auto", MODEL),
]
Personalization = Annotated[
    str | None,
    option(
        "personalization",
        "0 to 1: how far the model of each site goes its own way; fedhk-person: auto, which learns it.",
        0.0,
        MODEL,
    ),
]

Protocol = Annotated[
    str | None, option("protocol", "What a round sends; tensor centres and fedhk-person: auto.", "statistics", ROUNDS)
]
LocalPasses = Annotated[
    int | None, option("local-passes", "Passes at a site per round, with centers and factors.", 5, ROUNDS, min=1)
]
MaxRounds = Annotated[int | None, option("max-rounds", "Most rounds.", 100, ROUNDS, min=1)]
Tol = Annotated[
    float | None,
    option(
        "tol",
        "Stop when the objective falls by less than this share (fedhk-diffusion: by less for each row).",
        "1e-05, fedhk-diffusion 0.0004",
        ROUNDS,
    ),
]
Fraction = Annotated[float | None, option("fraction", "Share of the sites asked in a round.", 1.0, ROUNDS)]
MinSites = Annotated[
    int | None,
    option("min-sites", "Fewest answers that count; one, over a network more than half.", panel=ROUNDS, min=1),
]

Epsilon = Annotated[float | None, option("epsilon", "Privacy budget; with --delta.", panel=TRUST)]
Delta = Annotated[float | None, option("delta", "Below 1 over the rows of any site, such as 1e-6.", panel=TRUST)]
Bounds = Annotated[
    str | None,
    option(
        "bounds",
        "Range of all features in the units of your columns, known without looking at rows; private spends a tenth of "
        "the budget on it, dictionary takes the ranges of dictionary.toml.",
        "dictionary",
        TRUST,
    ),
]
LedgerFolder = Annotated[
    Path | None,
    option("ledger", "Folder in which every site counts what it spends in all runs.", "FOLDER.ledger", TRUST),
]
Secure = Annotated[
    bool | None, option("secure/--no-secure", "Let the server see sums over all sites only.", "no", TRUST)
]
Aggregator = Annotated[
    str | None, option("aggregator", "How answers are brought together; robust where sites may lie.", "sum", TRUST)
]

SuperLink = Annotated[str, typer.Option("--superlink", help="Address of the SuperLink, HOST:PORT.")]
RootCertificates = Annotated[
    Path | None, typer.Option("--root-certificates", help="ca.crt of `fedhk flower certificates`.", dir_okay=False)
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Without TLS: for loopback only.")]
DEFAULT_ADDRESS = "127.0.0.1:8000"
