//! Agents that are added to a viber from templates. What is in a template is the viber's to know.

use std::time::Duration;

use protocol::{TeamId, ViberId, agent::is_id};
use serde_json::json;

use super::unanswered;
use crate::{
    db::{self, audit::Entry},
    domain::By,
    error::{Error, Result},
    state::Board,
};

/// The templates that a page offers.
pub const TEMPLATES: &[(&str, &str)] = &[
    ("coder", "does coding work"),
    ("triage", "gives parts of the work to other agents"),
    ("reviewer", "reads and changes nothing"),
    ("browser", "uses a browser through an MCP server"),
];
/// How long a viber may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Has a viber write the file of a new agent; one that is there is never changed. Returns what else it needs, in a sentence.
pub async fn add(
    board: &Board,
    team: &TeamId,
    by: &By,
    viber: &ViberId,
    (template, id): (&str, &str),
) -> Result<String> {
    let id = if id.trim().is_empty() { template } else { id.trim() };
    if !is_id(template) || !is_id(id) {
        return Err(Error::unacceptable("bad_agent", "an agent's id is letters, digits, - and _"));
    }
    let found = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?;
    let name = found.ok_or(Error::NotFound)?.name;
    // Before it leaves: what the Board did not live to see is in the audit, too.
    let (noted, detail) = (viber.clone(), format!("{id} from {template} on {name}"));
    let noting = board.change(team, by, move |tx| {
        let (object, detail) = (noted.clone(), detail.clone());
        Box::pin(async move { db::audit::append(tx, Entry::new("agent.add", object.as_str()).detail(&detail)).await })
    });
    noting.await?;
    let params = json!({ "template": template, "id": id });
    let answer = board.hub.request(viber, "agents.add", params, ANSWER_TIMEOUT).await.map_err(unanswered::refused)?;
    Ok(protocol::text::head(answer["needs"].as_str().unwrap_or_default(), 500).to_owned())
}
