-- What each task of a team may use at most: JSON {steps?, toolCalls?, tokens?, costUsd?, minutes?}.
ALTER TABLE approval_settings ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
