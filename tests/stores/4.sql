-- made by tests/old_stores.py; SQLite 3.40.1
PRAGMA application_id = 1296257107;
PRAGMA user_version = 4;
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
INSERT INTO "actors" VALUES(3,'ann','ann 1.0','s1','');
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
INSERT INTO "attempts" VALUES(1,'index','one',1,48,'2026-11-20T08:51:00.000000Z',1,'a',49,'2026-11-20T08:52:00.000000Z',1,1,'fine',5,2);
INSERT INTO "attempts" VALUES(1,'index','two',1,50,'2026-11-20T08:53:00.000000Z',1,'b',51,'2026-11-20T08:54:00.000000Z',1,0,'the same',3,0);
INSERT INTO "attempts" VALUES(1,'index','two',2,52,'2026-11-20T08:55:00.000000Z',1,'b',53,'2026-11-20T08:56:00.000000Z',1,0,'the same',3,0);
INSERT INTO "attempts" VALUES(1,'index','two',3,54,'2026-11-20T08:57:00.000000Z',1,'b',55,'2026-11-20T08:58:00.000000Z',1,0,'the same',3,0);
INSERT INTO "attempts" VALUES(1,'index','two',4,56,'2026-11-20T08:59:00.000000Z',1,'b',57,'2026-11-20T09:00:00.000000Z',1,0,'the same',3,0);
INSERT INTO "attempts" VALUES(1,'index','three',1,59,'2026-11-20T09:02:00.000000Z',1,'c',NULL,NULL,NULL,NULL,NULL,0,0);
INSERT INTO "attempts" VALUES(1,'spent','one',1,65,'2026-11-20T09:08:00.000000Z',2,'',NULL,NULL,NULL,NULL,NULL,0,0);
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
INSERT INTO "blobs" VALUES(1,'b-ab6ae42660ac1c26c5b73acb57da1725','ab6ae42660ac1c26c5b73acb57da1725493591f2a18cf054bb24b6342fb5320f',480,480,78,'2026-11-20T09:19:00.000000Z',78,'2026-11-20T09:19:00.000000Z',1,1,'about it','2026-11-20T09:20:30.000000Z','a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
a long text
');
INSERT INTO "blobs" VALUES(1,'b-b8037df81f63a7cc4891f810f8c10937','b8037df81f63a7cc4891f810f8c109372b4e23f4a0848ed350e2d7bcd9e52cbb',13,13,79,'2026-11-20T09:20:00.000000Z',79,'2026-11-20T09:20:00.000000Z',1,1,'the log',NULL,'kept for good');
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
INSERT INTO "checkpoints" VALUES(1,'index',1,47,'2026-11-20T08:50:00.000000Z',1,'at 1','do 2',1,3,'{"head": "", "branch": "", "dirty": [], "dirty_count": null, "note": "no such directory"}');
INSERT INTO "checkpoints" VALUES(1,'index',2,61,'2026-11-20T09:04:00.000000Z',1,'at 2','',2,3,'{"head": "", "branch": "", "dirty": [], "dirty_count": null, "note": "no such directory"}');
INSERT INTO "checkpoints" VALUES(1,'failed',1,71,'2026-11-20T09:12:00.000000Z',2,'no way on','',NULL,NULL,'{"head": "", "branch": "", "dirty": [], "dirty_count": null, "note": "no such directory"}');
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
INSERT INTO "documents" VALUES(1099511627784,1,'memory','indexcursor','Index/Cursor',62,2,'Cursor
12','12 index');
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
INSERT INTO "documents" VALUES(1168231104525,1,'thread','long','long',42,2,'long
the long job
make check','');
INSERT INTO "documents" VALUES(1168231104527,1,'thread','costly','costly',67,2,'costly
costly
try it
a person: the budget of attempts of run spent is spent','a is it of');
INSERT INTO "documents" VALUES(1168231104528,1,'thread','relying','relying',100,1,'relying
relying','');
INSERT INTO "documents" VALUES(1236950581248,1,'journal','30','30',30,1,'began','');
INSERT INTO "documents" VALUES(1236950581249,1,'journal','32','32',32,1,'the index is too small','is');
INSERT INTO "documents" VALUES(1236950581250,1,'journal','33','33',33,1,'entry 0 über Größe 東京','0 京 東 東京');
INSERT INTO "documents" VALUES(1236950581251,1,'journal','34','34',34,1,'entry 1 über Größe 東京','1 京 東 東京');
INSERT INTO "documents" VALUES(1236950581252,1,'journal','35','35',35,1,'entry 2 über Größe 東京','2 京 東 東京');
INSERT INTO "documents" VALUES(1236950581253,1,'journal','36','36',36,1,'entry 3 über Größe 東京','3 京 東 東京');
INSERT INTO "documents" VALUES(1236950581254,1,'journal','37','37',37,1,'entry 4 über Größe 東京','4 京 東 東京');
INSERT INTO "documents" VALUES(1236950581255,1,'journal','40','40',40,1,'written aside','');
INSERT INTO "documents" VALUES(1236950581256,1,'journal','60','60',60,1,'of the run','of index');
INSERT INTO "documents" VALUES(1305670057986,1,'run','index','Index',61,3,'Index
Reindex
at 2','2 at index');
INSERT INTO "documents" VALUES(1305670057988,1,'run','spent','spent',66,2,'spent
Try it','it spent');
INSERT INTO "documents" VALUES(1305670057990,1,'run','raised','raised',69,2,'raised
Try again','raised');
INSERT INTO "documents" VALUES(1305670057993,1,'run','failed','failed',72,3,'failed
no way on
no way on
no way through','no on failed');
INSERT INTO "documents" VALUES(1305670057995,1,'run','shipped','Shipped',74,2,'Shipped
Ship
out
release 3','3 shipped');
INSERT INTO "documents" VALUES(1305670057997,1,'run','left','left',76,2,'left
Idle
too early','left');
INSERT INTO "documents" VALUES(1374389534720,1,'blob','b-ab6ae42660ac1c26c5b73acb57da1725','b-ab6ae42660ac1c26c5b73acb57da1725',78,1,'b-ab6ae42660ac1c26c5b73acb57da1725
about it','b it');
INSERT INTO "documents" VALUES(1374389534721,1,'blob','b-b8037df81f63a7cc4891f810f8c10937','b-b8037df81f63a7cc4891f810f8c10937',79,1,'b-b8037df81f63a7cc4891f810f8c10937
the log','b');
INSERT INTO "documents" VALUES(1443109011458,1,'fact','fits','fits',87,1,'fits
it fits into a page','a it');
INSERT INTO "documents" VALUES(1443109011459,1,'fact','runs','Runs',88,1,'Runs
it runs
./run','it');
INSERT INTO "documents" VALUES(1443109011461,1,'fact','ready','ready',90,2,'ready
it can go out','go it');
INSERT INTO "documents" VALUES(1443109011463,1,'fact','builds','Builds',92,2,'Builds
the build is green
make
CI','CI is');
INSERT INTO "documents" VALUES(1443109011465,1,'fact','deployed','Deployed',94,2,'Deployed
it is out
./ask','is it');
INSERT INTO "documents" VALUES(1443109011466,1,'fact','tested','Tested',95,3,'Tested
the tests pass
./test','');
INSERT INTO "documents" VALUES(1443109011468,1,'fact','gone','Gone',99,2,'Gone
the old page is gone
curl','is');
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
INSERT INTO "events" VALUES(1,14,'2026-11-20T08:14:00.000000Z',1,'','thread','base','create','active: the base (+2 criteria)',1,'{"name": "Base", "version": 1, "title": "the base", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 2, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,15,'2026-11-20T08:15:00.000000Z',2,'','thread','base','check','criterion 1 passes, 1/2 pass (evidence: make: exit 0)',2,'{"name": "Base", "version": 2, "title": "the base", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 2, "passing": [1], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,16,'2026-11-20T08:16:00.000000Z',1,'','thread','on top','create','active: On top',1,'{"name": "On top", "version": 1, "title": "On top", "status": "active", "priority": 2, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [{"path_or_repo": "src", "role": "home", "note": ""}], "depends_on": ["Base"], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,17,'2026-11-20T08:17:00.000000Z',1,'','thread','asked','create','blocked: asked (waiting on ein Prüfer 審査)',1,'{"name": "asked", "version": 1, "title": "asked", "status": "blocked", "priority": 5, "next_action": "", "waiting_on": "ein Prüfer 審査", "recheck_at": "2026-11-21T08:17:00.000000Z", "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,18,'2026-11-20T08:18:00.000000Z',1,'','thread','seen','create','watching: seen',1,'{"name": "seen", "version": 1, "title": "seen", "status": "watching", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": "2026-11-21T08:18:00.000000Z", "check": "gh pr view 1", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,19,'2026-11-20T08:19:00.000000Z',1,'','thread','over','create','dropped: over (not needed)',1,'{"name": "over", "version": 1, "title": "over", "status": "dropped", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "not needed", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,20,'2026-11-20T08:20:00.000000Z',1,'','thread','shipped','create','done: shipped (evidence: commit 1a2b3c)',1,'{"name": "shipped", "version": 1, "title": "shipped", "status": "done", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "commit 1a2b3c", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,21,'2026-11-20T08:21:00.000000Z',1,'','thread','again','create','done: again (evidence: it seemed so)',1,'{"name": "again", "version": 1, "title": "again", "status": "done", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "it seemed so", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,22,'2026-11-20T08:22:00.000000Z',1,'','thread','again','set','done -> active (it was not)',2,'{"name": "again", "version": 2, "title": "again", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "it was not", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,23,'2026-11-20T08:23:00.000000Z',1,'','thread','next','create','active: next',1,'{"name": "next", "version": 1, "title": "next", "status": "active", "priority": 1, "next_action": "write one", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,24,'2026-11-20T08:24:00.000000Z',2,'','thread','next','lease_claimed','claimed for 365 d',NULL,'{"name": "next", "version": 1, "title": "next", "status": "active", "priority": 1, "next_action": "write one", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 24, "lease_until": "2027-11-20T08:24:00.000000Z", "lease_holder": "ben"}');
INSERT INTO "events" VALUES(1,25,'2026-11-20T08:25:00.000000Z',1,'','thread','once held','create','active: once held',1,'{"name": "once held", "version": 1, "title": "once held", "status": "active", "priority": 5, "next_action": "go on", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,26,'2026-11-20T08:26:00.000000Z',2,'','thread','once held','lease_claimed','claimed for 1 min',NULL,'{"name": "once held", "version": 1, "title": "once held", "status": "active", "priority": 5, "next_action": "go on", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 26, "lease_until": "2026-11-20T08:27:00.000000Z", "lease_holder": "ben"}');
INSERT INTO "events" VALUES(1,27,'2026-11-20T08:27:00.000000Z',1,'','thread','given back','create','active: given back',1,'{"name": "given back", "version": 1, "title": "given back", "status": "active", "priority": 5, "next_action": "whoever likes", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,28,'2026-11-20T08:28:00.000000Z',2,'','thread','given back','lease_claimed','claimed for 30 min',NULL,'{"name": "given back", "version": 1, "title": "given back", "status": "active", "priority": 5, "next_action": "whoever likes", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 28, "lease_until": "2026-11-20T08:58:00.000000Z", "lease_holder": "ben"}');
INSERT INTO "events" VALUES(1,29,'2026-11-20T08:29:00.000000Z',2,'','thread','given back','lease_broken','lease of ben broken by a person',NULL,'{"name": "given back", "version": 1, "title": "given back", "status": "active", "priority": 5, "next_action": "whoever likes", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 29, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,30,'2026-11-20T08:31:00.000000Z',1,'','journal','30','append','began',NULL,'{"id": "j-1", "kind": "", "thread": "base", "text": "began", "run": ""}');
INSERT INTO "events" VALUES(1,31,'2026-11-20T08:32:00.000000Z',1,'','journal','31','refused','refused: conflict',NULL,'{"code": "conflict", "fact": "idempotency key ''j1'' was used for another entry (event 30)"}');
INSERT INTO "events" VALUES(1,32,'2026-11-20T08:33:00.000000Z',2,'','journal','32','append','the index is too small',NULL,'{"id": "j-2", "kind": "dead_end", "thread": "", "text": "the index is too small", "run": ""}');
INSERT INTO "events" VALUES(1,33,'2026-11-20T08:34:00.000000Z',1,'','journal','33','append','entry 0 über Größe 東京',NULL,'{"id": "j-3", "kind": "note", "thread": "", "text": "entry 0 über Größe 東京", "run": ""}');
INSERT INTO "events" VALUES(1,34,'2026-11-20T08:35:00.000000Z',1,'','journal','34','append','entry 1 über Größe 東京',NULL,'{"id": "j-4", "kind": "note", "thread": "", "text": "entry 1 über Größe 東京", "run": ""}');
INSERT INTO "events" VALUES(1,35,'2026-11-20T08:36:00.000000Z',1,'','journal','35','append','entry 2 über Größe 東京',NULL,'{"id": "j-5", "kind": "note", "thread": "", "text": "entry 2 über Größe 東京", "run": ""}');
INSERT INTO "events" VALUES(1,36,'2026-11-20T08:37:00.000000Z',1,'','journal','36','append','entry 3 über Größe 東京',NULL,'{"id": "j-6", "kind": "note", "thread": "", "text": "entry 3 über Größe 東京", "run": ""}');
INSERT INTO "events" VALUES(1,37,'2026-11-20T08:38:00.000000Z',1,'','journal','37','append','entry 4 über Größe 東京',NULL,'{"id": "j-7", "kind": "note", "thread": "", "text": "entry 4 über Größe 東京", "run": ""}');
INSERT INTO "events" VALUES(1,38,'2026-11-20T08:39:00.000000Z',1,'','memory','plan (from side)','set','set, 13 chars',1,'{"key":"plan (from side)","value":"written aside","version":1,"expires_at":null,"locked":""}');
INSERT INTO "events" VALUES(1,39,'2026-11-20T08:40:00.000000Z',1,'','thread','base (from side)','create','active: base',1,'{"name":"base (from side)","version":1,"title":"base","status":"active","priority":5,"next_action":"of the side","waiting_on":"","recheck_at":null,"check":"","evidence":"","note":"","places":[],"depends_on":[],"relies_on":[],"criteria":0,"passing":[],"lease_token":0,"lease_until":null,"lease_holder":null}');
INSERT INTO "events" VALUES(1,40,'2026-11-20T08:41:00.000000Z',1,'','journal','40','append','written aside',NULL,'{"id": "j-8", "kind": "", "thread": "", "text": "written aside", "run": ""}');
INSERT INTO "events" VALUES(1,41,'2026-11-20T08:42:00.000000Z',1,'','project','','merge','side merged into this, 3 events',NULL,'{"name": "acme", "merged": "side", "first": 38, "last": 40, "kept_apart": {"memory:plan": "plan (from side)", "thread:base": "base (from side)"}}');
INSERT INTO "events" VALUES(3,1,'2026-11-20T08:43:00.000000Z',2,'','journal','1','append','of another project',NULL,'{"id": "j-9", "kind": "", "thread": "", "text": "of another project", "run": ""}');
INSERT INTO "events" VALUES(3,2,'2026-11-20T08:44:00.000000Z',2,'','project','','rename','other -> another',NULL,'{"name": "another", "was": "other"}');
INSERT INTO "events" VALUES(1,42,'2026-11-20T08:45:00.000000Z',1,'','thread','long','create','active: the long job',1,'{"name": "long", "version": 1, "title": "the long job", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "make check", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,43,'2026-11-20T08:46:00.000000Z',1,'index','run','index','begin','begun: Reindex',1,'{"name": "Index", "version": 1, "status": "open", "goal": "Reindex", "expected_outcome": "", "thread": "long", "max_attempts": 7, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,44,'2026-11-20T08:47:00.000000Z',1,'index','memory','indexcursor','set','set, 1 char',1,'{"key": "Cursor", "value": "1", "version": 1, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,45,'2026-11-20T08:48:00.000000Z',1,'index','memory','indexgone','set','set, 4 chars',1,'{"key": "gone", "value": "soon", "version": 1, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,46,'2026-11-20T08:49:00.000000Z',1,'index','memory','indexgone','delete','deleted, was version 1',2,NULL);
INSERT INTO "events" VALUES(1,47,'2026-11-20T08:50:00.000000Z',1,'index','checkpoint','index1','checkpoint','checkpoint 1, 1/3: do 2',NULL,'{"name": "Index/1", "number": 1, "state": "at 1", "next_action": "do 2", "done": 1, "total": 3, "git": {"head": "", "branch": "", "dirty": [], "dirty_count": null, "note": "no such directory"}}');
INSERT INTO "events" VALUES(1,48,'2026-11-20T08:51:00.000000Z',1,'index','step','indexone','begin','attempt 1 begun',NULL,'{"name": "Index/One", "step": "One", "status": "open", "input": "a", "result": "", "outcome": "", "streak": 0, "stopped": 0, "attempts": 1}');
INSERT INTO "events" VALUES(1,49,'2026-11-20T08:52:00.000000Z',1,'index','step','indexone','end','attempt 1 ok: fine',NULL,'{"name": "Index/One", "step": "One", "status": "done", "input": "a", "result": "fine", "outcome": "2441aa425931c27eeeb41a3be181705df02e797b83b004db65670a620f173454", "streak": 1, "stopped": 0, "attempts": 1, "attempt": {"number": 1, "ok": true, "tokens_in": 5, "tokens_out": 2}}');
INSERT INTO "events" VALUES(1,50,'2026-11-20T08:53:00.000000Z',1,'index','step','indextwo','begin','attempt 1 begun',NULL,'{"name": "Index/two", "step": "two", "status": "open", "input": "b", "result": "", "outcome": "", "streak": 0, "stopped": 0, "attempts": 1}');
INSERT INTO "events" VALUES(1,51,'2026-11-20T08:54:00.000000Z',1,'index','step','indextwo','end','attempt 1 failed: the same',NULL,'{"name": "Index/two", "step": "two", "status": "failed", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 1, "stopped": 0, "attempts": 1, "attempt": {"number": 1, "ok": false, "tokens_in": 3, "tokens_out": 0}}');
INSERT INTO "events" VALUES(1,52,'2026-11-20T08:55:00.000000Z',1,'index','step','indextwo','begin','attempt 2 begun',NULL,'{"name": "Index/two", "step": "two", "status": "open", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 1, "stopped": 0, "attempts": 2}');
INSERT INTO "events" VALUES(1,53,'2026-11-20T08:56:00.000000Z',1,'index','step','indextwo','end','attempt 2 failed: the same',NULL,'{"name": "Index/two", "step": "two", "status": "failed", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 2, "stopped": 0, "attempts": 2, "attempt": {"number": 2, "ok": false, "tokens_in": 3, "tokens_out": 0}}');
INSERT INTO "events" VALUES(1,54,'2026-11-20T08:57:00.000000Z',1,'index','step','indextwo','begin','attempt 3 begun',NULL,'{"name": "Index/two", "step": "two", "status": "open", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 2, "stopped": 0, "attempts": 3}');
INSERT INTO "events" VALUES(1,55,'2026-11-20T08:58:00.000000Z',1,'index','step','indextwo','end','attempt 3 failed: the same',NULL,'{"name": "Index/two", "step": "two", "status": "failed", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 3, "stopped": 0, "attempts": 3, "attempt": {"number": 3, "ok": false, "tokens_in": 3, "tokens_out": 0}}');
INSERT INTO "events" VALUES(1,56,'2026-11-20T08:59:00.000000Z',1,'index','step','indextwo','begin','attempt 4 begun',NULL,'{"name": "Index/two", "step": "two", "status": "open", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 3, "stopped": 0, "attempts": 4}');
INSERT INTO "events" VALUES(1,57,'2026-11-20T09:00:00.000000Z',1,'index','step','indextwo','end','attempt 4 failed: the same',NULL,'{"name": "Index/two", "step": "two", "status": "failed", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 4, "stopped": 0, "attempts": 4, "attempt": {"number": 4, "ok": false, "tokens_in": 3, "tokens_out": 0}}');
INSERT INTO "events" VALUES(1,58,'2026-11-20T09:01:00.000000Z',1,'index','step','indextwo','stop','refused: 4 times the same outcome',NULL,'{"name": "Index/two", "step": "two", "status": "failed", "input": "b", "result": "the same", "outcome": "ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377", "streak": 4, "stopped": 1, "attempts": 4}');
INSERT INTO "events" VALUES(1,59,'2026-11-20T09:02:00.000000Z',1,'index','step','indexthree','begin','attempt 1 begun',NULL,'{"name": "Index/three", "step": "three", "status": "open", "input": "c", "result": "", "outcome": "", "streak": 0, "stopped": 0, "attempts": 1}');
INSERT INTO "events" VALUES(1,60,'2026-11-20T09:03:00.000000Z',2,'index','journal','60','append','of the run',NULL,'{"id": "j-10", "kind": "", "thread": "long", "text": "of the run", "run": "index"}');
INSERT INTO "events" VALUES(1,61,'2026-11-20T09:04:00.000000Z',1,'index','checkpoint','index2','checkpoint','checkpoint 2, 2/3: at 2',NULL,'{"name": "Index/2", "number": 2, "state": "at 2", "next_action": "", "done": 2, "total": 3, "git": {"head": "", "branch": "", "dirty": [], "dirty_count": null, "note": "no such directory"}}');
INSERT INTO "events" VALUES(1,62,'2026-11-20T09:05:00.000000Z',1,'index','memory','indexcursor','append','append, 2 chars',2,'{"key": "Cursor", "value": "12", "version": 2, "expires_at": null, "locked": ""}');
INSERT INTO "events" VALUES(1,63,'2026-11-20T09:06:00.000000Z',2,'','thread','costly','create','active: costly',1,'{"name": "costly", "version": 1, "title": "costly", "status": "active", "priority": 5, "next_action": "try it", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,64,'2026-11-20T09:07:00.000000Z',2,'spent','run','spent','begin','begun: Try it',1,'{"name": "spent", "version": 1, "status": "open", "goal": "Try it", "expected_outcome": "", "thread": "costly", "max_attempts": 1, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,65,'2026-11-20T09:08:00.000000Z',2,'spent','step','spentone','begin','attempt 1 begun',NULL,'{"name": "spent/one", "step": "one", "status": "open", "input": "", "result": "", "outcome": "", "streak": 0, "stopped": 0, "attempts": 1}');
INSERT INTO "events" VALUES(1,66,'2026-11-20T09:09:00.000000Z',2,'spent','run','spent','stop','the budget of attempts is spent',2,'{"name": "spent", "version": 2, "status": "open", "goal": "Try it", "expected_outcome": "", "thread": "costly", "max_attempts": 1, "max_minutes": null, "max_tokens": null, "stopped": "attempts", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,67,'2026-11-20T09:09:00.000000Z',2,'spent','thread','costly','set','active -> blocked (waiting on a person: the budget of attempts of run spent is spent)',2,'{"name": "costly", "version": 2, "title": "costly", "status": "blocked", "priority": 5, "next_action": "try it", "waiting_on": "a person: the budget of attempts of run spent is spent", "recheck_at": "2026-11-21T09:09:00.000000Z", "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": [], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,68,'2026-11-20T09:10:00.000000Z',2,'raised','run','raised','begin','begun: Try again',1,'{"name": "raised", "version": 1, "status": "open", "goal": "Try again", "expected_outcome": "", "thread": "", "max_attempts": 1, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,69,'2026-11-20T09:11:00.000000Z',2,'raised','run','raised','raise','budget raised by a person: attempts 1 -> 9 (worth it)',2,'{"name": "raised", "version": 2, "status": "open", "goal": "Try again", "expected_outcome": "", "thread": "", "max_attempts": 9, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,70,'2026-11-20T09:12:00.000000Z',2,'failed','run','failed','begin','begun: no way on',1,'{"name": "failed", "version": 1, "status": "open", "goal": "no way on", "expected_outcome": "", "thread": "", "max_attempts": null, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,71,'2026-11-20T09:12:00.000000Z',2,'failed','checkpoint','failed1','checkpoint','checkpoint 1: no way on',NULL,'{"name": "failed/1", "number": 1, "state": "no way on", "next_action": "", "done": null, "total": null, "git": {"head": "", "branch": "", "dirty": [], "dirty_count": null, "note": "no such directory"}}');
INSERT INTO "events" VALUES(1,72,'2026-11-20T09:13:00.000000Z',2,'failed','run','failed','finish','failed: no way through',2,'{"name": "failed", "version": 2, "status": "failed", "goal": "no way on", "expected_outcome": "", "thread": "", "max_attempts": null, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": "2026-11-20T09:13:00.000000Z", "result": "", "evidence": "", "reflection": "no way through"}');
INSERT INTO "events" VALUES(1,73,'2026-11-20T09:14:00.000000Z',2,'shipped','run','shipped','begin','begun: Ship',1,'{"name": "Shipped", "version": 1, "status": "open", "goal": "Ship", "expected_outcome": "", "thread": "", "max_attempts": null, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,74,'2026-11-20T09:15:00.000000Z',2,'shipped','run','shipped','finish','completed: out',2,'{"name": "Shipped", "version": 2, "status": "completed", "goal": "Ship", "expected_outcome": "", "thread": "", "max_attempts": null, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": "2026-11-20T09:15:00.000000Z", "result": "out", "evidence": "release 3", "reflection": ""}');
INSERT INTO "events" VALUES(1,75,'2026-11-20T09:16:00.000000Z',2,'left','run','left','begin','begun: Idle',1,'{"name": "left", "version": 1, "status": "open", "goal": "Idle", "expected_outcome": "", "thread": "", "max_attempts": null, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": null, "result": "", "evidence": "", "reflection": ""}');
INSERT INTO "events" VALUES(1,76,'2026-11-20T09:17:00.000000Z',2,'left','run','left','finish','abandoned: too early',2,'{"name": "left", "version": 2, "status": "abandoned", "goal": "Idle", "expected_outcome": "", "thread": "", "max_attempts": null, "max_minutes": null, "max_tokens": null, "stopped": "", "finished_at": "2026-11-20T09:17:00.000000Z", "result": "", "evidence": "", "reflection": "too early"}');
INSERT INTO "events" VALUES(1,77,'2026-11-20T09:18:00.000000Z',1,'index','transcript','index','append','messages 1 to 2, 46 bytes',NULL,'{"first": 1, "last": 2, "bytes": 46, "sha256": "5674ed5902d4425b55ea2f08e62de0e2a58988305605f805707d7adf73c41bda"}');
INSERT INTO "events" VALUES(1,78,'2026-11-20T09:19:00.000000Z',1,'index','blob','b-ab6ae42660ac1c26c5b73acb57da1725','put','put, 480 characters: about it',1,'{"key": "b-ab6ae42660ac1c26c5b73acb57da1725", "version": 1, "sha256": "ab6ae42660ac1c26c5b73acb57da1725493591f2a18cf054bb24b6342fb5320f", "bytes": 480, "characters": 480, "summary": "about it", "expires_at": "2026-11-20T09:20:30.000000Z"}');
INSERT INTO "events" VALUES(1,79,'2026-11-20T09:20:00.000000Z',1,'index','blob','b-b8037df81f63a7cc4891f810f8c10937','put','put, 13 characters: the log',1,'{"key": "b-b8037df81f63a7cc4891f810f8c10937", "version": 1, "sha256": "b8037df81f63a7cc4891f810f8c109372b4e23f4a0848ed350e2d7bcd9e52cbb", "bytes": 13, "characters": 13, "summary": "the log", "expires_at": null}');
INSERT INTO "events" VALUES(1,80,'2026-11-20T09:21:00.000000Z',1,'index','handoff','h-11','create','offered for ben: the importer is half done',NULL,'{"key": "h-11", "recipient": "ben", "note": "the importer is half done", "exported_at": null, "accepted_at": null, "accepted_by": null}');
INSERT INTO "events" VALUES(1,81,'2026-11-20T09:22:00.000000Z',1,'index','handoff','h-12','create','offered: the docs',NULL,'{"key": "h-12", "recipient": "", "note": "the docs", "exported_at": null, "accepted_at": null, "accepted_by": null}');
INSERT INTO "events" VALUES(1,82,'2026-11-20T09:23:00.000000Z',2,'','handoff','h-12','accept','taken over from ann',NULL,'{"key": "h-12", "recipient": "", "note": "the docs", "exported_at": null, "accepted_at": "2026-11-20T09:23:00.000000Z", "accepted_by": "ben"}');
INSERT INTO "events" VALUES(1,83,'2026-11-20T09:24:00.000000Z',1,'index','objective','objective','set','Ship it; intent: nobody waits for us',1,'{"name": "objective", "version": 1, "objective": "Ship it", "intent": "nobody waits for us", "reason": ""}');
INSERT INTO "events" VALUES(1,84,'2026-11-20T09:25:00.000000Z',2,'','objective','objective','set','Ship it safely (was: Ship it); because it broke once',2,'{"name": "objective", "version": 2, "objective": "Ship it safely", "intent": "nobody waits for us", "reason": "it broke once"}');
INSERT INTO "events" VALUES(1,85,'2026-11-20T09:26:00.000000Z',1,'index','fact','builds','record','check: make · believed: "the build is green"',1,'{"name": "Builds", "version": 1, "check": "make", "statement": "the build is green", "replaces": "", "source": "CI", "trust": "provisional", "recheck_after": 86400, "recheck_at": "2026-11-21T09:26:00.000000Z", "reasons": [], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,86,'2026-11-20T09:27:00.000000Z',1,'index','fact','tested','record','check: ./test · believed: "the tests pass"',1,'{"name": "Tested", "version": 1, "check": "./test", "statement": "the tests pass", "replaces": "", "source": "", "trust": "provisional", "recheck_after": 7200, "recheck_at": "2026-11-20T11:27:00.000000Z", "reasons": [], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,87,'2026-11-20T09:28:00.000000Z',1,'index','fact','fits','record','no check · believed: "it fits into a page"',1,'{"name": "fits", "version": 1, "check": "", "statement": "it fits into a page", "replaces": "", "source": "", "trust": "archival", "recheck_after": 86400, "recheck_at": null, "reasons": [], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,88,'2026-11-20T09:29:00.000000Z',1,'index','fact','runs','record','check: ./run · believed: "it runs"',1,'{"name": "Runs", "version": 1, "check": "./run", "statement": "it runs", "replaces": "", "source": "", "trust": "provisional", "recheck_after": 86400, "recheck_at": "2026-11-21T09:29:00.000000Z", "reasons": [["Builds", "Tested"]], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,89,'2026-11-20T09:30:00.000000Z',1,'index','fact','ready','record','no check · believed: "it can go out"',1,'{"name": "ready", "version": 1, "check": "", "statement": "it can go out", "replaces": "", "source": "", "trust": "provisional", "recheck_after": 86400, "recheck_at": "2026-11-21T09:30:00.000000Z", "reasons": [["Runs"]], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,90,'2026-11-20T09:31:00.000000Z',1,'index','fact','ready','record','another reason: fits',2,'{"name": "ready", "version": 2, "check": "", "statement": "it can go out", "replaces": "", "source": "", "trust": "provisional", "recheck_after": 86400, "recheck_at": "2026-11-21T09:30:00.000000Z", "reasons": [["Runs"], ["fits"]], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,91,'2026-11-20T09:32:00.000000Z',1,'index','fact','deployed','record','check: ./ask · believed: "it is out"',1,'{"name": "Deployed", "version": 1, "check": "./ask", "statement": "it is out", "replaces": "", "source": "", "trust": "provisional", "recheck_after": 86400, "recheck_at": "2026-11-21T09:32:00.000000Z", "reasons": [["Runs"]], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,92,'2026-11-20T09:33:00.000000Z',1,'index','fact','builds','verify','check held then: make: exit 0',2,'{"name": "Builds", "version": 2, "check": "make", "statement": "the build is green", "replaces": "", "source": "CI", "trust": "trusted", "recheck_after": 86400, "recheck_at": "2026-11-21T09:33:00.000000Z", "reasons": [], "verified_at": "2026-11-20T09:33:00.000000Z", "verified_by": "ann", "held": true, "evidence": "make: exit 0", "baseline": null}');
INSERT INTO "events" VALUES(1,93,'2026-11-20T09:34:00.000000Z',2,'','fact','tested','verify','check held then: 12 passed',2,'{"name": "Tested", "version": 2, "check": "./test", "statement": "the tests pass", "replaces": "", "source": "", "trust": "trusted", "recheck_after": 7200, "recheck_at": "2026-11-20T11:34:00.000000Z", "reasons": [], "verified_at": "2026-11-20T09:34:00.000000Z", "verified_by": "ben", "held": true, "evidence": "12 passed", "baseline": null}');
INSERT INTO "events" VALUES(1,94,'2026-11-20T09:35:00.000000Z',1,'index','fact','deployed','verify','check held then: it is there',2,'{"name": "Deployed", "version": 2, "check": "./ask", "statement": "it is out", "replaces": "", "source": "", "trust": "trusted", "recheck_after": 86400, "recheck_at": "2026-11-21T09:35:00.000000Z", "reasons": [["Runs"]], "verified_at": "2026-11-20T09:35:00.000000Z", "verified_by": "ann", "held": true, "evidence": "it is there", "baseline": null}');
INSERT INTO "events" VALUES(1,95,'2026-11-20T09:36:00.000000Z',2,'','fact','tested','verify','check did not hold: 1 failed · 2 facts fell with it',3,'{"name": "Tested", "version": 3, "check": "./test", "statement": "the tests pass", "replaces": "", "source": "", "trust": "refuted", "recheck_after": 7200, "recheck_at": null, "reasons": [], "verified_at": "2026-11-20T09:36:00.000000Z", "verified_by": "ben", "held": false, "evidence": "1 failed", "baseline": null}');
INSERT INTO "events" VALUES(1,96,'2026-11-20T09:36:00.000000Z',2,'','fact','runs','fall','stale: rests on Tested, which was refuted',NULL,'{"name": "Runs", "version": 1, "check": "./run", "statement": "it runs", "replaces": "", "source": "", "trust": "stale", "recheck_after": 86400, "recheck_at": null, "reasons": [["Builds", "Tested"]], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,97,'2026-11-20T09:36:00.000000Z',2,'','fact','deployed','fall','stale: rests on Runs, which fell',NULL,'{"name": "Deployed", "version": 2, "check": "./ask", "statement": "it is out", "replaces": "", "source": "", "trust": "stale", "recheck_after": 86400, "recheck_at": null, "reasons": [["Runs"]], "verified_at": "2026-11-20T09:35:00.000000Z", "verified_by": "ann", "held": true, "evidence": "it is there", "baseline": null}');
INSERT INTO "events" VALUES(1,98,'2026-11-20T09:38:00.000000Z',1,'index','fact','gone','record','check: curl · believed: "the old page is gone"',1,'{"name": "Gone", "version": 1, "check": "curl", "statement": "the old page is gone", "replaces": "", "source": "", "trust": "provisional", "recheck_after": 86400, "recheck_at": "2026-11-21T09:38:00.000000Z", "reasons": [], "verified_at": null, "verified_by": null, "held": null, "evidence": "", "baseline": null}');
INSERT INTO "events" VALUES(1,99,'2026-11-20T09:39:00.000000Z',1,'index','fact','gone','verify','check did not hold: 200 OK',2,'{"name": "Gone", "version": 2, "check": "curl", "statement": "the old page is gone", "replaces": "", "source": "", "trust": "refuted", "recheck_after": 86400, "recheck_at": null, "reasons": [], "verified_at": "2026-11-20T09:39:00.000000Z", "verified_by": "ann", "held": false, "evidence": "200 OK", "baseline": null}');
INSERT INTO "events" VALUES(1,100,'2026-11-20T09:40:00.000000Z',1,'index','thread','relying','create','active: relying',1,'{"name": "relying", "version": 1, "title": "relying", "status": "active", "priority": 5, "next_action": "", "waiting_on": "", "recheck_at": null, "check": "", "evidence": "", "note": "", "places": [], "depends_on": [], "relies_on": ["Builds", "ready"], "criteria": 0, "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}');
INSERT INTO "events" VALUES(1,101,'2026-11-20T09:41:00.000000Z',1,'','project','','token','t-13 made for Ci: coding',NULL,'{"token": "t-13", "agent": "Ci", "toolset": "coding", "expires_at": "2026-12-20T09:41:00.000000Z", "every_project": false}');
INSERT INTO "events" VALUES(3,3,'2026-11-20T09:41:00.000000Z',1,'','project','','token','t-13 made for Ci: coding',NULL,'{"token": "t-13", "agent": "Ci", "toolset": "coding", "expires_at": "2026-12-20T09:41:00.000000Z", "every_project": false}');
INSERT INTO "events" VALUES(1,102,'2026-11-20T09:42:00.000000Z',1,'','project','','token','t-15 made for ben: all, for every project',NULL,'{"token": "t-15", "agent": "ben", "toolset": "all", "expires_at": "2026-12-20T09:42:00.000000Z", "every_project": true}');
INSERT INTO "events" VALUES(1,103,'2026-11-20T09:43:00.000000Z',3,'','project','','revoke','t-15 of ben revoked',NULL,'{"token": "t-15"}');
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
INSERT INTO "facts" VALUES(1,'builds','Builds',85,'2026-11-20T09:26:00.000000Z',92,'2026-11-20T09:33:00.000000Z',1,2,'the build is green',85,'2026-11-20T09:26:00.000000Z',1,'','make','CI','trusted','2026-11-20T09:33:00.000000Z',86400,'2026-11-21T09:33:00.000000Z',92,'2026-11-20T09:33:00.000000Z',1,1,'make: exit 0',NULL);
INSERT INTO "facts" VALUES(1,'tested','Tested',86,'2026-11-20T09:27:00.000000Z',95,'2026-11-20T09:36:00.000000Z',2,3,'the tests pass',86,'2026-11-20T09:27:00.000000Z',1,'','./test','','refuted','2026-11-20T09:36:00.000000Z',7200,NULL,95,'2026-11-20T09:36:00.000000Z',2,0,'1 failed',NULL);
INSERT INTO "facts" VALUES(1,'fits','fits',87,'2026-11-20T09:28:00.000000Z',87,'2026-11-20T09:28:00.000000Z',1,1,'it fits into a page',87,'2026-11-20T09:28:00.000000Z',1,'','','','archival','2026-11-20T09:28:00.000000Z',86400,NULL,NULL,NULL,NULL,NULL,'',NULL);
INSERT INTO "facts" VALUES(1,'runs','Runs',88,'2026-11-20T09:29:00.000000Z',88,'2026-11-20T09:29:00.000000Z',1,1,'it runs',88,'2026-11-20T09:29:00.000000Z',1,'','./run','','stale','2026-11-20T09:36:00.000000Z',86400,NULL,NULL,NULL,NULL,NULL,'',NULL);
INSERT INTO "facts" VALUES(1,'ready','ready',89,'2026-11-20T09:30:00.000000Z',90,'2026-11-20T09:31:00.000000Z',1,2,'it can go out',89,'2026-11-20T09:30:00.000000Z',1,'','','','provisional','2026-11-20T09:30:00.000000Z',86400,'2026-11-21T09:30:00.000000Z',NULL,NULL,NULL,NULL,'',NULL);
INSERT INTO "facts" VALUES(1,'deployed','Deployed',91,'2026-11-20T09:32:00.000000Z',94,'2026-11-20T09:35:00.000000Z',1,2,'it is out',91,'2026-11-20T09:32:00.000000Z',1,'','./ask','','stale','2026-11-20T09:36:00.000000Z',86400,NULL,94,'2026-11-20T09:35:00.000000Z',1,1,'it is there',NULL);
INSERT INTO "facts" VALUES(1,'gone','Gone',98,'2026-11-20T09:38:00.000000Z',99,'2026-11-20T09:39:00.000000Z',1,2,'the old page is gone',98,'2026-11-20T09:38:00.000000Z',1,'','curl','','refuted','2026-11-20T09:39:00.000000Z',86400,NULL,99,'2026-11-20T09:39:00.000000Z',1,0,'200 OK',NULL);
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
INSERT INTO "handoffs" VALUES(1,'h-11',80,'2026-11-20T09:21:00.000000Z',1,'ben','the importer is half done',NULL,NULL,NULL);
INSERT INTO "handoffs" VALUES(1,'h-12',81,'2026-11-20T09:22:00.000000Z',1,'','the docs',NULL,'2026-11-20T09:23:00.000000Z',2);
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
INSERT INTO "idempotency" VALUES(1,'memory_append','of the run','52e8f70b1f7fdc6c407941d88d7440424525b19b4387eea6cf58a29785cc5c9a',2);
CREATE TABLE journal (
    project INTEGER NOT NULL REFERENCES projects (id),
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    at TEXT NOT NULL,
    actor INTEGER NOT NULL REFERENCES actors (id),
    kind TEXT NOT NULL,
    thread TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL CHECK (text <> ''), run TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (project, seq)
) STRICT;
INSERT INTO "journal" VALUES(1,30,'j-1','2026-11-20T08:31:00.000000Z',1,'','base','began','');
INSERT INTO "journal" VALUES(1,32,'j-2','2026-11-20T08:33:00.000000Z',2,'dead_end','','the index is too small','');
INSERT INTO "journal" VALUES(1,33,'j-3','2026-11-20T08:34:00.000000Z',1,'note','','entry 0 über Größe 東京','');
INSERT INTO "journal" VALUES(1,34,'j-4','2026-11-20T08:35:00.000000Z',1,'note','','entry 1 über Größe 東京','');
INSERT INTO "journal" VALUES(1,35,'j-5','2026-11-20T08:36:00.000000Z',1,'note','','entry 2 über Größe 東京','');
INSERT INTO "journal" VALUES(1,36,'j-6','2026-11-20T08:37:00.000000Z',1,'note','','entry 3 über Größe 東京','');
INSERT INTO "journal" VALUES(1,37,'j-7','2026-11-20T08:38:00.000000Z',1,'note','','entry 4 über Größe 東京','');
INSERT INTO "journal" VALUES(1,40,'j-8','2026-11-20T08:41:00.000000Z',1,'','','written aside','');
INSERT INTO "journal" VALUES(3,1,'j-9','2026-11-20T08:43:00.000000Z',2,'','','of another project','');
INSERT INTO "journal" VALUES(1,60,'j-10','2026-11-20T09:03:00.000000Z',2,'','long','of the run','index');
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
INSERT INTO "journal_topics" VALUES(1,'',60,9);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',30,1);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',33,2);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',34,3);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',35,4);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',36,5);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',37,6);
INSERT INTO "journal_topics" VALUES(1,'agent:ann',40,7);
INSERT INTO "journal_topics" VALUES(1,'agent:ben',32,1);
INSERT INTO "journal_topics" VALUES(1,'agent:ben',60,2);
INSERT INTO "journal_topics" VALUES(1,'kind:dead_end',32,1);
INSERT INTO "journal_topics" VALUES(1,'kind:note',33,1);
INSERT INTO "journal_topics" VALUES(1,'kind:note',34,2);
INSERT INTO "journal_topics" VALUES(1,'kind:note',35,3);
INSERT INTO "journal_topics" VALUES(1,'kind:note',36,4);
INSERT INTO "journal_topics" VALUES(1,'kind:note',37,5);
INSERT INTO "journal_topics" VALUES(1,'run:index',60,1);
INSERT INTO "journal_topics" VALUES(1,'thread:base',30,1);
INSERT INTO "journal_topics" VALUES(1,'thread:long',60,1);
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
INSERT INTO "last_events" VALUES(1,1,'ann','s1','/src/tree',102);
INSERT INTO "last_events" VALUES(1,2,'ben','s2','/src/tree',97);
INSERT INTO "last_events" VALUES(3,2,'ben','s2','/src/tree',2);
INSERT INTO "last_events" VALUES(3,1,'ann','s1','/src/tree',3);
INSERT INTO "last_events" VALUES(1,3,'ann','s1','',103);
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
INSERT INTO "memory" VALUES(1,'index','cursor','Cursor','12',2,62,'2026-11-20T09:05:00.000000Z',1,NULL,'');
INSERT INTO "memory" VALUES(1,'index','gone','gone',NULL,2,46,'2026-11-20T08:49:00.000000Z',1,NULL,'');
CREATE TABLE messages (
    project INTEGER NOT NULL,
    run TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    seq INTEGER NOT NULL,
    message TEXT NOT NULL CHECK (json_valid(message)),
    PRIMARY KEY (project, run, number),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE
) STRICT;
INSERT INTO "messages" VALUES(1,'index',1,77,'{"role":"user","content":"do it"}');
INSERT INTO "messages" VALUES(1,'index',2,77,'{ "n": 1.0 }');
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
INSERT INTO "objectives" VALUES(1,'objective','objective',83,'2026-11-20T09:24:00.000000Z',84,'2026-11-20T09:25:00.000000Z',2,2,'Ship it safely','nobody waits for us','it broke once');
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
INSERT INTO "premises" VALUES(1,'runs',1,'builds',88);
INSERT INTO "premises" VALUES(1,'runs',1,'tested',88);
INSERT INTO "premises" VALUES(1,'ready',1,'runs',89);
INSERT INTO "premises" VALUES(1,'ready',2,'fits',90);
INSERT INTO "premises" VALUES(1,'deployed',1,'runs',91);
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
, open INTEGER NOT NULL DEFAULT 0 CHECK (open >= 0), completed INTEGER NOT NULL DEFAULT 0 CHECK (completed >= 0), failed INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0), abandoned INTEGER NOT NULL DEFAULT 0 CHECK (abandoned >= 0), stopped INTEGER NOT NULL DEFAULT 0 CHECK (stopped >= 0), provisional INTEGER NOT NULL DEFAULT 0 CHECK (provisional >= 0), trusted INTEGER NOT NULL DEFAULT 0 CHECK (trusted >= 0), stale INTEGER NOT NULL DEFAULT 0 CHECK (stale >= 0), refuted INTEGER NOT NULL DEFAULT 0 CHECK (refuted >= 0), archival INTEGER NOT NULL DEFAULT 0 CHECK (archival >= 0)) STRICT;
INSERT INTO "projects" VALUES(1,'acme','2026-11-20T08:01:00.000000Z',NULL,103,9,1,2,1,1,9,6,3,1,1,1,1,1,1,2,2,1);
INSERT INTO "projects" VALUES(2,'side','2026-11-20T08:39:00.000000Z',1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "projects" VALUES(3,'another','2026-11-20T08:43:00.000000Z',NULL,3,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0);
CREATE TABLE relies (
    project INTEGER NOT NULL,
    thread TEXT NOT NULL,
    fact TEXT NOT NULL,
    PRIMARY KEY (project, thread, fact),
    FOREIGN KEY (project, thread) REFERENCES threads (project, name) ON UPDATE CASCADE,
    FOREIGN KEY (project, fact) REFERENCES facts (project, name) ON UPDATE CASCADE
) STRICT;
INSERT INTO "relies" VALUES(1,'relying','builds');
INSERT INTO "relies" VALUES(1,'relying','ready');
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
INSERT INTO "runs" VALUES(1,'index','Index',43,'2026-11-20T08:46:00.000000Z',43,'2026-11-20T08:46:00.000000Z',1,1,77,'2026-11-20T09:18:00.000000Z',1,'open','Reindex','','long',7,NULL,NULL,'',NULL,'','','',2,3,1,6,17,2);
INSERT INTO "runs" VALUES(1,'spent','spent',64,'2026-11-20T09:07:00.000000Z',66,'2026-11-20T09:09:00.000000Z',2,2,66,'2026-11-20T09:09:00.000000Z',2,'open','Try it','','costly',1,NULL,NULL,'attempts',NULL,'','','',0,1,0,1,0,0);
INSERT INTO "runs" VALUES(1,'raised','raised',68,'2026-11-20T09:10:00.000000Z',69,'2026-11-20T09:11:00.000000Z',2,2,69,'2026-11-20T09:11:00.000000Z',2,'open','Try again','','',9,NULL,NULL,'',NULL,'','','',0,0,0,0,0,0);
INSERT INTO "runs" VALUES(1,'failed','failed',70,'2026-11-20T09:12:00.000000Z',72,'2026-11-20T09:13:00.000000Z',2,2,72,'2026-11-20T09:13:00.000000Z',2,'failed','no way on','','',NULL,NULL,NULL,'','2026-11-20T09:13:00.000000Z','','','no way through',1,0,0,0,0,0);
INSERT INTO "runs" VALUES(1,'shipped','Shipped',73,'2026-11-20T09:14:00.000000Z',74,'2026-11-20T09:15:00.000000Z',2,2,74,'2026-11-20T09:15:00.000000Z',2,'completed','Ship','','',NULL,NULL,NULL,'','2026-11-20T09:15:00.000000Z','out','release 3','',0,0,0,0,0,0);
INSERT INTO "runs" VALUES(1,'left','left',75,'2026-11-20T09:16:00.000000Z',76,'2026-11-20T09:17:00.000000Z',2,2,76,'2026-11-20T09:17:00.000000Z',2,'abandoned','Idle','','',NULL,NULL,NULL,'','2026-11-20T09:17:00.000000Z','','','too early',0,0,0,0,0,0);
CREATE TABLE session_runs (
    project INTEGER NOT NULL REFERENCES projects (id),
    session TEXT NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (project, session),
    FOREIGN KEY (project, run) REFERENCES runs (project, name) ON UPDATE CASCADE
) STRICT;
INSERT INTO "session_runs" VALUES(1,'s1','index');
INSERT INTO "session_runs" VALUES(1,'s2','left');
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
INSERT INTO "steps" VALUES(1,'index','one','One',48,49,'2026-11-20T08:52:00.000000Z',1,'done','a','fine','2441aa425931c27eeeb41a3be181705df02e797b83b004db65670a620f173454',1,0,1,5,2);
INSERT INTO "steps" VALUES(1,'index','two','two',50,58,'2026-11-20T09:01:00.000000Z',1,'failed','b','the same','ebd12e58c3547294acb348677e01c44af8b5ca61a96cb3a7db7e4b6e2e019377',4,1,4,12,0);
INSERT INTO "steps" VALUES(1,'index','three','three',59,59,'2026-11-20T09:02:00.000000Z',1,'open','c','','',0,0,1,0,0);
INSERT INTO "steps" VALUES(1,'spent','one','one',65,65,'2026-11-20T09:08:00.000000Z',2,'open','','','',0,0,1,0,0);
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    min_reader INTEGER NOT NULL,
    changes INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
INSERT INTO "store" VALUES(1,4,106,'2026-11-20T08:01:00.000000Z');
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
INSERT INTO "threads" VALUES(1,'long','long',42,'2026-11-20T08:45:00.000000Z','the long job','active','2026-11-20T08:45:00.000000Z',42,'2026-11-20T08:45:00.000000Z',1,1,5,'','',NULL,'make check','','','[]',0,0,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'costly','costly',63,'2026-11-20T09:06:00.000000Z','costly','blocked','2026-11-20T09:09:00.000000Z',67,'2026-11-20T09:09:00.000000Z',2,2,5,'try it','a person: the budget of attempts of run spent is spent','2026-11-21T09:09:00.000000Z','','','','[]',0,0,0,0,NULL,NULL,0);
INSERT INTO "threads" VALUES(1,'relying','relying',100,'2026-11-20T09:40:00.000000Z','relying','active','2026-11-20T09:40:00.000000Z',100,'2026-11-20T09:40:00.000000Z',1,1,5,'','',NULL,'','','','[]',0,0,0,0,NULL,NULL,0);
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
INSERT INTO "tokens" VALUES(1,'t-13','a09b9938a760bc45a4c68f2adf86f56654c062bb28fbd7bd013f7c5e22c52ed5','Ci','coding',0,'2026-11-20T09:41:00.000000Z','2026-12-20T09:41:00.000000Z',NULL);
INSERT INTO "tokens" VALUES(3,'t-13','a09b9938a760bc45a4c68f2adf86f56654c062bb28fbd7bd013f7c5e22c52ed5','Ci','coding',0,'2026-11-20T09:41:00.000000Z','2026-12-20T09:41:00.000000Z',NULL);
INSERT INTO "tokens" VALUES(1,'t-15','629d840dca2f845a8135e6eac281a9f3bc04b4fee8ca10df64cced455d34ed33','ben','all',1,'2026-11-20T09:42:00.000000Z','2026-12-20T09:42:00.000000Z','2026-11-20T09:43:00.000000Z');
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
CREATE INDEX events_by_run ON events (project, run, seq) WHERE run <> '';
CREATE INDEX runs_by_touch ON runs (project, status, touched);
CREATE INDEX runs_by_thread ON runs (project, thread, touched) WHERE thread <> '';
CREATE INDEX steps_by_status ON steps (project, run, status, changed);
CREATE INDEX steps_by_attempts ON steps (project, run, attempts);
CREATE INDEX steps_by_tokens ON steps (project, run, tokens_in + tokens_out);
CREATE INDEX steps_stopped ON steps (project, changed) WHERE stopped = 1;
CREATE INDEX attempts_open ON attempts (project, run, step, number) WHERE ended IS NULL;
CREATE INDEX session_runs_by_run ON session_runs (project, run);
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
CREATE VIEW journal_rows AS
SELECT journal.*, agent, client, session, coalesce(threads.shown, '') AS thread_shown,
    coalesce(runs.shown, '') AS run_shown
FROM journal
JOIN actors ON actors.id = actor
LEFT JOIN threads ON threads.project = journal.project AND threads.name = journal.thread
LEFT JOIN runs ON runs.project = journal.project AND runs.name = journal.run;
CREATE TRIGGER memory_insert AFTER INSERT ON memory
WHEN NEW.value IS NOT NULL AND NEW.run = '' BEGIN
    UPDATE projects SET memory = memory + 1 WHERE id = NEW.project;
END;
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
CREATE TRIGGER handoffs_once BEFORE UPDATE OF accepted_by ON handoffs
WHEN OLD.accepted_by IS NOT NULL AND NEW.accepted_by IS NOT OLD.accepted_by BEGIN
    SELECT RAISE(ABORT, 'a handoff is taken once');
END;
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
CREATE INDEX facts_by_recheck ON facts (project, trust, recheck_at, created)
    WHERE recheck_at IS NOT NULL;
CREATE INDEX facts_by_change ON facts (project, trust, changed) WHERE recheck_at IS NULL;
CREATE INDEX facts_by_trust_at ON facts (project, trust, trust_at, changed);
CREATE INDEX premises_by_premise ON premises (project, premise, fact, reason);
CREATE INDEX relies_by_fact ON relies (project, fact, thread);
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
CREATE TRIGGER events_are_final BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END;
CREATE TRIGGER journal_is_final BEFORE UPDATE ON journal BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;
CREATE TRIGGER blobs_are_kept BEFORE DELETE ON blobs BEGIN
    SELECT RAISE(ABORT, 'blobs are kept');
END;
CREATE TRIGGER handoffs_are_kept BEFORE DELETE ON handoffs BEGIN
    SELECT RAISE(ABORT, 'handoffs are kept');
END;
CREATE VIRTUAL TABLE search USING fts5 (
    text, short, content = 'documents', content_rowid = 'id', tokenize = 'trigram'
);
INSERT INTO search (search) VALUES ('rebuild');
COMMIT;
