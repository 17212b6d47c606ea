//! Approvals: what agents ask people, what was decided, and the team's rules for it.

use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use protocol::{
    AffectedFile, AgentQuestion, ApprovalId, ApprovalKind, Decision, DecisionScope, Instant, ReachedLimit, TaskId,
    TaskLimits, rules::ApprovalRules,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::{
        VersionedChange,
        approvals::{self, NewDecision},
    },
    db::{self, approvals::ApprovalFilter},
    domain::{self, ApprovalSettings, ApprovalState, CallConsequence, Role},
    error::Error,
    state::Board,
    web::api::{
        Answers,
        json::JsonBody,
        page::Page,
        query::StrictQuery,
        shapes::List,
        versions::{IfVersion, NamedVersion, stale},
    },
    web::{AsAdmin, AsOperator, AsViewer, Rejection, extract::Id},
    words,
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(read, decide)).routes(routes!(read_rules, write_rules))
}

/// Something that an agent asks people: whether it may do something, or what it wants to know.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Approval)]
pub struct ApprovalResource {
    id: ApprovalId,
    kind: ApprovalKind,
    session_id: protocol::SessionId,
    task_id: protocol::TaskId,
    /// The call of a tool that waits, as `tool-call` names it.
    call_id: Option<String>,
    /// Identifies the exact request; a decision has to repeat it.
    digest: String,
    /// The tool that the agent asks to use; `plan`, `ask_operator` or `budget` where it asks for none.
    tool: String,
    args: Value,
    cwd: String,
    /// What is to be read before a decision: the plan, the command, a file's changes.
    preview: String,
    /// What could go wrong.
    risk: String,
    /// Why it is asked: the mode, or the rule and where it stands.
    reason: String,
    /// A rule that would allow calls like this one; after a decision with the scope `rule` the one that was written.
    rule: Option<String>,
    /// Files that the call would write, as they are now.
    files: Vec<AffectedFile>,
    /// With the kind `question`.
    question: Option<AgentQuestion>,
    /// With the kind `budget`; the name `leash` means that the agent checks in.
    limit: Option<ReachedLimit>,
    state: ApprovalState,
    scope: Option<DecisionScope>,
    note: Option<String>,
    answer: Option<String>,
    /// How much more than until then the task may use.
    grant: Option<TaskLimits>,
    /// Why an owner decided it whom the team's settings do not let.
    break_glass: Option<String>,
    /// Who decided: an operator or a token, or `board` for what was too much at once.
    decided_by: Option<String>,
    /// The approval of the call with other arguments that somebody allowed instead, decided with this one.
    becomes: Option<ApprovalId>,
    /// The same, from there.
    replaces: Option<ApprovalId>,
    /// What the allowed call then did.
    consequence: Option<CallConsequence>,
    /// Why it counts as denied though nobody denied it.
    expiry: Option<String>,
    created_at: Instant,
    decided_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl From<domain::Approval> for ApprovalResource {
    fn from(asked: domain::Approval) -> Self {
        Self {
            id: asked.id,
            kind: asked.kind,
            session_id: asked.session_id,
            task_id: asked.task_id,
            call_id: asked.call_id,
            digest: asked.digest,
            tool: asked.tool,
            args: asked.args,
            cwd: asked.cwd,
            preview: asked.preview,
            risk: asked.risk,
            reason: asked.reason,
            rule: asked.rule,
            files: asked.files,
            question: asked.question,
            limit: asked.limit,
            state: asked.state,
            scope: asked.scope,
            note: asked.note,
            answer: asked.answer,
            grant: asked.grant,
            break_glass: asked.break_glass,
            decided_by: asked.decided_by,
            becomes: asked.becomes,
            replaces: asked.replaces,
            consequence: asked.consequence,
            expiry: asked.expiry,
            created_at: asked.created_at,
            decided_at: asked.decided_at,
            expires_at: asked.expires_at,
        }
    }
}

/// Filters of the list of approvals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListApprovalsQuery {
    /// Only approvals in this state; all when absent.
    state: Option<ApprovalState>,
    /// Only approvals of this kind.
    #[param(value_type = Option<ApprovalKind>)]
    kind: Option<String>,
    /// Only what this task has asked.
    task_id: Option<TaskId>,
    /// The `next` of the previous page.
    #[param(max_length = 512)]
    cursor: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

/// The team's approvals, newest first.
#[utoipa::path(get, path = "/api/v1/approvals", operation_id = "approvals.list", tag = "approvals", params(ListApprovalsQuery), responses(
    (status = 200, body = List<ApprovalResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    StrictQuery(which): StrictQuery<ListApprovalsQuery>,
) -> Result<Json<List<ApprovalResource>>, Rejection> {
    let page = Page::read(which.cursor, which.limit.as_deref())?;
    let after = page.after_id::<ApprovalId>("approvals")?;
    let kind = which.kind.as_deref().map(kind_named).transpose()?;
    let filter = ApprovalFilter { state: which.state, kind, task: which.task_id };
    let rows = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        db::approvals::list(&mut tx, &filter, after.as_ref(), page.fetch()).await?
    };
    Ok(Json(page.list("approvals", rows, |row: &domain::Approval| vec![row.id.to_string()])))
}

/// One approval.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", operation_id = "approvals.read", tag = "approvals", params(("id" = ApprovalId, Path)), responses(
    (status = 200, body = ApprovalResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ApprovalId>,
) -> Result<Json<ApprovalResource>, Rejection> {
    let found = db::approvals::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    Ok(Json(found.ok_or(Error::NotFound)?.into()))
}

/// The kind with this name.
fn kind_named(name: &str) -> Result<ApprovalKind, Error> {
    use ApprovalKind::{Budget, Plan, Question, Step, Tool, Unknown};
    // Nobody is asked about steps of playbooks, so there are none of these.
    let found = [Plan, Tool, Question, Budget, Step, Unknown].into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| Error::unacceptable("bad_query", "kind: plan, tool, question or budget"))
}

/// A person's decision on an approval.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "decision": "allow", "digest": "the digest of the approval", "note": "Tests first, please" })))]
pub struct DecideApproval {
    /// `answer` for a question, which may also be denied.
    decision: Decision,
    /// The `digest` of the approval.
    digest: String,
    /// `once` when absent. `task` and `rule` are for calls of tools; `rule` needs the role admin.
    scope: Option<DecisionScope>,
    /// With the scope `rule`: the rule to write, instead of the one that was proposed.
    #[schema(max_length = 500)]
    rule: Option<String>,
    /// A note to the agent, at most 8 KiB.
    #[schema(max_length = 8192)]
    note: Option<String>,
    /// Arguments to call the tool with instead, an object. The approval that `becomes` names is about them.
    #[schema(value_type = Option<Object>)]
    args: Option<Value>,
    /// With `answer`: the label of an option, or other words.
    #[schema(max_length = 16384)]
    answer: Option<String>,
    /// With `allow` for a limit: how much more than until now the task may use. A leash without one is taken off.
    grant: Option<TaskLimits>,
    /// With `deny`: the task is stopped as well.
    #[serde(default)]
    then_stop: bool,
    /// Why an owner decides what the team's settings do not let them.
    #[schema(max_length = 8192)]
    reason: Option<String>,
}

/// Decides what an agent asks. It counts once, and only for what has this digest.
#[utoipa::path(post, path = "/api/v1/approvals/{id}", operation_id = "approvals.decide", tag = "approvals", params(("id" = ApprovalId, Path)),
    request_body = DecideApproval, responses((status = 200, body = ApprovalResource), Answers))]
async fn decide(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ApprovalId>,
    JsonBody(said): JsonBody<DecideApproval>,
) -> Result<Json<ApprovalResource>, Rejection> {
    let DecideApproval { decision, digest, scope, rule, note, args, answer, grant, then_stop, reason } = said;
    let word = NewDecision { decision, digest, scope, rule, note, args, answer, grant, then_stop, reason };
    Ok(Json(approvals::decide(&board, &caller.team.id, caller.maker(), &id, word).await?.into()))
}

/// What a team decides beforehand about calls of tools, who of it decides the rest, and what a task may use.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schema(examples(json!({ "deny": ["shell(git push **)"], "ask": ["shell(rm **)"], "allow": ["shell(cargo test **)"],
    "minRole": "operator", "notRequester": false, "expiryMinutes": 1440, "limits": { "toolCalls": 200 } })))]
pub struct ApprovalRulesResource {
    /// Calls that are not made: `tool`, or `tool(pattern)`.
    deny: Vec<String>,
    /// Calls that are asked about in every mode, unless they are denied.
    ask: Vec<String>,
    /// Calls that are made without asking, unless they are denied or asked about.
    allow: Vec<String>,
    /// The least role that decides; questions of agents are answered by any operator.
    min_role: DecidingRole,
    /// Whoever gave a task does not decide what it asks.
    not_requester: bool,
    /// A question that nobody answers in so many minutes counts as denied.
    #[schema(minimum = 1, maximum = 43200)]
    expiry_minutes: u32,
    limits: TeamLimits,
}

/// What each task of a team may use at most, whatever it was given itself; an absent limit does not apply.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TeamLimits {
    /// Model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    tool_calls: Option<u32>,
    /// Input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    tokens: Option<u64>,
    /// More than 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000000)]
    cost_usd: Option<f64>,
    /// In which the task works.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    minutes: Option<u32>,
}

words! {
    /// The least role that decides what agents ask.
    DecidingRole {
        Operator = "operator",
        Admin = "admin",
        Owner = "owner",
    }
}

impl Default for ApprovalRulesResource {
    fn default() -> Self {
        ApprovalSettings::default().into()
    }
}

impl From<ApprovalSettings> for ApprovalRulesResource {
    fn from(settings: ApprovalSettings) -> Self {
        let ApprovalSettings { rules, min_role, not_requester, expiry_minutes, limits, .. } = settings;
        let min_role = match min_role {
            Role::Viewer | Role::Operator => DecidingRole::Operator,
            Role::Admin => DecidingRole::Admin,
            Role::Owner => DecidingRole::Owner,
        };
        let TaskLimits { steps, tool_calls, tokens, cost_usd, minutes, .. } = limits;
        let limits = TeamLimits { steps, tool_calls, tokens, cost_usd, minutes };
        Self { deny: rules.deny, ask: rules.ask, allow: rules.allow, min_role, not_requester, expiry_minutes, limits }
    }
}

impl From<ApprovalRulesResource> for ApprovalSettings {
    fn from(said: ApprovalRulesResource) -> Self {
        let min_role = match said.min_role {
            DecidingRole::Operator => Role::Operator,
            DecidingRole::Admin => Role::Admin,
            DecidingRole::Owner => Role::Owner,
        };
        Self {
            rules: ApprovalRules { deny: said.deny, ask: said.ask, allow: said.allow, ..ApprovalRules::default() },
            min_role,
            not_requester: said.not_requester,
            expiry_minutes: said.expiry_minutes,
            limits: TaskLimits {
                steps: said.limits.steps,
                tool_calls: said.limits.tool_calls,
                tokens: said.limits.tokens,
                cost_usd: said.limits.cost_usd,
                minutes: said.limits.minutes,
                on_limit: None,
            },
            version: 0,
        }
    }
}

fn rules(found: ApprovalSettings) -> Response {
    let tag = format!("\"{}\"", found.version);
    ([(header::ETAG, tag)], Json(ApprovalRulesResource::from(found))).into_response()
}

/// The team's rules for calls of tools, and what a task of it may use.
#[utoipa::path(get, path = "/api/v1/approval-rules", operation_id = "approvalRules.read", tag = "approvals", responses(
    (status = 200, body = ApprovalRulesResource, headers(("ETag" = String, description = "Its version"))), Answers))]
async fn read_rules(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    Ok(rules(db::approvals::settings::load(&mut board.db.reader_of(&caller.team.id).await?).await?))
}

/// Replaces the team's rules and limits: the version that `If-Match` names, or whichever is there. What is absent takes
/// its default; an owner alone lowers `minRole`. Tasks that are sent from now on carry them.
#[utoipa::path(put, path = "/api/v1/approval-rules", operation_id = "approvalRules.write", tag = "approvals",
    params(IfVersion), request_body = ApprovalRulesResource, responses(
    (status = 200, body = ApprovalRulesResource, headers(("ETag" = String, description = "Its version"))), Answers))]
async fn write_rules(
    State(board): State<Board>,
    caller: AsAdmin,
    named: NamedVersion,
    JsonBody(said): JsonBody<ApprovalRulesResource>,
) -> Result<Response, Rejection> {
    let (team, settings) = (&caller.team.id, said.into());
    match approvals::change_settings(&board, team, caller.maker(), settings, named.count()).await? {
        VersionedChange::Made(now) => Ok(rules(now)),
        VersionedChange::Stale(now) => Ok(stale(&named.base, Some(now.version.to_string()), &named.number)),
    }
}
