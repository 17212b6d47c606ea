//! `search`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolText, closed, page, page_properties};
use crate::{
    error::Result,
    web::api::{json, mcp::context::ToolContext, search},
};

pub fn text() -> ToolText {
    let (cursor, limit) = page_properties();
    let words = "Words that one text has, all of them, each as a whole word in any case. There are no operators.";
    ToolText {
        title: "Search messages",
        description: "Finds what people and agents wrote in the team's sessions, the newest first. An item names its \
            session and has a snippet.",
        input: closed(
            json!({ "query": { "type": "string", "minLength": 1, "maxLength": 1000, "description": words },
                "cursor": cursor, "limit": limit }),
            &["query"],
        ),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    query: String,
    cursor: Option<String>,
    limit: Option<u32>,
}

pub async fn search(context: &ToolContext, arguments: Value) -> Result<Value> {
    let SearchArguments { query, cursor, limit } = json::from_value(arguments)?;
    let found = search::find(&context.board, context.team(), &query, &page(cursor, limit)?).await?;
    Ok(json!(found))
}
