"""The application: verbs registered, global options read, errors turned into one line and an exit code."""

from __future__ import annotations

import sys

import typer

from keyspan.cli import calibrate, certify, design, doctor, measure, options, runs
from keyspan.errors import KeyspanError

EPILOG = (
    "Everywhere, before or after the verb: --json (one JSON document on stdout), --store URL (or KEYSPAN_STORE), "
    "--device auto|cpu|cuda, --seed N, --quiet, --dry-run (what would be trained)."
)

app = typer.Typer(
    name="keyspan",
    help="A capacity laboratory for self-attention.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("design")(design.design)
app.command("certify")(certify.certify)
app.add_typer(measure.app, name="measure")
app.command("calibrate")(calibrate.calibrate)
app.add_typer(runs.app, name="runs")
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    """A capacity laboratory for self-attention."""
    if version:
        import keyspan

        typer.echo(keyspan.__version__)
        raise typer.Exit


def run(argv: list[str]) -> int:
    """Run the command line. Bad input is one line on stderr, never a traceback."""
    try:
        found, rest = options.split(argv)
        options.current.__dict__.update(found.__dict__)
        result = app(rest, prog_name="keyspan", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except KeyspanError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted; what finished is kept, and the same command goes on.", 130)
    except typer.Abort:
        return _complain("interrupted.", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone, as `| head` does
        return 0
    except OSError as error:
        return _complain(f"The disk must allow it, but {error}. Check the path, the rights and the space.", 2)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # typer's own usage errors; it keeps their class private
        if usage is None:
            raise
        return _complain(f"{usage()} Try `keyspan {' '.join(rest[:1])} --help`.", 2)


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    print(f"keyspan: {line}", file=sys.stderr)
    return code
