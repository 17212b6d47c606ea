-- A viber's own ways to operators (command line, WebSocket, Slack), as it reports them.

ALTER TABLE vibers ADD COLUMN adapters TEXT NOT NULL DEFAULT '[]';   -- JSON: AdapterInfo[]
