"""FedHK as a Flower app: the ClientApp of a site, and the engine of a ServerApp.

`fedhk flower init` writes an app, whose ServerApp is `fedhk.cli.flower.coordinate.make_server_app`;
`docs/deployment.md` says how it is run.
"""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedhk.estimators.heat_kernel_mvc import write_site_model
from fedhk.estimators.loading import read_site_model
from fedhk.federation.engines.flower import ACTION, KEY, RECORD, GridTransport, reply_with
from fedhk.federation.engines.remote import RemoteSites
from fedhk.federation.remote.policy import Policy, read_policy
from fedhk.federation.remote.questions import Questions
from fedhk.federation.remote.site import RemoteSite, refusal
from fedhk.privacy.ledger import ledger_file

__all__ = ["FlowerEngine", "make_client_app"]


class FlowerEngine(RemoteSites):
    """The engine for sites that run Flower's SuperNode.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        What Flower gives a ServerApp.
    **options
        As in `fedhk.federation.engines.remote.RemoteSites`: `expected`, `wait_for`, `wait`.

    Examples
    --------
    In a ServerApp of one's own::

        @app.main()
        def main(grid, context):
            model = fedhk.FedHKPerson(n_clusters=4, engine=FlowerEngine(grid, expected=["rome", "oslo"])).fit()
            model.save("model.safetensors")
    """

    def __init__(self, grid: Grid, **options: Any) -> None:
        super().__init__(GridTransport(grid), **options)


def make_client_app() -> ClientApp:
    """A site's end: answers with what its node-config names, in files of its own.

    The SuperNode's ``--node-config`` has ``site`` (the name in the federation), ``data`` (the folder with a file per
    view), ``state`` (the folder for what the site keeps) and, optionally, ``policy`` (a TOML file), ``ledger`` (the
    folder of its ledger, where that is not among what the site keeps), ``also`` (the folder with further tables of the
    same rows, which questions after a fit may read) and ``id`` (the column that says whose a row is).
    """
    app = ClientApp()

    @app.query(ACTION)
    def answer(message: Message, context: Context) -> Message:
        _log_own_words()
        payload: Any = message.content[RECORD][KEY]
        content = payload if isinstance(payload, bytes) else b""
        return reply_with(message, answer_as_site(dict(context.node_config), content))

    return app


def _log_own_words() -> None:
    """Write what FedHK says into the SuperNode's log, with the time; of what it calls, only Flower speaks there."""
    log = logging.getLogger("fedhk")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def _load_questions() -> None:
    """Import the phases of questions after a fit; a fit does without them, and every message is a new process."""
    import_module("fedhk.after")


def answer_as_site(node_config: dict[str, Any], payload: bytes) -> bytes:
    """Answer as the site of a node-config; for a wrong set-up the server gets one sentence, and the log the details."""
    name = str(node_config.get("site") or "unnamed")
    missing = [key for key in ("site", "data", "state") if not node_config.get(key)]
    if missing:
        logging.getLogger("fedhk.site").error("--node-config lacks %s; it has %s", missing, sorted(node_config))
        return refusal(name[:100], 0, f"its SuperNode's --node-config lacks {', '.join(missing)}")
    try:
        policy = read_policy(Path(node_config["policy"])) if node_config.get("policy") else Policy()
        data, state = Path(node_config["data"]), Path(node_config["state"])
        ledger = ledger_file(node_config["ledger"], name) if node_config.get("ledger") else None
        also = Path(node_config["also"]) if node_config.get("also") else None
        questions = Questions(_load_questions, read_site_model, also)
        site = RemoteSite(
            *(name, data, state, write_site_model, policy),
            ledger=ledger,
            questions=questions,
            id_column=node_config.get("id") or None,
        )
    except Exception:
        logging.getLogger("fedhk.site").exception("the site cannot be set up")
        return refusal("unnamed", 0, "its name or policy cannot be used; its log says more")
    return site.answer(payload)
