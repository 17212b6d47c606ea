-- What stands beside a conversation: what each operator last chose to see there, and the files that its agent changed.

CREATE TABLE pane_choices (
  team_id     TEXT NOT NULL,
  operator_id TEXT NOT NULL,
  session_id  TEXT NOT NULL,
  pane        TEXT NOT NULL, -- plan | artifacts | files | memory | closed
  PRIMARY KEY (team_id, session_id, operator_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);

-- Files that a session's agent wrote by its file tools: at most a hundred, because a tab counts them.
CREATE TABLE touched_files (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  path       TEXT   NOT NULL,
  call_id    TEXT   NOT NULL, -- the newest call that was to write it
  done       BIGINT NOT NULL DEFAULT 0, -- 1: one of them did
  PRIMARY KEY (team_id, session_id, path),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
