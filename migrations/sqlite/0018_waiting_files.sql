-- Files that wait for the next message of a session: every page of the session shows them, however many artifacts it has.

CREATE INDEX artifacts_waiting ON artifacts (team_id, session_id, artifact_id) WHERE task_id IS NULL;
