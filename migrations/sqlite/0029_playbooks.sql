-- Runs of playbooks. A run belongs to the Board; what its steps do are ordinary tasks, whose sessions people may delete: no
-- step references its task.

CREATE TABLE playbook_runs (
  team_id             TEXT   NOT NULL,
  run_id              TEXT   NOT NULL UNIQUE,
  viber_id            TEXT   NOT NULL,
  playbook            TEXT   NOT NULL,               -- its name
  path                TEXT   NOT NULL,               -- its file beneath the workspace
  hash                TEXT   NOT NULL,               -- SHA-256 of the text
  text                TEXT   NOT NULL,               -- as it was
  inputs              TEXT   NOT NULL,               -- JSON: {name: value}
  supervised          BIGINT NOT NULL,
  steps               BIGINT NOT NULL,               -- how many the playbook has
  state               TEXT   NOT NULL CHECK (state IN ('running', 'completed', 'error', 'stopped')),
  paused              BIGINT NOT NULL DEFAULT 0,
  needs               TEXT   CHECK (needs IN ('gate', 'step', 'supervisor')),
  summary             TEXT,
  supervisor          TEXT,                          -- its newest task
  supervisor_session  TEXT,
  supervisor_attempts BIGINT NOT NULL DEFAULT 0,     -- since a person last started it
  told_by             TEXT   NOT NULL DEFAULT '[]',  -- JSON: who told its agents something by a decision
  by_viber            BIGINT NOT NULL,               -- started on its machine
  started_by          TEXT   NOT NULL,               -- operator, token or viber
  starter             TEXT   NOT NULL,               -- its name then
  created_at          BIGINT NOT NULL,
  ended_at            BIGINT,
  version             BIGINT NOT NULL DEFAULT 1,     -- rises with every change
  ledger_version      BIGINT NOT NULL DEFAULT 0,     -- the version that its viber was sent the ledger of
  settled             BIGINT NOT NULL DEFAULT 0,     -- nothing is left to do
  PRIMARY KEY (team_id, run_id),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
CREATE INDEX playbook_runs_viber ON playbook_runs (team_id, viber_id, run_id);
CREATE INDEX playbook_runs_file ON playbook_runs (team_id, viber_id, path, run_id);
CREATE INDEX playbook_runs_supervisor ON playbook_runs (team_id, supervisor) WHERE supervisor IS NOT NULL;
-- The few that are under way, and the few that wait for people.
CREATE INDEX playbook_runs_open ON playbook_runs (team_id, run_id) WHERE settled = 0;
CREATE INDEX playbook_runs_needing ON playbook_runs (team_id, run_id) WHERE needs IS NOT NULL;

CREATE TABLE playbook_steps (
  team_id        TEXT   NOT NULL,
  run_id         TEXT   NOT NULL,
  place          BIGINT NOT NULL,                    -- the order
  label          TEXT   NOT NULL,
  title          TEXT   NOT NULL,
  instruction    TEXT   NOT NULL,
  bullets        TEXT   NOT NULL,                    -- JSON
  agent_id       TEXT   NOT NULL,
  viber_id       TEXT,                               -- once it is chosen
  target         TEXT,                               -- JSON: {name} or {labels}
  comes_after    TEXT   NOT NULL,                    -- JSON: labels
  gate           TEXT   CHECK (gate IN ('before', 'after')),
  gives          TEXT   NOT NULL,                    -- JSON: names of files
  retry          BIGINT NOT NULL,
  limits         TEXT   NOT NULL,                    -- JSON
  phase          TEXT   NOT NULL CHECK (phase IN ('pending', 'gate', 'running', 'done', 'failed', 'skipped', 'stopped')),
  task_id        TEXT,
  session_id     TEXT,
  attempt        BIGINT NOT NULL DEFAULT 0,
  added          BIGINT NOT NULL DEFAULT 0,          -- by the supervisor
  wanted         BIGINT NOT NULL DEFAULT 0,          -- the supervisor or a person asked for it
  broke          BIGINT NOT NULL DEFAULT 0,          -- it failed because its task did
  gate_digest    TEXT,
  gate_opened_at BIGINT,
  gate_word      TEXT,                               -- JSON: what a person decided
  skipped        TEXT,                               -- JSON: who left it out, and why
  failure        TEXT,
  summary        TEXT,
  usage          TEXT   NOT NULL DEFAULT '{}',
  started_at     BIGINT,
  ended_at       BIGINT,
  PRIMARY KEY (team_id, run_id, place),
  UNIQUE (team_id, run_id, label),
  FOREIGN KEY (team_id, run_id) REFERENCES playbook_runs (team_id, run_id) ON DELETE CASCADE
);

-- What happened in a run, in order.
CREATE TABLE playbook_events (
  team_id TEXT   NOT NULL,
  run_id  TEXT   NOT NULL,
  n       BIGINT NOT NULL,
  at      BIGINT NOT NULL,
  kind    TEXT   NOT NULL,
  step    TEXT,                                      -- the label of the step that it is about
  text    TEXT   NOT NULL,
  actor   TEXT,                                      -- the name of whoever did it
  PRIMARY KEY (team_id, run_id, n),
  FOREIGN KEY (team_id, run_id) REFERENCES playbook_runs (team_id, run_id) ON DELETE CASCADE
);

-- What supervisors asked the Board. People never decide these.
CREATE TABLE playbook_calls (
  team_id     TEXT   NOT NULL,
  approval_id TEXT   NOT NULL UNIQUE,
  run_id      TEXT   NOT NULL,
  task_id     TEXT   NOT NULL,
  attempt     BIGINT NOT NULL,
  event_seq   BIGINT NOT NULL,
  digest      TEXT   NOT NULL,
  tool        TEXT   NOT NULL,
  args        TEXT   NOT NULL,                       -- JSON
  waits_for   TEXT,                                  -- the label of the step whose end it waits for
  created_at  BIGINT NOT NULL,
  ended_at    BIGINT,
  PRIMARY KEY (team_id, approval_id),
  FOREIGN KEY (team_id, run_id) REFERENCES playbook_runs (team_id, run_id) ON DELETE CASCADE
);
CREATE INDEX playbook_calls_run ON playbook_calls (team_id, run_id, approval_id);
CREATE INDEX playbook_calls_open ON playbook_calls (team_id, run_id) WHERE ended_at IS NULL;

-- What a step or a supervisor does stands in sessions of its own: the rail, the list of all sessions and the count of unread ones
-- leave them out, by an index in the order of the list.
ALTER TABLE sessions ADD COLUMN run_id TEXT;         -- the run that it began for
CREATE INDEX sessions_own ON sessions (team_id, active_at, session_id)
WHERE archived_at IS NULL AND deleted_at IS NULL AND run_id IS NULL;
-- The few tasks that wait, and those that failed and were nobody's step: the rail lists what needs a person, however old.
CREATE INDEX tasks_waiting ON tasks (team_id, task_id) WHERE waiting IS NOT NULL;
CREATE INDEX tasks_failed ON tasks (team_id, task_id) WHERE state = 'error' AND origin <> 'playbook';
