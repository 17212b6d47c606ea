-- Messages are found by the words in their texts without reading them.

-- The texts that the index has. The numbers of a team lie together and rise with time: what is new is counted upwards from
-- the middle, what was there before the index downwards.
CREATE TABLE indexed_texts (
  text_no    INTEGER NOT NULL PRIMARY KEY,
  team_id    TEXT    NOT NULL,
  session_id TEXT    NOT NULL,
  seq        BIGINT  NOT NULL,
  message_id TEXT    NOT NULL,
  idx        BIGINT  NOT NULL,
  UNIQUE (team_id, message_id, idx),
  FOREIGN KEY (team_id, message_id, idx) REFERENCES parts (team_id, message_id, idx) ON DELETE CASCADE
);
-- The Board splits texts into words, the same ones for both databases: FTS5 gets them one after the other.
CREATE VIRTUAL TABLE text_words USING fts5 (
  words, content = '', contentless_delete = 1, tokenize = 'ascii', detail = 'none'
);
-- As with titles, each change that writes to the index merges a few pages of it.
INSERT INTO text_words (text_words, rank) VALUES ('automerge', 0);
CREATE TRIGGER indexed_text_removed AFTER DELETE ON indexed_texts BEGIN
  DELETE FROM text_words WHERE rowid = OLD.text_no;
END;

-- Texts that are not in the index yet. Whoever writes one, the database notes it.
CREATE TABLE unindexed_texts (
  team_id    TEXT   NOT NULL,
  message_id TEXT   NOT NULL,
  idx        BIGINT NOT NULL,
  PRIMARY KEY (team_id, message_id, idx),
  FOREIGN KEY (team_id, message_id, idx) REFERENCES parts (team_id, message_id, idx) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TRIGGER text_unindexed AFTER INSERT ON parts WHEN NEW.kind = 'text' BEGIN
  INSERT INTO unindexed_texts (team_id, message_id, idx) VALUES (NEW.team_id, NEW.message_id, NEW.idx);
END;

-- Teams with texts that are older than the index, and where it has come to: it takes the newest first.
CREATE TABLE unindexed_history (
  team_id    TEXT   NOT NULL PRIMARY KEY REFERENCES teams (team_id) ON DELETE CASCADE,
  message_id TEXT   NOT NULL,                     -- the next one is older than this part
  idx        BIGINT NOT NULL
) WITHOUT ROWID;
INSERT INTO unindexed_history (team_id, message_id, idx)
SELECT t.team_id, 'msh', 0 FROM teams t WHERE EXISTS (SELECT 1 FROM messages m WHERE m.team_id = t.team_id);
