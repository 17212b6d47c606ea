-- A list is found by an index in its own order, so that a page costs the same however much there is.

-- Sessions by their last activity.
DROP INDEX sessions_active;
CREATE INDEX sessions_current ON sessions (team_id, active_at, session_id) WHERE archived_at IS NULL AND deleted_at IS NULL;
CREATE INDEX sessions_archived ON sessions (team_id, active_at, session_id)
WHERE archived_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_current_viber ON sessions (team_id, viber_id, active_at, session_id)
WHERE archived_at IS NULL AND deleted_at IS NULL;
CREATE INDEX sessions_archived_viber ON sessions (team_id, viber_id, active_at, session_id)
WHERE archived_at IS NOT NULL AND deleted_at IS NULL;
-- Those that began on their machine.
CREATE INDEX sessions_begun ON sessions (team_id, viber_id, active_at, session_id)
WHERE created_by = viber_id AND deleted_at IS NULL;

-- Tasks by state: most of them are completed, and the newest of those are found without an index.
CREATE INDEX tasks_state ON tasks (team_id, state, task_id) WHERE state <> 'completed';
CREATE INDEX tasks_viber ON tasks (team_id, viber_id, task_id);

-- How many vibers are connected, without reading what they reported.
CREATE INDEX vibers_contact ON vibers (team_id, contact) WHERE revoked_at IS NULL;
-- Which vibers may get a task at once, and which have a label.
CREATE INDEX vibers_ready ON vibers (team_id, viber_id)
WHERE contact = 'connected' AND drained = 0 AND revoked_at IS NULL;
CREATE TABLE viber_labels (
  team_id  TEXT NOT NULL,
  viber_id TEXT NOT NULL,
  label    TEXT NOT NULL,
  value    TEXT NOT NULL,
  PRIMARY KEY (team_id, label, value, viber_id),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
CREATE INDEX viber_labels_viber ON viber_labels (team_id, viber_id);
INSERT INTO viber_labels (team_id, viber_id, label, value)
SELECT v.team_id, v.viber_id, l.key, l.value FROM vibers v, json_each(v.labels) l;

-- Which edits their viber still has to make: each edit holds its file twice.
CREATE INDEX edits_queued ON edits (team_id, viber_id, created_at) WHERE state = 'queued';

-- Access that ended lately.
CREATE INDEX vibers_revoked ON vibers (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX teams_suspended ON teams (suspended_at) WHERE suspended_at IS NOT NULL;
