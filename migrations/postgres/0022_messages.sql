-- Files that go with a message to a running task.

ALTER TABLE task_messages ADD COLUMN attachments TEXT;   -- JSON: [{id, name, size, sha256, type?}]; NULL: none

-- When a running task is told what somebody sends with Enter: NULL is `followup`.
ALTER TABLE members ADD COLUMN message_mode TEXT CHECK (message_mode IN ('collect', 'steer', 'followup'));

-- The same in one session, where it differs.
CREATE TABLE message_modes (
  team_id     TEXT NOT NULL,
  operator_id TEXT NOT NULL,
  session_id  TEXT NOT NULL,
  mode        TEXT NOT NULL CHECK (mode IN ('collect', 'steer', 'followup')),
  PRIMARY KEY (team_id, session_id, operator_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
