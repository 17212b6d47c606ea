-- Rises with every change behind the session's lock: while it stays the same, so do its messages and finished tasks.
ALTER TABLE sessions ADD COLUMN version BIGINT NOT NULL DEFAULT 0;
