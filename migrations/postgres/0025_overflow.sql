-- Tasks whose request was too long go on by themselves with a smaller one.

-- JSON `[{attempt, rung, window?}]`: the attempts that began so, each with what made its request smaller.
ALTER TABLE tasks ADD COLUMN smaller TEXT;
-- The newest attempt goes on from the work of all attempts from this one on.
ALTER TABLE tasks ADD COLUMN goes_on_from BIGINT;
