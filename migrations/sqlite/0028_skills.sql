-- The library of a team: versions of skills. The files of each are one archive in the object store.

CREATE TABLE skills (
  team_id     TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  skill_id    TEXT   NOT NULL UNIQUE,
  name        TEXT   NOT NULL,
  description TEXT   NOT NULL,
  version     TEXT,
  source      TEXT   NOT NULL CHECK (source IN ('upload', 'clawhub', 'viber')),
  reference   TEXT,                                  -- what it is called there: slug@version, or a viber
  digest      TEXT   NOT NULL,                       -- of its files
  archive     TEXT   NOT NULL,                       -- SHA-256 of the blob with them
  size        BIGINT NOT NULL,                       -- of its files together, bytes
  about       TEXT   NOT NULL,                       -- JSON: {files, permissions, findings, warnings}
  findings    BIGINT NOT NULL,                       -- how many
  state       TEXT   NOT NULL CHECK (state IN ('unreviewed', 'approved', 'rejected')),
  reviewed_by TEXT,                                  -- operator or token
  reviewer    TEXT,                                  -- its name then
  reviewed_at BIGINT,
  note        TEXT   NOT NULL DEFAULT '',
  added_by    TEXT   NOT NULL,
  adder       TEXT   NOT NULL,
  added_at    BIGINT NOT NULL,
  PRIMARY KEY (team_id, skill_id)
);
CREATE UNIQUE INDEX skills_digest ON skills (team_id, name, digest);
CREATE INDEX skills_archive ON skills (team_id, archive);
CREATE INDEX skills_files ON skills (team_id, digest);

-- What people ordered of the skills of a viber: each is a command, which its daemon answers.
CREATE TABLE skill_orders (
  team_id    TEXT   NOT NULL,
  viber_id   TEXT   NOT NULL,
  cmd_seq    BIGINT NOT NULL,
  op         TEXT   NOT NULL CHECK (op IN ('install', 'remove', 'accept', 'enable')),
  name       TEXT   NOT NULL,
  digest     TEXT,
  version    TEXT,
  agents     TEXT,                                   -- JSON: ids
  state      TEXT   NOT NULL CHECK (state IN ('queued', 'done', 'failed')),
  error      TEXT,
  ordered_by TEXT   NOT NULL,
  orderer    TEXT   NOT NULL,
  ordered_at BIGINT NOT NULL,
  ended_at   BIGINT,
  PRIMARY KEY (team_id, viber_id, cmd_seq),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
CREATE INDEX skill_orders_queued ON skill_orders (team_id, viber_id) WHERE state = 'queued';
