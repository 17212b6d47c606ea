-- Vibers are listed page by page by their contact, and found by a part of their words.

DROP INDEX vibers_contact;
CREATE INDEX vibers_contact ON vibers (team_id, contact, viber_id) WHERE revoked_at IS NULL;

-- What a search compares: name, host, labels and agents, a line each, in lower case.
CREATE TABLE viber_words (
  team_id  TEXT NOT NULL,
  viber_id TEXT NOT NULL,
  words    TEXT NOT NULL,
  PRIMARY KEY (team_id, viber_id),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
-- The names of its agents come with a viber's next connection.
INSERT INTO viber_words (team_id, viber_id, words)
SELECT v.team_id, v.viber_id, LOWER(v.name || CHR(10) || v.hostname || COALESCE(
  (SELECT string_agg(CHR(10) || l.key || '=' || l.value, '') FROM jsonb_each_text(CAST(v.labels AS jsonb)) l), ''))
FROM vibers v;
