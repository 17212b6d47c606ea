-- Long work is done by many short changes, and goes on after a crash: what was begun is written down.

-- It is deleted for everybody; its rows are taken away one after the other.
ALTER TABLE sessions ADD COLUMN deleted_at BIGINT;
CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;
ALTER TABLE teams ADD COLUMN deleted_at BIGINT;

-- Everything that was given to the viber up to then is to be stopped.
ALTER TABLE vibers ADD COLUMN stop_at BIGINT;
ALTER TABLE vibers ADD COLUMN stop_by TEXT;
ALTER TABLE vibers ADD COLUMN stop_reason TEXT;
CREATE INDEX vibers_stop ON vibers (stop_at) WHERE stop_at IS NOT NULL;

-- Who waits for the rest of the log; NULL: nobody does. How many lines it has, about; 0: nobody said. And the attempt of
-- which some parts are still missing: {task}:{attempt}.
ALTER TABLE imports ADD COLUMN wanted_by TEXT;
ALTER TABLE imports ADD COLUMN of_lines BIGINT NOT NULL DEFAULT 0;
ALTER TABLE imports ADD COLUMN filling TEXT;
CREATE INDEX imports_wanted ON imports (taken_at) WHERE wanted_by IS NOT NULL;

-- What sweeps look for, a few at a time.
CREATE INDEX logins_expires ON logins (expires_at);
CREATE INDEX logins_ended ON logins (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX attempts_stale ON attempts (team_id, ended_at) WHERE trimmed_at IS NULL AND ended_at IS NOT NULL;

-- What is not over is found without reading what is: a session may have a great many tasks.
CREATE INDEX tasks_open ON tasks (team_id, session_id, message_seq) WHERE state IN ('pending', 'running');
CREATE INDEX tasks_queued ON tasks (team_id, viber_id) WHERE delivery = 'queued';
-- In place of attempts_open: SQLite would rather read all attempts of a team, because their key begins with it.
DROP INDEX attempts_open;
CREATE INDEX attempts_open ON attempts (viber_id) WHERE outcome IS NULL;
