-- Tokens, as 0004_tokens.sql of SQLite describes them.
--
-- They stand outside of the wall: a token is looked up to find out which projects it is for.

CREATE TABLE tokens (
    project BIGINT NOT NULL REFERENCES projects (id) DEFERRABLE,
    id TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL CHECK (length(hash) = 64),
    agent TEXT COLLATE "C" NOT NULL CHECK (agent <> ''),
    toolset TEXT COLLATE "C" NOT NULL CHECK (toolset IN ('readonly', 'coding', 'all')),
    every_project BIGINT NOT NULL CHECK (every_project IN (0, 1)),
    created_at TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C" NOT NULL,
    revoked_at TEXT COLLATE "C",
    PRIMARY KEY (project, id)
);

CREATE INDEX tokens_by_id ON tokens (id, project);

CREATE TRIGGER tokens_are_kept BEFORE DELETE ON tokens
FOR EACH ROW EXECUTE FUNCTION refuse('tokens are revoked, not deleted');

CREATE TRIGGER tokens_never_change
BEFORE UPDATE OF project, id, hash, toolset, every_project, created_at, expires_at ON tokens
FOR EACH ROW
EXECUTE FUNCTION refuse('a token is not changed: it is revoked, and another one is made');

CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens
FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL)
EXECUTE FUNCTION refuse('what is revoked stays revoked');

UPDATE store SET min_reader = 4;
