"""A whole project as one file that people can read, and back: to another store, or to merge."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from dataclasses import replace
from typing import BinaryIO, TypeGuard, cast

import mcp_state
from mcp_state.errors import (
    BadArgument,
    DiskFull,
    NotFound,
    ProjectUnknown,
    StateError,
    StoreBusy,
    StoreReadonly,
)
from mcp_state.models import Exported, Imported
from mcp_state.store.backup import check_target, put
from mcp_state.store.handoffs import Handoffs
from mcp_state.store.noun import Noun
from mcp_state.store.transaction import Reading, Writing
from mcp_state.store.transfer.exporting import Exporter
from mcp_state.store.transfer.lines import Header, LineWriter
from mcp_state.store.transfer.loading import read_file
from mcp_state.store.transfer.merging import merge
from mcp_state.store.transfer.meter import Meter, Progress
from mcp_state.store.transfer.staging import Staging

_SHOWN = "SELECT shown FROM projects WHERE id = :project"
_BUFFER = 1 << 20


class Transfer(Noun):
    """Export and import of one project."""

    async def export(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        handoff: str = "",
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Write all of the project as JSON Lines, as it is at one moment; others go on writing.

        A file appears whole or not at all, for nobody but its owner to read. Leases, the
        directories that lead to the project and its other names stay behind. `handoff` is the key
        of the offer that the file is made for; that it was made is noted in the store when it is
        whole, and so not in the file itself.

        Raises:
            BadArgument: the file exists, or is part of the store, or cannot be written there.
            Conflict: somebody has taken the handoff.
            DiskFull: there is no room for the file.
            NotFound: there is no such project, or no such handoff.
            ProjectUnknown: it is not known which project is meant.
            StoreBusy: the connection to the server was lost while a stream was written.
            StateError: what else the files refused.
        """
        path = await asyncio.to_thread(_place, self.database.path, target, overwrite)
        handoffs, key = Handoffs(self.database, self.caller), ""
        if handoff and self.caller.project:
            if self.database.read_only:
                raise StoreReadonly(
                    "nothing was exported: that a handoff went out could not be noted here",
                    "Export without it, or where the store can be written.",
                )
            key = (await handoffs.offered(handoff)).key
        meter = Meter(progress, 1)
        begun = False

        def write(tx: Reading) -> Exported:
            nonlocal begun
            if path:
                return _write_file(tx, path, overwrite, key, meter)
            if begun:  # what a stream was given can't be taken back
                raise StoreBusy(
                    f"the connection to {self.database.path} was lost: no whole export was made",
                    "Export again.",
                )
            begun = True
            return _write_stream(tx, cast(BinaryIO, target), key, meter)

        exported = await self.database.read(self.caller, write)
        if key:
            try:
                await handoffs.export(key)
            except StateError as problem:
                where = exported.path or "the export"
                problem.fact = f"{where} is whole, but is not noted as handed over: {problem.fact}"
                raise
        return exported

    async def import_file(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Imported:
        """Bring what an export holds into the project; nothing that is there is overwritten.

        What is there already is left alone, so that importing a file again changes nothing. What
        goes on in the file goes on here. A thread, block, run, fact or objective that has parted
        from the one of that name is kept apart as `NAME (from SOURCE)`. A fact falls where what it
        rests on does not hold here, or says something else here. Without a project of its own, the
        caller gets that of the file. The whole file is checked before anything is written, and all
        of it is one transaction; a dry run takes that back at its end.

        Raises:
            BadArgument: it is no export, or not as it was written: with the line, and what is
                wrong there.
            NotFound: there is no such file.
            SecretRefused: a text in it has the shape of a credential.
            StateError: what else the store refused.
        """
        meter = Meter(progress, 2)
        staging = await asyncio.to_thread(self._read, source, meter)
        try:
            if not self.caller.project:
                self.caller.project, self.caller.how = staging.header.project, "the file"

            def bring(tx: Writing) -> Imported:
                merged = replace(merge(tx, staging, meter), dry_run=dry_run)
                tx.changed = tx.changed and not dry_run
                return merged

            imported = await self.database.write(
                self.caller,
                bring,
                apart=True,
                every_project=True,  # whose journals may hold some of its entries
            )
        finally:
            staging.close()
        meter.end()
        return imported

    def _read(self, source: str | os.PathLike[str] | BinaryIO, meter: Meter) -> Staging:
        secrets = self.database.allow_secrets
        if not _is_path(source):
            meter.expect(0)
            return read_file(cast(BinaryIO, source), "standard input", secrets, meter.at)
        path = os.fspath(source)
        try:
            with open(path, "rb", buffering=_BUFFER) as file:
                meter.expect(os.fstat(file.fileno()).st_size)
                return read_file(file, path, secrets, meter.at)
        except FileNotFoundError:
            raise NotFound(
                f"no file at {path}", "Name a file that `mcp-state export` made."
            ) from None
        except OSError as problem:
            reason = os.strerror(problem.errno or 0)
            raise BadArgument(
                f"{path} can't be read: {reason}", "Nothing was imported."
            ) from problem


def _is_path(given: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(given, str | os.PathLike)


def _place(store: str, target: str | os.PathLike[str] | BinaryIO, overwrite: bool) -> str:
    """Where the file is to be, if it may be there; empty for a stream."""
    if not _is_path(target):
        return ""
    given: str = os.fspath(target)
    path = os.path.abspath(given)
    check_target(store, path, overwrite)
    return path


def _write_file(tx: Reading, path: str, overwrite: bool, handoff: str, meter: Meter) -> Exported:
    """Write the file beside its place, and move it there when it is whole and on disk."""
    temporary = f"{path}.new-{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        made = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(made, "wb", buffering=_BUFFER) as file:
            os.chmod(temporary, 0o600)  # whatever the umask
            exported = _write_lines(tx, file, path, handoff, meter)
            os.fsync(file.fileno())
        put(temporary, path, overwrite)
    except OSError as problem:
        raise _unwritable(path, problem) from problem
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return exported


def _write_stream(tx: Reading, stream: BinaryIO, handoff: str, meter: Meter) -> Exported:
    try:
        return _write_lines(tx, stream, "", handoff, meter)
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise _unwritable("standard output", problem) from problem


def _unwritable(place: str, problem: OSError) -> StateError:
    fact = f"{place} can't be written: {os.strerror(problem.errno or 0)}"
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(fact, "No whole export was made. Free some space, or name another file.")
    return BadArgument(fact, "No whole export was made. Name another file.")


def _write_lines(tx: Reading, file: BinaryIO, path: str, handoff: str, meter: Meter) -> Exported:
    shown = tx.scalar(_SHOWN)
    known = tx.known_projects()
    if not tx.caller.project:
        raise ProjectUnknown(
            "nothing was exported: it is not known which project is meant; known are "
            f"{', '.join(known) or 'none'}",
            "Name it.",
        )
    if shown is None:
        raise NotFound.named(
            "project", tx.caller.project, known[:5], "`mcp-state projects` shows all of them."
        )
    writer = LineWriter(file)
    header = Header(shown, tx.totals().event, tx.now, mcp_state.__version__, handoff)
    writer.write(header.line())
    Exporter(tx, writer, meter).write()
    digest = writer.end()
    meter.end()
    return Exported(
        path=path,
        project=shown,
        events=header.events,
        lines=writer.lines,
        bytes=writer.bytes,
        sha256=digest,
        handoff=handoff,
    )
