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
) WITH (fillfactor = 50);

INSERT INTO usage (team_id, slot, bytes)
SELECT t.team_id, 0,
  COALESCE((SELECT SUM(b.size) FROM blobs b WHERE b.team_id = t.team_id), 0)
  + COALESCE((SELECT SUM(OCTET_LENGTH(e.body)) FROM events e WHERE e.team_id = t.team_id), 0)
  + COALESCE((SELECT SUM(OCTET_LENGTH(p.body)) FROM parts p WHERE p.team_id = t.team_id), 0)
FROM teams t;

-- A slot for each connection, so that a change locks one row that hardly anybody else wants. Of a team that is being
-- deleted nothing is counted any more.
CREATE OR REPLACE FUNCTION usage_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_TABLE_NAME = 'blobs' THEN
    IF TG_OP <> 'DELETE' THEN
      INSERT INTO usage AS u (team_id, slot, bytes)
      SELECT n.team_id, pg_backend_pid() % 64, SUM(n.size) FROM added n JOIN teams t ON t.team_id = n.team_id GROUP BY n.team_id
      ON CONFLICT (team_id, slot) DO UPDATE SET bytes = u.bytes + excluded.bytes;
    END IF;
    IF TG_OP <> 'INSERT' THEN
      INSERT INTO usage AS u (team_id, slot, bytes)
      SELECT o.team_id, pg_backend_pid() % 64, -SUM(o.size) FROM removed o JOIN teams t ON t.team_id = o.team_id GROUP BY o.team_id
      ON CONFLICT (team_id, slot) DO UPDATE SET bytes = u.bytes + excluded.bytes;
    END IF;
  ELSE
    IF TG_OP <> 'DELETE' THEN
      INSERT INTO usage AS u (team_id, slot, bytes)
      SELECT n.team_id, pg_backend_pid() % 64, SUM(OCTET_LENGTH(n.body)) FROM added n JOIN teams t ON t.team_id = n.team_id GROUP BY n.team_id
      ON CONFLICT (team_id, slot) DO UPDATE SET bytes = u.bytes + excluded.bytes;
    END IF;
    IF TG_OP <> 'INSERT' THEN
      INSERT INTO usage AS u (team_id, slot, bytes)
      SELECT o.team_id, pg_backend_pid() % 64, -SUM(OCTET_LENGTH(o.body)) FROM removed o JOIN teams t ON t.team_id = o.team_id GROUP BY o.team_id
      ON CONFLICT (team_id, slot) DO UPDATE SET bytes = u.bytes + excluded.bytes;
    END IF;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER usage_blobs_added AFTER INSERT ON blobs REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
CREATE TRIGGER usage_blobs_removed AFTER DELETE ON blobs REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
CREATE TRIGGER usage_events_added AFTER INSERT ON events REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
CREATE TRIGGER usage_events_changed AFTER UPDATE ON events REFERENCING OLD TABLE AS removed NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
CREATE TRIGGER usage_events_removed AFTER DELETE ON events REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
CREATE TRIGGER usage_parts_added AFTER INSERT ON parts REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
CREATE TRIGGER usage_parts_changed AFTER UPDATE ON parts REFERENCING OLD TABLE AS removed NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
CREATE TRIGGER usage_parts_removed AFTER DELETE ON parts REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION usage_count();
