-- Work that agents give to each other. A row is what one call of one attempt asked for: the task that came of it is an ordinary
-- one, whose session people may delete, so that nothing references it.

CREATE TABLE delegations (
  team_id        TEXT   NOT NULL,
  parent_task    TEXT   NOT NULL,
  parent_attempt BIGINT NOT NULL,
  call_id        TEXT   NOT NULL,
  parent_session TEXT   NOT NULL,
  child_task     TEXT,                               -- once it was made
  child_session  TEXT,
  root_task      TEXT   NOT NULL,                    -- the task that the tree begins with
  depth          BIGINT NOT NULL,                    -- from 1
  agent_id       TEXT   NOT NULL,
  place          TEXT,                               -- as it was asked for: a viber's name, or label=value
  goal           TEXT   NOT NULL,
  artifacts      TEXT   NOT NULL DEFAULT '[]',       -- JSON: names of what goes along
  limits         TEXT   NOT NULL DEFAULT '{}',       -- JSON
  session_id     TEXT,                               -- of the task before, where it goes on with a conversation
  state          TEXT   NOT NULL CHECK (state IN ('gathering', 'made', 'refused')),
  refusal        TEXT,
  told           BIGINT NOT NULL DEFAULT 0,          -- 1: whoever asked knows how it ended
  outcome        TEXT,                               -- the first words of what they were told
  created_at     BIGINT NOT NULL,
  PRIMARY KEY (team_id, parent_task, parent_attempt, call_id)
);
-- A task is asked for once.
CREATE UNIQUE INDEX delegations_child ON delegations (team_id, child_task) WHERE child_task IS NOT NULL;
CREATE INDEX delegations_root ON delegations (team_id, root_task);
-- The few of which somebody still has to be told.
CREATE INDEX delegations_open ON delegations (team_id, root_task) WHERE told = 0;
-- What the page of a session shows.
CREATE INDEX delegations_asked_in ON delegations (team_id, parent_session, created_at);
CREATE INDEX delegations_done_in ON delegations (team_id, child_session, created_at) WHERE child_session IS NOT NULL;

-- What a team lets its agents ask of each other.
CREATE TABLE mesh_settings (
  team_id       TEXT   NOT NULL PRIMARY KEY REFERENCES teams (team_id) ON DELETE CASCADE,
  across_vibers BIGINT NOT NULL,
  max_depth     BIGINT NOT NULL,
  max_children  BIGINT NOT NULL,
  version       BIGINT NOT NULL
);

-- Agents name other vibers.
CREATE INDEX vibers_name ON vibers (team_id, name, viber_id) WHERE revoked_at IS NULL;
