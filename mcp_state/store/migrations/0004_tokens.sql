-- Tokens: who may reach the store over HTTP, for which projects, and with which tools.
--
-- tokens  a row for each project that a token is for; one for every project there is and will be
--         has a single row, in the project that was the most active one when it was made. Of the
--         token itself only the SHA-256 of its secret part is kept, as hex: that part is 256 random
--         bits, so nothing slower is needed. A token is never changed and never deleted, only
--         revoked, once. A project that is merged into another project takes no token along: the other
--         one holds what the token was not made for.
-- events  of the project ('token', 'revoke') tell of its making and its end, in each project of
--         its rows; they hold neither the hash nor the names of other projects.

CREATE TABLE tokens (
    project INTEGER NOT NULL REFERENCES projects (id),
    id TEXT NOT NULL,
    hash TEXT NOT NULL CHECK (length(hash) = 64),
    agent TEXT NOT NULL CHECK (agent <> ''),
    toolset TEXT NOT NULL CHECK (toolset IN ('readonly', 'coding', 'all')),
    every_project INTEGER NOT NULL CHECK (every_project IN (0, 1)),
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    revoked_at TEXT,
    PRIMARY KEY (project, id)
) STRICT;

CREATE INDEX tokens_by_id ON tokens (id, project);

CREATE TRIGGER tokens_are_kept BEFORE DELETE ON tokens BEGIN
    SELECT RAISE(ABORT, 'tokens are revoked, not deleted');
END;

CREATE TRIGGER tokens_never_change
BEFORE UPDATE OF project, id, hash, toolset, every_project, created_at, expires_at ON tokens BEGIN
    SELECT RAISE(ABORT, 'a token is not changed: it is revoked, and another one is made');
END;

CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens
WHEN OLD.revoked_at IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'what is revoked stays revoked');
END;

UPDATE store SET min_reader = 4;
