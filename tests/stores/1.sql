-- made by tests/old_stores.py; SQLite 3.40.1
PRAGMA application_id = 1296257107;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE actors (
    id INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    client TEXT NOT NULL,
    session TEXT NOT NULL,
    worktree TEXT NOT NULL,
    UNIQUE (agent, client, session, worktree)
) STRICT;
INSERT INTO "actors" VALUES(1,'ann','ann 1.0','s1','/src/tree');
INSERT INTO "actors" VALUES(2,'ben','ben 1.0','s2','/src/tree');
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
INSERT INTO "criteria" VALUES(1,'base',1,'it builds',1,'make: exit 0','2026-11-20T08:15:00.000000Z',2);
INSERT INTO "criteria" VALUES(1,'base',2,'it runs',0,'',NULL,NULL);
CREATE TABLE directories (
    anchor TEXT PRIMARY KEY,
    project INTEGER NOT NULL REFERENCES projects (id)
) STRICT;
INSERT INTO "directories" VALUES('/src/side',1);
INSERT INTO "directories" VALUES('/src/other',3);
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
INSERT INTO "documents" VALUES(1099511627777,1,'memory','plan','Plan',2,2,'Plan
first line
second line
third über 東京','京 東 東京');
INSERT INTO "documents" VALUES(1099511627778,1,'memory','back','back',7,1,'back
was deleted and restored','');
INSERT INTO "documents" VALUES(1099511627779,1,'memory','brief','brief',8,1,'brief
soon over','');
INSERT INTO "documents" VALUES(1099511627780,1,'memory','lasting','lasting',9,1,'lasting
over in a year','a in');
INSERT INTO "documents" VALUES(1099511627781,1,'memory','rules','Rules',10,1,'Rules
agreed on','on');
INSERT INTO "documents" VALUES(1099511627782,1,'memory','plan (from side)','plan (from side)',38,1,'plan (from side)
written aside','');
INSERT INTO "documents" VALUES(1168231104513,1,'thread','base','Base',15,3,'Base
the base
it builds
it runs','it');
INSERT INTO "documents" VALUES(1168231104514,1,'thread','on top','On top',16,1,'On top
On top','On');
INSERT INTO "documents" VALUES(1168231104515,1,'thread','asked','asked',17,1,'asked
asked
ein Prüfer 審査','審 審査 査');
INSERT INTO "documents" VALUES(1168231104516,1,'thread','seen','seen',18,1,'seen
seen
gh pr view 1','1 gh pr');
INSERT INTO "documents" VALUES(1168231104517,1,'thread','over','over',19,1,'over
over
not needed','');
INSERT INTO "documents" VALUES(1168231104518,1,'thread','shipped','shipped',20,1,'shipped
shipped
commit 1a2b3c','');
INSERT INTO "documents" VALUES(1168231104520,1,'thread','again','again',22,2,'again
again
it was not','it');
INSERT INTO "documents" VALUES(1168231104521,1,'thread','next','next',23,1,'next
next
write one','');
INSERT INTO "documents" VALUES(1168231104522,1,'thread','once held','once held',25,1,'once held
once held
go on','go on');
INSERT INTO "documents" VALUES(1168231104523,1,'thread','given back','given back',27,1,'given back
given back
whoever likes','');
INSERT INTO "documents" VALUES(1168231104524,1,'thread','base (from side)','base (from side)',39,1,'base (from side)
base
of the side','of');
INSERT INTO "documents" VALUES(1236950581248,1,'journal','30','30',30,1,'began','');
INSERT INTO "documents" VALUES(1236950581249,1,'journal','32','32',32,1,'the index is too small','is');
INSERT INTO "documents" VALUES(1236950581250,1,'journal','33','33',33,1,'entry 0 über Größe 東京','0 京 東 東京');
INSERT INTO "documents" VALUES(1236950581251,1,'journal','34','34',34,1,'entry 1 über Größe 東京','1 京 東 東京');
INSERT INTO "documents" VALUES(1236950581252,1,'journal','35','35',35,1,'entry 2 über Größe 東京','2 京 東 東京');
INSERT INTO "documents" VALUES(1236950581253,1,'journal','36','36',36,1,'entry 3 über Größe 東京','3 京 東 東京');
INSERT INTO "documents" VALUES(1236950581254,1,'journal','37','37',37,1,'entry 4 über Größe 東京','4 京 東 東京');
INSERT INTO "documents" VALUES(1236950581255,1,'journal','40','40',40,1,'written aside','');
INSERT INTO "documents" VALUES(3435973836800,3,'journal','1','1',1,1,'of another project','of');
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
INSERT INTO "events" VALUES(1,1,'2026-11-20T08:01:00.000000Z',1,'','memory','plan','set','set, 22 chars',1,'{"key": "Plan", "value": "first line\nsecond line", "version": 1, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,2,'2026-11-20T08:02:00.000000Z',2,'','memory','plan','append','append, 36 chars',2,'{"key": "Plan", "value": "first line\nsecond line\nthird über 東京", "version": 2, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,3,'2026-11-20T08:03:00.000000Z',1,'','memory','gone','set','set, 11 chars',1,'{"key": "gone", "value": "was deleted", "version": 1, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,4,'2026-11-20T08:04:00.000000Z',1,'','memory','gone','delete','deleted, was version 1',2,NULL);
INSERT INTO "events" VALUES(1,5,'2026-11-20T08:05:00.000000Z',1,'','memory','back','set','set, 24 chars',1,'{"key": "back", "value": "was deleted and restored", "version": 1, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,6,'2026-11-20T08:06:00.000000Z',1,'','memory','back','delete','deleted, was version 1',2,NULL);
INSERT INTO "events" VALUES(1,7,'2026-11-20T08:07:00.000000Z',1,'','memory','back','restore','version 1 restored, 24 chars',3,'{"key": "back", "value": "was deleted and restored", "version": 3, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,8,'2026-11-20T08:08:00.000000Z',1,'','memory','brief','set','set, 9 chars',1,'{"key": "brief", "value": "soon over", "version": 1, "expires_at": "2026-11-20T08:09:30.000000Z", "locked": ""}');
INSERT INTO "events" VALUES(1,9,'2026-11-20T08:09:00.000000Z',1,'','memory','lasting','set','set, 14 chars',1,'{"key": "lasting", "value": "over in a year", "version": 1, "expires_at": "2027-11-20T08:09:00.000000Z", "locked": ""}');
INSERT INTO "events" VALUES(1,10,'2026-11-20T08:10:00.000000Z',1,'','memory','rules','set','set, 9 chars',1,'{"key": "Rules", "value": "agreed on", "version": 1, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,11,'2026-11-20T08:11:00.000000Z',1,'','memory','rules','lock','locked: the customer signed it',NULL,'{"key": "Rules", "value": "agreed on", "version": 1, "expires_at": null, "locked": "the customer signed it"}');
INSERT INTO "events" VALUES(1,12,'2026-11-20T08:12:00.000000Z',2,'','memory','rules','refused','refused: locked',NULL,'{"code": "locked", "fact": "block ''Rules'' was locked by a person: the customer signed it"}');
INSERT INTO "events" VALUES(1,13,'2026-11-20T08:13:00.000000Z',2,'','memory','plan','refused','refused: version_conflict',NULL,'{"code": "version_conflict", "fact": "block ''Plan'' is at version 2, not 1 (written by ben 11 min ago)"}');
INSERT INTO "events" VALUES(1,14,'2026-11-20T08:14:00.000000Z',1,'','thread','base','create','active: the base (+2 criteria)',1,'{"name": "Base", "version": 1, "title": "the base", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 2, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,15,'2026-11-20T08:15:00.000000Z',2,'','thread','base','check','criterion 1 passes, 1/2 pass (evidence: make: exit 0)',2,'{"name": "Base", "version": 2, "title": "the base", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 2, "passing": [1], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,16,'2026-11-20T08:16:00.000000Z',1,'','thread','on top','create','active: On top',1,'{"name": "On top", "version": 1, "title": "On top", "status": "active", "priority": 2, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [{"path_or_repo": "src", "role": "home", "note": ""}], "depends_on": ["Base"], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,17,'2026-11-20T08:17:00.000000Z',1,'','thread','asked','create','blocked: asked (waiting on ein Prüfer 審査)',1,'{"name": "asked", "version": 1, "title": "asked", "status": "blocked", "priority": 5, "next_action": "", "waiting_on": "ein Prüfer 審査", "recheck_at": "2026-11-21T08:17:00.000000Z", "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,18,'2026-11-20T08:18:00.000000Z',1,'','thread','seen','create','watching: seen',1,'{"name": "seen", "version": 1, "title": "seen", "status": "watching", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": "2026-11-21T08:18:00.000000Z", "check": "gh pr view 1", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,19,'2026-11-20T08:19:00.000000Z',1,'','thread','over','create','dropped: over (not needed)',1,'{"name": "over", "version": 1, "title": "over", "status": "dropped", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "not needed", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,20,'2026-11-20T08:20:00.000000Z',1,'','thread','shipped','create','done: shipped (evidence: commit 1a2b3c)',1,'{"name": "shipped", "version": 1, "title": "shipped", "status": "done", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "commit 1a2b3c", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,21,'2026-11-20T08:21:00.000000Z',1,'','thread','again','create','done: again (evidence: it seemed so)',1,'{"name": "again", "version": 1, "title": "again", "status": "done", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "it seemed so", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,22,'2026-11-20T08:22:00.000000Z',1,'','thread','again','set','done -> active (it was not)',2,'{"name": "again", "version": 2, "title": "again", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "it was not", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,23,'2026-11-20T08:23:00.000000Z',1,'','thread','next','create','active: next',1,'{"name": "next", "version": 1, "title": "next", "status": "active", "priority": 1, "next_action": "write one", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,24,'2026-11-20T08:24:00.000000Z',2,'','thread','next','lease_claimed','claimed for 365 d',NULL,'{"name": "next", "version": 1, "title": "next", "status": "active", "priority": 1, "next_action": "write one", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 24, "lease_until": "2027-11-20T08:24:00.000000Z", "lease_holder": "ben"}');
INSERT INTO "events" VALUES(1,25,'2026-11-20T08:25:00.000000Z',1,'','thread','once held','create','active: once held',1,'{"name": "once held", "version": 1, "title": "once held", "status": "active", "priority": 5, "next_action": "go on", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,26,'2026-11-20T08:26:00.000000Z',2,'','thread','once held','lease_claimed','claimed for 1 min',NULL,'{"name": "once held", "version": 1, "title": "once held", "status": "active", "priority": 5, "next_action": "go on", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 26, "lease_until": "2026-11-20T08:27:00.000000Z", "lease_holder": "ben"}');
INSERT INTO "events" VALUES(1,27,'2026-11-20T08:27:00.000000Z',1,'','thread','given back','create','active: given back',1,'{"name": "given back", "version": 1, "title": "given back", "status": "active", "priority": 5, "next_action": "whoever likes", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,28,'2026-11-20T08:28:00.000000Z',2,'','thread','given back','lease_claimed','claimed for 30 min',NULL,'{"name": "given back", "version": 1, "title": "given back", "status": "active", "priority": 5, "next_action": "whoever likes", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 28, "lease_until": "2026-11-20T08:58:00.000000Z", "lease_holder": "ben"}');
INSERT INTO "events" VALUES(1,29,'2026-11-20T08:29:00.000000Z',2,'','thread','given back','lease_broken','lease of ben broken by a person',NULL,'{"name": "given back", "version": 1, "title": "given back", "status": "active", "priority": 5, "next_action": "whoever likes", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0, "passing": [], "lease_token": 29, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,30,'2026-11-20T08:31:00.000000Z',1,'','journal','30','append','began',NULL,'{"id": "j-1", "kind": "", "thread": "base", "text": "began"}');
INSERT INTO "events" VALUES(1,31,'2026-11-20T08:32:00.000000Z',1,'','journal','31','refused','refused: conflict',NULL,'{"code": "conflict", "fact": "idempotency key ''j1'' was used for another entry (event 30)"}');
INSERT INTO "events" VALUES(1,32,'2026-11-20T08:33:00.000000Z',2,'','journal','32','append','the index is too small',NULL,'{"id": "j-2", "kind": "dead_end", "thread": "", "text": "the index is too small"}');
INSERT INTO "events" VALUES(1,33,'2026-11-20T08:34:00.000000Z',1,'','journal','33','append','entry 0 über Größe 東京',NULL,'{"id": "j-3", "kind": "note", "thread": "", "text": "entry 0 über Größe 東京"}');
INSERT INTO "events" VALUES(1,34,'2026-11-20T08:35:00.000000Z',1,'','journal','34','append','entry 1 über Größe 東京',NULL,'{"id": "j-4", "kind": "note", "thread": "", "text": "entry 1 über Größe 東京"}');
INSERT INTO "events" VALUES(1,35,'2026-11-20T08:36:00.000000Z',1,'','journal','35','append','entry 2 über Größe 東京',NULL,'{"id": "j-5", "kind": "note", "thread": "", "text": "entry 2 über Größe 東京"}');
INSERT INTO "events" VALUES(1,36,'2026-11-20T08:37:00.000000Z',1,'','journal','36','append','entry 3 über Größe 東京',NULL,'{"id": "j-6", "kind": "note", "thread": "", "text": "entry 3 über Größe 東京"}');
INSERT INTO "events" VALUES(1,37,'2026-11-20T08:38:00.000000Z',1,'','journal','37','append','entry 4 über Größe 東京',NULL,'{"id": "j-7", "kind": "note", "thread": "", "text": "entry 4 über Größe 東京"}');
INSERT INTO "events" VALUES(1,38,'2026-11-20T08:39:00.000000Z',1,'','memory','plan (from side)','set','set, 13 chars',1,'{"key":"plan (from side)","value":"written aside","version":1,"expires_at":null,"locked":""}');
INSERT INTO "events" VALUES(1,39,'2026-11-20T08:40:00.000000Z',1,'','thread','base (from side)','create','active: base',1,'{"name":"base (from side)","version":1,"title":"base","status":"active","priority":5,"next_action":"of the side","waiting_on":"","recheck_at":null,"check":"","evidence":"","note":"","places":[],"depends_on":[],"criteria":0,"passing":[],"lease_token":0,"lease_until":null,"lease_holder":null}');
INSERT INTO "events" VALUES(1,40,'2026-11-20T08:41:00.000000Z',1,'','journal','40','append','written aside',NULL,'{"id": "j-8", "kind": "", "thread": "", "text": "written aside"}');
INSERT INTO "events" VALUES(1,41,'2026-11-20T08:42:00.000000Z',1,'','project','','merge','side merged into this, 3 events',NULL,'{"name": "acme", "merged": "side", "first": 38, "last": 40, "kept_apart": {"memory:plan": "plan (from side)", "thread:base": "base (from side)"}}');
INSERT INTO "events" VALUES(3,1,'2026-11-20T08:43:00.000000Z',2,'','journal','1','append','of another project',NULL,'{"id": "j-9", "kind": "", "thread": "", "text": "of another project"}');
INSERT INTO "events" VALUES(3,2,'2026-11-20T08:44:00.000000Z',2,'','project','','rename','other -> another',NULL,'{"name": "another", "was": "other"}');
CREATE TABLE idempotency (
    project INTEGER NOT NULL REFERENCES projects (id),
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (project, operation, key)
) STRICT;
INSERT INTO "idempotency" VALUES(1,'memory_append','once','57fe6c43648ee9d72758c40c03ef083474f459b247ffb843b35b7548fcf2336d',2);
INSERT INTO "idempotency" VALUES(1,'journal_append','j1','2eb24c1671c376c9ae85e33e44c06a698e89d413fb3418a025929df555c072fe',30);
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
INSERT INTO "journal" VALUES(1,30,'j-1','2026-11-20T08:31:00.000000Z',1,'','base','began');
INSERT INTO "journal" VALUES(1,32,'j-2','2026-11-20T08:33:00.000000Z',2,'dead_end','','the index is too small');
INSERT INTO "journal" VALUES(1,33,'j-3','2026-11-20T08:34:00.000000Z',1,'note','','entry 0 über Größe 東京');
INSERT INTO "journal" VALUES(1,34,'j-4','2026-11-20T08:35:00.000000Z',1,'note','','entry 1 über Größe 東京');
INSERT INTO "journal" VALUES(1,35,'j-5','2026-11-20T08:36:00.000000Z',1,'note','','entry 2 über Größe 東京');
INSERT INTO "journal" VALUES(1,36,'j-6','2026-11-20T08:37:00.000000Z',1,'note','','entry 3 über Größe 東京');
INSERT INTO "journal" VALUES(1,37,'j-7','2026-11-20T08:38:00.000000Z',1,'note','','entry 4 über Größe 東京');
INSERT INTO "journal" VALUES(1,40,'j-8','2026-11-20T08:41:00.000000Z',1,'','','written aside');
INSERT INTO "journal" VALUES(3,1,'j-9','2026-11-20T08:43:00.000000Z',2,'','','of another project');
CREATE TABLE journal_topics (
    project INTEGER NOT NULL REFERENCES projects (id),
    topic TEXT NOT NULL,
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (project, topic, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "journal_topics" VALUES(1,'',30,1);
INSERT INTO "journal_topics" VALUES(1,'',32,2);
INSERT INTO "journal_topics" VALUES(1,'',33,3);
INSERT INTO "journal_topics" VALUES(1,'',34,4);
INSERT INTO "journal_topics" VALUES(1,'',35,5);
INSERT INTO "journal_topics" VALUES(1,'',36,6);
INSERT INTO "journal_topics" VALUES(1,'',37,7);
INSERT INTO "journal_topics" VALUES(1,'',40,8);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',30,1);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',33,2);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',34,3);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',35,4);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',36,5);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',37,6);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',40,7);
INSERT INTO "journal_topics" VALUES(1,'agent:ben',32,1);
INSERT INTO "journal_topics" VALUES(1,'kind:dead_end',32,1);
INSERT INTO "journal_topics" VALUES(1,'kind:note',33,1);
INSERT INTO "journal_topics" VALUES(1,'kind:note',34,2);
INSERT INTO "journal_topics" VALUES(1,'kind:note',35,3);
INSERT INTO "journal_topics" VALUES(1,'kind:note',36,4);
INSERT INTO "journal_topics" VALUES(1,'kind:note',37,5);
INSERT INTO "journal_topics" VALUES(1,'thread:base',30,1);
INSERT INTO "journal_topics" VALUES(3,'',1,1);
INSERT INTO "journal_topics" VALUES(3,'agent:ben',1,1);
CREATE TABLE last_events (
    project INTEGER NOT NULL REFERENCES projects (id),
    actor INTEGER NOT NULL REFERENCES actors (id),
    agent TEXT NOT NULL,
    session TEXT NOT NULL,
    worktree TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (project, actor)
) STRICT;
INSERT INTO "last_events" VALUES(1,1,'ann','s1','/src/tree',41);
INSERT INTO "last_events" VALUES(1,2,'ben','s2','/src/tree',32);
INSERT INTO "last_events" VALUES(3,2,'ben','s2','/src/tree',2);
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
INSERT INTO "memory" VALUES(1,'','plan','Plan','first line
second line
third über 東京',2,2,'2026-11-20T08:02:00.000000Z',2,NULL,'');
INSERT INTO "memory" VALUES(1,'','gone','gone',NULL,2,4,'2026-11-20T08:04:00.000000Z',1,NULL,'');
INSERT INTO "memory" VALUES(1,'','back','back','was deleted and restored',3,7,'2026-11-20T08:07:00.000000Z',1,NULL,'');
INSERT INTO "memory" VALUES(1,'','brief','brief','soon over',1,8,'2026-11-20T08:08:00.000000Z',1,'2026-11-20T08:09:30.000000Z','');
INSERT INTO "memory" VALUES(1,'','lasting','lasting','over in a year',1,9,'2026-11-20T08:09:00.000000Z',1,'2027-11-20T08:09:00.000000Z','');
INSERT INTO "memory" VALUES(1,'','rules','Rules','agreed on',1,10,'2026-11-20T08:10:00.000000Z',1,NULL,'the customer signed it');
INSERT INTO "memory" VALUES(1,'','plan (from side)','plan (from side)','written aside',1,38,'2026-11-20T08:39:00.000000Z',1,NULL,'');
CREATE TABLE needs (
    project INTEGER NOT NULL,
    thread TEXT NOT NULL,
    needed TEXT NOT NULL,
    PRIMARY KEY (project, thread, needed),
    CHECK (thread <> needed),
    FOREIGN KEY (project, thread) REFERENCES threads (project, name) ON UPDATE CASCADE,
    FOREIGN KEY (project, needed) REFERENCES threads (project, name) ON UPDATE CASCADE
) STRICT;
INSERT INTO "needs" VALUES(1,'on top','base');
CREATE TABLE project_names (
    name TEXT PRIMARY KEY,
    shown TEXT NOT NULL,
    project INTEGER NOT NULL REFERENCES projects (id)
) STRICT;
INSERT INTO "project_names" VALUES('acme','acme',1);
INSERT INTO "project_names" VALUES('side','side',1);
INSERT INTO "project_names" VALUES('other','other',3);
INSERT INTO "project_names" VALUES('another','another',3);
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
INSERT INTO "projects" VALUES(1,'acme','2026-11-20T08:01:00.000000Z',NULL,41,7,1,1,1,1,8,6);
INSERT INTO "projects" VALUES(2,'side','2026-11-20T08:39:00.000000Z',1,0,0,0,0,0,0,0,0);
INSERT INTO "projects" VALUES(3,'another','2026-11-20T08:43:00.000000Z',NULL,2,0,0,0,0,0,1,0);
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    min_reader INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
INSERT INTO "store" VALUES(1,1,43,'2026-11-20T08:01:00.000000Z');
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
INSERT INTO "threads" VALUES(1,'base','Base',14,'2026-11-20T08:14:00.000000Z','the base','active','2026-11-20T08:14:00.000000Z',15,'2026-11-20T08:15:00.000000Z',2,2,5,'','',NULL,'','','','[]',2,1,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'on top','On top',16,'2026-11-20T08:16:00.000000Z','On top','active','2026-11-20T08:16:00.000000Z',16,'2026-11-20T08:16:00.000000Z',1,1,2,'','',NULL,'','','','[{"path_or_repo": "src", "role": "home", "note": ""}]',0,0,1,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'asked','asked',17,'2026-11-20T08:17:00.000000Z','asked','blocked','2026-11-20T08:17:00.000000Z',17,'2026-11-20T08:17:00.000000Z',1,1,5,'','ein Prüfer 審査','2026-11-21T08:17:00.000000Z','','','','[]',0,0,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'seen','seen',18,'2026-11-20T08:18:00.000000Z','seen','watching','2026-11-20T08:18:00.000000Z',18,'2026-11-20T08:18:00.000000Z',1,1,5,'','','2026-11-21T08:18:00.000000Z','gh pr view 1','','','[]',0,0,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'over','over',19,'2026-11-20T08:19:00.000000Z','over','dropped','2026-11-20T08:19:00.000000Z',19,'2026-11-20T08:19:00.000000Z',1,1,5,'','',NULL,'','','not needed','[]',0,0,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'shipped','shipped',20,'2026-11-20T08:20:00.000000Z','shipped','done','2026-11-20T08:20:00.000000Z',20,'2026-11-20T08:20:00.000000Z',1,1,5,'','',NULL,'','commit 1a2b3c','','[]',0,0,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'again','again',21,'2026-11-20T08:21:00.000000Z','again','active','2026-11-20T08:22:00.000000Z',22,'2026-11-20T08:22:00.000000Z',1,2,5,'','',NULL,'','','it was not','[]',0,0,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'next','next',23,'2026-11-20T08:23:00.000000Z','next','active','2026-11-20T08:23:00.000000Z',23,'2026-11-20T08:23:00.000000Z',1,1,1,'write one','',NULL,'','','','[]',0,0,0,24,2,'2027-11-20T08:24:00.000000Z',0);
INSERT INTO "threads" VALUES(1,'once held','once held',25,'2026-11-20T08:25:00.000000Z','once held','active','2026-11-20T08:25:00.000000Z',25,'2026-11-20T08:25:00.000000Z',1,1,5,'go on','',NULL,'','','','[]',0,0,0,26,2,'2026-11-20T08:27:00.000000Z',1);
INSERT INTO "threads" VALUES(1,'given back','given back',27,'2026-11-20T08:27:00.000000Z','given back','active','2026-11-20T08:27:00.000000Z',27,'2026-11-20T08:27:00.000000Z',1,1,5,'whoever likes','',NULL,'','','','[]',0,0,0,29,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'base (from side)','base (from side)',39,'2026-11-20T08:40:00.000000Z','base','active','2026-11-20T08:40:00.000000Z',39,'2026-11-20T08:40:00.000000Z',1,1,5,'of the side','',NULL,'','','','[]',0,0,0,0,NULL,NULL,0);
CREATE INDEX project_names_by_project ON project_names (project);
CREATE INDEX directories_by_project ON directories (project);
CREATE INDEX events_by_subject ON events (project, kind, name, seq);
CREATE UNIQUE INDEX events_by_version ON events (project, kind, name, version)
    WHERE version IS NOT NULL;
CREATE INDEX last_events_by_session ON last_events (project, session, seq);
CREATE INDEX last_events_by_agent ON last_events (project, agent, worktree, seq);
CREATE INDEX memory_by_change ON memory (project, run, changed);
CREATE INDEX threads_by_priority ON threads (project, status, priority, created);
CREATE INDEX threads_by_recheck ON threads (project, status, recheck_at, created)
    WHERE recheck_at IS NOT NULL;
CREATE INDEX threads_by_claim ON threads (project, priority, created)
    WHERE status = 'active' AND open_needs = 0;
CREATE INDEX threads_by_lease ON threads (project, lease_until)
    WHERE lease_until IS NOT NULL AND lease_over = 0;
CREATE INDEX threads_by_change ON threads (project, status, changed);
CREATE INDEX needs_by_needed ON needs (project, needed, thread);
CREATE UNIQUE INDEX journal_by_id ON journal (id);
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
CREATE TRIGGER journal_is_kept BEFORE DELETE ON journal BEGIN
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
CREATE TRIGGER events_are_final BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END;
CREATE TRIGGER journal_is_final BEFORE UPDATE ON journal BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;
CREATE VIRTUAL TABLE search USING fts5 (
    text, short, content = 'documents', content_rowid = 'id', tokenize = 'trigram'
);
INSERT INTO search (search) VALUES ('rebuild');
COMMIT;
