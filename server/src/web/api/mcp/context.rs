//! What a call of a tool has: the Board, and who asks.

use std::{str::FromStr, sync::Arc};

use protocol::{TeamId, ViberId};
use serde_json::Value;

use crate::{
    actions::idempotency,
    db,
    domain::idempotency::IdempotentCall,
    error::{Error, Result},
    state::Board,
    web::{Caller, layers::api_limits::ApiLimits},
};

/// Longest name of a viber that a refusal repeats, bytes.
const MAX_NAME_BYTES: usize = 100;

/// One call's surroundings.
#[derive(Clone)]
pub struct ToolContext {
    pub board: Board,
    pub caller: Caller,
    pub limits: Arc<ApiLimits>,
}

impl ToolContext {
    /// The team of the token.
    pub fn team(&self) -> &TeamId {
        &self.caller.team.id
    }

    /// The whole address of a page.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.board.config.base_url())
    }

    /// What the same call made before, by its key: whoever repeats a call is told so whatever its other fields name by now.
    pub async fn made_before<I: FromStr>(&self, once: Option<&IdempotentCall>) -> Result<Option<I>> {
        let before = idempotency::answered_before(&self.board, self.team(), &self.caller.by, once).await?;
        Ok(before.and_then(|answer| answer["id"].as_str().and_then(|id| id.parse().ok())))
    }

    /// The viber that a model means: by its id, which whoever uses it looks up, or by its name.
    pub async fn viber(&self, meant: &str) -> Result<ViberId> {
        if let Ok(id) = meant.parse() {
            return Ok(id);
        }
        let found = db::vibers::candidate_named(&mut self.board.db.reader_of(self.team()).await?, meant).await?;
        found.map(|viber| viber.id).ok_or_else(|| {
            let name = protocol::text::head(meant, MAX_NAME_BYTES);
            Error::unacceptable("viber_not_found", format!("there is no viber {name:?} in this team"))
        })
    }
}

/// An object without its empty fields: what is not there costs a model nothing to read.
pub fn compact(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
