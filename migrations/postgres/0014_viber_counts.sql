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
-- deleted nothing is counted any change.
CREATE OR REPLACE FUNCTION viber_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  team   TEXT := CASE WHEN TG_OP = 'DELETE' THEN OLD.team_id ELSE NEW.team_id END;
  change INT := 0;
  online INT := 0;
BEGIN
  IF TG_OP <> 'DELETE' AND NEW.revoked_at IS NULL THEN
    change := 1;
    online := CASE WHEN NEW.contact = 'connected' THEN 1 ELSE 0 END;
  END IF;
  IF TG_OP <> 'INSERT' AND OLD.revoked_at IS NULL THEN
    change := change - 1;
    online := online - CASE WHEN OLD.contact = 'connected' THEN 1 ELSE 0 END;
  END IF;
  INSERT INTO viber_counts AS c (team_id, slot, vibers, connected)
  SELECT t.team_id, pg_backend_pid() % 64, change, online FROM teams t WHERE t.team_id = team
  ON CONFLICT (team_id, slot) DO UPDATE SET vibers = c.vibers + excluded.vibers, connected = c.connected + excluded.connected;
  RETURN NULL;
END $$;

CREATE TRIGGER viber_counts_added AFTER INSERT ON vibers
  FOR EACH ROW WHEN (NEW.revoked_at IS NULL) EXECUTE FUNCTION viber_count();
CREATE TRIGGER viber_counts_changed AFTER UPDATE OF contact, revoked_at ON vibers
  FOR EACH ROW WHEN (OLD.contact <> NEW.contact OR (OLD.revoked_at IS NULL) <> (NEW.revoked_at IS NULL))
  EXECUTE FUNCTION viber_count();
CREATE TRIGGER viber_counts_removed AFTER DELETE ON vibers
  FOR EACH ROW WHEN (OLD.revoked_at IS NULL) EXECUTE FUNCTION viber_count();
