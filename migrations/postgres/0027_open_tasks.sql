-- A viber's tasks by state: as those of a team, without the completed ones, which are most and of which the newest are found
-- by tasks_viber. A task that begins and ends touches one page of it, whichever viber it is of.
DROP INDEX tasks_viber_state;
CREATE INDEX tasks_viber_state ON tasks (team_id, viber_id, state, task_id) WHERE state <> 'completed';
