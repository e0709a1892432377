"""The ``gateway-pipeline`` command: its jobs and their exit codes.

Owns the table of jobs and the exit codes. A job's own options, and what it does, are beside the job
in :mod:`pipeline.jobs`; its module is imported only when that job is asked for, so that ``--help``
needs neither Spark nor patience.

Exit codes: 0 done; 1 the job's answer is no, where it says so; 2 it could not be done, in one line
on the standard error; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from gateway import __version__
from gateway.instance.command_end import broken_pipes_of_click, run_to_the_end
from pipeline.errors import PipelineError
from pipeline.failures import sentence
from pipeline.summary import plain

PROGRAM: Final = "gateway-pipeline"

#: The jobs: the module that has each as ``command``, and what it is for.
JOBS: Final = {
    "ingest": ("pipeline.jobs.ingest", "The journal into a table, each event once."),
    "journeys": (
        "pipeline.jobs.journeys",
        "What happened to each message: journeys, latencies, what is stuck, slow or lost.",
    ),
    "dead-letters": (
        "pipeline.jobs.dead_letters",
        "Dead messages by reason, destination, link and exception.",
    ),
    "replay": ("pipeline.jobs.replay", "Send dead or archived messages again, each once."),
    "reconcile": (
        "pipeline.jobs.reconcile",
        "Prove that what a link received and what it sent agree.",
    ),
    "archive": (
        "pipeline.jobs.archive",
        "A destination's messages into a table, with their bodies.",
    ),
    "upgrade": (
        "pipeline.jobs.upgrade",
        "Tables of earlier versions into those of this one, once.",
    ),
}


class JobTable(click.Group):
    """The commands of :data:`JOBS`, each imported when it is used.

    :raises PipelineError: by :meth:`get_command`, when a package that the job needs is not
        installed.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        try:
            module = importlib.import_module(JOBS[cmd_name][0])
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("pipeline."):
                raise
            raise PipelineError(
                f"the Python package {error.name.split('.')[0]} is not installed: the pipeline needs pip install 'stomp-gateway[pipeline]'"
            ) from error
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl([(name, text) for name, (_, text) in JOBS.items()])


@click.group(
    cls=JobTable,
    subcommand_metavar="JOB [OPTIONS]",
    help="Reads, audits, archives and replays with Spark what passes through the gateway. JOB --help shows a job's options.",
)
@click.version_option(__version__, prog_name=PROGRAM)
def group() -> None:
    """The command without a job."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    :param arguments: those of the process, if not given.
    :returns: the exit code.
    :raises BrokenPipeError: nothing reads the output any more.
    """
    with broken_pipes_of_click():
        return _run(arguments)


def console() -> NoReturn:
    """The console script."""
    run_to_the_end(main)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        result = group.main(
            args=None if arguments is None else list(arguments),
            prog_name=PROGRAM,
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return _refuse("interrupted", 130)
    except PipelineError as error:
        return _refuse(str(error), 2)
    except Exception as error:
        text = sentence(error)
        if text is None:
            raise
        return _refuse(text, 2)
    return result if isinstance(result, int) else 0


def _refuse(text: str, code: int) -> int:
    # It may have what a broker or a message has said.
    line = " ".join(plain(text).splitlines())
    print(f"{PROGRAM}: {line}", file=sys.stderr)
    return code
