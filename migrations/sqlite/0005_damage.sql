-- What the Board cannot claim of a viber: contact from before its own restart, and files of the daemon that were damaged.

-- It was connected when the Board ended, and was not heard since.
ALTER TABLE vibers ADD COLUMN unheard BIGINT NOT NULL DEFAULT 0;
-- Files of the daemon's own that it found damaged: [{file, at, bytes}].
ALTER TABLE vibers ADD COLUMN damage TEXT NOT NULL DEFAULT '[]';
