-- What people say to a task that has not ended, until its agent was told.

CREATE TABLE task_messages (
  team_id       TEXT   NOT NULL,
  message_id    TEXT   NOT NULL UNIQUE,
  session_id    TEXT   NOT NULL,
  task_id       TEXT   NOT NULL,
  author        TEXT   NOT NULL,                     -- operator or token
  author_name   TEXT   NOT NULL,                     -- as the agent is told it
  content       TEXT   NOT NULL,
  context       TEXT,                                -- JSON: {currentFile?, selection?}
  mode          TEXT   NOT NULL CHECK (mode IN ('collect', 'steer', 'followup')),
  place         BIGINT NOT NULL,                     -- ascending in the task, with gaps: the order in which they are told
  rev           BIGINT NOT NULL,                     -- rises with every change
  earlier       TEXT,                                -- JSON: versions that the viber may still tell
  state         TEXT   NOT NULL CHECK (state IN ('accepted', 'delivered', 'consumed', 'withdrawn', 'discarded', 'held')),
  withdrawing   BIGINT NOT NULL DEFAULT 0,           -- 1: somebody takes it back, the viber decides
  why           TEXT,                                -- why it was used otherwise than asked
  attempt       BIGINT,                              -- where it was told: the attempt, its event and its turn
  event_seq     BIGINT,
  turn          BIGINT,
  next_task_id  TEXT,                                -- the task that it became
  late_for      TEXT,                                -- the message whose newer words these are: they came too late
  created_at    BIGINT NOT NULL,
  consumed_at   BIGINT,
  PRIMARY KEY (team_id, message_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX task_messages_task ON task_messages (team_id, task_id, place);
CREATE INDEX task_messages_told ON task_messages (team_id, task_id, attempt, event_seq) WHERE event_seq IS NOT NULL;
CREATE INDEX task_messages_session ON task_messages (team_id, session_id);
CREATE INDEX task_messages_open ON task_messages (team_id, session_id, created_at)
  WHERE state IN ('accepted', 'delivered', 'held');
CREATE INDEX task_messages_waiting ON task_messages (team_id, task_id, place)
  WHERE state IN ('accepted', 'delivered');

-- They are found by their words, too: as parts they are notices that say so.
CREATE TRIGGER message_unindexed AFTER INSERT ON parts
  WHEN NEW.kind = 'notice' AND NEW.body LIKE '{"type":"message"%' BEGIN
  INSERT INTO unindexed_texts (team_id, message_id, idx) VALUES (NEW.team_id, NEW.message_id, NEW.idx);
END;
