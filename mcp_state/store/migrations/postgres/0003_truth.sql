-- Truth, as 0003_truth.sql of SQLite describes it. 0001_core.sql says what is different here.

CREATE TABLE facts (
    project BIGINT NOT NULL REFERENCES projects (id) DEFERRABLE,
    name TEXT COLLATE "C" NOT NULL,
    shown TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    changed BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    changed_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    version BIGINT NOT NULL CHECK (version > 0),
    statement TEXT COLLATE "C" NOT NULL CHECK (statement <> ''),
    stated BIGINT NOT NULL,
    stated_at TEXT COLLATE "C" NOT NULL,
    stated_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    replaces TEXT COLLATE "C" NOT NULL
        CHECK (replaces IN ('', 'provisional', 'trusted', 'stale', 'refuted', 'archival')),
    "check" TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    trust TEXT COLLATE "C" NOT NULL
        CHECK (trust IN ('provisional', 'trusted', 'stale', 'refuted', 'archival')),
    trust_at TEXT COLLATE "C" NOT NULL,
    recheck_after BIGINT NOT NULL CHECK (recheck_after > 0),
    recheck_at TEXT COLLATE "C",
    verified BIGINT,
    verified_at TEXT COLLATE "C",
    verified_by BIGINT REFERENCES actors (id) DEFERRABLE,
    held BIGINT CHECK (held IN (0, 1)),
    evidence TEXT COLLATE "C" NOT NULL DEFAULT '',
    baseline TEXT COLLATE "C" CHECK (baseline IS NULL OR baseline IS JSON),
    PRIMARY KEY (project, name),
    CHECK ((verified IS NULL) = (held IS NULL) AND (verified IS NULL) = (verified_at IS NULL)
        AND (verified IS NULL) = (verified_by IS NULL) AND (verified IS NULL) = (evidence = '')),
    CHECK (trust <> 'trusted'
        OR (held IS NOT DISTINCT FROM 1 AND "check" <> '' AND recheck_at IS NOT NULL)),
    CHECK (trust <> 'provisional' OR recheck_at IS NOT NULL),
    CHECK ((trust = 'refuted') = (held IS NOT DISTINCT FROM 0)),
    CHECK (trust NOT IN ('refuted', 'archival') OR recheck_at IS NULL)
);

CREATE INDEX facts_by_recheck ON facts (project, trust, recheck_at, created)
    WHERE recheck_at IS NOT NULL;

CREATE INDEX facts_by_change ON facts (project, trust, changed) WHERE recheck_at IS NULL;

CREATE INDEX facts_by_trust_at ON facts (project, trust, trust_at, changed);

CREATE TABLE premises (
    project BIGINT NOT NULL,
    fact TEXT COLLATE "C" NOT NULL,
    reason BIGINT NOT NULL CHECK (reason > 0),
    premise TEXT COLLATE "C" NOT NULL,
    given BIGINT NOT NULL,
    PRIMARY KEY (project, fact, reason, premise),
    CHECK (fact <> premise),
    FOREIGN KEY (project, fact) REFERENCES facts (project, name) ON UPDATE CASCADE DEFERRABLE,
    FOREIGN KEY (project, premise) REFERENCES facts (project, name) ON UPDATE CASCADE DEFERRABLE
);

CREATE INDEX premises_by_premise ON premises (project, premise, fact, reason);

CREATE TABLE relies (
    project BIGINT NOT NULL,
    thread TEXT COLLATE "C" NOT NULL,
    fact TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project, thread, fact),
    FOREIGN KEY (project, thread) REFERENCES threads (project, name) ON UPDATE CASCADE DEFERRABLE,
    FOREIGN KEY (project, fact) REFERENCES facts (project, name) ON UPDATE CASCADE DEFERRABLE
);

CREATE INDEX relies_by_fact ON relies (project, fact, thread);

CREATE TABLE objectives (
    project BIGINT NOT NULL REFERENCES projects (id) DEFERRABLE,
    name TEXT COLLATE "C" NOT NULL,
    shown TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    changed BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    changed_by BIGINT NOT NULL REFERENCES actors (id) DEFERRABLE,
    version BIGINT NOT NULL CHECK (version > 0),
    objective TEXT COLLATE "C" NOT NULL CHECK (objective <> ''),
    intent TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project, name),
    CHECK (version = 1 OR reason <> '')
);

CREATE VIEW premise_rows WITH (security_invoker = true) AS
SELECT premises.*, facts.shown, trust, recheck_at, held, verified_at, "check", baseline,
    coalesce(actors.session, '') AS checker_session,
    (facts.stated > given)::int::bigint AS replaced,
    (trust IN ('refuted', 'stale') OR facts.stated > given)::int::bigint AS fallen
FROM premises
JOIN facts ON facts.project = premises.project AND facts.name = premise
LEFT JOIN actors ON actors.id = verified_by;

CREATE VIEW fact_rows WITH (security_invoker = true) AS
SELECT facts.*, actors.agent, actors.client, actors.session,
    staters.agent AS stater_agent, staters.client AS stater_client,
    staters.session AS stater_session,
    checkers.agent AS checker_agent, checkers.client AS checker_client,
    checkers.session AS checker_session
FROM facts
JOIN actors ON actors.id = facts.changed_by
JOIN actors AS staters ON staters.id = facts.stated_by
LEFT JOIN actors AS checkers ON checkers.id = facts.verified_by;

CREATE VIEW objective_rows WITH (security_invoker = true) AS
SELECT objectives.*, agent, client, session
FROM objectives JOIN actors ON actors.id = changed_by;

CREATE FUNCTION facts_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE projects SET
        provisional = projects.provisional + counted.provisional,
        trusted = projects.trusted + counted.trusted,
        stale = projects.stale + counted.stale,
        refuted = projects.refuted + counted.refuted,
        archival = projects.archival + counted.archival
    FROM (
        SELECT project,
            count(*) FILTER (WHERE trust = 'provisional') AS provisional,
            count(*) FILTER (WHERE trust = 'trusted') AS trusted,
            count(*) FILTER (WHERE trust = 'stale') AS stale,
            count(*) FILTER (WHERE trust = 'refuted') AS refuted,
            count(*) FILTER (WHERE trust = 'archival') AS archival
        FROM fresh GROUP BY project
    ) AS counted WHERE id = counted.project;
    RETURN NULL;
END;
$$;

CREATE TRIGGER facts_insert AFTER INSERT ON facts REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION facts_insert();

CREATE FUNCTION facts_trust() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE projects SET
        provisional = provisional
            + (NEW.trust = 'provisional')::int - (OLD.trust = 'provisional')::int,
        trusted = trusted + (NEW.trust = 'trusted')::int - (OLD.trust = 'trusted')::int,
        stale = stale + (NEW.trust = 'stale')::int - (OLD.trust = 'stale')::int,
        refuted = refuted + (NEW.trust = 'refuted')::int - (OLD.trust = 'refuted')::int,
        archival = archival + (NEW.trust = 'archival')::int - (OLD.trust = 'archival')::int
    WHERE id = NEW.project;
    RETURN NULL;
END;
$$;

CREATE TRIGGER facts_trust AFTER UPDATE OF trust ON facts
FOR EACH ROW WHEN (NEW.trust <> OLD.trust)
EXECUTE FUNCTION facts_trust();

CREATE TRIGGER facts_are_verified BEFORE UPDATE OF trust ON facts
FOR EACH ROW WHEN (NEW.trust = 'trusted' AND OLD.trust <> 'trusted'
    AND NEW.verified IS NOT DISTINCT FROM OLD.verified)
EXECUTE FUNCTION refuse('only a verification makes a fact trusted');

CREATE TRIGGER facts_are_verified_as_they_stand
BEFORE UPDATE OF statement, "check" ON facts
FOR EACH ROW WHEN (NEW.trust = 'trusted' AND NEW.verified IS NOT DISTINCT FROM OLD.verified
    AND (NEW.statement, NEW."check") <> (OLD.statement, OLD."check"))
EXECUTE FUNCTION refuse('a verification is one of this statement by this check');

CREATE TRIGGER facts_stay_fallen BEFORE UPDATE OF trust ON facts
FOR EACH ROW WHEN (OLD.trust IN ('stale', 'refuted') AND NEW.trust NOT IN ('stale', 'refuted')
    AND NEW.verified IS NOT DISTINCT FROM OLD.verified AND NEW.stated = OLD.stated)
EXECUTE FUNCTION refuse('only a verification brings back what fell');

CREATE TRIGGER facts_are_kept BEFORE DELETE ON facts
FOR EACH ROW EXECUTE FUNCTION refuse('facts are refuted, not deleted');

CREATE TRIGGER objectives_are_kept BEFORE DELETE ON objectives
FOR EACH ROW EXECUTE FUNCTION refuse('objectives are replaced, not deleted');

CALL put_up_walls();
