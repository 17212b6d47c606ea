//! Approvals: what the team's agents may do without asking, who decides the rest, what a task may use, and what was decided.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use protocol::{ApprovalId, ApprovalKind, Instant, TaskLimits, rules::ApprovalRules, text::head};
use serde::Deserialize;

use super::{Names, Tabs};
use crate::{
    actions::{VersionedChange, approvals},
    db,
    domain::{Approval, ApprovalSettings, ApprovalState, Role},
    error::Error,
    state::Board,
    web::{
        AsAdmin, AsViewer, Caller, Rejection, html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Decisions on a page.
const DECISIONS_PER_PAGE: u64 = 30;
/// Longest line that says what was asked, bytes.
const MAX_SUBJECT_BYTES: usize = 160;

#[derive(Template)]
#[template(path = "people/settings/approvals.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    typed: ApprovalsForm,
    /// Roles that may decide, each with whether the reader may choose it.
    roles: [(Role, bool); 3],
    is_admin: bool,
    is_owner: bool,
    /// What is there now, when somebody else changed it while this form was filled in.
    there: Option<ApprovalsForm>,
    error: Option<String>,
    rows: Vec<DecisionRow>,
    /// The address of the next page of decisions.
    older: Option<String>,
}

/// What was asked and what became of it.
struct DecisionRow {
    id: ApprovalId,
    at: Instant,
    session: String,
    kind: &'static str,
    subject: String,
    /// `Allowed once`, `Denied`, `Nobody answered`.
    outcome: String,
    by: String,
    note: String,
    /// What the call then did.
    consequence: &'static str,
}

#[derive(Deserialize)]
pub(super) struct ApprovalsForm {
    /// One rule a line.
    #[serde(default)]
    deny: String,
    #[serde(default)]
    ask: String,
    #[serde(default)]
    allow: String,
    min_role: Role,
    not_requester: Option<String>,
    expiry_minutes: u32,
    /// What each task may use; empty where nothing is limited.
    #[serde(default)]
    steps: String,
    #[serde(default)]
    tool_calls: String,
    #[serde(default)]
    tokens: String,
    #[serde(default)]
    cost_usd: String,
    #[serde(default)]
    minutes: String,
    /// The version that the form was made of.
    #[serde(default)]
    version: u64,
}

#[derive(Default, Deserialize)]
pub(super) struct ApprovalsQuery {
    /// Decisions older than this one.
    after: Option<ApprovalId>,
}

impl ApprovalsForm {
    fn of(settings: ApprovalSettings) -> Self {
        let ApprovalRules { deny, ask, allow, .. } = settings.rules;
        let TaskLimits { steps, tool_calls, tokens, cost_usd, minutes, .. } = settings.limits;
        let number = |limit: Option<u32>| limit.map(|limit| limit.to_string()).unwrap_or_default();
        Self {
            deny: deny.join("\n"),
            ask: ask.join("\n"),
            allow: allow.join("\n"),
            min_role: settings.min_role,
            not_requester: settings.not_requester.then(String::new),
            expiry_minutes: settings.expiry_minutes,
            steps: number(steps),
            tool_calls: number(tool_calls),
            tokens: tokens.map(|limit| limit.to_string()).unwrap_or_default(),
            cost_usd: cost_usd.map(|usd| usd.to_string()).unwrap_or_default(),
            minutes: number(minutes),
            version: settings.version,
        }
    }

    /// One line for each limit that is set.
    fn limits(&self) -> Vec<String> {
        let all = [
            ("model calls", &self.steps),
            ("calls of tools", &self.tool_calls),
            ("tokens", &self.tokens),
            ("USD", &self.cost_usd),
            ("minutes", &self.minutes),
        ];
        all.iter().filter(|(_, limit)| !limit.is_empty()).map(|(unit, limit)| format!("{limit} {unit}")).collect()
    }

    fn settings(&self) -> Result<ApprovalSettings, Error> {
        let lines = |text: &str| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        Ok(ApprovalSettings {
            rules: ApprovalRules {
                deny: lines(&self.deny),
                ask: lines(&self.ask),
                allow: lines(&self.allow),
                ..ApprovalRules::default()
            },
            min_role: self.min_role,
            not_requester: self.not_requester.is_some(),
            expiry_minutes: self.expiry_minutes,
            limits: TaskLimits {
                steps: limit(&self.steps)?,
                tool_calls: limit(&self.tool_calls)?,
                tokens: limit(&self.tokens)?,
                cost_usd: limit(&self.cost_usd.replace(',', "."))?,
                minutes: limit(&self.minutes)?,
                on_limit: None,
            },
            version: self.version,
        })
    }
}

/// A number, or none in an empty field.
fn limit<T: std::str::FromStr>(typed: &str) -> Result<Option<T>, Error> {
    let typed = typed.trim();
    let bad =
        || Error::unacceptable("bad_limit", format!("“{}” is no limit: write a number, or nothing", head(typed, 40)));
    if typed.is_empty() { Ok(None) } else { typed.parse().map(Some).map_err(|_| bad()) }
}

impl DecisionRow {
    fn of(asked: Approval, slug: &str, names: &Names) -> Self {
        let kind = match asked.kind {
            ApprovalKind::Plan => "Plan",
            ApprovalKind::Tool | ApprovalKind::Step | ApprovalKind::Unknown => "Call",
            ApprovalKind::Question => "Question",
            ApprovalKind::Budget => "Budget",
        };
        let subject = match (&asked.question, &asked.limit) {
            (Some(question), _) => question.text.clone(),
            (_, Some(limit)) => format!("{} {} of {}", limit.name, limit.used, limit.allowed),
            _ if asked.kind == ApprovalKind::Plan => "Begin with the plan".to_owned(),
            _ => format!("{} {}", asked.tool, asked.preview.lines().next().unwrap_or_default()),
        };
        let reach = asked.scope.map(protocol::DecisionScope::as_str);
        let outcome = match asked.state {
            ApprovalState::Pending => "Waits".to_owned(),
            ApprovalState::Allowed if asked.allowed_args.is_some() => "Allowed with changes".to_owned(),
            ApprovalState::Allowed => match reach {
                Some("task") => "Allowed for its task".to_owned(),
                Some("rule") => "Allowed as a rule".to_owned(),
                _ => "Allowed once".to_owned(),
            },
            ApprovalState::Denied => "Denied".to_owned(),
            ApprovalState::Answered => "Answered".to_owned(),
            ApprovalState::Expired => "Expired".to_owned(),
        };
        let consequence = match asked.consequence.map(|consequence| consequence.ok) {
            Some(true) => "It succeeded",
            Some(false) => "It failed",
            None => "",
        };
        Self {
            at: asked.decided_at.unwrap_or(asked.created_at),
            session: urls::session(slug, &asked.session_id),
            kind,
            subject: head(&subject, MAX_SUBJECT_BYTES).to_owned(),
            outcome,
            by: asked.decided_by.as_deref().map(|by| names.of(by)).unwrap_or_default(),
            note: asked.answer.or(asked.note).or(asked.expiry).unwrap_or_default(),
            consequence,
            id: asked.id,
        }
    }
}

async fn show(
    board: &Board,
    caller: &Caller,
    asked: ApprovalsQuery,
    typed: Option<ApprovalsForm>,
    refused: Option<(StatusCode, String)>,
) -> Result<Response, Rejection> {
    let (settings, mut decided) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let settings = db::approvals::settings::load(&mut tx).await?;
        let filter = db::approvals::ApprovalFilter::default();
        let found = db::approvals::list(&mut tx, &filter, asked.after.as_ref(), DECISIONS_PER_PAGE + 1).await?;
        (settings, found)
    };
    let slug = &caller.team.slug;
    let last = if decided.len() > DECISIONS_PER_PAGE as usize {
        decided.truncate(DECISIONS_PER_PAGE as usize);
        decided.last().map(|last| last.id.clone())
    } else {
        None
    };
    let names = Names::load(board, caller).await?;
    let (status, error) = refused.map_or((StatusCode::OK, None), |(status, error)| (status, Some(error)));
    let (version, least) = (settings.version, settings.min_role);
    let is_owner = caller.role == Role::Owner;
    let now = ApprovalsForm::of(settings);
    let (typed, there) = match typed {
        Some(typed) if typed.version != version => (ApprovalsForm { version, ..typed }, Some(now)),
        Some(typed) => (typed, None),
        None => (now, None),
    };
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "approvals"),
        typed,
        there,
        roles: [Role::Operator, Role::Admin, Role::Owner].map(|role| (role, is_owner || role >= least)),
        is_admin: caller.role >= Role::Admin,
        is_owner,
        error,
        rows: decided.into_iter().map(|asked| DecisionRow::of(asked, slug, &names)).collect(),
        older: last.map(|last| format!("{}?after={last}#decisions", urls::settings_page(slug, "approvals"))),
    };
    html_with(status, &page)
}

/// `GET /t/{team}/settings/approvals`
pub(super) async fn page(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<ApprovalsQuery>,
) -> Result<Response, Rejection> {
    show(&board, &caller, asked, None, None).await
}

/// `POST /t/{team}/settings/approvals`
pub(super) async fn update(
    State(board): State<Board>,
    caller: AsAdmin,
    Form(typed): Form<ApprovalsForm>,
) -> Result<Response, Rejection> {
    let done = match typed.settings() {
        Ok(settings) => {
            approvals::change_settings(&board, &caller.team.id, caller.maker(), settings, Some(typed.version)).await
        }
        Err(error) => Err(error),
    };
    let refused = match done {
        Ok(VersionedChange::Made(_)) => {
            return Ok(Redirect::to(&urls::settings_page(&caller.team.slug, "approvals")).into_response());
        }
        Ok(VersionedChange::Stale(_)) => (StatusCode::CONFLICT, "Somebody else changed these meanwhile".to_owned()),
        Err(error @ (Error::Unacceptable { .. } | Error::Forbidden(_))) => (respond::status(&error), error.to_string()),
        Err(error) => return Err(error.into()),
    };
    show(&board, &caller, ApprovalsQuery::default(), Some(typed), Some(refused)).await
}
