"""`kronos gpus`."""

import json

import typer

from kronos.cli.app import AsJson, app, plain


@app.command()
def gpus(as_json: AsJson = False) -> None:
    """List the cards of this machine and of the catalogue."""
    from kronos.hardware import CATALOGUE, live_gpus
    from kronos.report import card_table

    live, reason = live_gpus()
    if as_json:
        cards = [plain(card) for card in CATALOGUE.values()]
        live_cards = [plain(gpu) for gpu in live]
        typer.echo(json.dumps({"live": live_cards, "reason": reason, "catalogue": cards}, indent=2))
        return
    typer.echo("This machine")
    typer.echo(card_table([plain(gpu) for gpu in live]) if live else f"no card ({reason})")
    typer.echo("\nCatalogue")
    typer.echo(card_table([plain(card) for card in CATALOGUE.values()]))
