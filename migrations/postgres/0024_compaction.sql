-- Compaction: a summary stands for the older turns of a session in its requests. The turns themselves stay.

-- `work`, or what is done with the conversation: `compact`, `flush`, `transfer`.
ALTER TABLE tasks ADD COLUMN kind TEXT NOT NULL DEFAULT 'work';
CREATE INDEX tasks_no_work ON tasks (team_id, session_id, message_seq) WHERE kind <> 'work';

-- From which share of what a conversation may take it is compacted by itself, percent; 0: never. NULL: as the team says.
ALTER TABLE teams ADD COLUMN compact_percent BIGINT NOT NULL DEFAULT 70;
ALTER TABLE sessions ADD COLUMN compact_percent BIGINT;
-- Notes were taken of the messages up to this seq.
ALTER TABLE sessions ADD COLUMN noted_seq BIGINT NOT NULL DEFAULT 0;
-- The session that this one goes on from, and what it takes along beside the summary: `plan`, `artifacts`.
ALTER TABLE sessions ADD COLUMN continues TEXT;
ALTER TABLE sessions ADD COLUMN carries TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_continues ON sessions (team_id, continues, session_id) WHERE continues IS NOT NULL;

CREATE TABLE summaries (
  team_id       TEXT   NOT NULL,
  session_id    TEXT   NOT NULL,
  task_id       TEXT   NOT NULL,                  -- the compaction; of a session that goes on from another, that other's
  up_to_seq     BIGINT NOT NULL,                  -- seq of the last message that it stands for
  text          TEXT   NOT NULL,
  tokens_before BIGINT NOT NULL,                  -- of the next request without it, and with it
  tokens_after  BIGINT NOT NULL,
  applied_by    TEXT   NOT NULL,
  applied_at    BIGINT NOT NULL,
  undone_at     BIGINT,
  PRIMARY KEY (team_id, session_id, task_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
