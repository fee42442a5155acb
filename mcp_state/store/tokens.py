"""Tokens: who may reach the store over HTTP, for which projects, and with which tools."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import timedelta

from mcp_state.errors import Conflict, NotFound, TokenRefused
from mcp_state.models import Caller, Principal, Token, TokenMade
from mcp_state.store.noun import Noun, reads, writes_across
from mcp_state.store.transaction import Reading, Row, Writing, time_of
from mcp_state.times import from_text, to_text

TOOLSETS = ("readonly", "coding", "all")
_TOKEN = re.compile(r"mcps_(t-[0-9a-z]{1,24})_([0-9A-Za-z_-]{43})")
_NO_HASH = "0" * 64

_INSERT = """
    INSERT INTO tokens (
        project, id, hash, agent, toolset, every_project, created_at, expires_at
    ) VALUES (:project, :id, :hash, :agent, :toolset, :every_project, :now, :expires_at)
"""
_ONE = """
    SELECT tokens.*, projects.shown, projects.merged_into
    FROM tokens JOIN projects ON projects.id = tokens.project
    WHERE tokens.id = :id ORDER BY tokens.project
"""
_ALL = """
    SELECT tokens.*, projects.shown, projects.merged_into
    FROM tokens JOIN projects ON projects.id = tokens.project
    ORDER BY tokens.created_at DESC, tokens.id, tokens.project
"""
_REVOKE = "UPDATE tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL"


class Tokens(Noun):
    """The tokens of a store. They are made and revoked by people."""

    @writes_across
    def create(
        self,
        tx: Writing,
        places: Sequence[Caller],
        *,
        agent: str,
        toolset: str,
        lasts: timedelta,
        every_project: bool = False,
    ) -> TokenMade:
        """Make a token; what it returns is the only time that it can be seen.

        Args:
            tx: given by the caller's transaction, which begins in the first of the projects.
            places: the projects that it is for, each as a call for it would come; one that does
                not exist begins. With `every_project`, the one whose events tell of the token.
            agent: the name that changes made with it are recorded under.
            toolset: one of `TOOLSETS`.
            lasts: for how long.
            every_project: it is for all projects there are and will be.
        """
        token_id, secret = tx.clock.new_id("t-"), tx.clock.new_secret()
        expires_at = tx.at + lasts
        row = {
            "id": token_id,
            "hash": _hash(secret),
            "agent": tx.name(agent, "agent"),
            "toolset": toolset,
            "every_project": int(every_project),
            "expires_at": to_text(expires_at),
        }
        told = {"token": token_id, "agent": row["agent"], "toolset": toolset}
        told |= {"expires_at": row["expires_at"], "every_project": every_project}
        seen: set[int] = set()
        for place in places:
            tx.enter(place)
            if tx.project not in seen:
                seen.add(tx.project)
                tx.run(_INSERT, row)
                reach = ", for every project" if every_project else ""
                tx.event("token", f"{token_id} made for {row['agent']}: {toolset}{reach}", told)
        return TokenMade(_tokens(tx.all(_ONE, {"id": token_id}))[0], f"mcps_{token_id}_{secret}")

    @reads
    def list(self, tx: Reading) -> Sequence[Token]:
        """All tokens that were ever made, the newest first."""
        return _tokens(tx.all(_ALL))

    async def revoke(self, token_id: str) -> Token:
        """End a token; from then on it is refused, by every server of the store.

        Raises:
            NotFound: there is no such token.
            Conflict: it is revoked already.
        """
        place = await self._place(token_id)
        return await Tokens(self.database, place)._revoke(token_id)

    @reads
    def _place(self, tx: Reading, token_id: str) -> Caller:
        """The first of its projects, to begin the transaction in."""
        rows = _rows(tx, token_id)
        return Caller(rows[0]["shown"], "", tx.caller.actor)

    @writes_across
    def _revoke(self, tx: Writing, token_id: str) -> Token:
        rows = _rows(tx, token_id)
        if rows[0]["revoked_at"] is not None:
            raise Conflict(f"token {token_id} is revoked already", "Nothing is left to do.")
        tx.run(_REVOKE, {"id": token_id})
        for row in rows:
            tx.enter(Caller(row["shown"], "", tx.caller.actor))
            tx.event("revoke", f"{token_id} of {row['agent']} revoked", {"token": token_id})
        return _tokens(_rows(tx, token_id))[0]

    @reads
    def principal(self, tx: Reading, token: str) -> Principal:
        """Whom a token stands for.

        It is found by its id and compared by its hash; an unknown id costs a comparison too.

        Raises:
            TokenRefused: it is none, or has expired, or was revoked.
        """
        match = _TOKEN.fullmatch(token)
        token_id, secret = match.groups() if match else ("", "")
        rows = tx.all(_ONE, {"id": token_id})
        kept = rows[0]["hash"] if rows else _NO_HASH
        if not secrets.compare_digest(_hash(secret), kept) or not rows:
            raise TokenRefused("unknown_token", "the token is not known")
        row = rows[0]
        if row["revoked_at"] is not None:
            raise TokenRefused("revoked_token", "the token was revoked", token_id, row["agent"])
        if row["expires_at"] <= tx.now:
            raise TokenRefused("expired_token", "the token has expired", token_id, row["agent"])
        return Principal(token_id, row["agent"], row["toolset"], _projects(rows))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _rows(tx: Reading, token_id: str) -> Sequence[Row]:
    rows = tx.all(_ONE, {"id": token_id})
    if not rows:
        raise NotFound.named("token", token_id, [], "`mcp-state token list` shows all of them.")
    return rows


def _projects(rows: Sequence[Row]) -> dict[int, str] | None:
    """Those that a token is for; what was merged into another project is none any more."""
    if rows[0]["every_project"]:
        return None
    return {row["project"]: row["shown"] for row in rows if row["merged_into"] is None}


def _tokens(rows: Sequence[Row]) -> list[Token]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row)
    return [_token(rows) for rows in found.values()]


def _token(rows: Sequence[Row]) -> Token:
    row, projects = rows[0], _projects(rows)
    return Token(
        id=row["id"],
        agent=row["agent"],
        toolset=row["toolset"],
        projects=[] if projects is None else list(projects.values()),
        every_project=projects is None,
        created_at=from_text(row["created_at"]),
        expires_at=from_text(row["expires_at"]),
        revoked_at=time_of(row["revoked_at"]),
    )
