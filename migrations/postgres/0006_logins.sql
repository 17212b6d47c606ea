-- A login's cookie is exchanged now and then; the row knows which one is the newest and whether it has come back. It ends
-- at an instant that no use moves.

ALTER TABLE logins ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;       -- of the newest cookie
ALTER TABLE logins ADD COLUMN rotated_at BIGINT NOT NULL DEFAULT 0;       -- when that was made
ALTER TABLE logins ADD COLUMN seen_generation BIGINT NOT NULL DEFAULT 0;  -- of the newest cookie that came back: older ones are done with
ALTER TABLE logins ADD COLUMN confirmed_at BIGINT NOT NULL DEFAULT 0;     -- when it first came back
ALTER TABLE logins ADD COLUMN ends_at BIGINT NOT NULL DEFAULT 0;          -- whatever happens
ALTER TABLE logins ADD COLUMN end_reason TEXT;                            -- reused, revoked; NULL: its owner ended it
UPDATE logins SET ends_at = created_at + 7776000000;
