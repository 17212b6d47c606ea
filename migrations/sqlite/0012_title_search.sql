-- Sessions are found by a part of their title without reading all of them.

-- Titles as the index has them. A team's numbers lie together, so that a search of one team reads nothing of another.
CREATE TABLE session_titles (
  title_id   INTEGER NOT NULL PRIMARY KEY,
  team_id    TEXT    NOT NULL,
  session_id TEXT    NOT NULL,
  title      TEXT    NOT NULL,                    -- the session's title_folded
  UNIQUE (team_id, session_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
CREATE VIRTUAL TABLE session_title_trigrams USING fts5 (
  title, content = 'session_titles', content_rowid = 'title_id', tokenize = 'trigram case_sensitive 1', detail = 'none',
  columnsize = 0
);
-- By itself FTS5 merges up to thousands of pages in whichever change comes next. Instead each change that writes to the
-- index merges a few pages in it: the Board where it adds titles, and the trigger below where one is removed. Both merge
-- more than they add. Otherwise FTS5 would still merge a level at once when it has 16 segments (crisismerge): that is left
-- as it is, so that the segments stay few whatever happens.
INSERT INTO session_title_trigrams (session_title_trigrams, rank) VALUES ('automerge', 0);
CREATE TRIGGER session_title_added AFTER INSERT ON session_titles BEGIN
  INSERT INTO session_title_trigrams (rowid, title) VALUES (NEW.title_id, NEW.title);
END;
CREATE TRIGGER session_title_changed AFTER UPDATE OF title ON session_titles BEGIN
  INSERT INTO session_title_trigrams (session_title_trigrams, rowid, title) VALUES ('delete', OLD.title_id, OLD.title);
  INSERT INTO session_title_trigrams (rowid, title) VALUES (NEW.title_id, NEW.title);
END;
CREATE TRIGGER session_title_removed AFTER DELETE ON session_titles BEGIN
  INSERT INTO session_title_trigrams (session_title_trigrams, rowid, title) VALUES ('delete', OLD.title_id, OLD.title);
  INSERT INTO session_title_trigrams (session_title_trigrams, rank) VALUES ('merge', 4);
END;

-- Sessions whose title is not in the index, or is there as it was. Whoever writes a title, the database notes it.
CREATE TABLE unindexed_titles (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  taken      BIGINT NOT NULL DEFAULT 0,           -- 1 while a change adds it to the index
  PRIMARY KEY (team_id, session_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX unindexed_titles_taken ON unindexed_titles (team_id, taken, session_id) WHERE taken = 1;
-- As many as there are: the Board adds them to the index once it serves, some in each change.
INSERT INTO unindexed_titles (team_id, session_id) SELECT team_id, session_id FROM sessions WHERE deleted_at IS NULL;

CREATE TRIGGER session_untitled AFTER INSERT ON sessions BEGIN
  INSERT INTO unindexed_titles (team_id, session_id) VALUES (NEW.team_id, NEW.session_id)
  ON CONFLICT (team_id, session_id) DO NOTHING;
END;
CREATE TRIGGER session_renamed AFTER UPDATE OF title_folded ON sessions WHEN NEW.title_folded <> OLD.title_folded BEGIN
  INSERT INTO unindexed_titles (team_id, session_id) VALUES (NEW.team_id, NEW.session_id)
  ON CONFLICT (team_id, session_id) DO NOTHING;
END;
