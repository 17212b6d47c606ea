-- Sessions are found by a part of their title without reading all of them.

-- Every three neighbouring characters of a title, behind their team: a search of one team reads nothing of another. An
-- extension would have the same, but an ordinary user may not be allowed to create one.
CREATE OR REPLACE FUNCTION title_trigrams(team TEXT, title TEXT) RETURNS TEXT[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ARRAY(SELECT DISTINCT team || substr(title, n, 3) FROM generate_series(1, char_length(title) - 2) AS n)
$$;

-- Titles as the index has them. Not in the sessions themselves: those are written with every activity.
CREATE TABLE session_titles (
  team_id    TEXT NOT NULL,
  session_id TEXT NOT NULL,
  title      TEXT NOT NULL,                       -- the session's title_folded
  PRIMARY KEY (team_id, session_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
-- Few entries wait to be sorted into the index, because a search reads those that do: 256 KiB.
CREATE INDEX session_titles_trigrams ON session_titles USING gin (title_trigrams(team_id, title))
WITH (gin_pending_list_limit = 256);

-- Sessions whose title is not in the index, or is there as it was. Whoever writes a title, the database notes it.
CREATE TABLE unindexed_titles (
  team_id    TEXT   NOT NULL,
  session_id TEXT   NOT NULL,
  taken      BIGINT NOT NULL DEFAULT 0,           -- 1 while a change adds it to the index
  PRIMARY KEY (team_id, session_id),
  FOREIGN KEY (team_id, session_id) REFERENCES sessions (team_id, session_id) ON DELETE CASCADE
);
CREATE INDEX unindexed_titles_taken ON unindexed_titles (team_id, taken, session_id) WHERE taken = 1;
-- As many as there are: the Board adds them to the index once it serves, some in each change.
INSERT INTO unindexed_titles (team_id, session_id) SELECT team_id, session_id FROM sessions WHERE deleted_at IS NULL;

-- A row that is there is locked: whoever is taking it into the index waits for this title, or this change for them.
CREATE OR REPLACE FUNCTION note_unindexed_title() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO unindexed_titles (team_id, session_id) VALUES (NEW.team_id, NEW.session_id)
  ON CONFLICT (team_id, session_id) DO UPDATE SET taken = 0;
  RETURN NULL;
END $$;
CREATE TRIGGER session_untitled AFTER INSERT ON sessions
  FOR EACH ROW EXECUTE FUNCTION note_unindexed_title();
CREATE TRIGGER session_renamed AFTER UPDATE OF title_folded ON sessions
  FOR EACH ROW WHEN (NEW.title_folded <> OLD.title_folded) EXECUTE FUNCTION note_unindexed_title();
