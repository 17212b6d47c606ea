-- How many vibers a team has, and how many of them are connected: every page shows it. Kept like `usage`, by the database
-- itself, in slots whose sum counts.

CREATE TABLE viber_counts (
  team_id   TEXT   NOT NULL REFERENCES teams (team_id) ON DELETE CASCADE,
  slot      BIGINT NOT NULL,
  vibers    BIGINT NOT NULL,
  connected BIGINT NOT NULL,
  PRIMARY KEY (team_id, slot)
) WITHOUT ROWID;

INSERT INTO viber_counts (team_id, slot, vibers, connected)
SELECT team_id, 0, COUNT(*), SUM(contact = 'connected') FROM vibers WHERE revoked_at IS NULL GROUP BY team_id;

-- Of a team that is being deleted nothing is counted any more.
CREATE TRIGGER viber_counts_added AFTER INSERT ON vibers WHEN NEW.revoked_at IS NULL BEGIN
  INSERT INTO viber_counts (team_id, slot, vibers, connected)
  SELECT team_id, 0, 1, NEW.contact = 'connected' FROM teams WHERE team_id = NEW.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET vibers = vibers + excluded.vibers, connected = connected + excluded.connected;
END;
CREATE TRIGGER viber_counts_changed AFTER UPDATE OF contact, revoked_at ON vibers
WHEN OLD.contact <> NEW.contact OR (OLD.revoked_at IS NULL) <> (NEW.revoked_at IS NULL) BEGIN
  INSERT INTO viber_counts (team_id, slot, vibers, connected)
  SELECT team_id, 0, (NEW.revoked_at IS NULL) - (OLD.revoked_at IS NULL),
    (NEW.revoked_at IS NULL AND NEW.contact = 'connected') - (OLD.revoked_at IS NULL AND OLD.contact = 'connected')
  FROM teams WHERE team_id = NEW.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET vibers = vibers + excluded.vibers, connected = connected + excluded.connected;
END;
CREATE TRIGGER viber_counts_removed AFTER DELETE ON vibers WHEN OLD.revoked_at IS NULL BEGIN
  INSERT INTO viber_counts (team_id, slot, vibers, connected)
  SELECT team_id, 0, -1, -(OLD.contact = 'connected') FROM teams WHERE team_id = OLD.team_id
  ON CONFLICT (team_id, slot) DO UPDATE SET vibers = vibers + excluded.vibers, connected = connected + excluded.connected;
END;
