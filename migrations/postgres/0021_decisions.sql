-- What was decided about a call is found by the call.
CREATE INDEX approvals_call ON approvals (team_id, call_id, task_id);

-- What models cost where their provider does not say.
CREATE TABLE prices (
  team_id    TEXT   NOT NULL PRIMARY KEY REFERENCES teams (team_id) ON DELETE CASCADE,
  list       TEXT   NOT NULL,                        -- JSON: [{model, input, output, cached?}], USD for a million tokens
  version    BIGINT NOT NULL,                        -- rises with every change
  changed_by TEXT   NOT NULL,
  changed_at BIGINT NOT NULL
);

-- Two people who change the rules at once do not undo each other's change.
ALTER TABLE approval_settings ADD COLUMN version BIGINT NOT NULL DEFAULT 1;

-- Orders to stop what an agent was given that are not carried out yet.
CREATE TABLE interrupts (
  team_id    TEXT   NOT NULL,
  viber_id   TEXT   NOT NULL,
  agent_id   TEXT   NOT NULL,
  ordered_at BIGINT NOT NULL,                        -- tasks given later are not stopped
  ordered_by TEXT   NOT NULL,
  reason     TEXT   NOT NULL,
  PRIMARY KEY (team_id, viber_id, agent_id),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);

-- Where people want the task to be held: step, tool. It is not held before its viber says so.
ALTER TABLE tasks ADD COLUMN pausing TEXT;
