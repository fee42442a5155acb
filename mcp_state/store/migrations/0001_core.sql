-- The core of the store.
--
-- A project is the isolation boundary; every other row belongs to one. Its counts are kept here
-- by triggers, so that no answer ever counts by scanning. A project is found by one of its names
-- (project_names) or by a directory that was seen before (directories), which stays with the
-- project it was first mapped to until a person renames or merges.
--
-- An event is one committed change. It is written in the same transaction as the row it describes
-- and holds that row, after the change, as JSON. Event numbers have no gaps within a project: the
-- trigger refuses any other number. Events and the journal refuse UPDATE and DELETE; `purge` and
-- `projects merge` lift that inside their own transaction by dropping the trigger and making it
-- again.
--
-- Names are compared folded (NFC, trimmed, case-folded) and shown as first written: `name` is the
-- folded form, `shown` the written one. Times are UTC, fixed width, so that they sort as text.
-- Nothing is ordered by time, only by event number: `created` and `changed` are event numbers.
--
-- memory    a block keeps its row when it is deleted (value NULL), so that versions never repeat.
-- threads   the lease is the event number of its claim (lease_token), a holder and an end. The
--           first event written at or after the end sets lease_over: a clock set back afterwards
--           revives nothing. open_needs counts unfinished dependencies.
-- journal   an entry is known by its event number; `id` is unique across stores. journal_topics
--           lists it under all it can be asked for by ('', thread:x, agent:x, kind:x), with its
--           place in that list, so that a page and what lies beyond it cost the same anywhere.
-- documents what `search` reads: one per memory block, thread and journal entry. Its id is
--           (project * 16 + kind) * 2^36 + n, growing with every change, so that the full-text
--           index can walk one kind of one project from its newest end. `short` holds words and
--           ideograms that are too short for trigrams.

CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    min_reader INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE projects (
    id INTEGER PRIMARY KEY,
    shown TEXT NOT NULL,
    created_at TEXT NOT NULL,
    merged_into INTEGER REFERENCES projects (id),
    last_event INTEGER NOT NULL DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 0 CHECK (active >= 0),
    watching INTEGER NOT NULL DEFAULT 0 CHECK (watching >= 0),
    blocked INTEGER NOT NULL DEFAULT 0 CHECK (blocked >= 0),
    done INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
    dropped INTEGER NOT NULL DEFAULT 0 CHECK (dropped >= 0),
    journal INTEGER NOT NULL DEFAULT 0 CHECK (journal >= 0),
    memory INTEGER NOT NULL DEFAULT 0 CHECK (memory >= 0)
) STRICT;

CREATE TABLE project_names (
    name TEXT PRIMARY KEY,
    shown TEXT NOT NULL,
    project INTEGER NOT NULL REFERENCES projects (id)
) STRICT;

CREATE INDEX project_names_by_project ON project_names (project);

CREATE TABLE directories (
    anchor TEXT PRIMARY KEY,
    project INTEGER NOT NULL REFERENCES projects (id)
) STRICT;

CREATE INDEX directories_by_project ON directories (project);

CREATE TABLE actors (
    id INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    client TEXT NOT NULL,
    session TEXT NOT NULL,
    worktree TEXT NOT NULL,
    UNIQUE (agent, client, session, worktree)
) STRICT;

CREATE TABLE events (
    project INTEGER NOT NULL REFERENCES projects (id),
    seq INTEGER NOT NULL,
    at TEXT NOT NULL CHECK (length(at) = 27),
    actor INTEGER NOT NULL REFERENCES actors (id),
    run TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    operation TEXT NOT NULL,
    summary TEXT NOT NULL,
    version INTEGER,
    row TEXT CHECK (row IS NULL OR json_valid(row)),
    PRIMARY KEY (project, seq)
) STRICT;

CREATE INDEX events_by_subject ON events (project, kind, name, seq);

CREATE UNIQUE INDEX events_by_version ON events (project, kind, name, version)
    WHERE version IS NOT NULL;

CREATE TABLE last_events (
    project INTEGER NOT NULL REFERENCES projects (id),
    actor INTEGER NOT NULL REFERENCES actors (id),
    agent TEXT NOT NULL,
    session TEXT NOT NULL,
    worktree TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (project, actor)
) STRICT;

CREATE INDEX last_events_by_session ON last_events (project, session, seq);

CREATE INDEX last_events_by_agent ON last_events (project, agent, worktree, seq);

CREATE TABLE idempotency (
    project INTEGER NOT NULL REFERENCES projects (id),
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (project, operation, key)
) STRICT;

CREATE TABLE memory (
    project INTEGER NOT NULL REFERENCES projects (id),
    run TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    value TEXT,
    version INTEGER NOT NULL CHECK (version > 0),
    changed INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    changed_by INTEGER NOT NULL REFERENCES actors (id),
    expires_at TEXT,
    locked TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (project, run, name)
) STRICT;

CREATE INDEX memory_by_change ON memory (project, run, changed);

CREATE TABLE threads (
    project INTEGER NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    created INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    title TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'watching', 'blocked', 'done', 'dropped')),
    status_at TEXT NOT NULL,
    changed INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    changed_by INTEGER NOT NULL REFERENCES actors (id),
    version INTEGER NOT NULL CHECK (version > 0),
    priority INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 9),
    next_action TEXT NOT NULL,
    waiting_on TEXT NOT NULL,
    recheck_at TEXT,
    "check" TEXT NOT NULL,
    evidence TEXT NOT NULL,
    note TEXT NOT NULL,
    places TEXT NOT NULL CHECK (json_valid(places)),
    criteria INTEGER NOT NULL DEFAULT 0,
    passing INTEGER NOT NULL DEFAULT 0,
    open_needs INTEGER NOT NULL DEFAULT 0 CHECK (open_needs >= 0),
    lease_token INTEGER NOT NULL DEFAULT 0,
    lease_holder INTEGER REFERENCES actors (id),
    lease_until TEXT,
    lease_over INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project, name),
    CHECK (status <> 'blocked' OR waiting_on <> ''),
    CHECK ((status IN ('watching', 'blocked')) = (recheck_at IS NOT NULL)),
    CHECK (status <> 'done' OR (evidence <> '' AND passing = criteria)),
    CHECK (status <> 'dropped' OR note <> '')
) STRICT;

CREATE INDEX threads_by_priority ON threads (project, status, priority, created);

CREATE INDEX threads_by_recheck ON threads (project, status, recheck_at, created)
    WHERE recheck_at IS NOT NULL;

CREATE INDEX threads_by_claim ON threads (project, priority, created)
    WHERE status = 'active' AND open_needs = 0;

CREATE INDEX threads_by_lease ON threads (project, lease_until)
    WHERE lease_until IS NOT NULL AND lease_over = 0;

CREATE INDEX threads_by_change ON threads (project, status, changed);

CREATE TABLE criteria (
    project INTEGER NOT NULL,
    thread TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    text TEXT NOT NULL,
    passes INTEGER NOT NULL DEFAULT 0 CHECK (passes IN (0, 1)),
    evidence TEXT NOT NULL DEFAULT '',
    checked_at TEXT,
    checked_by INTEGER REFERENCES actors (id),
    PRIMARY KEY (project, thread, number),
    UNIQUE (project, thread, text),
    FOREIGN KEY (project, thread) REFERENCES threads (project, name) ON UPDATE CASCADE
) STRICT;

CREATE TABLE needs (
    project INTEGER NOT NULL,
    thread TEXT NOT NULL,
    needed TEXT NOT NULL,
    PRIMARY KEY (project, thread, needed),
    CHECK (thread <> needed),
    FOREIGN KEY (project, thread) REFERENCES threads (project, name) ON UPDATE CASCADE,
    FOREIGN KEY (project, needed) REFERENCES threads (project, name) ON UPDATE CASCADE
) STRICT;

CREATE INDEX needs_by_needed ON needs (project, needed, thread);

CREATE TABLE journal (
    project INTEGER NOT NULL REFERENCES projects (id),
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    at TEXT NOT NULL,
    actor INTEGER NOT NULL REFERENCES actors (id),
    kind TEXT NOT NULL,
    thread TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL CHECK (text <> ''),
    PRIMARY KEY (project, seq)
) STRICT;

CREATE UNIQUE INDEX journal_by_id ON journal (id);

CREATE TABLE journal_topics (
    project INTEGER NOT NULL REFERENCES projects (id),
    topic TEXT NOT NULL,
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (project, topic, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    project INTEGER NOT NULL REFERENCES projects (id),
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    seq INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    text TEXT NOT NULL,
    short TEXT NOT NULL,
    UNIQUE (project, kind, name)
) STRICT;

CREATE VIRTUAL TABLE search USING fts5 (
    text, short, content = 'documents', content_rowid = 'id', tokenize = 'trigram'
);

CREATE VIEW event_rows AS
SELECT events.*, agent, client, session, worktree
FROM events JOIN actors ON actors.id = actor;

CREATE VIEW memory_rows AS
SELECT memory.*, agent, client, session FROM memory JOIN actors ON actors.id = changed_by;

CREATE VIEW thread_rows AS
SELECT threads.*, actors.agent, actors.client, actors.session,
    holders.agent AS holder_agent, holders.client AS holder_client,
    holders.session AS holder_session
FROM threads
JOIN actors ON actors.id = changed_by
LEFT JOIN actors AS holders ON holders.id = lease_holder;

CREATE VIEW journal_rows AS
SELECT journal.*, agent, client, session, coalesce(threads.shown, '') AS thread_shown
FROM journal
JOIN actors ON actors.id = actor
LEFT JOIN threads ON threads.project = journal.project AND threads.name = journal.thread;

CREATE TRIGGER documents_insert AFTER INSERT ON documents BEGIN
    INSERT INTO search (rowid, text, short) VALUES (NEW.id, NEW.text, NEW.short);
END;

CREATE TRIGGER documents_delete AFTER DELETE ON documents BEGIN
    INSERT INTO search (search, rowid, text, short)
    VALUES ('delete', OLD.id, OLD.text, OLD.short);
END;

CREATE TRIGGER documents_update AFTER UPDATE OF id, text, short ON documents BEGIN
    INSERT INTO search (search, rowid, text, short)
    VALUES ('delete', OLD.id, OLD.text, OLD.short);
    INSERT INTO search (rowid, text, short) VALUES (NEW.id, NEW.text, NEW.short);
END;

CREATE TRIGGER events_number BEFORE INSERT ON events
WHEN NEW.seq <> (SELECT last_event + 1 FROM projects WHERE id = NEW.project) BEGIN
    SELECT RAISE(ABORT, 'event numbers have no gaps');
END;

CREATE TRIGGER events_insert AFTER INSERT ON events BEGIN
    UPDATE projects SET last_event = NEW.seq WHERE id = NEW.project;
    UPDATE store SET changes = changes + 1;
    INSERT INTO last_events (project, actor, agent, session, worktree, seq)
    SELECT NEW.project, id, agent, session, worktree, NEW.seq FROM actors WHERE id = NEW.actor
    ON CONFLICT (project, actor) DO UPDATE SET seq = excluded.seq;
    UPDATE threads SET lease_over = 1
    WHERE project = NEW.project AND lease_over = 0 AND lease_until <= NEW.at;
END;

CREATE TRIGGER events_are_kept BEFORE DELETE ON events BEGIN
    SELECT RAISE(ABORT, 'events are never deleted');
END;

CREATE TRIGGER events_are_final BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END;

CREATE TRIGGER journal_is_kept BEFORE DELETE ON journal BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;

CREATE TRIGGER journal_is_final BEFORE UPDATE ON journal BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;

CREATE TRIGGER journal_insert AFTER INSERT ON journal BEGIN
    UPDATE projects SET journal = journal + 1 WHERE id = NEW.project;
END;

CREATE TRIGGER memory_version BEFORE UPDATE OF value ON memory
WHEN NEW.version <= OLD.version AND NEW.value IS NOT OLD.value BEGIN
    SELECT RAISE(ABORT, 'a new value needs a new version');
END;

CREATE TRIGGER memory_insert AFTER INSERT ON memory WHEN NEW.value IS NOT NULL BEGIN
    UPDATE projects SET memory = memory + 1 WHERE id = NEW.project;
END;

CREATE TRIGGER memory_update AFTER UPDATE OF value ON memory
WHEN (NEW.value IS NULL) <> (OLD.value IS NULL) BEGIN
    UPDATE projects SET memory = memory + iif(NEW.value IS NULL, -1, 1) WHERE id = NEW.project;
END;

CREATE TRIGGER memory_is_kept BEFORE DELETE ON memory BEGIN
    SELECT RAISE(ABORT, 'a deleted block keeps its row');
END;

CREATE TRIGGER threads_insert AFTER INSERT ON threads BEGIN
    UPDATE projects SET
        active = active + (NEW.status = 'active'),
        watching = watching + (NEW.status = 'watching'),
        blocked = blocked + (NEW.status = 'blocked'),
        done = done + (NEW.status = 'done'),
        dropped = dropped + (NEW.status = 'dropped')
    WHERE id = NEW.project;
END;

CREATE TRIGGER threads_status AFTER UPDATE OF status ON threads WHEN NEW.status <> OLD.status BEGIN
    UPDATE projects SET
        active = active + (NEW.status = 'active') - (OLD.status = 'active'),
        watching = watching + (NEW.status = 'watching') - (OLD.status = 'watching'),
        blocked = blocked + (NEW.status = 'blocked') - (OLD.status = 'blocked'),
        done = done + (NEW.status = 'done') - (OLD.status = 'done'),
        dropped = dropped + (NEW.status = 'dropped') - (OLD.status = 'dropped')
    WHERE id = NEW.project;
    UPDATE threads SET open_needs = open_needs + iif(NEW.status = 'done', -1, 1)
    WHERE (NEW.status = 'done') <> (OLD.status = 'done') AND project = NEW.project
        AND name IN (SELECT thread FROM needs WHERE project = NEW.project AND needed = NEW.name);
END;

CREATE TRIGGER threads_are_kept BEFORE DELETE ON threads BEGIN
    SELECT RAISE(ABORT, 'threads are dropped, not deleted');
END;

CREATE TRIGGER needs_insert AFTER INSERT ON needs BEGIN
    UPDATE threads SET open_needs = open_needs + (
        SELECT status <> 'done' FROM threads WHERE project = NEW.project AND name = NEW.needed
    ) WHERE project = NEW.project AND name = NEW.thread;
END;

CREATE TRIGGER needs_delete AFTER DELETE ON needs BEGIN
    UPDATE threads SET open_needs = open_needs - (
        SELECT status <> 'done' FROM threads WHERE project = OLD.project AND name = OLD.needed
    ) WHERE project = OLD.project AND name = OLD.thread;
END;

CREATE TRIGGER criteria_insert AFTER INSERT ON criteria BEGIN
    UPDATE threads SET criteria = criteria + 1, passing = passing + NEW.passes
    WHERE project = NEW.project AND name = NEW.thread;
END;

CREATE TRIGGER criteria_passes AFTER UPDATE OF passes ON criteria BEGIN
    UPDATE threads SET passing = passing + NEW.passes - OLD.passes
    WHERE project = NEW.project AND name = NEW.thread;
END;

CREATE TRIGGER criteria_text BEFORE UPDATE OF text, number ON criteria BEGIN
    SELECT RAISE(ABORT, 'the text of a criterion never changes');
END;

CREATE TRIGGER criteria_are_kept BEFORE DELETE ON criteria BEGIN
    SELECT RAISE(ABORT, 'criteria are kept');
END;
