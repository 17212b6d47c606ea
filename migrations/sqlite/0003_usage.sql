-- How much a team keeps here, and how much it may keep. The counters are kept by the database itself, in the change that
-- they count, whoever makes it and however rows go (also by a cascade): nobody has to remember them.

ALTER TABLE teams ADD COLUMN storage_bytes BIGINT NOT NULL DEFAULT 107374182400;  -- 100 GiB

-- A team's use is the sum of its slots: changes that run side by side have a slot each and do not wait for each other.
-- A slot may be negative.
CREATE TABLE usage (
  team_id TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  slot    BIGINT NOT NULL,
  bytes   BIGINT NOT NULL,
  PRIMARY KEY (team_id, slot)
) WITHOUT ROWID;

INSERT INTO usage (team_id, slot, bytes)
SELECT t.team_id, 0,
  COALESCE((SELECT SUM(b.size) FROM blobs b WHERE b.team_id = t.team_id), 0)
  + COALESCE((SELECT SUM(OCTET_LENGTH(e.body)) FROM events e WHERE e.team_id = t.team_id), 0)
  + COALESCE((SELECT SUM(OCTET_LENGTH(p.body)) FROM parts p WHERE p.team_id = t.team_id), 0)
FROM teams t;

-- Of a team that is being deleted nothing is counted any more.
CREATE TRIGGER usage_blob_added AFTER INSERT ON blobs BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, NEW.size FROM teams WHERE team_id = NEW.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_blob_removed AFTER DELETE ON blobs BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, -OLD.size FROM teams WHERE team_id = OLD.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_events_added AFTER INSERT ON events BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, OCTET_LENGTH(NEW.body) FROM teams WHERE team_id = NEW.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_events_changed AFTER UPDATE OF body ON events BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, OCTET_LENGTH(NEW.body) - OCTET_LENGTH(OLD.body) FROM teams
  WHERE team_id = NEW.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_events_removed AFTER DELETE ON events BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, -OCTET_LENGTH(OLD.body) FROM teams WHERE team_id = OLD.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_part_added AFTER INSERT ON parts BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, OCTET_LENGTH(NEW.body) FROM teams WHERE team_id = NEW.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_part_changed AFTER UPDATE OF body ON parts BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, OCTET_LENGTH(NEW.body) - OCTET_LENGTH(OLD.body) FROM teams
  WHERE team_id = NEW.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_part_removed AFTER DELETE ON parts BEGIN
  INSERT INTO usage (team_id, slot, bytes) SELECT team_id, 0, -OCTET_LENGTH(OLD.body) FROM teams WHERE team_id = OLD.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
