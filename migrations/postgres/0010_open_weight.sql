-- What the events after parts_seq weigh: they are completed before they are too many to be read at once.
ALTER TABLE attempts ADD COLUMN open_weight BIGINT NOT NULL DEFAULT 0;
