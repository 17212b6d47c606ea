-- What the Board knows of the files on the machines: plans, artifacts, memory, and changes that people make here. The files
-- are the truth; these rows are what was heard of them last, and what is still to be done.

-- How a session treats what its agent changes.
ALTER TABLE sessions ADD COLUMN plan_policy TEXT NOT NULL DEFAULT 'apply' CHECK (plan_policy IN ('apply', 'propose'));
ALTER TABLE sessions ADD COLUMN memory_policy TEXT NOT NULL DEFAULT 'propose' CHECK (memory_policy IN ('apply', 'propose'));
ALTER TABLE sessions ADD COLUMN approve_first BIGINT NOT NULL DEFAULT 0;

-- How long the Board keeps artifacts, and the largest one it takes.
ALTER TABLE teams ADD COLUMN artifact_days BIGINT NOT NULL DEFAULT 30;
ALTER TABLE teams ADD COLUMN artifact_bytes BIGINT NOT NULL DEFAULT 2147483648;

-- A file of a viber's workspace as it was heard of last. The text is kept when somebody looked at it.
CREATE TABLE files (
  team_id      TEXT   NOT NULL,
  viber_id     TEXT   NOT NULL,
  path         TEXT   NOT NULL,                   -- beneath the workspace, parts joined by '/'
  hash         TEXT,                              -- SHA-256 of the bytes; NULL: it is not there any more
  size         BIGINT NOT NULL DEFAULT 0,
  mtime        BIGINT,
  changed_by   TEXT   NOT NULL DEFAULT 'file',    -- board, agent or file
  heard_at     BIGINT NOT NULL,
  content      TEXT,                              -- of at most 1 MiB
  content_hash TEXT,                              -- which version the text is
  content_at   BIGINT,
  PRIMARY KEY (team_id, viber_id, path),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
CREATE INDEX files_heard ON files (team_id, viber_id, heard_at);
CREATE INDEX files_looked ON files (team_id, viber_id, content_at);

-- A folder of a workspace as it was listed last, for when its viber is away.
CREATE TABLE listings (
  team_id  TEXT   NOT NULL,
  viber_id TEXT   NOT NULL,
  path     TEXT   NOT NULL,
  body     TEXT   NOT NULL,                       -- JSON Listing
  heard_at BIGINT NOT NULL,
  PRIMARY KEY (team_id, viber_id, path),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);

-- A change of a file that somebody made here: a durable command until its viber says what became of it, history after.
CREATE TABLE edits (
  team_id     TEXT   NOT NULL,
  edit_id     TEXT   NOT NULL UNIQUE,
  viber_id    TEXT   NOT NULL,
  path        TEXT   NOT NULL,
  op          TEXT   NOT NULL CHECK (op IN ('put', 'delete', 'rename')),
  base_hash   TEXT,                               -- NULL: there was no file
  base        TEXT,                               -- the text that the author saw, for a merge
  content     TEXT,                               -- of a put
  hash        TEXT,                               -- of the content
  to_path     TEXT,                               -- of a rename
  state       TEXT   NOT NULL CHECK (state IN ('queued', 'applied', 'conflict', 'refused', 'settled')),  -- settled: a conflict that somebody resolved
  reason      TEXT,
  theirs_hash TEXT,                               -- of a conflict: what the file is
  made_by     TEXT   NOT NULL,
  author      TEXT   NOT NULL,                    -- the name to show
  created_at  BIGINT NOT NULL,
  ended_at    BIGINT,
  PRIMARY KEY (team_id, edit_id),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
CREATE INDEX edits_file ON edits (team_id, viber_id, path, edit_id);
CREATE INDEX edits_ended ON edits (team_id, ended_at);

-- Every version of a session's plan that the Board saw.
CREATE TABLE plan_revisions (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  n          BIGINT NOT NULL,                     -- 1, 2, …
  hash       TEXT   NOT NULL,
  markdown   TEXT   NOT NULL,
  source     TEXT   NOT NULL CHECK (source IN ('operator', 'agent', 'file')),
  author     TEXT   NOT NULL,
  task_id    TEXT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (team_id, session_id, n),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);

-- A change of the plan or of MEMORY.md that an agent would like to be made.
CREATE TABLE proposals (
  team_id     TEXT   NOT NULL,
  proposal_id TEXT   NOT NULL UNIQUE,
  kind        TEXT   NOT NULL CHECK (kind IN ('plan', 'memory')),
  session_id  TEXT   NOT NULL,
  task_id     TEXT   NOT NULL,
  attempt     BIGINT NOT NULL,
  seq         BIGINT NOT NULL,                    -- of the event that brought it
  base_hash   TEXT,
  base        TEXT,                               -- of MEMORY.md: the text that the agent saw, once it was read
  content     TEXT   NOT NULL,
  note        TEXT   NOT NULL DEFAULT '',
  state       TEXT   NOT NULL CHECK (state IN ('pending', 'accepted', 'rejected', 'superseded')),
  decided_by  TEXT,
  created_at  BIGINT NOT NULL,
  decided_at  BIGINT,
  PRIMARY KEY (team_id, proposal_id),
  UNIQUE (team_id, task_id, attempt, seq),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
CREATE INDEX proposals_session ON proposals (team_id, session_id, kind, proposal_id);

-- What went with a session's newest request, as its agent told.
CREATE TABLE contexts (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  task_id    TEXT   NOT NULL,
  attempt    BIGINT NOT NULL,
  body       TEXT   NOT NULL,                     -- JSON {layers, memory, …}
  told_at    BIGINT NOT NULL,
  PRIMARY KEY (team_id, session_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);

-- How much of the machine's own log of a session was taken over: each line once.
CREATE TABLE imports (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  agent_id   TEXT   NOT NULL,
  lines      BIGINT NOT NULL,                     -- the number of the last line
  bytes      BIGINT NOT NULL,                     -- where the next one begins
  taken_at   BIGINT NOT NULL,
  PRIMARY KEY (team_id, session_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);

-- What an agent waits for a person's word for.
CREATE TABLE approvals (
  team_id     TEXT   NOT NULL,
  approval_id TEXT   NOT NULL UNIQUE,
  session_id  TEXT   NOT NULL,
  task_id     TEXT   NOT NULL,
  attempt     BIGINT NOT NULL,
  tool        TEXT   NOT NULL,
  digest      TEXT   NOT NULL,
  args        TEXT   NOT NULL DEFAULT '{}',
  cwd         TEXT   NOT NULL DEFAULT '',
  preview     TEXT   NOT NULL DEFAULT '',
  risk        TEXT   NOT NULL DEFAULT '',
  state       TEXT   NOT NULL CHECK (state IN ('pending', 'allowed', 'denied', 'expired')),
  scope       TEXT,
  note        TEXT,
  decided_by  TEXT,
  created_at  BIGINT NOT NULL,
  decided_at  BIGINT,
  expires_at  BIGINT,
  PRIMARY KEY (team_id, approval_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
CREATE INDEX approvals_state ON approvals (team_id, state, approval_id);
CREATE INDEX approvals_task ON approvals (team_id, task_id);

-- Something a task produced, or an operator attached. The bytes lie on the viber, or in the store as the team's blob.
CREATE TABLE artifacts (
  team_id     TEXT   NOT NULL,
  artifact_id TEXT   NOT NULL UNIQUE,
  viber_id    TEXT   NOT NULL,
  session_id  TEXT   NOT NULL,
  task_id     TEXT,                               -- NULL: an attachment that no task has yet
  attempt     BIGINT,
  name        TEXT   NOT NULL,                    -- the agent's id of it, or the file's name; versions share it
  title       TEXT   NOT NULL,
  claimed     TEXT   NOT NULL DEFAULT '',         -- the type that was said
  sniffed     TEXT   NOT NULL DEFAULT '',         -- the type that the bytes look like
  reference   TEXT   NOT NULL,                    -- a path beneath the viber's home, or an address that is only shown
  size        BIGINT,
  sha256      TEXT,
  origin      TEXT   NOT NULL CHECK (origin IN ('agent', 'file', 'operator')),
  created_by  TEXT   NOT NULL,
  created_at  BIGINT NOT NULL,
  gone_at     BIGINT,                             -- neither the viber nor the store has it any more
  PRIMARY KEY (team_id, artifact_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE,
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id)
);
CREATE INDEX artifacts_session ON artifacts (team_id, session_id, artifact_id);
CREATE INDEX artifacts_bytes ON artifacts (team_id, sha256);

-- Bytes in the object store, once for a team whatever they are called.
CREATE TABLE blobs (
  team_id   TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  sha256    TEXT   NOT NULL,
  size      BIGINT NOT NULL,
  stored_at BIGINT NOT NULL,
  used_at   BIGINT NOT NULL,
  PRIMARY KEY (team_id, sha256)
);

-- Remarks on lines of files in spaces, gathered by a person until they are sent to the session's agent as one message.
CREATE TABLE comments (
  team_id    TEXT   NOT NULL,
  comment_id TEXT   NOT NULL UNIQUE,
  session_id TEXT   NOT NULL,
  author     TEXT   NOT NULL,                     -- who wrote it, and alone sees it
  space      TEXT   NOT NULL,
  folder     TEXT   NOT NULL,                     -- the space's path as it was told
  path       TEXT   NOT NULL,                     -- beneath the space
  side       TEXT   NOT NULL CHECK (side IN ('old', 'new')),
  line       BIGINT NOT NULL,
  quote      TEXT   NOT NULL,
  remark     TEXT   NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (team_id, comment_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
CREATE INDEX comments_author ON comments (team_id, session_id, author);
