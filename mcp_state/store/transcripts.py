"""Transcripts: the exact messages of an agent loop, kept with its run.

For programs that own their loop. What was appended comes back byte for byte, so that a loop which
was killed between two steps goes on where it was, without asking the model again for what it said.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_state.compaction import compacted
from mcp_state.errors import BadArgument, VersionConflict
from mcp_state.models import Transcript
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.run_rows import find_run
from mcp_state.store.run_rules import open_run, touch
from mcp_state.store.text import clean, quoted
from mcp_state.store.transaction import Reading, Writing

_COUNT = """
    SELECT coalesce(max(number), 0) FROM messages WHERE project = :project AND run = :run
"""
_APPEND = """
    INSERT INTO messages (project, run, number, seq, message)
    VALUES (:project, :run, :number, :seq, :message)
"""
_MESSAGES = """
    SELECT message FROM messages WHERE project = :project AND run = :run ORDER BY number
"""
_VALID = "SELECT json_valid(:message)"

Message = Mapping[str, Any]


class Transcripts(Noun):
    """The transcripts of the runs of one project."""

    @writes
    def append(
        self, tx: Writing, run: str, *messages: Message | str, expected: int | None = None
    ) -> Transcript:
        """Add messages at the end: all of them, or none.

        Args:
            tx: given by the store.
            run: the run they belong to.
            messages: JSON objects, or their JSON text, which is kept as it is.
            expected: how many there are before; refuse if another loop has added to them.

        Raises:
            BadArgument: one of them is no JSON object, or there is none.
            NotFound: there is no such run.
            VersionConflict: there are not `expected` messages.
            IllegalTransition: the run is finished.
            OverLimit: a message is longer than a blob may be.
            SecretRefused: one of them has the shape of a credential.
        """
        row = open_run(tx, run)
        name, shown = row["name"], row["shown"]
        tx.subject = ("transcript", name)
        count: int = tx.scalar(_COUNT, {"run": name})
        if expected is not None and expected != count:
            raise VersionConflict(
                f"the transcript of run {shown!r} has {count} messages, not {expected}",
                f"Another loop works on it: read messages({quoted(shown)}) and go on from there.",
            )
        if not messages:
            raise BadArgument("there is no message", "Give at least one.")
        texts = [self._accepted(tx, number, one) for number, one in enumerate(messages)]
        for number, text in enumerate(texts, count + 1):
            tx.run(_APPEND, {"run": name, "number": number, "message": text})
        touch(tx, name)
        data = "\n".join(texts).encode()
        last = count + len(texts)
        kept = {
            "first": count + 1,
            "last": last,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        tx.event("append", f"messages {count + 1} to {last}, {len(data):,} bytes", kept)
        return Transcript(shown, last, len(data))

    @reads
    def messages(self, tx: Reading, run: str) -> list[dict[str, Any]]:
        """All messages, oldest first.

        Raises:
            NotFound: there is no such run.
        """
        return [json.loads(text) for text in _texts(tx, run)]

    @reads
    def texts(self, tx: Reading, run: str) -> list[str]:
        """The JSON text of all messages as it was given, oldest first.

        Raises:
            NotFound: there is no such run.
        """
        return list(_texts(tx, run))

    async def compacted(self, run: str, *, keep: int = 3) -> list[Message]:
        """The messages, with all but the first and the last `keep` exchanges in one user turn.

        That turn names each tool that was called, its arguments, and whether it went well. The
        stored transcript stays whole.

        Raises:
            BadArgument: `keep` is less than 1, or a message has a shape that is not known.
            NotFound: there is no such run.
        """
        return compacted(await self.messages(run), keep=keep)

    def _accepted(self, tx: Writing, number: int, message: Message | str) -> str:
        """The JSON text of a message."""
        try:
            text = message if isinstance(message, str) else _dumped(message)
            given: object = json.loads(text)
        except (TypeError, ValueError, RecursionError) as problem:
            raise BadArgument(
                f"message {number} is no JSON: {problem}", "Nothing was kept."
            ) from None
        if (
            not isinstance(given, dict)
            or clean(text)[1]
            or not tx.scalar(_VALID, {"message": text})
        ):
            raise BadArgument(
                f"message {number} is no JSON object that can be kept byte for byte",
                "Give an object; escape what is no character. Nothing was kept.",
            )
        limit = tx.limits.blob
        return tx.text(text, f"message {number}", limit, "Keep what is long with blobs.put.")


def _dumped(message: Message) -> str:
    """ASCII, so that lone surrogates come back too."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False)


def _texts(tx: Reading, run: str) -> Sequence[str]:
    name = find_run(tx, run)["name"]
    return [row["message"] for row in tx.all(_MESSAGES, {"run": name})]
