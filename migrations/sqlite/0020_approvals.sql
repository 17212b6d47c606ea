-- Questions of every kind, side by side, with all that people decided and what came of it. SQLite cannot change a CHECK.

CREATE TABLE approvals_of_every_kind (
  team_id      TEXT   NOT NULL,
  approval_id  TEXT   NOT NULL UNIQUE,
  session_id   TEXT   NOT NULL,
  task_id      TEXT   NOT NULL,
  attempt      BIGINT NOT NULL,
  event_seq    BIGINT NOT NULL DEFAULT 0,            -- of the event that asked: the order within a task
  kind         TEXT   NOT NULL CHECK (kind IN ('plan', 'tool', 'question', 'budget', 'unknown')),
  call_id      TEXT,                                 -- the call that waits
  tool         TEXT   NOT NULL,
  digest       TEXT   NOT NULL,
  args         TEXT   NOT NULL DEFAULT '{}',
  cwd          TEXT   NOT NULL DEFAULT '',
  preview      TEXT   NOT NULL DEFAULT '',
  risk         TEXT   NOT NULL DEFAULT '',
  reason       TEXT   NOT NULL DEFAULT '',           -- why it is asked
  rule         TEXT,                                 -- a rule that would allow its like; decided with scope rule: the one that was written
  files        TEXT   NOT NULL DEFAULT '[]',         -- JSON: [{path, hash?}] that the call would write
  question     TEXT,                                 -- JSON: {text, options, recommended?, onTimeout}
  reached      TEXT,                                 -- JSON: {name, allowed, used}, the limit
  state        TEXT   NOT NULL CHECK (state IN ('pending', 'allowed', 'denied', 'answered', 'expired')),
  scope        TEXT,
  note         TEXT,
  answer       TEXT,
  allowed_args TEXT,                                 -- JSON: the arguments that were allowed instead
  granted      TEXT,                                 -- JSON: how much more the task may use
  break_glass  TEXT,                                 -- why an owner decided who otherwise may not
  decided_by   TEXT,
  created_at   BIGINT NOT NULL,
  decided_at   BIGINT,
  expires_at   BIGINT,
  expiry       TEXT,                                 -- why it counts as denied
  replaces     TEXT,                                 -- the approval whose other arguments it is about
  becomes      TEXT,                                 -- the same, from there
  outcome      BIGINT,                               -- whether the allowed call then succeeded
  outcome_at   BIGINT,
  PRIMARY KEY (team_id, approval_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
INSERT INTO approvals_of_every_kind (team_id, approval_id, session_id, task_id, attempt, kind, tool, digest, args, cwd,
  preview, risk, state, scope, note, decided_by, created_at, decided_at, expires_at)
SELECT team_id, approval_id, session_id, task_id, attempt, CASE WHEN tool = 'plan' THEN 'plan' ELSE 'tool' END, tool, digest,
  args, cwd, preview, risk, state, scope, note, decided_by, created_at, decided_at, expires_at FROM approvals;
DROP TABLE approvals;
ALTER TABLE approvals_of_every_kind RENAME TO approvals;

-- Each list by an index in its own order.
CREATE INDEX approvals_state ON approvals (team_id, state, approval_id);
CREATE INDEX approvals_kind ON approvals (team_id, kind, approval_id);
CREATE INDEX approvals_state_kind ON approvals (team_id, state, kind, approval_id);
CREATE INDEX approvals_task ON approvals (team_id, task_id, approval_id);
CREATE INDEX approvals_session ON approvals (team_id, session_id);
CREATE INDEX approvals_pending ON approvals (team_id, task_id) WHERE state = 'pending';

-- What a team lets agents do without asking, and who of it decides.
CREATE TABLE approval_settings (
  team_id        TEXT   NOT NULL PRIMARY KEY REFERENCES teams (team_id) ON DELETE CASCADE,
  deny           TEXT   NOT NULL DEFAULT '[]',       -- JSON: rules
  ask            TEXT   NOT NULL DEFAULT '[]',
  allow          TEXT   NOT NULL DEFAULT '[]',
  min_role       TEXT   NOT NULL CHECK (min_role IN ('operator', 'admin', 'owner')),
  not_requester  BIGINT NOT NULL,                    -- 1: who gave a task does not decide what it asks
  expiry_minutes BIGINT NOT NULL
);
