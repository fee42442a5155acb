"""Traces: what a run read and what it was told, kept only where a person asked for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_state.store.noun import Noun, writes
from mcp_state.store.run_rows import run_row
from mcp_state.store.text import fold, one_line
from mcp_state.store.transaction import Writing

_LONGEST = 1 << 20


class Traces(Noun):
    """The reads of the runs of one project."""

    @writes
    def record(
        self, tx: Writing, tool: str, arguments: Mapping[str, Any], answer: str, *, run: str = ""
    ) -> bool:
        """Keep one read of a run as an event: the named one, else the one this session works on.

        Returns:
            Whether there is such a run; without one, nothing is kept.

        Raises:
            SecretRefused: the arguments or the answer have the shape of a credential.
        """
        row = run_row(tx, fold(run)) if run.strip() else None
        name = tx.current_run() if row is None else row["name"]
        if not name:
            return False
        tx.subject, tx.of_run = ("trace", name), name
        asked = json.dumps(arguments, ensure_ascii=False)
        for text, what in ((asked, "the arguments"), (answer, "the answer")):
            tx.text(text, what, _LONGEST, "")
        words = f"{tool} {asked} -> {answer.partition(chr(10))[0]}"
        kept = {"tool": tool, "arguments": arguments, "answer": answer}
        tx.event(tool, one_line(words, 300), kept)
        return True
