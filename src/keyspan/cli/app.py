"""The application: verbs registered, global options read, errors turned into one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from keyspan.cli import (
    audit,
    bench,
    calibrate,
    certify,
    construct,
    design,
    doctor,
    fit,
    ledger,
    measure,
    measure_sequences,
    options,
    predict,
    report,
    reproduce,
    runs,
    sweep,
    ui,
)
from keyspan.errors import BadInput, KeyspanError, shown

EPILOG = (
    "Everywhere, before or after the verb: --json (one JSON document on stdout), --store URL (or KEYSPAN_STORE), "
    "--device auto|cpu|cuda, --seed N, --quiet, --dry-run (what would be trained)."
)

TRAINING = ("measure", "calibrate", "reproduce", "sweep", "bench")  # the verbs that know what a dry run is

app = typer.Typer(
    name="keyspan",
    help="A capacity laboratory for self-attention.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("design")(design.design)
app.command("construct")(construct.construct)
app.command("certify")(certify.certify)
assert measure_sequences  # imported so that its command is there
app.command("audit")(audit.audit)
app.add_typer(measure.app, name="measure")
app.command("calibrate")(calibrate.calibrate)
app.add_typer(fit.app, name="fit")
app.add_typer(predict.app, name="predict")
app.command("reproduce")(reproduce.reproduce)
app.command("ledger")(ledger.ledger)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
app.command("ui")(ui.ui)
app.add_typer(runs.app, name="runs")
app.command("bench")(bench.bench)
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    """A capacity laboratory for self-attention."""
    if version:
        import keyspan

        typer.echo(keyspan.__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise _no_verb(context)


def _no_verb(context: Any) -> BadInput:
    verbs = "|".join(context.command.list_commands(context))
    return BadInput(f"A verb must follow, one of {verbs}, but got none. See `{context.command_path} --help`.")


def run(argv: list[str]) -> int:
    """Run the command line. Bad input is one line on stderr, never a traceback."""
    for name in ("stdout", "stderr"):  # closed by `>&-`: what would be printed there goes nowhere
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        found, rest = options.split(argv)
        helped = not {"-h", "--help"}.isdisjoint(rest)
        if found.dry_run and not helped and rest and not rest[0].startswith("-") and rest[0] not in TRAINING:
            got = f"`{' '.join(rest[:2])}`"
            raise BadInput(f"`--dry-run` must go with a verb that trains ({'|'.join(TRAINING)}), but got {got}. Drop it.")
        options.current.__dict__.update(found.__dict__)
        result = app(rest, prog_name="keyspan", standalone_mode=False)
        if result == 130:  # typer keeps Ctrl-C to itself
            raise KeyboardInterrupt
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KeyspanError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted; what finished is kept, and the same command goes on.", 130)
    except typer.Abort:
        return _complain("interrupted.", 130)
    except (BrokenPipeError, SystemExit):  # the reader of our output has gone, as `| head` does; typer leaves by an exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(f"The disk must allow it, but {error}. Check the path, the rights and the space.", 2)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own usage errors have it; their class is private
            raise
        return _complain(_usage(error, rest), 2)


def _usage(error: Any, argv: list[str]) -> str:
    """A usage error of typer's as one line: the rule, the value and where to look."""
    param, context = getattr(error, "param", None), getattr(error, "ctx", None)
    help_line = f"See `{getattr(context, 'command_path', 'keyspan')} --help`."
    text = " ".join(error.format_message().split()).rstrip(".")
    if text == "Missing command":
        return str(_no_verb(context))
    for flag in getattr(param, "opts", ()):
        for token, following in zip(argv, [*argv[1:], None], strict=True):
            value = following if token == flag else token.removeprefix(f"{flag}=")
            if text.startswith("Invalid value") and value is not None and (token == flag or value != token):
                kind = "a whole number" if "integer" in text else "a number"
                return f"`{flag}` must be {kind}, but got {shown(value)}. {help_line}"
    return f"{text}. {help_line}"


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    print(f"keyspan: {line}", file=sys.stderr)
    return code
