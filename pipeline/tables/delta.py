"""Delta Lake tables, which Spark writes and delta-rs commits.

Owns what makes an answer or a batch appear whole, or not at all, to every reader; and what those of
other programs need to read it right. Knows nothing of what is in a table. ::

    _delta_log/00000000000000000000.json, ...               (what the table is, version by version)
    data/ATTEMPT/DAY/part-....parquet                       (files of one attempt to write)

Each attempt to write has a folder of its own, so that one that was killed, whose Java machine may
go on for a moment, spoils nothing. What it has left belongs to no version, and is removed by
:meth:`DeltaFolder.vacuum` once it is old. Writing needs no jar of Delta in Spark, and neither does
reading: the log, and what Parquet files say of themselves, are read where the job's Python runs,
which must reach the table's storage.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    Schema,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DataType,
    StructType,
)

from pipeline.errors import PipelineError
from pipeline.tables.compaction import Exchange, crowded, put_together, removal
from pipeline.tables.file_statistics import statistics
from pipeline.tables.names import check_name
from pipeline.tables.snapshot import Keep, Snapshot, logged, schema_of
from pipeline.tables.storage import Location, literally

#: A batch as Delta counts it: the application's id, and a number that rises.
Batch: TypeAlias = tuple[str, int]

#: Batches after which small files are put together.
TIDY: Final = 16

#: A file of an attempt to write, or to compact.
_ATTEMPT: Final = re.compile(
    r"(data/[0-9a-f]{32}/.*|([^/=]+=[^/]*/)*part-\d{5}-[0-9a-f-]{36}[^/]*)\.parquet$"
)
_COLOURS: Final = re.compile("\x1b\\[[0-9;]*m")
#: Where delta-rs was when it failed, behind what has failed.
_STACK: Final = re.compile(r"\n *0: .*", re.DOTALL)
#: What an object store says is wrong.
_ANSWER: Final = re.compile(
    r"<\?xml.*<Code>(?P<code>[^<]*)</Code>\s*<Message>(?P<text>[^<]*)</Message>.*"
)
#: What Spark calls a folder of rows whose value is null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
#: How often a commit is tried while others write the same table.
_TRIES: Final = 20


@dataclass(frozen=True)
class Files:
    """Parquet files in a table's folder.

    :param folder: below the table's, which has no others.
    :param schema: of their rows and of the columns that they are partitioned by.
    :param by: names of these columns.
    :param indexed: those that have statistics.
    :param rows: how many there are.
    """

    folder: str

    schema: StructType
    by: Sequence[str]
    indexed: Sequence[str]
    actions: Sequence[AddAction]
    rows: int


class DeltaFolder:
    """One table, in one folder.

    It may be read and written by any program that knows Delta Lake, at the same time, too.

    :param path: of the folder, as :class:`pipeline.tables.storage.Location` has it.
    :raises PipelineError: delta-rs cannot have the path, or would take it for another one.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark: Final = spark
        check_name(path)
        self._folder: Final = Location(spark, path)
        # It may have become an address.
        check_name(self._folder.address)
        self.path: Final = self._folder.path
        #: As delta-rs has it.
        self._address: Final = self._folder.address
        self._options: Final = self._folder.options

    @property
    def uri(self) -> str:
        """The folder as Spark has it."""
        return self._folder.uri

    def exists(self) -> bool:
        """Whether the folder has a Delta Lake table."""
        with _told(self.path):
            return DeltaTable.is_deltatable(self._address, self._options)

    def frame(self, keep: Keep | None = None, known: StructType | None = None) -> DataFrame:
        """Return the rows of the newest version.

        They lack the columns that it is partitioned by. Its files do not have these, and a job can
        compute them from the others.

        :param keep: which files are to be read.
        :param known: columns that the caller knows. One that the table does not have yet is null.
        :raises PipelineError: there is no table, or it has what plain Parquet files cannot tell.
        """
        snapshot = self.snapshot()
        if snapshot is None:
            raise PipelineError(f"{self.path} is no Delta Lake table")
        return snapshot.frame(keep, known)

    def snapshot(self) -> Snapshot | None:
        """The newest version; None if there was never one.

        :raises PipelineError: it has what plain Parquet files cannot tell.
        """
        table = self._table()
        return None if table is None else Snapshot(self._spark, self._folder, table)

    def write(self, frame: DataFrame, by: Sequence[str] = (), indexed: Sequence[str] = ()) -> Files:
        """Write files of a frame's rows, which belong to no version yet.

        :param by: columns that they are partitioned by.
        :param indexed: columns that have statistics, by which readers pass files over: of whole
            numbers, texts and times.
        """
        attempt = _attempt()
        folder = self._folder / attempt
        # Spark's word that it has succeeded is the commit's to give.
        quiet = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
        frame.write.options(**quiet).partitionBy(*by).parquet(folder.uri)
        if folder.local is not None and not folder.exists():
            raise PipelineError(
                f"{self.path} is on another machine than this job's Python: expected storage that both this and Spark reach"
            )
        return self.files_in(attempt, frame.schema, by, indexed)

    def files_in(
        self,
        folder: str,
        schema: StructType,
        by: Sequence[str] = (),
        indexed: Sequence[str] = (),
        parts: Sequence[str] | None = None,
        only: Container[str] | None = None,
    ) -> Files:
        """Describe the files below a folder of the table's.

        The arguments are those of :meth:`write`.

        :param parts: folders in that one; None: all.
        :param only: the names below that one that count; None: all.
        """
        counted = {one.name: one.dataType for one in schema.fields if one.name in indexed}
        roots = [folder] if parts is None else [f"{folder}/{one}" for one in parts]
        actions = []
        rows = 0
        for root in roots:
            place = self._folder / root if root else self._folder
            found = [
                one
                for one in place.files("[!._]*.parquet", below=True)
                if _visible(one.name) and (only is None or one.name in only)
            ]
            for file, footer in zip(found, place.footers([one.name for one in found]), strict=True):
                rows += footer.num_rows
                actions.append(
                    AddAction(
                        f"{root}/{file.name}" if root else file.name,
                        file.octets,
                        _values(file.name, by),
                        file.changed // 1_000_000,
                        True,
                        json.dumps(statistics(footer, counted)),
                    )
                )
        return Files(folder, schema, by, indexed, actions, rows)

    def replace(self, files: Files) -> None:
        """Make a version of these files alone.

        The versions before it can be read for a week, until :meth:`vacuum` removes what only they
        have.

        :raises PipelineError: it cannot be committed.
        """
        self._commit(files, "overwrite", None)

    def append(self, files: Files, batch: Batch | None = None) -> bool:
        """Make a version that has these files, too.

        Their columns that the table lacks are added to it, and are null in its other rows.

        :param batch: is in the table once, however often it is appended.
        :returns: whether the table has them now; False: it had the batch before.
        :raises PipelineError: it cannot be committed.
        """
        return self._commit(files, "append", batch)

    def exchange(
        self, then: Snapshot | None, gone: Container[str], files: Files, batch: Batch
    ) -> None:
        """Make a version with these files in place of others.

        :param then: the version of which the others are, and for which these were written; None:
            there was no table.
        :param gone: the paths of the others.
        :param batch: what the new version has.
        :raises PipelineError: somebody else has written the table since; it is as it was.
        """
        if then is None:
            if self._create(files, batch):
                return
        else:
            new = self._check(then.table, files, "append")
            removed = [removal(one, True) for one in then.files if one["path"] in gone]
            with _told(self.path), suppress(CommitFailedError):
                self._add(then.table, new, [*files.actions, *removed], "append", files, batch)
                return
        raise PipelineError(
            f"{self.path} was written by another run meanwhile: nothing was changed; run this again"
        )

    def has(self, batch: Batch) -> bool:
        """Whether the table has a batch, or one after it."""
        table = self._table()
        return table is not None and _has(table, batch)

    def newest(self, application: str) -> int | None:
        """The number of the newest batch of an application; None before the first."""
        table = self._table()
        return None if table is None else table.transaction_version(application)

    def compact(self) -> int:
        """Put small files of a partition together, where it has too many.

        Afterwards it has at most two for each :data:`pipeline.tables.compaction.TARGET` bytes.
        Other processes may read, write and compact the table meanwhile: of two that put the same
        file together with others only one is committed.

        :returns: how many files were put together.
        """
        table = self._table()
        if table is None:
            return 0
        by = table.metadata().partition_columns
        schema = pa.schema(table.schema().to_arrow())
        for name in by:
            schema = schema.remove(schema.get_field_index(name))
        counted = _counted(table)
        attempt = _attempt()
        exchanges = [
            put_together(self._folder, files, attempt, schema, counted)
            for files in crowded(logged(table))
        ]
        return self._exchange(exchanges, by) if exchanges else 0

    def _exchange(self, exchanges: Sequence[Exchange], by: Sequence[str]) -> int:
        """Commit the exchanges whose old files are all still in the table.

        :returns: how many old files there were.
        """
        for _ in range(_TRIES):
            table = self._table()
            if table is None:
                return 0
            there = {str(one["path"]) for one in logged(table)}
            # The rest was put together by another process. Or this commit is there, and only its
            # answer was lost; so the new files are not removed here, but by vacuum.
            fitting = [one for one in exchanges if one.old <= there]
            if not fitting:
                return 0
            with _told(self.path):
                try:
                    table.create_write_transaction(
                        [action for one in fitting for action in one.actions],
                        "append",
                        table.schema(),
                        list(by),
                        commit_properties=_first_to_commit(),
                    )
                except CommitFailedError:
                    continue
            return sum(len(one.old) for one in fitting)
        return 0

    def tidy(self) -> None:
        """Put small files together, and remove those of a week ago.

        A job that goes on does this after each :data:`TIDY` batches, and at its end.
        """
        if self.compact():
            self.vacuum()

    def _commit(self, files: Files, mode: str, batch: Batch | None) -> bool:
        for _ in range(_TRIES):
            table = self._table()
            if table is None:
                if self._create(files, batch):
                    return True
                continue
            new = self._check(table, files, mode)
            # When somebody else was first, this is asked again.
            if batch is not None and _has(table, batch):
                return False
            with _told(self.path), suppress(CommitFailedError):
                self._add(table, new, files.actions, mode, files, batch)
                return True
        raise PipelineError(
            f"{self.path} cannot be committed to: others have written it {_TRIES} times meanwhile"
        )

    def _create(self, files: Files, batch: Batch | None) -> bool:
        """Make the table. :returns: False: somebody else has."""
        with _told(self.path):
            try:
                create_table_with_add_actions(
                    self._address,
                    _delta_schema(files),
                    list(files.actions),
                    "error",
                    list(files.by),
                    storage_options=self._options,
                    configuration=_configuration(files.indexed),
                    commit_properties=_first_to_commit(batch),
                )
            except DeltaError:
                if DeltaTable.is_deltatable(self._address, self._options):
                    return False
                raise
        return True

    def _add(
        self,
        table: DeltaTable,
        new: Sequence[Field],
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        files: Files,
        batch: Batch | None,
    ) -> None:
        """Make the next version of the one that was looked at.

        :param new: columns that the files have and the table has not yet.
        :raises CommitFailedError: somebody else has made it.
        """
        if new:
            # A version of its own, so that one may stay without the other.
            table.alter.add_columns(list(new), commit_properties=_first_to_commit())
        table.create_write_transaction(
            list(actions),
            mode,
            _delta_schema(files),
            list(files.by),
            commit_properties=_first_to_commit(batch),
        )

    def _check(self, table: DeltaTable, files: Files, mode: str) -> list[Field]:
        """Check that the files can be committed.

        :returns: the columns that they have and the table has not yet.
        :raises PipelineError: the table is partitioned by other columns, or they lack one that it
            has, or have one of another type, and are not to be all that it has.
        """
        by = table.metadata().partition_columns
        if by != list(files.by):
            raise PipelineError(
                f"{self.path} is a table that is partitioned by {', '.join(by) or 'nothing'}: expected one by {', '.join(files.by) or 'nothing'}, or a folder without a table"
            )
        if mode != "append":
            return []
        there, given = (
            {str(one["name"]): one for one in json.loads(text)["fields"]}
            for text in (table.schema().to_json(), _nullable(files.schema).json())
        )
        # Of two names that differ only by case Spark would take either.
        spelled = {name.lower(): name for name in there}
        new = [name for name in given if name.lower() not in spelled]
        other = {
            name
            for name in {*there, *given}.difference(new)
            if name not in there or name not in given or there[name]["type"] != given[name]["type"]
        }
        if other:
            raise PipelineError(
                f"{self.path} is a table with other columns ({', '.join(sorted(other))}): expected one that this job has written, or a folder without a table"
            )
        fields = {"type": "struct", "fields": [given[name] for name in new]}
        return Schema.from_json(json.dumps(fields)).fields

    def partitioned(self) -> bool:
        """Whether there is a table, and it is partitioned: no answer is."""
        table = self._table()
        return table is not None and bool(table.metadata().partition_columns)

    def adopt(self, schema: StructType, by: Sequence[str], batch: Batch | None = None) -> None:
        """Make a table of the Parquet files of a folder without one, in place.

        The files are those that Spark reads there.

        :param batch: the newest that is among them.
        :raises PipelineError: it cannot be committed.
        """
        read = self._spark.read.parquet(literally(self._folder.uri)).inputFiles()
        root = self._folder.uri.partition(":")[2].lstrip("/")
        only = {unquote(one).partition(f"{root}/")[2] for one in read}
        files = self.files_in("", schema, by, only=only)
        if len(files.actions) != len(read):
            raise PipelineError(
                f"{self.path} has {len(read)} files for Spark, and {len(files.actions)} of them were found: nothing was changed"
            )
        self._commit(files, "append", batch)

    def vacuum(self, kept: timedelta = timedelta(days=7)) -> int:
        """Remove the files that no version of this time has.

        :param kept: shorter than a week only while no program reads or writes it.
        :returns: how many.
        """
        table = self._table()
        if table is None:
            return 0
        hours = int(kept / timedelta(hours=1))
        given: dict[str, Any] = {"enforce_retention_duration": False, "dry_run": False}
        with _told(self.path):
            removed = len(table.vacuum(hours, full=False, **given))
            # Of all that belongs to no version, only what an attempt of ours has left: the folder
            # may have other things.
            given["dry_run"] = True
            stray = [one for one in table.vacuum(hours, full=True, **given) if _ATTEMPT.match(one)]
        # It names those that it has just removed, too.
        removed += sum((self._folder / name).remove() for name in stray)
        _remove_empty(self._folder / "data", time.time_ns() - int(kept.total_seconds() * 1e9))
        return removed

    def _table(self) -> DeltaTable | None:
        """The table as it is now; None if there was never one.

        :raises PipelineError: its files alone do not say what is in it.
        """
        with _told(self.path):
            try:
                table = DeltaTable(self._address, storage_options=self._options)
            except TableNotFoundError:
                return None
            protocol = table.protocol()
        # Version 2 of readers has just this one.
        needed = protocol.reader_features or ["columnMapping"] * (protocol.min_reader_version == 2)
        if needed:
            raise PipelineError(
                f"{self.path} has {', '.join(sorted(needed))} of Delta Lake: expected a table without, as its files are read as they are"
            )
        return table


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What delta-rs raises in the body is raised as a :class:`PipelineError`."""
    try:
        yield
    except (DeltaError, OSError) as error:
        text = " ".join(_STACK.sub("", _COLOURS.sub("", str(error))).split()).replace(
            " \u21b3 ", ": "
        )
        text = _ANSWER.sub(r"\g<text> (\g<code>)", text)
        raise PipelineError(f"the table {path} cannot be used: {text}") from error


def _attempt() -> str:
    """A folder for the files of one attempt to write."""
    return f"data/{uuid.uuid4().hex}"


def _remove_empty(attempts: Location, before: int) -> None:
    """Remove the folders of attempts that have no files any more.

    Checksums of Hadoop's do not count.

    :param before: when the youngest of them was changed, in nanoseconds since 1970.
    """
    filled = {one.name.split("/")[0] for one in attempts.files("[!._]*.*", below=True)}
    for one in attempts.folders():
        # An object store does not say since when there is one, which may be filled in a moment.
        if one.name not in filled and 0 < one.changed < before:
            (attempts / one.name).remove()


def _configuration(indexed: Sequence[str]) -> dict[str, str | None]:
    """Of which columns all who write the table keep statistics."""
    if indexed:
        return {"delta.dataSkippingStatsColumns": ",".join(indexed)}
    return {"delta.dataSkippingNumIndexedCols": "0"}


def _counted(table: DeltaTable) -> dict[str, DataType]:
    """Of which columns :func:`_configuration` has said so."""
    names = table.metadata().configuration.get("delta.dataSkippingStatsColumns") or ""
    fields = schema_of(table).fields
    return {one.name: one.dataType for one in fields if one.name in names.split(",")}


def _has(table: DeltaTable, batch: Batch) -> bool:
    newest = table.transaction_version(batch[0])
    return newest is not None and newest >= batch[1]


def _first_to_commit(batch: Batch | None = None) -> CommitProperties:
    """A commit that fails where somebody else was first."""
    transactions = None if batch is None else [Transaction(*batch)]
    return CommitProperties(max_commit_retries=0, app_transactions=transactions)


def _delta_schema(files: Files) -> Schema:
    return Schema.from_json(_nullable(files.schema).json())


def _nullable(schema: StructType) -> StructType:
    """Return the schema as a table has it, where any value may be null."""
    return StructType.fromJson(
        json.loads(schema.json(), object_hook=lambda one: {**one, **_full(one)})
    )


def _full(one: Mapping[str, Any]) -> Mapping[str, Any]:
    names = ("nullable", "containsNull", "valueContainsNull")
    return {name: True for name in names if name in one}


def _visible(name: str) -> bool:
    """Whether Spark takes a file for one of rows, by its name below a folder."""
    return not any(part[0] in "._" and "=" not in part for part in name.split("/"))


def _values(name: str, by: Sequence[str]) -> dict[str, str | None]:
    """What Spark has put into the names of a file's folders."""
    pairs = (part.partition("=") for part in name.split("/")[:-1])
    found = {unquote(key): unquote(value) for key, equals, value in pairs if equals}
    return {key: None if found[key] == _NULL else found[key] for key in by}
