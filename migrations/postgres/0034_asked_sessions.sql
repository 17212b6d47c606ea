-- A task that an agent asks for has a session of its own, which is reached from whoever asked: the rail, the list of all sessions
-- and the count of unread ones leave it out, like those of steps of playbooks.
ALTER TABLE sessions ADD COLUMN asked BIGINT NOT NULL DEFAULT 0;     -- 1: it began for a task that an agent asked for
UPDATE sessions SET asked = 1 WHERE EXISTS (SELECT 1 FROM delegations d WHERE d.team_id = sessions.team_id
  AND d.child_session = sessions.session_id AND d.session_id IS NULL);
DROP INDEX sessions_own;
CREATE INDEX sessions_own ON sessions (team_id, active_at, session_id)
WHERE archived_at IS NULL AND deleted_at IS NULL AND run_id IS NULL AND asked = 0;
