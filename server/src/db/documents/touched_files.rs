//! Files that a session's agent wrote by its file tools, as their calls and results tell it: what changed in a space by a
//! command or a person is asked of the viber by whoever looks.

use protocol::{SessionId, text};
use serde_json::Value;

use crate::{
    args,
    db::{Change, DbError},
    domain::Part,
};

/// Files that are kept of a session.
pub const MAX_TOUCHED_FILES: u64 = 100;
/// Longest path that is kept, bytes.
const MAX_PATH_BYTES: usize = 500;
/// Longest id of a call that is compared, bytes.
const MAX_CALL_ID_BYTES: usize = 200;

/// Notes what these parts tell of files, in order: a call is to write one, its result did.
pub async fn note(tx: &mut Change<'_>, session: &SessionId, parts: &[Part]) -> Result<(), DbError> {
    for part in parts {
        match part {
            Part::ToolCall { call_id, tool, args, .. } if writes(tool) => {
                let Some(path) = path_of(args) else { continue };
                let sql = "INSERT INTO touched_files (team_id, session_id, path, call_id) SELECT $1, $2, $3, $4 \
                           WHERE (SELECT COUNT(*) FROM touched_files WHERE team_id = $1 AND session_id = $2) < $5 \
                           ON CONFLICT (team_id, session_id, path) DO UPDATE SET call_id = excluded.call_id";
                tx.defer(sql, args![session, path, call(call_id), MAX_TOUCHED_FILES]).await?;
            }
            Part::ToolResult { call_id, tool, ok: true, .. } if writes(tool) => {
                let sql = "UPDATE touched_files SET done = 1 WHERE team_id = $1 AND session_id = $2 AND path = \
                           (SELECT path FROM touched_files WHERE team_id = $1 AND session_id = $2 AND call_id = $3 \
                           AND done = 0 ORDER BY path LIMIT 1)";
                tx.defer(sql, args![session, call(call_id)]).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn writes(tool: &str) -> bool {
    matches!(tool, "write_file" | "edit_file")
}

fn path_of(args: &Value) -> Option<String> {
    let path = args["path"].as_str().map(|path| crate::db::clean(path.trim_start_matches("./")))?;
    (!path.is_empty() && path.len() <= MAX_PATH_BYTES).then_some(path)
}

fn call(id: &str) -> String {
    crate::db::clean(text::head(id, MAX_CALL_ID_BYTES))
}
