-- Messages are found by the words in their texts without reading them.

-- The texts that the index has. The numbers of a team lie together and rise with time: what is new is counted upwards from
-- the middle, what was there before the index downwards.
CREATE TABLE indexed_texts (
  text_no    BIGINT   NOT NULL PRIMARY KEY,
  team_id    TEXT     NOT NULL,
  session_id TEXT     NOT NULL,
  seq        BIGINT   NOT NULL,
  message_id TEXT     NOT NULL,
  idx        BIGINT   NOT NULL,
  words      BIGINT[] NOT NULL,                   -- a number for each word, another one in every 4,096 texts
  UNIQUE (team_id, message_id, idx),
  FOREIGN KEY (team_id, message_id, idx) REFERENCES parts (team_id, message_id, idx) ON DELETE CASCADE
);
-- The Board splits texts into words, the same ones for both databases. A word that all messages have is found in the newest
-- ones without reading what the index has of the others: it has a number of its own for each stretch of texts. Few entries
-- wait to be sorted in, because a search reads those that do: 256 KiB.
CREATE INDEX indexed_texts_words ON indexed_texts USING gin (words) WITH (gin_pending_list_limit = 256);

-- Texts that are not in the index yet. Whoever writes one, the database notes it.
CREATE TABLE unindexed_texts (
  team_id    TEXT   NOT NULL,
  message_id TEXT   NOT NULL,
  idx        BIGINT NOT NULL,
  PRIMARY KEY (team_id, message_id, idx),
  FOREIGN KEY (team_id, message_id, idx) REFERENCES parts (team_id, message_id, idx) ON DELETE CASCADE
);
CREATE OR REPLACE FUNCTION note_unindexed_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO unindexed_texts (team_id, message_id, idx) VALUES (NEW.team_id, NEW.message_id, NEW.idx);
  RETURN NULL;
END $$;
CREATE TRIGGER text_unindexed AFTER INSERT ON parts
  FOR EACH ROW WHEN (NEW.kind = 'text') EXECUTE FUNCTION note_unindexed_text();

-- Teams with texts that are older than the index, and where it has come to: it takes the newest first.
CREATE TABLE unindexed_history (
  team_id    TEXT   NOT NULL PRIMARY KEY REFERENCES teams (team_id) ON DELETE CASCADE,
  message_id TEXT   NOT NULL,                     -- the next one is older than this part
  idx        BIGINT NOT NULL
);
INSERT INTO unindexed_history (team_id, message_id, idx)
SELECT t.team_id, 'msh', 0 FROM teams t WHERE EXISTS (SELECT 1 FROM messages m WHERE m.team_id = t.team_id);
