-- The first schema. Ids are TEXT, instants BIGINT milliseconds since the epoch, JSON and states TEXT.
-- Every table of a team starts its key with team_id, and foreign keys carry it along, so that no row can point into
-- another team. The same text serves both databases, but for WITHOUT ROWID: SQLite has small rows in their key.

-- Facts about this Board as a whole: `setup_code` (hash), `board_id`.
CREATE TABLE board (
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);

CREATE TABLE teams (
  team_id        TEXT   NOT NULL PRIMARY KEY,
  slug           TEXT   NOT NULL UNIQUE,
  name           TEXT   NOT NULL,
  claimed_at     BIGINT,                          -- when its first owner came; NULL: vibers may join, nobody is in it
  suspended_at   BIGINT,
  lost_after_ms  BIGINT NOT NULL DEFAULT 900000,  -- 0: a silent viber's task is never declared lost
  retention_days BIGINT NOT NULL DEFAULT 30,
  created_at     BIGINT NOT NULL
);

CREATE TABLE operators (
  operator_id         TEXT   NOT NULL PRIMARY KEY,
  email               TEXT   NOT NULL UNIQUE,     -- lower case
  name                TEXT   NOT NULL,
  password_hash       TEXT   NOT NULL,
  theme               TEXT   NOT NULL DEFAULT 'system' CHECK (theme IN ('system', 'light', 'dark')),
  password_changed_at BIGINT NOT NULL,
  disabled_at         BIGINT,
  created_at          BIGINT NOT NULL
);

CREATE TABLE members (
  team_id     TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  operator_id TEXT   NOT NULL REFERENCES operators (operator_id) ON DELETE CASCADE,
  role        TEXT   NOT NULL CHECK (role IN ('owner', 'admin', 'operator', 'viewer')),
  created_at  BIGINT NOT NULL,
  PRIMARY KEY (team_id, operator_id)
);
CREATE INDEX members_operator ON members (operator_id, team_id);

-- A signed-in device. The cookie's `sid` names the row, and the row decides.
CREATE TABLE logins (
  login_id    TEXT   NOT NULL PRIMARY KEY,
  operator_id TEXT   NOT NULL REFERENCES operators (operator_id) ON DELETE CASCADE,
  user_agent  TEXT   NOT NULL,
  address     TEXT   NOT NULL,
  created_at  BIGINT NOT NULL,
  seen_at     BIGINT NOT NULL,
  expires_at  BIGINT NOT NULL,
  ended_at    BIGINT
);
CREATE INDEX logins_operator ON logins (operator_id, login_id);

CREATE TABLE invitations (
  team_id       TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  invitation_id TEXT   NOT NULL,
  email         TEXT   NOT NULL,                  -- '' when anyone with the link may take it
  role          TEXT   NOT NULL CHECK (role IN ('owner', 'admin', 'operator', 'viewer')),
  token_hash    TEXT   NOT NULL UNIQUE,
  invited_by    TEXT   NOT NULL,
  created_at    BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL,
  used_at       BIGINT,
  used_by       TEXT,
  revoked_at    BIGINT,
  PRIMARY KEY (team_id, invitation_id)
);

CREATE TABLE api_tokens (
  team_id    TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  token_id   TEXT   NOT NULL,
  name       TEXT   NOT NULL,
  role       TEXT   NOT NULL CHECK (role IN ('owner', 'admin', 'operator', 'viewer')),
  token_hash TEXT   NOT NULL UNIQUE,
  created_by TEXT   NOT NULL,
  created_at BIGINT NOT NULL,
  seen_at    BIGINT,
  revoked_at BIGINT,
  PRIMARY KEY (team_id, token_id)
);

CREATE TABLE join_tokens (
  team_id       TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  join_token_id TEXT   NOT NULL,
  token_hash    TEXT   NOT NULL UNIQUE,
  labels        TEXT   NOT NULL DEFAULT '{}',     -- JSON object of text
  created_by    TEXT   NOT NULL,
  created_at    BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL,
  used_at       BIGINT,
  viber_id      TEXT,
  revoked_at    BIGINT,
  PRIMARY KEY (team_id, join_token_id)
);

CREATE TABLE vibers (
  team_id         TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  viber_id        TEXT   NOT NULL UNIQUE,
  name            TEXT   NOT NULL,
  labels          TEXT   NOT NULL DEFAULT '{}',
  hostname        TEXT   NOT NULL DEFAULT '',
  platform        TEXT   NOT NULL DEFAULT '',
  version         TEXT   NOT NULL DEFAULT '',
  capabilities    TEXT   NOT NULL DEFAULT '[]',   -- JSON list of text; `landlock` or `unconfined`, `insecure`
  agents          TEXT   NOT NULL DEFAULT '[]',   -- JSON as in `hello`
  skills          TEXT   NOT NULL DEFAULT '[]',
  jobs            TEXT   NOT NULL DEFAULT '[]',
  providers       TEXT   NOT NULL DEFAULT '[]',
  credential_hash TEXT   NOT NULL UNIQUE,
  drained         BIGINT NOT NULL DEFAULT 0,
  conn_epoch      BIGINT NOT NULL DEFAULT 0,      -- of the last accepted connection
  boot_id         TEXT   NOT NULL DEFAULT '',
  cmd_seq         BIGINT NOT NULL DEFAULT 0,      -- of the last command given to it
  acked_cmd_seq   BIGINT NOT NULL DEFAULT 0,
  contact         TEXT   NOT NULL DEFAULT 'disconnected' CHECK (contact IN ('connected', 'disconnected')),
  contact_since   BIGINT NOT NULL,
  seen_at         BIGINT,
  cloned_at       BIGINT,                         -- two boots took turns: the credential may have been copied
  created_at      BIGINT NOT NULL,
  revoked_at      BIGINT,
  PRIMARY KEY (team_id, viber_id)
);

CREATE TABLE sessions (
  team_id      TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  session_id   TEXT   NOT NULL UNIQUE,
  viber_id     TEXT   NOT NULL,
  agent_id     TEXT   NOT NULL,
  title        TEXT   NOT NULL,
  title_folded TEXT   NOT NULL,                   -- lower case, for the search
  renamed_at   BIGINT,                            -- a person chose the title
  pinned_at    BIGINT,
  archived_at  BIGINT,
  last_seq     BIGINT NOT NULL DEFAULT 0,         -- the last seq given to, or kept free for, a message
  created_by   TEXT   NOT NULL,
  created_at   BIGINT NOT NULL,
  active_at    BIGINT NOT NULL,                   -- newest message or change of a task's state
  PRIMARY KEY (team_id, session_id),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id)
);
CREATE INDEX sessions_active ON sessions (team_id, active_at, session_id);

-- Never change once complete. The assistant's message of an attempt is made when its first part is.
CREATE TABLE messages (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  seq        BIGINT NOT NULL,                     -- ascending in the session; a question and its answer are neighbours
  message_id TEXT   NOT NULL,
  role       TEXT   NOT NULL CHECK (role IN ('user', 'assistant')),
  author     TEXT   NOT NULL,                     -- operator or token id of a user message; agent id of an assistant's
  task_id    TEXT   NOT NULL,
  attempt    BIGINT NOT NULL DEFAULT 0,           -- of an assistant's message
  created_at BIGINT NOT NULL,
  PRIMARY KEY (team_id, session_id, seq),
  UNIQUE (team_id, message_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
CREATE INDEX messages_task ON messages (team_id, task_id, attempt);

-- Written once, when complete. The open part is read from the events after the attempt's parts_seq.
CREATE TABLE parts (
  team_id    TEXT   NOT NULL,
  message_id TEXT   NOT NULL,
  idx        BIGINT NOT NULL,                     -- 0, 1, … in the message
  kind       TEXT   NOT NULL CHECK (kind IN ('text', 'reasoning', 'tool-call', 'tool-result', 'artifact', 'notice', 'summary')),
  body       TEXT   NOT NULL,                     -- JSON of the part as the API shows it
  created_at BIGINT NOT NULL,
  PRIMARY KEY (team_id, message_id, idx),
  FOREIGN KEY (team_id, message_id) REFERENCES messages (team_id, message_id) ON DELETE CASCADE
);

CREATE TABLE tasks (
  team_id           TEXT   NOT NULL,
  task_id           TEXT   NOT NULL UNIQUE,
  session_id        TEXT   NOT NULL,
  viber_id          TEXT   NOT NULL,
  agent_id          TEXT   NOT NULL,
  message_id        TEXT   NOT NULL,              -- the user message that asked for it
  message_seq       BIGINT NOT NULL,              -- its seq: the task's place in the session; history is what lies before
  goal              TEXT   NOT NULL,
  state             TEXT   NOT NULL CHECK (state IN ('pending', 'running', 'completed', 'error', 'stopped')),
  delivery          TEXT   CHECK (delivery IN ('queued', 'offered', 'accepted')),  -- while pending
  waiting           TEXT,                         -- JSON {for, until?, id?}, while running
  attempt           BIGINT NOT NULL,              -- the newest
  stream            TEXT   NOT NULL DEFAULT 'full',
  mode              TEXT,
  limits            TEXT   NOT NULL DEFAULT '{}',
  payload           TEXT   NOT NULL DEFAULT '{}', -- JSON {plan?, artifacts?, memory?, context?, attachments?} as submitted
  model             TEXT,                         -- as `task:started` told
  result            TEXT,                         -- JSON TaskResult
  error             TEXT,                         -- JSON TaskError
  usage             TEXT   NOT NULL DEFAULT '{}',
  origin            TEXT   NOT NULL DEFAULT 'board',
  created_by        TEXT   NOT NULL,
  created_at        BIGINT NOT NULL,
  offered_at        BIGINT,
  started_at        BIGINT,
  ended_at          BIGINT,
  stopped_by        TEXT,
  stop_reason       TEXT,
  stop_confirmed_at BIGINT,
  PRIMARY KEY (team_id, task_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE,
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id)
);
CREATE INDEX tasks_session ON tasks (team_id, session_id, message_seq);
CREATE INDEX tasks_viber_state ON tasks (team_id, viber_id, state, task_id);

-- One delivery of a task each. last_seq is the duplicate and gap check of its events.
CREATE TABLE attempts (
  team_id    TEXT   NOT NULL,
  task_id    TEXT   NOT NULL,
  attempt    BIGINT NOT NULL,                     -- 1, 2, …
  viber_id   TEXT   NOT NULL,
  cmd_seq    BIGINT,                              -- of its task:submit
  last_seq   BIGINT NOT NULL DEFAULT 0,           -- of its newest durable event
  parts_seq  BIGINT NOT NULL DEFAULT 0,           -- events up to here have become parts
  message_id TEXT,                                -- the assistant's message, once there is one
  message_seq BIGINT NOT NULL,                    -- kept free for that message, so that an answer follows its question
  outcome    TEXT   CHECK (outcome IN ('completed', 'error', 'stopped', 'lost')),
  superseded BIGINT NOT NULL DEFAULT 0,           -- ended after a newer attempt had begun
  report     TEXT,                                -- JSON of its terminal event's result or error
  created_at BIGINT NOT NULL,
  started_at BIGINT,
  ended_at   BIGINT,
  trimmed_at BIGINT,                              -- its events gave way to a gap
  PRIMARY KEY (team_id, task_id, attempt),
  FOREIGN KEY (team_id, task_id) REFERENCES tasks (team_id, task_id) ON DELETE CASCADE
);
CREATE INDEX attempts_open ON attempts (team_id, viber_id) WHERE outcome IS NULL;

-- As they came, one row a frame.
CREATE TABLE events (
  team_id     TEXT   NOT NULL,
  task_id     TEXT   NOT NULL,
  attempt     BIGINT NOT NULL,
  from_seq    BIGINT NOT NULL,
  to_seq      BIGINT NOT NULL,
  body        TEXT   NOT NULL,                    -- JSON list, the items byte for byte
  received_at BIGINT NOT NULL,
  PRIMARY KEY (team_id, task_id, attempt, from_seq),
  FOREIGN KEY (team_id, task_id, attempt) REFERENCES attempts (team_id, task_id, attempt) ON DELETE CASCADE
);

CREATE TABLE commands (
  team_id    TEXT   NOT NULL,
  viber_id   TEXT   NOT NULL,
  cmd_seq    BIGINT NOT NULL,
  kind       TEXT   NOT NULL,                     -- the command's type on the wire
  task_id    TEXT,
  attempt    BIGINT,
  body       TEXT   NOT NULL,                     -- JSON; of a task:submit only {sessionId, upToSeq}
  created_at BIGINT NOT NULL,
  acked_at   BIGINT,
  PRIMARY KEY (team_id, viber_id, cmd_seq),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);

-- When an operator last looked at a session: what became active after that is unread.
CREATE TABLE read_marks (
  team_id     TEXT   NOT NULL,
  operator_id TEXT   NOT NULL,
  session_id  TEXT   NOT NULL,
  seq         BIGINT NOT NULL,
  at          BIGINT NOT NULL,
  PRIMARY KEY (team_id, operator_id, session_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);

-- Answers to unsafe calls that carried an Idempotency-Key, kept 24 h.
CREATE TABLE idempotency (
  team_id    TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  actor      TEXT   NOT NULL,
  key        TEXT   NOT NULL,
  body_hash  TEXT   NOT NULL,
  status     BIGINT NOT NULL,
  answer     TEXT   NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (team_id, actor, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);

-- Who did what, from where, on what; each row's hash covers the one before it.
CREATE TABLE audit (
  team_id     TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  seq         BIGINT NOT NULL,
  at          BIGINT NOT NULL,
  actor       TEXT   NOT NULL,
  actor_name  TEXT   NOT NULL,
  address     TEXT   NOT NULL,
  action      TEXT   NOT NULL,
  object      TEXT   NOT NULL,
  detail      TEXT   NOT NULL,
  before_hash TEXT   NOT NULL,
  after_hash  TEXT   NOT NULL,
  prev_hash   TEXT   NOT NULL,
  hash        TEXT   NOT NULL,
  PRIMARY KEY (team_id, seq)
);
