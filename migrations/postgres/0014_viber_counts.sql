-- How many vibers a team has, and how many of them are connected: every page shows it. Kept like `usage`, by the database
-- itself, in slots whose sum counts.

CREATE TABLE viber_counts (
  team_id   TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  slot      BIGINT NOT NULL,
  vibers    BIGINT NOT NULL,
  connected BIGINT NOT NULL,
  PRIMARY KEY (team_id, slot)
) WITH (fillfactor = 50);

INSERT INTO viber_counts (team_id, slot, vibers, connected)
SELECT team_id, 0, COUNT(*), COUNT(CASE WHEN contact = 'connected' THEN 1 END) FROM vibers WHERE revoked_at IS NULL GROUP BY team_id;

-- A slot for each connection, so that a change locks one row that hardly anybody else wants. Of a team that is being
-- deleted nothing is counted any more.
CREATE OR REPLACE FUNCTION viber_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO viber_counts AS c (team_id, slot, vibers, connected)
    SELECT n.team_id, pg_backend_pid() % 64, COUNT(*), COUNT(CASE WHEN n.contact = 'connected' THEN 1 END)
    FROM added n JOIN teams t ON t.team_id = n.team_id WHERE n.revoked_at IS NULL GROUP BY n.team_id
    ON CONFLICT (team_id, slot) DO UPDATE SET vibers = c.vibers + excluded.vibers, connected = c.connected + excluded.connected;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO viber_counts AS c (team_id, slot, vibers, connected)
    SELECT o.team_id, pg_backend_pid() % 64, -COUNT(*), -COUNT(CASE WHEN o.contact = 'connected' THEN 1 END)
    FROM removed o JOIN teams t ON t.team_id = o.team_id WHERE o.revoked_at IS NULL GROUP BY o.team_id
    ON CONFLICT (team_id, slot) DO UPDATE SET vibers = c.vibers + excluded.vibers, connected = c.connected + excluded.connected;
  ELSE
    INSERT INTO viber_counts AS c (team_id, slot, vibers, connected)
    SELECT t.team_id, pg_backend_pid() % 64,
      CASE WHEN NEW.revoked_at IS NULL THEN 1 ELSE 0 END - CASE WHEN OLD.revoked_at IS NULL THEN 1 ELSE 0 END,
      CASE WHEN NEW.revoked_at IS NULL AND NEW.contact = 'connected' THEN 1 ELSE 0 END
      - CASE WHEN OLD.revoked_at IS NULL AND OLD.contact = 'connected' THEN 1 ELSE 0 END
    FROM teams t WHERE t.team_id = NEW.team_id
    ON CONFLICT (team_id, slot) DO UPDATE SET vibers = c.vibers + excluded.vibers, connected = c.connected + excluded.connected;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER viber_counts_added AFTER INSERT ON vibers REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION viber_count();
-- Of all updates of a viber few change what is counted.
CREATE TRIGGER viber_counts_changed AFTER UPDATE OF contact, revoked_at ON vibers
  FOR EACH ROW WHEN (OLD.contact <> NEW.contact OR (OLD.revoked_at IS NULL) <> (NEW.revoked_at IS NULL))
  EXECUTE FUNCTION viber_count();
CREATE TRIGGER viber_counts_removed AFTER DELETE ON vibers REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION viber_count();
