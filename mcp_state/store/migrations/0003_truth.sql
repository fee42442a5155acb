-- Truth: what the work is after, what is believed, and how that is checked.
--
-- facts       a statement with the check that re-derives it. `version` and `changed` count what was
--             recorded and verified; that a fact fell with another, or is due again, is an event
--             without a version. `verified` is the event of the last verification of this
--             statement (by this check, if it held), `held` its outcome, `baseline` what the
--             address of this check led to then. Only a verification makes a fact trusted, or
--             brings back what fell; only another statement under its name begins anew. `stated`
--             is the event that made the statement, `replaces` the trust of the one before it.
-- premises    why a fact is believed: each reason is a set of facts that are all needed, `given`
--             with an event (0: for what is said no more, in another store). It has fallen when one
--             of these is refuted or stale, or says something else since. A fact is stale when each
--             of its reasons has fallen.
-- relies      which facts a thread relies on.
-- events      of facts that fell or came due with another are no news of their own: that one's
--             event tells of them.
-- objectives  what the work is after. The current one is called 'objective'; one that came with
--             another project is kept under another name. Old ones are in the events.

ALTER TABLE projects ADD COLUMN provisional INTEGER NOT NULL DEFAULT 0 CHECK (provisional >= 0);

ALTER TABLE projects ADD COLUMN trusted INTEGER NOT NULL DEFAULT 0 CHECK (trusted >= 0);

ALTER TABLE projects ADD COLUMN stale INTEGER NOT NULL DEFAULT 0 CHECK (stale >= 0);

ALTER TABLE projects ADD COLUMN refuted INTEGER NOT NULL DEFAULT 0 CHECK (refuted >= 0);

ALTER TABLE projects ADD COLUMN archival INTEGER NOT NULL DEFAULT 0 CHECK (archival >= 0);

CREATE TABLE facts (
    project INTEGER NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    created INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    changed INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    changed_by INTEGER NOT NULL REFERENCES actors (id),
    version INTEGER NOT NULL CHECK (version > 0),
    statement TEXT NOT NULL CHECK (statement <> ''),
    stated INTEGER NOT NULL,
    stated_at TEXT NOT NULL,
    stated_by INTEGER NOT NULL REFERENCES actors (id),
    replaces TEXT NOT NULL
        CHECK (replaces IN ('', 'provisional', 'trusted', 'stale', 'refuted', 'archival')),
    "check" TEXT NOT NULL,
    source TEXT NOT NULL,
    trust TEXT NOT NULL
        CHECK (trust IN ('provisional', 'trusted', 'stale', 'refuted', 'archival')),
    trust_at TEXT NOT NULL,
    recheck_after INTEGER NOT NULL CHECK (recheck_after > 0),
    recheck_at TEXT,
    verified INTEGER,
    verified_at TEXT,
    verified_by INTEGER REFERENCES actors (id),
    held INTEGER CHECK (held IN (0, 1)),
    evidence TEXT NOT NULL DEFAULT '',
    baseline TEXT CHECK (baseline IS NULL OR json_valid(baseline)),
    PRIMARY KEY (project, name),
    CHECK ((verified IS NULL) = (held IS NULL) AND (verified IS NULL) = (verified_at IS NULL)
        AND (verified IS NULL) = (verified_by IS NULL) AND (verified IS NULL) = (evidence = '')),
    CHECK (trust <> 'trusted' OR (held IS 1 AND "check" <> '' AND recheck_at IS NOT NULL)),
    CHECK (trust <> 'provisional' OR recheck_at IS NOT NULL),
    CHECK ((trust = 'refuted') = (held IS 0)),
    CHECK (trust NOT IN ('refuted', 'archival') OR recheck_at IS NULL)
) STRICT;

CREATE INDEX facts_by_recheck ON facts (project, trust, recheck_at, created)
    WHERE recheck_at IS NOT NULL;

CREATE INDEX facts_by_change ON facts (project, trust, changed) WHERE recheck_at IS NULL;

CREATE INDEX facts_by_trust_at ON facts (project, trust, trust_at, changed);

CREATE TABLE premises (
    project INTEGER NOT NULL,
    fact TEXT NOT NULL,
    reason INTEGER NOT NULL CHECK (reason > 0),
    premise TEXT NOT NULL,
    given INTEGER NOT NULL,
    PRIMARY KEY (project, fact, reason, premise),
    CHECK (fact <> premise),
    FOREIGN KEY (project, fact) REFERENCES facts (project, name) ON UPDATE CASCADE,
    FOREIGN KEY (project, premise) REFERENCES facts (project, name) ON UPDATE CASCADE
) STRICT;

CREATE INDEX premises_by_premise ON premises (project, premise, fact, reason);

CREATE TABLE relies (
    project INTEGER NOT NULL,
    thread TEXT NOT NULL,
    fact TEXT NOT NULL,
    PRIMARY KEY (project, thread, fact),
    FOREIGN KEY (project, thread) REFERENCES threads (project, name) ON UPDATE CASCADE,
    FOREIGN KEY (project, fact) REFERENCES facts (project, name) ON UPDATE CASCADE
) STRICT;

CREATE INDEX relies_by_fact ON relies (project, fact, thread);

CREATE TABLE objectives (
    project INTEGER NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    created INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    changed INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    changed_by INTEGER NOT NULL REFERENCES actors (id),
    version INTEGER NOT NULL CHECK (version > 0),
    objective TEXT NOT NULL CHECK (objective <> ''),
    intent TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (project, name),
    CHECK (version = 1 OR reason <> '')
) STRICT;

DROP INDEX events_but_traces;

CREATE INDEX events_that_are_news ON events (project, seq)
    WHERE kind <> 'trace' AND operation NOT IN ('fall', 'due');

CREATE VIEW premise_rows AS
SELECT premises.*, facts.shown, trust, recheck_at, held, verified_at, "check", baseline,
    coalesce(actors.session, '') AS checker_session,
    facts.stated > given AS replaced,
    trust IN ('refuted', 'stale') OR facts.stated > given AS fallen
FROM premises
JOIN facts ON facts.project = premises.project AND facts.name = premise
LEFT JOIN actors ON actors.id = verified_by;

CREATE VIEW fact_rows AS
SELECT facts.*, actors.agent, actors.client, actors.session,
    staters.agent AS stater_agent, staters.client AS stater_client,
    staters.session AS stater_session,
    checkers.agent AS checker_agent, checkers.client AS checker_client,
    checkers.session AS checker_session
FROM facts
JOIN actors ON actors.id = facts.changed_by
JOIN actors AS staters ON staters.id = facts.stated_by
LEFT JOIN actors AS checkers ON checkers.id = facts.verified_by;

CREATE VIEW objective_rows AS
SELECT objectives.*, agent, client, session
FROM objectives JOIN actors ON actors.id = changed_by;

CREATE TRIGGER facts_insert AFTER INSERT ON facts BEGIN
    UPDATE projects SET
        provisional = provisional + (NEW.trust = 'provisional'),
        trusted = trusted + (NEW.trust = 'trusted'),
        stale = stale + (NEW.trust = 'stale'),
        refuted = refuted + (NEW.trust = 'refuted'),
        archival = archival + (NEW.trust = 'archival')
    WHERE id = NEW.project;
END;

CREATE TRIGGER facts_trust AFTER UPDATE OF trust ON facts WHEN NEW.trust <> OLD.trust BEGIN
    UPDATE projects SET
        provisional = provisional + (NEW.trust = 'provisional') - (OLD.trust = 'provisional'),
        trusted = trusted + (NEW.trust = 'trusted') - (OLD.trust = 'trusted'),
        stale = stale + (NEW.trust = 'stale') - (OLD.trust = 'stale'),
        refuted = refuted + (NEW.trust = 'refuted') - (OLD.trust = 'refuted'),
        archival = archival + (NEW.trust = 'archival') - (OLD.trust = 'archival')
    WHERE id = NEW.project;
END;

CREATE TRIGGER facts_are_verified BEFORE UPDATE OF trust ON facts
WHEN NEW.trust = 'trusted' AND OLD.trust <> 'trusted' AND NEW.verified IS OLD.verified BEGIN
    SELECT RAISE(ABORT, 'only a verification makes a fact trusted');
END;

CREATE TRIGGER facts_are_verified_as_they_stand BEFORE UPDATE OF statement, "check" ON facts
WHEN NEW.trust = 'trusted' AND NEW.verified IS OLD.verified
    AND (NEW.statement, NEW."check") <> (OLD.statement, OLD."check") BEGIN
    SELECT RAISE(ABORT, 'a verification is one of this statement by this check');
END;

CREATE TRIGGER facts_stay_fallen BEFORE UPDATE OF trust ON facts
WHEN OLD.trust IN ('stale', 'refuted') AND NEW.trust NOT IN ('stale', 'refuted')
    AND NEW.verified IS OLD.verified AND NEW.stated = OLD.stated BEGIN
    SELECT RAISE(ABORT, 'only a verification brings back what fell');
END;

CREATE TRIGGER facts_are_kept BEFORE DELETE ON facts BEGIN
    SELECT RAISE(ABORT, 'facts are refuted, not deleted');
END;

CREATE TRIGGER objectives_are_kept BEFORE DELETE ON objectives BEGIN
    SELECT RAISE(ABORT, 'objectives are replaced, not deleted');
END;

UPDATE store SET min_reader = 3;
