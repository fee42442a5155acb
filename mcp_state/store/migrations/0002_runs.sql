-- Long runs, large text and handoff.
--
-- A name inside a run (a block of its memory, a step, a checkpoint) is known elsewhere, in events
-- and documents, as RUN, the character 31, NAME; no name holds that character.
--
-- runs          one long task. `version` and `changed` count what was decided about it (begun,
--               budget raised, finished); `touched` is the last event of that, or of its
--               checkpoints, steps and messages. Its totals are kept by triggers from checkpoints,
--               steps and attempts. `stopped` names the budget that was found spent; only a person
--               clears it.
-- checkpoints   how far a run got, numbered without gaps, never changed. The run's memory of that
--               moment is not copied: it is what its events say up to `seq`.
-- steps         one unit of a run. `streak` counts how often in a row the same input had the same
--               outcome (`outcome` is its digest); `stopped` says that it was refused for that.
-- attempts      one per `go`: begun, and ended at most once. One without an end was left open.
-- session_runs  which run a session last began, checkpointed or stepped.
-- messages      the exact messages of an agent loop, by run; their events hold hash and size.
-- blobs         large texts by the hash of their content; their events hold hash and size.
-- handoffs      what was offered to another agent, and who took it.
-- journal       gets the run that an entry belongs to.

ALTER TABLE projects ADD COLUMN open INTEGER NOT NULL DEFAULT 0 CHECK (open >= 0);

ALTER TABLE projects ADD COLUMN completed INTEGER NOT NULL DEFAULT 0 CHECK (completed >= 0);

ALTER TABLE projects ADD COLUMN failed INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0);

ALTER TABLE projects ADD COLUMN abandoned INTEGER NOT NULL DEFAULT 0 CHECK (abandoned >= 0);

ALTER TABLE projects ADD COLUMN stopped INTEGER NOT NULL DEFAULT 0 CHECK (stopped >= 0);

ALTER TABLE journal ADD COLUMN run TEXT NOT NULL DEFAULT '';

CREATE INDEX events_by_run ON events (project, run, seq) WHERE run <> '';

CREATE INDEX events_but_traces ON events (project, seq) WHERE kind <> 'trace';

CREATE TABLE runs (
    project INTEGER NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    created INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    changed INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    changed_by INTEGER NOT NULL REFERENCES actors (id),
    version INTEGER NOT NULL CHECK (version > 0),
    touched INTEGER NOT NULL,
    touched_at TEXT NOT NULL,
    touched_by INTEGER NOT NULL REFERENCES actors (id),
    status TEXT NOT NULL CHECK (status IN ('open', 'completed', 'failed', 'abandoned')),
    goal TEXT NOT NULL,
    expected_outcome TEXT NOT NULL,
    thread TEXT NOT NULL DEFAULT '',
    max_attempts INTEGER CHECK (max_attempts > 0),
    max_minutes INTEGER CHECK (max_minutes > 0),
    max_tokens INTEGER CHECK (max_tokens > 0),
    stopped TEXT NOT NULL DEFAULT '' CHECK (stopped IN ('', 'attempts', 'minutes', 'tokens')),
    finished_at TEXT,
    result TEXT NOT NULL DEFAULT '',
    evidence TEXT NOT NULL DEFAULT '',
    reflection TEXT NOT NULL DEFAULT '',
    checkpoints INTEGER NOT NULL DEFAULT 0,
    steps INTEGER NOT NULL DEFAULT 0,
    steps_done INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    tokens_in INTEGER NOT NULL DEFAULT 0,
    tokens_out INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project, name),
    CHECK ((status = 'open') = (finished_at IS NULL)),
    CHECK (status <> 'completed' OR evidence <> '')
) STRICT;

CREATE INDEX runs_by_touch ON runs (project, status, touched);

CREATE INDEX runs_by_thread ON runs (project, thread, touched) WHERE thread <> '';

CREATE TABLE checkpoints (
    project INTEGER NOT NULL,
    run TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    seq INTEGER NOT NULL,
    at TEXT NOT NULL,
    actor INTEGER NOT NULL REFERENCES actors (id),
    state TEXT NOT NULL CHECK (state <> ''),
    next_action TEXT NOT NULL,
    done INTEGER CHECK (done >= 0),
    total INTEGER CHECK (total >= 0),
    git TEXT NOT NULL CHECK (json_valid(git)),
    PRIMARY KEY (project, run, number),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE
) STRICT;

CREATE TABLE steps (
    project INTEGER NOT NULL,
    run TEXT NOT NULL,
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    created INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    changed_by INTEGER NOT NULL REFERENCES actors (id),
    status TEXT NOT NULL CHECK (status IN ('open', 'failed', 'done')),
    input TEXT NOT NULL,
    result TEXT NOT NULL DEFAULT '',
    outcome TEXT NOT NULL DEFAULT '',
    streak INTEGER NOT NULL DEFAULT 0 CHECK (streak >= 0),
    stopped INTEGER NOT NULL DEFAULT 0 CHECK (stopped IN (0, 1)),
    attempts INTEGER NOT NULL DEFAULT 0,
    tokens_in INTEGER NOT NULL DEFAULT 0,
    tokens_out INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project, run, name),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE
) STRICT;

CREATE INDEX steps_by_status ON steps (project, run, status, changed);

CREATE INDEX steps_by_attempts ON steps (project, run, attempts);

CREATE INDEX steps_by_tokens ON steps (project, run, tokens_in + tokens_out);

CREATE INDEX steps_stopped ON steps (project, changed) WHERE stopped = 1;

CREATE TABLE attempts (
    project INTEGER NOT NULL,
    run TEXT NOT NULL,
    step TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    begun INTEGER NOT NULL,
    begun_at TEXT NOT NULL,
    begun_by INTEGER NOT NULL REFERENCES actors (id),
    input TEXT NOT NULL,
    ended INTEGER,
    ended_at TEXT,
    ended_by INTEGER REFERENCES actors (id),
    ok INTEGER CHECK (ok IN (0, 1)),
    result TEXT,
    tokens_in INTEGER NOT NULL DEFAULT 0 CHECK (tokens_in >= 0),
    tokens_out INTEGER NOT NULL DEFAULT 0 CHECK (tokens_out >= 0),
    PRIMARY KEY (project, run, step, number),
    CHECK ((ended IS NULL) = (ok IS NULL) AND (ended IS NULL) = (result IS NULL)),
    FOREIGN KEY (project, run, step) REFERENCES steps (project, run, name) ON UPDATE CASCADE
) STRICT;

CREATE INDEX attempts_open ON attempts (project, run, step, number) WHERE ended IS NULL;

CREATE TABLE session_runs (
    project INTEGER NOT NULL REFERENCES projects (id),
    session TEXT NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (project, session),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE
) STRICT;

CREATE INDEX session_runs_by_run ON session_runs (project, run);

CREATE TABLE messages (
    project INTEGER NOT NULL,
    run TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    seq INTEGER NOT NULL,
    message TEXT NOT NULL CHECK (json_valid(message)),
    PRIMARY KEY (project, run, number),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE
) STRICT;

CREATE TABLE blobs (
    project INTEGER NOT NULL REFERENCES projects (id),
    key TEXT NOT NULL,
    sha256 TEXT NOT NULL CHECK (length(sha256) = 64),
    bytes INTEGER NOT NULL,
    characters INTEGER NOT NULL,
    created INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    changed INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    changed_by INTEGER NOT NULL REFERENCES actors (id),
    version INTEGER NOT NULL CHECK (version > 0),
    summary TEXT NOT NULL,
    expires_at TEXT,
    text TEXT NOT NULL CHECK (text <> ''),
    PRIMARY KEY (project, key)
) STRICT;

CREATE TABLE handoffs (
    project INTEGER NOT NULL REFERENCES projects (id),
    key TEXT NOT NULL,
    created INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    created_by INTEGER NOT NULL REFERENCES actors (id),
    recipient TEXT NOT NULL,
    note TEXT NOT NULL,
    exported_at TEXT,
    accepted_at TEXT,
    accepted_by INTEGER REFERENCES actors (id),
    PRIMARY KEY (project, key),
    CHECK ((accepted_at IS NULL) = (accepted_by IS NULL))
) STRICT;

CREATE INDEX handoffs_by_age ON handoffs (project, created);

CREATE INDEX handoffs_open ON handoffs (project, created) WHERE accepted_at IS NULL;

CREATE VIEW run_rows AS
SELECT runs.*, actors.agent, actors.client, actors.session,
    coalesce(threads.shown, '') AS thread_shown,
    touchers.agent AS touched_agent, touchers.client AS touched_client,
    touchers.session AS touched_session,
    last.at AS checkpoint_at, last.done, last.total, coalesce(last.next_action, '') AS next_action
FROM runs
JOIN actors ON actors.id = runs.changed_by
JOIN actors AS touchers ON touchers.id = runs.touched_by
LEFT JOIN threads ON threads.project = runs.project AND threads.name = runs.thread
LEFT JOIN checkpoints AS last
    ON last.project = runs.project AND last.run = runs.name AND last.number = runs.checkpoints;

CREATE VIEW checkpoint_rows AS
SELECT checkpoints.*, agent, client, session, worktree
FROM checkpoints JOIN actors ON actors.id = actor;

CREATE VIEW step_rows AS
SELECT steps.*, agent, client, session, runs.shown AS run_shown
FROM steps
JOIN actors ON actors.id = steps.changed_by
JOIN runs ON runs.project = steps.project AND runs.name = steps.run;

CREATE VIEW attempt_rows AS
SELECT attempts.*, agent, client, session FROM attempts JOIN actors ON actors.id = begun_by;

CREATE VIEW blob_rows AS
SELECT project, key, sha256, bytes, characters, created, created_at, changed, changed_at,
    changed_by, version, summary, expires_at, agent, client, session
FROM blobs JOIN actors ON actors.id = changed_by;

CREATE VIEW handoff_rows AS
SELECT handoffs.*, actors.agent, actors.client, actors.session,
    takers.agent AS taker_agent, takers.client AS taker_client, takers.session AS taker_session
FROM handoffs
JOIN actors ON actors.id = created_by
LEFT JOIN actors AS takers ON takers.id = accepted_by;

DROP VIEW journal_rows;

CREATE VIEW journal_rows AS
SELECT journal.*, agent, client, session, coalesce(threads.shown, '') AS thread_shown,
    coalesce(runs.shown, '') AS run_shown
FROM journal
JOIN actors ON actors.id = actor
LEFT JOIN threads ON threads.project = journal.project AND threads.name = journal.thread
LEFT JOIN runs ON runs.project = journal.project AND runs.name = journal.run;

DROP TRIGGER memory_insert;

CREATE TRIGGER memory_insert AFTER INSERT ON memory
WHEN NEW.value IS NOT NULL AND NEW.run = '' BEGIN
    UPDATE projects SET memory = memory + 1 WHERE id = NEW.project;
END;

DROP TRIGGER memory_update;

CREATE TRIGGER memory_update AFTER UPDATE OF value ON memory
WHEN (NEW.value IS NULL) <> (OLD.value IS NULL) AND NEW.run = '' BEGIN
    UPDATE projects SET memory = memory + iif(NEW.value IS NULL, -1, 1) WHERE id = NEW.project;
END;

CREATE TRIGGER runs_insert AFTER INSERT ON runs BEGIN
    UPDATE projects SET
        open = open + (NEW.status = 'open'),
        completed = completed + (NEW.status = 'completed'),
        failed = failed + (NEW.status = 'failed'),
        abandoned = abandoned + (NEW.status = 'abandoned')
    WHERE id = NEW.project;
END;

CREATE TRIGGER runs_status AFTER UPDATE OF status ON runs WHEN NEW.status <> OLD.status BEGIN
    UPDATE projects SET
        open = open + (NEW.status = 'open') - (OLD.status = 'open'),
        completed = completed + (NEW.status = 'completed') - (OLD.status = 'completed'),
        failed = failed + (NEW.status = 'failed') - (OLD.status = 'failed'),
        abandoned = abandoned + (NEW.status = 'abandoned') - (OLD.status = 'abandoned')
    WHERE id = NEW.project;
END;

CREATE TRIGGER runs_end_once BEFORE UPDATE OF status, result, evidence, reflection ON runs
WHEN OLD.status <> 'open' AND (NEW.status, NEW.result, NEW.evidence, NEW.reflection)
    <> (OLD.status, OLD.result, OLD.evidence, OLD.reflection) BEGIN
    SELECT RAISE(ABORT, 'a finished run keeps its result');
END;

CREATE TRIGGER runs_are_kept BEFORE DELETE ON runs BEGIN
    SELECT RAISE(ABORT, 'runs are kept');
END;

CREATE TRIGGER checkpoints_number BEFORE INSERT ON checkpoints
WHEN NEW.number <> (
    SELECT checkpoints + 1 FROM runs WHERE project = NEW.project AND name = NEW.run
) BEGIN
    SELECT RAISE(ABORT, 'checkpoint numbers have no gaps');
END;

CREATE TRIGGER checkpoints_insert AFTER INSERT ON checkpoints BEGIN
    UPDATE runs SET checkpoints = NEW.number WHERE project = NEW.project AND name = NEW.run;
END;

CREATE TRIGGER checkpoints_are_final BEFORE UPDATE ON checkpoints
WHEN (NEW.number, NEW.state, NEW.next_action, NEW.done, NEW.total, NEW.git, NEW.at, NEW.actor)
    IS NOT (OLD.number, OLD.state, OLD.next_action, OLD.done, OLD.total, OLD.git, OLD.at, OLD.actor)
BEGIN
    SELECT RAISE(ABORT, 'a checkpoint is never changed');
END;

CREATE TRIGGER checkpoints_are_kept BEFORE DELETE ON checkpoints BEGIN
    SELECT RAISE(ABORT, 'checkpoints are kept');
END;

CREATE TRIGGER steps_insert AFTER INSERT ON steps BEGIN
    UPDATE runs SET steps = steps + 1, steps_done = steps_done + (NEW.status = 'done')
    WHERE project = NEW.project AND name = NEW.run;
    UPDATE projects SET stopped = stopped + NEW.stopped WHERE id = NEW.project;
END;

CREATE TRIGGER steps_status AFTER UPDATE OF status ON steps WHEN NEW.status <> OLD.status BEGIN
    UPDATE runs SET steps_done = steps_done + (NEW.status = 'done') - (OLD.status = 'done')
    WHERE project = NEW.project AND name = NEW.run;
END;

CREATE TRIGGER steps_stop AFTER UPDATE OF stopped ON steps WHEN NEW.stopped <> OLD.stopped BEGIN
    UPDATE projects SET stopped = stopped + NEW.stopped - OLD.stopped WHERE id = NEW.project;
END;

CREATE TRIGGER steps_are_kept BEFORE DELETE ON steps BEGIN
    SELECT RAISE(ABORT, 'steps are kept');
END;

CREATE TRIGGER attempts_insert AFTER INSERT ON attempts BEGIN
    UPDATE steps SET attempts = attempts + 1,
        tokens_in = tokens_in + NEW.tokens_in, tokens_out = tokens_out + NEW.tokens_out
    WHERE project = NEW.project AND run = NEW.run AND name = NEW.step;
    UPDATE runs SET attempts = attempts + 1,
        tokens_in = tokens_in + NEW.tokens_in, tokens_out = tokens_out + NEW.tokens_out
    WHERE project = NEW.project AND name = NEW.run;
END;

CREATE TRIGGER attempts_end AFTER UPDATE OF ended ON attempts BEGIN
    UPDATE steps SET tokens_in = tokens_in + NEW.tokens_in - OLD.tokens_in,
        tokens_out = tokens_out + NEW.tokens_out - OLD.tokens_out
    WHERE project = NEW.project AND run = NEW.run AND name = NEW.step;
    UPDATE runs SET tokens_in = tokens_in + NEW.tokens_in - OLD.tokens_in,
        tokens_out = tokens_out + NEW.tokens_out - OLD.tokens_out
    WHERE project = NEW.project AND name = NEW.run;
END;

CREATE TRIGGER attempts_end_once
BEFORE UPDATE OF ended, ended_at, ended_by, ok, result, tokens_in, tokens_out ON attempts
WHEN OLD.ended IS NOT NULL
    AND (NEW.ended_at, NEW.ended_by, NEW.ok, NEW.result, NEW.tokens_in, NEW.tokens_out)
    IS NOT (OLD.ended_at, OLD.ended_by, OLD.ok, OLD.result, OLD.tokens_in, OLD.tokens_out) BEGIN
    SELECT RAISE(ABORT, 'an attempt ends once');
END;

CREATE TRIGGER attempts_are_kept BEFORE DELETE ON attempts BEGIN
    SELECT RAISE(ABORT, 'attempts are kept');
END;

CREATE TRIGGER messages_are_final BEFORE UPDATE OF number, message ON messages
WHEN NEW.number <> OLD.number OR NEW.message <> OLD.message BEGIN
    SELECT RAISE(ABORT, 'a transcript is append-only');
END;

CREATE TRIGGER messages_are_kept BEFORE DELETE ON messages BEGIN
    SELECT RAISE(ABORT, 'a transcript is append-only');
END;

CREATE TRIGGER blobs_are_final BEFORE UPDATE OF key, sha256, text ON blobs
WHEN (NEW.key, NEW.sha256, NEW.text) <> (OLD.key, OLD.sha256, OLD.text) BEGIN
    SELECT RAISE(ABORT, 'a blob is its content');
END;

CREATE TRIGGER blobs_are_kept BEFORE DELETE ON blobs BEGIN
    SELECT RAISE(ABORT, 'blobs are kept');
END;

CREATE TRIGGER handoffs_once BEFORE UPDATE OF accepted_by ON handoffs
WHEN OLD.accepted_by IS NOT NULL AND NEW.accepted_by IS NOT OLD.accepted_by BEGIN
    SELECT RAISE(ABORT, 'a handoff is taken once');
END;

CREATE TRIGGER handoffs_are_kept BEFORE DELETE ON handoffs BEGIN
    SELECT RAISE(ABORT, 'handoffs are kept');
END;

DROP TRIGGER events_insert;

CREATE TRIGGER events_insert AFTER INSERT ON events BEGIN
    UPDATE projects SET last_event = NEW.seq WHERE id = NEW.project;
    UPDATE store SET changes = changes + 1;
    INSERT INTO last_events (project, actor, agent, session, worktree, seq)
    SELECT NEW.project, id, agent, session, worktree, NEW.seq FROM actors
    WHERE id = NEW.actor AND NEW.kind <> 'trace'
    ON CONFLICT (project, actor) DO UPDATE SET seq = excluded.seq;
    UPDATE threads SET lease_over = 1
    WHERE project = NEW.project AND lease_over = 0 AND lease_until <= NEW.at;
END;

UPDATE store SET min_reader = 2;
