-- What the commands of agents reach on a machine, as it told last.
ALTER TABLE vibers ADD COLUMN confinement TEXT;    -- JSON; NULL: told by a word among the capabilities alone
