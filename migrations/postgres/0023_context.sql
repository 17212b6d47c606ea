-- What requests carry: what people pinned, and what the newest request of a session was made of.

-- Messages and calls whose texts and results stay in a session's requests: at most 64 a session.
CREATE TABLE pins (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  message_id TEXT   NOT NULL,
  call_id    TEXT   NOT NULL,                     -- empty: the whole message
  pinned_by  TEXT   NOT NULL,
  pinned_at  BIGINT NOT NULL,
  PRIMARY KEY (team_id, session_id, message_id, call_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE,
  FOREIGN KEY (team_id, message_id) REFERENCES messages (team_id, message_id) ON DELETE CASCADE
);
CREATE INDEX pins_message ON pins (team_id, message_id);

-- The excerpts of the memory come with the first report of an attempt alone.
ALTER TABLE contexts ADD COLUMN memory TEXT;       -- JSON: [Excerpt]; NULL: none, or in `body`, where earlier versions kept them
-- Tokens that the request took, and of the model's window.
ALTER TABLE contexts ADD COLUMN used_tokens BIGINT;
ALTER TABLE contexts ADD COLUMN window_tokens BIGINT;
