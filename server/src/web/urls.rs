//! The URLs of the pages, one function each: no other place writes a path of this Board.
//!
//! A team's slug and every id consist of letters, digits, `-` and `_`, so that nothing here needs escaping.

use protocol::{ApprovalId, ArtifactId, EditId, MessageId, RolloutId, RunId, SessionId, SkillId, TaskId, ViberId};

/// Where tools connect: the Board as a server of the Model Context Protocol.
pub const MCP: &str = "/mcp";

/// The new-task page of a team: its home.
pub fn home(slug: &str) -> String {
    format!("/t/{slug}")
}

/// The new-task page with a viber chosen.
pub fn home_on(slug: &str, viber: &ViberId) -> String {
    format!("/t/{slug}?viber={viber}")
}

/// The checks of a viber and an agent before a task is submitted.
pub fn preflight(slug: &str) -> String {
    format!("/t/{slug}/preflight")
}

/// Submits a goal: creates a session with its first task.
pub fn tasks(slug: &str) -> String {
    format!("/t/{slug}/tasks")
}

/// The list of sessions.
pub fn sessions(slug: &str) -> String {
    format!("/t/{slug}/sessions")
}

/// The list of sessions with the cursor in the search field.
pub fn sessions_search(slug: &str) -> String {
    format!("/t/{slug}/sessions#q")
}

/// The list of sessions with parameters: filters, words, a place.
pub fn sessions_with(slug: &str, parameters: &[(&str, &str)]) -> String {
    with(sessions(slug), parameters)
}

/// Marks every session as read.
pub fn sessions_read(slug: &str) -> String {
    format!("/t/{slug}/sessions/read")
}

/// The search in messages; with words and a place.
pub fn search(slug: &str, parameters: &[(&str, &str)]) -> String {
    with(format!("/t/{slug}/search"), parameters)
}

/// An address with parameters; those that are empty are left out.
fn with(address: String, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let given: Vec<_> = given.map(|(key, value)| format!("{key}={}", escape(value))).collect();
    if given.is_empty() { address } else { format!("{address}?{}", given.join("&")) }
}

/// What the palette finds.
pub fn palette(slug: &str) -> String {
    format!("/t/{slug}/palette")
}

/// A team's home with a goal filled in.
pub fn home_with_goal(slug: &str, goal: &str) -> String {
    format!("/t/{slug}?goal={}", escape(goal))
}

/// The new-task page with a goal and an agent filled in; the viber is chosen there.
pub fn home_with_goal_for(slug: &str, agent: &str, goal: &str) -> String {
    format!("/t/{slug}?agent={}&goal={}", escape(agent), escape(goal))
}

/// One session.
pub fn session(slug: &str, id: &SessionId) -> String {
    format!("/t/{slug}/sessions/{id}")
}

/// One artifact.
pub fn artifact(slug: &str, id: &ArtifactId) -> String {
    format!("/t/{slug}/artifacts/{id}")
}

/// The bytes of an artifact (`download`, `view`, `sandbox`), its `card`, or a verb on it (`withdraw`).
pub fn artifact_verb(slug: &str, id: &ArtifactId, verb: &str) -> String {
    format!("/t/{slug}/artifacts/{id}/{verb}")
}

/// What changed in an artifact since another version of it.
pub fn artifact_diff(slug: &str, id: &ArtifactId, with: &ArtifactId) -> String {
    format!("/t/{slug}/artifacts/{id}?with={with}#diff")
}

/// A verb on a session: `rename`, `archive`, `unarchive`, `pin`, `unpin`, `delete`, `seen`, `writing`, `pane`, `messages`,
/// `attachments`, `pins`.
pub fn session_verb(slug: &str, id: &SessionId, verb: &str) -> String {
    format!("/t/{slug}/sessions/{id}/{verb}")
}

/// A session with a tab of its pane: `plan`, `artifacts`, `files`, `memory`; or without the pane: `closed`.
pub fn pane(slug: &str, id: &SessionId, tab: &str) -> String {
    format!("/t/{slug}/sessions/{id}?pane={tab}")
}

/// A place in a tab of a session's pane; an empty one is the tab's front.
pub fn pane_at(slug: &str, id: &SessionId, tab: &str, at: &str) -> String {
    if at.is_empty() { pane(slug, id, tab) } else { format!("/t/{slug}/sessions/{id}?pane={tab}&at={}", escape(at)) }
}

/// A message of a session; `far` when it is not on the newest page, so that it has to be the last one of an older page.
pub fn message(slug: &str, id: &SessionId, seq: u64, far: bool) -> String {
    let before = if far { format!("?before={}", seq.saturating_add(1)) } else { String::new() };
    format!("/t/{slug}/sessions/{id}{before}#m-{seq}")
}

/// A message of a session so that this part of it is on the page, which ends with it.
pub fn message_part(slug: &str, id: &SessionId, seq: u64, part: u64) -> String {
    format!("/t/{slug}/sessions/{id}?before={seq}.{}#m-{seq}", part.saturating_add(1))
}

/// A session's conversation as Markdown.
pub fn transcript(slug: &str, id: &SessionId) -> String {
    format!("/t/{slug}/sessions/{id}/transcript.md")
}

/// A session with a message in the composer that nobody was told.
pub fn session_with_message(slug: &str, id: &SessionId, message: &MessageId) -> String {
    format!("/t/{slug}/sessions/{id}?said={message}#composer")
}

/// A session with a message in the composer, to be edited and sent again.
pub fn session_edit(slug: &str, id: &SessionId, seq: u64) -> String {
    format!("/t/{slug}/sessions/{id}?edit={seq}#composer")
}

/// The whole output of a tool call. The call's name is the viber's and may hold anything.
pub fn call_output(slug: &str, id: &SessionId, seq: u64, call: &str) -> String {
    format!("/t/{slug}/sessions/{id}/messages/{seq}/calls/{}", segment(call))
}

/// The whole text of a part.
pub fn part(slug: &str, id: &SessionId, seq: u64, part: usize) -> String {
    format!("/t/{slug}/sessions/{id}/messages/{seq}/parts/{part}")
}

/// The beginning of a message, up to one of its parts.
pub fn earlier(slug: &str, id: &SessionId, seq: u64, part: usize) -> String {
    format!("/t/{slug}/sessions/{id}?before={seq}.{part}")
}

/// A text, escaped as one segment of a path.
fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A verb on a task: `stop`, `retry`.
pub fn task_verb(slug: &str, id: &TaskId, verb: &str) -> String {
    format!("/t/{slug}/tasks/{id}/{verb}")
}

/// A message to a task that has not ended.
pub fn task_message(slug: &str, task: &TaskId, id: &MessageId) -> String {
    format!("/t/{slug}/tasks/{task}/messages/{id}")
}

/// The decision on an approval.
pub fn approval(slug: &str, id: &ApprovalId) -> String {
    format!("/t/{slug}/approvals/{id}")
}

/// The fleet.
pub fn vibers(slug: &str) -> String {
    format!("/t/{slug}/vibers")
}

/// Creates a join token.
pub fn join_tokens(slug: &str) -> String {
    format!("/t/{slug}/vibers/join")
}

/// One viber.
pub fn viber(slug: &str, id: &ViberId) -> String {
    format!("/t/{slug}/vibers/{id}")
}

/// A verb on a viber: `rename`, `labels`, `drain`, `undrain`, `stop`, `revoke`, `test`, `key`, `key/remove`, `skills`,
/// `mcp`, `mcp/test`, `agents`, `live`, `bus`.
pub fn viber_verb(slug: &str, id: &ViberId, verb: &str) -> String {
    format!("/t/{slug}/vibers/{id}/{verb}")
}

/// What the agents of a viber report, as it comes.
pub fn viber_live(slug: &str, id: &ViberId) -> String {
    viber_verb(slug, id, "live")
}

/// The skills of a viber, on its page.
pub fn viber_skills(slug: &str, id: &ViberId) -> String {
    format!("/t/{slug}/vibers/{id}#skills")
}

/// The files of a skill of a viber as they lie there, with parameters: which skill of its name, a file. The name is the viber's
/// and may hold anything.
pub fn viber_skill(slug: &str, id: &ViberId, name: &str, parameters: &[(&str, &str)]) -> String {
    with(format!("/t/{slug}/vibers/{id}/skills/{}", segment(name)), parameters)
}

/// The MCP servers of a viber, on its page.
pub fn viber_mcp(slug: &str, id: &ViberId) -> String {
    format!("/t/{slug}/vibers/{id}#mcp")
}

/// The library of skills with parameters: a filter, words, a place.
pub fn skills_with(slug: &str, parameters: &[(&str, &str)]) -> String {
    with(skills(slug), parameters)
}

/// The library of skills.
pub fn skills(slug: &str) -> String {
    format!("/t/{slug}/skills")
}

/// Takes a skill of a viber into the library.
pub fn skills_take(slug: &str) -> String {
    format!("/t/{slug}/skills/take")
}

/// Takes a skill of the registry into the library.
pub fn skills_fetch(slug: &str) -> String {
    format!("/t/{slug}/skills/fetch")
}

/// One version of a skill.
pub fn skill(slug: &str, id: &SkillId) -> String {
    format!("/t/{slug}/skills/{id}")
}

/// The same with parameters: the version it is compared with, a file, how and where it is shown.
pub fn skill_with(slug: &str, id: &SkillId, parameters: &[(&str, &str)]) -> String {
    with(skill(slug, id), parameters)
}

/// Stops a rollout.
pub fn rollout_stop(slug: &str, id: &RolloutId) -> String {
    format!("/t/{slug}/skill-rollouts/{id}/stop")
}

/// A verb on a version of a skill: `review`, `install`, `rollout`, `delete`.
pub fn skill_verb(slug: &str, id: &SkillId, verb: &str) -> String {
    format!("/t/{slug}/skills/{id}/{verb}")
}

/// The playbooks of the vibers, and their newest runs.
pub fn playbooks(slug: &str) -> String {
    format!("/t/{slug}/playbooks")
}

/// The playbooks of one viber.
pub fn playbooks_of(slug: &str, id: &ViberId) -> String {
    format!("/t/{slug}/playbooks?viber={id}")
}

/// Those whose names come after this one.
pub fn playbooks_after(slug: &str, id: &ViberId, name: &str) -> String {
    format!("/t/{slug}/playbooks?viber={id}&after={}", escape(name))
}

/// A playbook before it runs, and where its form goes. The name is the viber's and may hold anything.
pub fn viber_playbook(slug: &str, id: &ViberId, name: &str) -> String {
    format!("/t/{slug}/vibers/{id}/playbooks/{}", segment(name))
}

/// The runs of playbooks with parameters: of one viber, a place.
pub fn playbook_runs(slug: &str, parameters: &[(&str, &str)]) -> String {
    with(format!("/t/{slug}/playbook-runs"), parameters)
}

/// One run of a playbook.
pub fn playbook_run(slug: &str, id: &RunId) -> String {
    format!("/t/{slug}/playbook-runs/{id}")
}

/// A step of a run, on its page. Labels consist of letters and digits.
pub fn playbook_step(slug: &str, id: &RunId, label: &str) -> String {
    format!("/t/{slug}/playbook-runs/{id}#step-{label}")
}

/// A verb on a run: `stop`, `pause`, `resume`.
pub fn playbook_run_verb(slug: &str, id: &RunId, verb: &str) -> String {
    format!("/t/{slug}/playbook-runs/{id}/{verb}")
}

/// A verb on a step of a run: `retry`, `skip`, `allow`, `deny`.
pub fn playbook_step_verb(slug: &str, id: &RunId, label: &str, verb: &str) -> String {
    format!("/t/{slug}/playbook-runs/{id}/steps/{label}/{verb}")
}

/// The search in the memory of an agent on a viber; an empty query shows only the form.
pub fn memory(slug: &str, id: &ViberId, agent: &str, query: &str) -> String {
    let base = format!("/t/{slug}/vibers/{id}/memory?agent={}", escape(agent));
    if query.is_empty() { base } else { format!("{base}&q={}", escape(query)) }
}

/// The sessions in the logs of a machine that the Board does not have; `from` is the position in the list.
pub fn machine_sessions(slug: &str, id: &ViberId, from: u64) -> String {
    let base = format!("/t/{slug}/vibers/{id}/sessions");
    if from == 0 { base } else { format!("{base}?from={from}") }
}

/// One session in the logs of a machine.
pub fn machine_session(slug: &str, id: &ViberId, session: &SessionId) -> String {
    format!("/t/{slug}/vibers/{id}/sessions/{session}")
}

/// The same session, from a position in its log.
pub fn machine_session_from(slug: &str, id: &ViberId, session: &SessionId, from: protocol::LogPlace) -> String {
    format!("{}?line={}&at={}", machine_session(slug, id, session), from.line, from.at)
}

/// Imports the session.
pub fn machine_import(slug: &str, id: &ViberId, session: &SessionId) -> String {
    format!("{}/import", machine_session(slug, id, session))
}

/// A folder of a viber's workspace; empty for its root.
pub fn folder(slug: &str, id: &ViberId, path: &str) -> String {
    let base = format!("/t/{slug}/vibers/{id}/files");
    if path.is_empty() { base } else { format!("{base}/{}/", escape(path)) }
}

/// A file of a viber's workspace.
pub fn file(slug: &str, id: &ViberId, path: &str) -> String {
    format!("/t/{slug}/vibers/{id}/files/{}", escape(path))
}

/// A file in the editor.
pub fn file_edit(slug: &str, id: &ViberId, path: &str) -> String {
    format!("{}?edit=1", file(slug, id, path))
}

/// The edits of a file that were made on the Board.
pub fn file_history(slug: &str, id: &ViberId, path: &str) -> String {
    format!("{}?history=1", file(slug, id, path))
}

/// The search in a viber's workspace.
pub fn files_search(slug: &str, id: &ViberId, words: &str) -> String {
    format!("/t/{slug}/vibers/{id}/files?q={}", escape(words))
}

/// A place in a space of a viber: what changed (``), `log`, `files`, or one file's `diff`; with what the address says more.
pub fn space(slug: &str, id: &ViberId, space: &str, place: &str, says: &[(&str, &str)]) -> String {
    let place = if place.is_empty() { String::new() } else { format!("/{place}") };
    let says: Vec<_> = says.iter().map(|(key, value)| format!("{key}={}", escape(value))).collect();
    let mark = if says.is_empty() { "" } else { "?" };
    format!("/t/{slug}/vibers/{id}/spaces/{}{place}{mark}{}", segment(space), says.join("&"))
}

/// The reader's comments that are not sent yet, or a verb on them: `withdraw`, `send`.
pub fn comments(slug: &str, id: &SessionId, verb: &str) -> String {
    let verb = if verb.is_empty() { String::new() } else { format!("/{verb}") };
    format!("/t/{slug}/sessions/{id}/comments{verb}")
}

/// One edit that was made on the Board.
pub fn edit(slug: &str, id: &ViberId, edit: &EditId) -> String {
    format!("/t/{slug}/vibers/{id}/edits/{edit}")
}

/// A team's settings.
pub fn settings(slug: &str) -> String {
    format!("/t/{slug}/settings")
}

/// The live stream of a page; `view` names what the page shows.
pub fn live(slug: &str, view: &str) -> String {
    format!("/t/{slug}/live?view={view}")
}

/// The operator's account.
pub fn account() -> &'static str {
    "/account"
}

/// The operator's account, with the way back to a team.
pub fn account_from(slug: &str) -> String {
    format!("/account?team={slug}")
}

/// Sets the theme.
pub fn theme() -> &'static str {
    "/account/theme"
}

/// Sign-in, and where to go after it.
pub fn sign_in(next: Option<&str>) -> String {
    match next.filter(|next| *next != "/") {
        Some(next) => format!("/login?next={}", escape(next)),
        None => "/login".to_owned(),
    }
}

/// A text, escaped as the value of a query parameter.
pub fn escape(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => out.push(byte.into()),
            _ => write!(out, "%{byte:02X}").expect("writing to a String succeeds"),
        }
        out
    })
}

/// The setup page, which creates the first owner.
pub fn setup(code: &str) -> String {
    format!("/setup/{code}")
}

/// The page that accepts an invitation.
pub fn invitation(code: &str) -> String {
    format!("/invite/{code}")
}

/// A page of a team's settings: `members`, `invitations`, `tokens`, `audit`.
pub fn settings_page(slug: &str, page: &str) -> String {
    format!("/t/{slug}/settings/{page}")
}

/// A verb on something in a team's settings: `members/{id}/role`, `tokens/{id}/revoke` …
pub fn settings_verb(slug: &str, page: &str, id: impl std::fmt::Display, verb: &str) -> String {
    format!("/t/{slug}/settings/{page}/{id}/{verb}")
}

/// The page of the audit with the rows before this one.
pub fn audit_before(slug: &str, seq: u64) -> String {
    format!("/t/{slug}/settings/audit?before={seq}")
}

/// The second step of the setup: adding the first viber.
pub fn welcome(slug: &str) -> String {
    format!("/t/{slug}/welcome")
}

/// A verb on one's account: `password`, `devices/others` …
pub fn account_verb(verb: &str) -> String {
    format!("/account/{verb}")
}

/// Signs a device out.
pub fn device_end(id: &protocol::LoginId) -> String {
    format!("/account/devices/{id}/end")
}
