"""Every outcome that a caller branches on, one class each, with its wording.

The text of an error is `code: fact. next step.`; the tools put `error: ` before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mcp_state.calls import argument, either

_LONGEST_SHOWN = 128


class StateError(Exception):
    """Something was refused or could not be done, and nothing was saved, unless it says so."""

    code: ClassVar[str]
    recorded: ClassVar[bool] = False
    """Whether the refusal is kept as an event, for people to see."""

    def __init__(self, fact: str, next_step: str = "") -> None:
        """Keep the fact (no full stop) and what to do about it (a sentence)."""
        super().__init__(fact, next_step)
        self.fact = fact
        self.next_step = next_step

    def __str__(self) -> str:
        """The code, the fact and the next step, as the model reads them."""
        text = f"{self.code}: {self.fact}. {self.next_step}".rstrip()
        return " ".join(text.splitlines())  # one line, whatever it quotes


class BadArgument(StateError):
    """An argument is missing, unknown, malformed or contradicts another."""

    code = "bad_argument"


class NotFound(StateError):
    """There is nothing under that name."""

    code = "not_found"

    @classmethod
    def named(cls, kind: str, name: str, near: Sequence[str], next_step: str) -> NotFound:
        """Nothing of this kind has that name; these names are near."""
        shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:60]}…"
        fact = f"no {kind} {shown!r}"
        if near:
            fact += f"; there is {', '.join(repr(n) for n in near)}"
        return cls(fact, next_step)


class VersionConflict(StateError):
    """It moved on since the version that the caller expected."""

    code = "version_conflict"
    recorded = True

    @classmethod
    def of(
        cls, what: str, expected: int, current: int, by: str, read_with: str, set_with: str
    ) -> VersionConflict:
        """`what` is at `current` (0: does not exist), not at `expected`."""
        if current == 0:
            return cls(
                f"{what} does not exist, so it is not at version {expected}",
                f"Use {argument('expected_version', 0)} to create it, or leave "
                f"{argument('expected_version')} out.",
            )
        if expected == 0:
            return cls(
                f"{what} exists already, at version {current} ({by})",
                f"Read it with {read_with}; to change it, {set_with} with "
                f"{argument('expected_version', current)}.",
            )
        return cls(
            f"{what} is at version {current}, not {expected} ({by})",
            f"Read it with {read_with}, merge, and {set_with} again with "
            f"{argument('expected_version', current)}.",
        )


class Held(StateError):
    """Somebody holds the lease of the thread."""

    code = "held"


class LeaseLost(StateError):
    """The token is not the current one: the lease ended and another took it."""

    code = "lease_lost"
    recorded = True


class IllegalTransition(StateError):
    """The status cannot change like that."""

    code = "illegal_transition"


class EvidenceRequired(StateError):
    """Done needs what proves it."""

    code = "evidence_required"


class OverLimit(StateError):
    """The text is longer than it may be; what was there stays."""

    code = "over_limit"

    @classmethod
    def of(cls, what: str, size: int, limit: int, next_step: str) -> OverLimit:
        """`what` would have `size` characters of at most `limit`."""
        return cls(f"{what} would be {size:,} characters; the limit is {limit:,}", next_step)


class Locked(StateError):
    """A person locked it."""

    code = "locked"
    recorded = True


class Conflict(StateError):
    """The same idempotency key came with something else."""

    code = "conflict"
    recorded = True


class NoProgress(StateError):
    """The same input had the same outcome too often: something else has to be tried."""

    code = "no_progress"
    recorded = True


class BudgetSpent(StateError):
    """The run has used what it was given."""

    code = "budget_spent"
    recorded = True


class Expired(StateError):
    """It was kept for a time, which is over."""

    code = "expired"


class StoreBusy(StateError):
    """Other writers kept the store for longer than a call may wait."""

    code = "store_busy"

    @classmethod
    def after(cls, seconds: float) -> StoreBusy:
        """The call waited this long for its turn."""
        return cls(
            f"not saved: other processes kept the store busy for {seconds:.0f} s",
            f"{either('Call', 'Run it')} again; if it goes on, `mcp-state doctor` tells who holds "
            "it.",
        )


class StoreDamaged(StateError):
    """The file is not a whole store, or its disk fails; nothing was changed, unless it says so."""

    code = "store_damaged"

    @classmethod
    def at(cls, path: str, fact: str) -> StoreDamaged:
        """What is wrong with the file at `path`."""
        return cls(
            f"{path}: {fact}",
            "Nothing was changed. `mcp-state doctor` explains it, "
            "`mcp-state restore BACKUP` puts a good copy in its place.",
        )

    @classmethod
    def in_doubt(cls, path: str, fact: str) -> StoreDamaged:
        """The system failed to say that a commit is on disk: all of it is there, or nothing."""
        return cls(
            f"{path}: {fact} while saving; it is not certain whether this was saved",
            f"Look whether it is there before you {either('call', 'run it')} again; `mcp-state "
            "doctor` tells whether the store is whole.",
        )


class StoreNewer(StateError):
    """A newer version of mcp-state wrote the store and closed it to this one."""

    code = "store_newer"


class StoreReadonly(StateError):
    """The store cannot be written here: permissions, a read-only directory, or settings."""

    code = "store_readonly"

    @classmethod
    def at(cls, path: str, why: str) -> StoreReadonly:
        """The file at `path` can't be used as it should."""
        return cls(
            f"{path}: {why}",
            "Allow this user to read and write the file and its directory, or name another file "
            f"with --db or MCP_STATE_DB.{either(' No restart is needed.', '')}",
        )


class DiskFull(StateError):
    """There is no room for the change."""

    code = "disk_full"

    @classmethod
    def at(cls, path: str) -> DiskFull:
        """The disk that holds `path` is full."""
        return cls(
            f"not saved: no space left for {path}",
            f"Free some space and {either('call again; no restart', 'run it again')}.",
        )


class ReadonlyToolset(StateError):
    """A tool that writes was called on a server that only reads."""

    code = "readonly_toolset"


class ProjectUnknown(StateError):
    """It is not known which project the call belongs to."""

    code = "project_unknown"

    @classmethod
    def among(cls, known: Sequence[str]) -> ProjectUnknown:
        """No project could be found for a write; these exist."""
        listed = f"known projects: {', '.join(known)}" if known else "there is no project yet"
        return cls(
            f"not saved: this {either('call', 'command')} does not say which project it belongs "
            f"to; {listed}",
            f"Pass {argument('project', 'NAME')} (a new name begins a new project), "
            + either(
                "start the server in a git repository, or start it with --project NAME.",
                "or run it in a git repository.",
            ),
        )

    @classmethod
    def to_the_token(cls, name: str, allowed: Sequence[str]) -> ProjectUnknown:
        """The token is not for a project of this name, whether there is one or not."""
        shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:60]}…"
        listed = f"it is for {', '.join(allowed)}" if allowed else "its projects are gone"
        return cls(
            f"this token is not for a project {shown!r}; {listed}",
            f"Nothing was changed. Pass {argument('project', 'NAME')} of one of these, or ask who "
            "made the token for one that is for more.",
        )


class TokenRefused(StateError):
    """A token does not let anybody in."""

    code = "token_refused"

    def __init__(self, reason: str, fact: str, token: str = "", agent: str = "") -> None:
        """Keep why in one word, and, once the secret was found right, whose token it is."""
        super().__init__(fact, "`mcp-state token create` makes another one.")
        self.reason = reason
        self.token = token
        self.agent = agent


class SecretRefused(StateError):
    """The text has the shape of a credential."""

    code = "secret_refused"
    recorded = True

    @classmethod
    def found(cls, kind: str, where: str, position: int) -> SecretRefused:
        """A credential of this kind begins at a character position, counted from 0."""
        return cls(
            f"not saved: {where} holds what looks like {kind}, at character {position}",
            "Leave it out, or say where it is kept instead of what it is."
            + either(" (A person can start the server with --allow-secrets.)", ""),
        )


class ConfigRefused(StateError):
    """The configuration of a client could not be changed as asked; it was left as it was."""

    code = "config_refused"


class NotAnswered(StateError):
    """The server that was configured does not answer."""

    code = "not_answered"
