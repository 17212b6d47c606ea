-- Vibers are listed page by page by their contact, and found by a part of their words.

DROP INDEX vibers_contact;
CREATE INDEX vibers_contact ON vibers (team_id, contact, viber_id) WHERE revoked_at IS NULL;

-- What a search compares: name, host, labels and agents, a line each, folded as the Board folds what is searched for.
-- NULL: the Board has yet to write them.
CREATE TABLE viber_words (
  team_id  TEXT NOT NULL,
  viber_id TEXT NOT NULL,
  words    TEXT,
  PRIMARY KEY (team_id, viber_id),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
-- Empty, but for a moment after this migration.
CREATE INDEX viber_words_missing ON viber_words (team_id, words, viber_id) WHERE words IS NULL;
INSERT INTO viber_words (team_id, viber_id) SELECT team_id, viber_id FROM vibers WHERE revoked_at IS NULL;
