-- MCP servers of vibers: what each reported of them, and the lists of tools that people allowed.

ALTER TABLE vibers ADD COLUMN mcp TEXT NOT NULL DEFAULT '[]';   -- JSON: McpServerInfo[]

CREATE TABLE mcp_orders (
  team_id    TEXT   NOT NULL,
  viber_id   TEXT   NOT NULL,
  cmd_seq    BIGINT NOT NULL,
  name       TEXT   NOT NULL,                        -- of the server
  hash       TEXT   NOT NULL,                        -- of the tools that were seen
  state      TEXT   NOT NULL CHECK (state IN ('queued', 'done', 'failed')),
  error      TEXT,
  ordered_by TEXT   NOT NULL,
  orderer    TEXT   NOT NULL,
  ordered_at BIGINT NOT NULL,
  ended_at   BIGINT,
  PRIMARY KEY (team_id, viber_id, cmd_seq),
  FOREIGN KEY (team_id, viber_id) REFERENCES vibers (team_id, viber_id) ON DELETE CASCADE
);
CREATE INDEX mcp_orders_queued ON mcp_orders (team_id, viber_id) WHERE state = 'queued';
