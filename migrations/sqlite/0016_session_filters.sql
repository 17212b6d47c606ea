-- Who has read what, and whose sessions they are.

-- What was last active up to here a member has read, or it was before their time; NULL: since they joined.
ALTER TABLE members ADD COLUMN read_before BIGINT;

-- The few sessions of a person or an agent. Written once for each session, because neither ever changes.
CREATE INDEX sessions_person ON sessions (team_id, created_by, session_id);
CREATE INDEX sessions_agent ON sessions (team_id, agent_id, session_id);
