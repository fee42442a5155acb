-- Long runs, large text and handoff, as 0002_runs.sql of SQLite describes them. 0001_core.sql says
-- what is different here.

CREATE TABLE runs (
    project BIGINT NOT NULL REFERENCES projects (id) DEFERRABLE,
    name TEXT COLLATE "C" NOT NULL,
    shown TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    changed BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    changed_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    version BIGINT NOT NULL CHECK (version > 0),
    touched BIGINT NOT NULL,
    touched_at TEXT COLLATE "C" NOT NULL,
    touched_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('open', 'completed', 'failed', 'abandoned')),
    goal TEXT COLLATE "C" NOT NULL,
    expected_outcome TEXT COLLATE "C" NOT NULL,
    thread TEXT COLLATE "C" NOT NULL DEFAULT '',
    max_attempts BIGINT CHECK (max_attempts > 0),
    max_minutes BIGINT CHECK (max_minutes > 0),
    max_tokens BIGINT CHECK (max_tokens > 0),
    stopped TEXT COLLATE "C" NOT NULL DEFAULT ''
        CHECK (stopped IN ('', 'attempts', 'minutes', 'tokens')),
    finished_at TEXT COLLATE "C",
    result TEXT COLLATE "C" NOT NULL DEFAULT '',
    evidence TEXT COLLATE "C" NOT NULL DEFAULT '',
    reflection TEXT COLLATE "C" NOT NULL DEFAULT '',
    checkpoints BIGINT NOT NULL DEFAULT 0,
    steps BIGINT NOT NULL DEFAULT 0,
    steps_done BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    tokens_in BIGINT NOT NULL DEFAULT 0,
    tokens_out BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (project, name),
    CHECK ((status = 'open') = (finished_at IS NULL)),
    CHECK (status <> 'completed' OR evidence <> '')
);

CREATE INDEX runs_by_touch ON runs (project, status, touched);

CREATE INDEX runs_by_thread ON runs (project, thread, touched) WHERE thread <> '';

CREATE TABLE checkpoints (
    project BIGINT NOT NULL,
    run TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL CHECK (number > 0),
    seq BIGINT NOT NULL,
    at TEXT COLLATE "C" NOT NULL,
    actor BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    state TEXT COLLATE "C" NOT NULL CHECK (state <> ''),
    next_action TEXT COLLATE "C" NOT NULL,
    done BIGINT CHECK (done >= 0),
    total BIGINT CHECK (total >= 0),
    git TEXT COLLATE "C" NOT NULL CHECK (git IS JSON),
    PRIMARY KEY (project, run, number),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE DEFERRABLE
);

CREATE TABLE steps (
    project BIGINT NOT NULL,
    run TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    shown TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    changed_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('open', 'failed', 'done')),
    input TEXT COLLATE "C" NOT NULL,
    result TEXT COLLATE "C" NOT NULL DEFAULT '',
    outcome TEXT COLLATE "C" NOT NULL DEFAULT '',
    streak BIGINT NOT NULL DEFAULT 0 CHECK (streak >= 0),
    stopped BIGINT NOT NULL DEFAULT 0 CHECK (stopped IN (0, 1)),
    attempts BIGINT NOT NULL DEFAULT 0,
    tokens_in BIGINT NOT NULL DEFAULT 0,
    tokens_out BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (project, run, name),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE DEFERRABLE
);

CREATE INDEX steps_by_status ON steps (project, run, status, changed);

CREATE INDEX steps_by_attempts ON steps (project, run, attempts);

CREATE INDEX steps_by_tokens ON steps (project, run, (tokens_in + tokens_out));

CREATE INDEX steps_stopped ON steps (project, changed) WHERE stopped = 1;

CREATE TABLE attempts (
    project BIGINT NOT NULL,
    run TEXT COLLATE "C" NOT NULL,
    step TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL CHECK (number > 0),
    begun BIGINT NOT NULL,
    begun_at TEXT COLLATE "C" NOT NULL,
    begun_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    input TEXT COLLATE "C" NOT NULL,
    ended BIGINT,
    ended_at TEXT COLLATE "C",
    ended_by BIGINT REFERENCES actors (id) DEFERRABLE,
    ok BIGINT CHECK (ok IN (0, 1)),
    result TEXT COLLATE "C",
    tokens_in BIGINT NOT NULL DEFAULT 0 CHECK (tokens_in >= 0),
    tokens_out BIGINT NOT NULL DEFAULT 0 CHECK (tokens_out >= 0),
    PRIMARY KEY (project, run, step, number),
    CHECK ((ended IS NULL) = (ok IS NULL) AND (ended IS NULL) = (result IS NULL)),
    FOREIGN KEY (project, run, step) REFERENCES steps (project, run, name)
        ON UPDATE CASCADE DEFERRABLE
);

CREATE INDEX attempts_open ON attempts (project, run, step, number) WHERE ended IS NULL;

CREATE TABLE session_runs (
    project BIGINT NOT NULL REFERENCES projects (id) DEFERRABLE,
    session TEXT COLLATE "C" NOT NULL,
    run TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project, session),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE DEFERRABLE
);

CREATE INDEX session_runs_by_run ON session_runs (project, run);

CREATE TABLE messages (
    project BIGINT NOT NULL,
    run TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL CHECK (number > 0),
    seq BIGINT NOT NULL,
    message TEXT COLLATE "C" NOT NULL CHECK (message IS JSON),
    PRIMARY KEY (project, run, number),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE DEFERRABLE
);

CREATE TABLE blobs (
    project BIGINT NOT NULL REFERENCES projects (id) DEFERRABLE,
    key TEXT COLLATE "C" NOT NULL,
    sha256 TEXT COLLATE "C" NOT NULL CHECK (length(sha256) = 64),
    bytes BIGINT NOT NULL,
    characters BIGINT NOT NULL,
    created BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    changed BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    changed_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    version BIGINT NOT NULL CHECK (version > 0),
    summary TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C",
    text TEXT COLLATE "C" NOT NULL CHECK (text <> ''),
    PRIMARY KEY (project, key)
);

CREATE TABLE handoffs (
    project BIGINT NOT NULL REFERENCES projects (id) DEFERRABLE,
    key TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    created_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    recipient TEXT COLLATE "C" NOT NULL,
    note TEXT COLLATE "C" NOT NULL,
    exported_at TEXT COLLATE "C",
    accepted_at TEXT COLLATE "C",
    accepted_by BIGINT REFERENCES actors (id) DEFERRABLE,
    PRIMARY KEY (project, key),
    CHECK ((accepted_at IS NULL) = (accepted_by IS NULL))
);

CREATE INDEX handoffs_by_age ON handoffs (project, created);

CREATE INDEX handoffs_open ON handoffs (project, created) WHERE accepted_at IS NULL;

CREATE VIEW run_rows WITH (security_invoker = true) AS
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

CREATE VIEW checkpoint_rows WITH (security_invoker = true) AS
SELECT checkpoints.*, agent, client, session, worktree
FROM checkpoints JOIN actors ON actors.id = actor;

CREATE VIEW step_rows WITH (security_invoker = true) AS
SELECT steps.*, agent, client, session, runs.shown AS run_shown
FROM steps
JOIN actors ON actors.id = steps.changed_by
JOIN runs ON runs.project = steps.project AND runs.name = steps.run;

CREATE VIEW attempt_rows WITH (security_invoker = true) AS
SELECT attempts.*, agent, client, session FROM attempts JOIN actors ON actors.id = begun_by;

CREATE VIEW blob_rows WITH (security_invoker = true) AS
SELECT project, key, sha256, bytes, characters, created, created_at, changed, changed_at,
    changed_by, version, summary, expires_at, agent, client, session
FROM blobs JOIN actors ON actors.id = changed_by;

CREATE VIEW handoff_rows WITH (security_invoker = true) AS
SELECT handoffs.*, actors.agent, actors.client, actors.session,
    takers.agent AS taker_agent, takers.client AS taker_client, takers.session AS taker_session
FROM handoffs
JOIN actors ON actors.id = created_by
LEFT JOIN actors AS takers ON takers.id = accepted_by;

CREATE VIEW journal_rows WITH (security_invoker = true) AS
SELECT journal.*, agent, client, session, coalesce(threads.shown, '') AS thread_shown,
    coalesce(runs.shown, '') AS run_shown
FROM journal
JOIN actors ON actors.id = actor
LEFT JOIN threads ON threads.project = journal.project AND threads.name = journal.thread
LEFT JOIN runs ON runs.project = journal.project AND runs.name = journal.run;

CREATE FUNCTION runs_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE projects SET
        open = projects.open + counted.open,
        completed = projects.completed + counted.completed,
        failed = projects.failed + counted.failed,
        abandoned = projects.abandoned + counted.abandoned
    FROM (
        SELECT project,
            count(*) FILTER (WHERE status = 'open') AS open,
            count(*) FILTER (WHERE status = 'completed') AS completed,
            count(*) FILTER (WHERE status = 'failed') AS failed,
            count(*) FILTER (WHERE status = 'abandoned') AS abandoned
        FROM fresh GROUP BY project
    ) AS counted WHERE id = counted.project;
    RETURN NULL;
END;
$$;

CREATE TRIGGER runs_insert AFTER INSERT ON runs REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION runs_insert();

CREATE FUNCTION runs_status() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE projects SET
        open = open + (NEW.status = 'open')::int - (OLD.status = 'open')::int,
        completed = completed + (NEW.status = 'completed')::int - (OLD.status = 'completed')::int,
        failed = failed + (NEW.status = 'failed')::int - (OLD.status = 'failed')::int,
        abandoned = abandoned + (NEW.status = 'abandoned')::int - (OLD.status = 'abandoned')::int
    WHERE id = NEW.project;
    RETURN NULL;
END;
$$;

CREATE TRIGGER runs_status AFTER UPDATE OF status ON runs
FOR EACH ROW WHEN (NEW.status <> OLD.status)
EXECUTE FUNCTION runs_status();

CREATE TRIGGER runs_end_once BEFORE UPDATE OF status, result, evidence, reflection ON runs
FOR EACH ROW WHEN (OLD.status <> 'open' AND (NEW.status, NEW.result, NEW.evidence, NEW.reflection)
    <> (OLD.status, OLD.result, OLD.evidence, OLD.reflection))
EXECUTE FUNCTION refuse('a finished run keeps its result');

CREATE TRIGGER runs_are_kept BEFORE DELETE ON runs
FOR EACH ROW EXECUTE FUNCTION refuse('runs are kept');

CREATE FUNCTION checkpoints_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    added RECORD;
BEGIN
    FOR added IN
        SELECT project, run, min(number) AS first, max(number) AS last, count(*) AS number
        FROM fresh GROUP BY project, run
    LOOP
        UPDATE runs SET checkpoints = added.last
        WHERE project = added.project AND name = added.run AND added.first = checkpoints + 1
            AND added.last = checkpoints + added.number;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING MESSAGE = 'checkpoint numbers have no gaps',
                ERRCODE = 'integrity_constraint_violation';
        END IF;
    END LOOP;
    RETURN NULL;
END;
$$;

CREATE TRIGGER checkpoints_insert AFTER INSERT ON checkpoints REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION checkpoints_insert();

CREATE TRIGGER checkpoints_are_final BEFORE UPDATE ON checkpoints
FOR EACH ROW WHEN (
    (NEW.number, NEW.state, NEW.next_action, NEW.done, NEW.total, NEW.git, NEW.at, NEW.actor)
    IS DISTINCT FROM
    (OLD.number, OLD.state, OLD.next_action, OLD.done, OLD.total, OLD.git, OLD.at, OLD.actor)
)
EXECUTE FUNCTION refuse('a checkpoint is never changed');

CREATE TRIGGER checkpoints_are_kept BEFORE DELETE ON checkpoints
FOR EACH ROW EXECUTE FUNCTION refuse('checkpoints are kept');

CREATE FUNCTION steps_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE runs SET steps = steps + number, steps_done = steps_done + done
    FROM (
        SELECT project, run, count(*) AS number, count(*) FILTER (WHERE status = 'done') AS done
        FROM fresh GROUP BY project, run
    ) AS added WHERE runs.project = added.project AND name = run;
    UPDATE projects SET stopped = stopped + number
    FROM (
        SELECT project, count(*) AS number FROM fresh WHERE fresh.stopped = 1 GROUP BY project
    ) AS added WHERE id = project;
    RETURN NULL;
END;
$$;

CREATE TRIGGER steps_insert AFTER INSERT ON steps REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION steps_insert();

CREATE FUNCTION steps_status() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE runs
    SET steps_done = steps_done + (NEW.status = 'done')::int - (OLD.status = 'done')::int
    WHERE project = NEW.project AND name = NEW.run;
    RETURN NULL;
END;
$$;

CREATE TRIGGER steps_status AFTER UPDATE OF status ON steps
FOR EACH ROW WHEN (NEW.status <> OLD.status)
EXECUTE FUNCTION steps_status();

CREATE FUNCTION steps_stop() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE projects SET stopped = stopped + NEW.stopped - OLD.stopped WHERE id = NEW.project;
    RETURN NULL;
END;
$$;

CREATE TRIGGER steps_stop AFTER UPDATE OF stopped ON steps
FOR EACH ROW WHEN (NEW.stopped <> OLD.stopped)
EXECUTE FUNCTION steps_stop();

CREATE TRIGGER steps_are_kept BEFORE DELETE ON steps
FOR EACH ROW EXECUTE FUNCTION refuse('steps are kept');

CREATE FUNCTION attempts_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE steps SET attempts = attempts + number,
        tokens_in = steps.tokens_in + added.tokens_in,
        tokens_out = steps.tokens_out + added.tokens_out
    FROM (
        SELECT project, run, step, count(*) AS number,
            sum(tokens_in)::bigint AS tokens_in, sum(tokens_out)::bigint AS tokens_out
        FROM fresh GROUP BY project, run, step
    ) AS added WHERE steps.project = added.project AND steps.run = added.run AND name = step;
    UPDATE runs SET attempts = attempts + number,
        tokens_in = runs.tokens_in + added.tokens_in,
        tokens_out = runs.tokens_out + added.tokens_out
    FROM (
        SELECT project, run, count(*) AS number,
            sum(tokens_in)::bigint AS tokens_in, sum(tokens_out)::bigint AS tokens_out
        FROM fresh GROUP BY project, run
    ) AS added WHERE runs.project = added.project AND name = run;
    RETURN NULL;
END;
$$;

CREATE TRIGGER attempts_insert AFTER INSERT ON attempts REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION attempts_insert();

CREATE FUNCTION attempts_end() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE steps SET tokens_in = tokens_in + NEW.tokens_in - OLD.tokens_in,
        tokens_out = tokens_out + NEW.tokens_out - OLD.tokens_out
    WHERE project = NEW.project AND run = NEW.run AND name = NEW.step;
    UPDATE runs SET tokens_in = tokens_in + NEW.tokens_in - OLD.tokens_in,
        tokens_out = tokens_out + NEW.tokens_out - OLD.tokens_out
    WHERE project = NEW.project AND name = NEW.run;
    RETURN NULL;
END;
$$;

CREATE TRIGGER attempts_end AFTER UPDATE OF ended ON attempts
FOR EACH ROW EXECUTE FUNCTION attempts_end();

CREATE TRIGGER attempts_end_once
BEFORE UPDATE OF ended, ended_at, ended_by, ok, result, tokens_in, tokens_out ON attempts
FOR EACH ROW WHEN (OLD.ended IS NOT NULL
    AND (NEW.ended_at, NEW.ended_by, NEW.ok, NEW.result, NEW.tokens_in, NEW.tokens_out)
    IS DISTINCT FROM
    (OLD.ended_at, OLD.ended_by, OLD.ok, OLD.result, OLD.tokens_in, OLD.tokens_out))
EXECUTE FUNCTION refuse('an attempt ends once');

CREATE TRIGGER attempts_are_kept BEFORE DELETE ON attempts
FOR EACH ROW EXECUTE FUNCTION refuse('attempts are kept');

CREATE TRIGGER messages_are_final BEFORE UPDATE OF number, message ON messages
FOR EACH ROW WHEN (NEW.number <> OLD.number OR NEW.message <> OLD.message)
EXECUTE FUNCTION refuse('a transcript is append-only');

CREATE TRIGGER messages_are_kept BEFORE DELETE ON messages
FOR EACH ROW EXECUTE FUNCTION refuse('a transcript is append-only');

CREATE TRIGGER blobs_are_final BEFORE UPDATE OF key, sha256, text ON blobs
FOR EACH ROW WHEN ((NEW.key, NEW.sha256, NEW.text) <> (OLD.key, OLD.sha256, OLD.text))
EXECUTE FUNCTION refuse('a blob is its content');

CREATE TRIGGER blobs_are_kept BEFORE DELETE ON blobs
FOR EACH ROW EXECUTE FUNCTION refuse('blobs are kept');

CREATE TRIGGER handoffs_once BEFORE UPDATE OF accepted_by ON handoffs
FOR EACH ROW WHEN (OLD.accepted_by IS NOT NULL AND NEW.accepted_by IS DISTINCT FROM OLD.accepted_by)
EXECUTE FUNCTION refuse('a handoff is taken once');

CREATE TRIGGER handoffs_are_kept BEFORE DELETE ON handoffs
FOR EACH ROW EXECUTE FUNCTION refuse('handoffs are kept');

CALL put_up_walls();
