-- Rollouts: one version of a skill, installed on the vibers of one label after the other.

CREATE TABLE skill_rollouts (
  team_id    TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  rollout_id TEXT   NOT NULL UNIQUE,
  skill_id   TEXT   NOT NULL,                        -- the version; it may be deleted meanwhile
  name       TEXT   NOT NULL,
  version    TEXT,
  digest     TEXT   NOT NULL,
  labels     TEXT   NOT NULL,                        -- JSON: ["key=value"], in their order
  agents     TEXT,                                   -- JSON: ids
  state      TEXT   NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped')),
  stage      BIGINT NOT NULL DEFAULT 0,              -- the label that it is at, from 0
  reached    TEXT   NOT NULL DEFAULT '',             -- the last viber of that label that it was ordered for
  why        TEXT,                                   -- it failed
  begun_by   TEXT   NOT NULL,                        -- operator or token
  beginner   TEXT   NOT NULL,                        -- its name then
  begun_at   BIGINT NOT NULL,
  ended_at   BIGINT,
  settled    BIGINT NOT NULL DEFAULT 0,              -- nothing is left to do
  PRIMARY KEY (team_id, rollout_id)
);
CREATE INDEX skill_rollouts_name ON skill_rollouts (team_id, name, rollout_id);
CREATE INDEX skill_rollouts_open ON skill_rollouts (team_id, rollout_id) WHERE settled = 0;
CREATE UNIQUE INDEX skill_rollouts_running ON skill_rollouts (team_id, name) WHERE state = 'running';

-- The rollout that an order belongs to, and the label.
ALTER TABLE skill_orders ADD COLUMN rollout_id TEXT;
ALTER TABLE skill_orders ADD COLUMN stage BIGINT;
CREATE INDEX skill_orders_rollout ON skill_orders (team_id, rollout_id, viber_id) WHERE rollout_id IS NOT NULL;
CREATE INDEX skill_orders_stage ON skill_orders (team_id, rollout_id, state, stage, viber_id) WHERE rollout_id IS NOT NULL;
-- The version that a viber had last, and the vibers that one waits for.
CREATE INDEX skill_orders_installs ON skill_orders (team_id, viber_id, name, cmd_seq) WHERE op = 'install' AND state = 'done';
CREATE INDEX skill_orders_waiting ON skill_orders (team_id, name, viber_id, cmd_seq) WHERE op = 'install' AND state = 'queued';
-- Those that have skills, of which there may be few among many.
CREATE INDEX vibers_with_skills ON vibers (team_id, viber_id) WHERE skills <> '[]' AND revoked_at IS NULL;
