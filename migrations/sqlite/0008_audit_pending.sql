-- Entries of the audit that wait for their number: on PostgreSQL changes run side by side, and none waits for the others.
CREATE TABLE audit_pending (
  team_id     TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  entry_id    TEXT   NOT NULL,                    -- in the order in which they were made
  at          BIGINT NOT NULL,
  actor       TEXT   NOT NULL,
  actor_name  TEXT   NOT NULL,
  address     TEXT   NOT NULL,
  action      TEXT   NOT NULL,
  object      TEXT   NOT NULL,
  detail      TEXT   NOT NULL,
  before_hash TEXT   NOT NULL,
  after_hash  TEXT   NOT NULL,
  seal        TEXT   NOT NULL,                    -- covers the row and its id
  PRIMARY KEY (team_id, entry_id)
);
