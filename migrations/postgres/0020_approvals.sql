-- Questions of every kind, side by side, with all that people decided and what came of it.

ALTER TABLE approvals DROP CONSTRAINT approvals_state_check;
ALTER TABLE approvals ADD CONSTRAINT approvals_state_check
  CHECK (state IN ('pending', 'allowed', 'denied', 'answered', 'expired'));
ALTER TABLE approvals
  ADD COLUMN event_seq    BIGINT NOT NULL DEFAULT 0,     -- of the event that asked: the order within a task
  ADD COLUMN kind         TEXT   NOT NULL DEFAULT 'plan' CHECK (kind IN ('plan', 'tool', 'question', 'budget', 'unknown')),
  ADD COLUMN call_id      TEXT,                          -- the call that waits
  ADD COLUMN reason       TEXT   NOT NULL DEFAULT '',    -- why it is asked
  ADD COLUMN rule         TEXT,                          -- a rule that would allow its like; decided with scope rule: the one that was written
  ADD COLUMN files        TEXT   NOT NULL DEFAULT '[]',  -- JSON: [{path, hash?}] that the call would write
  ADD COLUMN question     TEXT,                          -- JSON: {text, options, recommended?, onTimeout}
  ADD COLUMN reached      TEXT,                          -- JSON: {name, allowed, used}, the limit
  ADD COLUMN answer       TEXT,
  ADD COLUMN allowed_args TEXT,                          -- JSON: the arguments that were allowed instead
  ADD COLUMN granted      TEXT,                          -- JSON: how much more the task may use
  ADD COLUMN break_glass  TEXT,                          -- why an owner decided who otherwise may not
  ADD COLUMN expiry       TEXT,                          -- why it counts as denied
  ADD COLUMN replaces     TEXT,                          -- the approval whose other arguments it is about
  ADD COLUMN becomes      TEXT,                          -- the same, from there
  ADD COLUMN outcome      BIGINT,                        -- whether the allowed call then succeeded
  ADD COLUMN outcome_at   BIGINT;
UPDATE approvals SET kind = 'tool' WHERE tool <> 'plan';
ALTER TABLE approvals ALTER COLUMN kind DROP DEFAULT;

-- Each list by an index in its own order.
CREATE INDEX approvals_kind ON approvals (team_id, kind, approval_id);
CREATE INDEX approvals_state_kind ON approvals (team_id, state, kind, approval_id);
DROP INDEX approvals_task;
CREATE INDEX approvals_task ON approvals (team_id, task_id, approval_id);
CREATE INDEX approvals_session ON approvals (team_id, session_id);
CREATE INDEX approvals_pending ON approvals (team_id, task_id) WHERE state = 'pending';

-- What a team lets agents do without asking, and who of it decides.
CREATE TABLE approval_settings (
  team_id        TEXT   NOT NULL PRIMARY KEY REFERENCES teams (team_id) ON DELETE CASCADE,
  deny           TEXT   NOT NULL DEFAULT '[]',           -- JSON: rules
  ask            TEXT   NOT NULL DEFAULT '[]',
  allow          TEXT   NOT NULL DEFAULT '[]',
  min_role       TEXT   NOT NULL CHECK (min_role IN ('operator', 'admin', 'owner')),
  not_requester  BIGINT NOT NULL,                        -- 1: who gave a task does not decide what it asks
  expiry_minutes BIGINT NOT NULL
);
