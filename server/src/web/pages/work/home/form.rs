//! The form of a new task: its fields, and the files behind them, which are streamed to the store as they arrive.

use axum::{Form, RequestExt as _, body::Body, extract::Request, http::header};
use futures_util::StreamExt as _;
use multer::{Constraints, Field, Multipart, SizeLimit};
use protocol::{AgentMode, Policy, SessionId, TaskLimits, ViberId};
use serde::Deserialize;
use serde_json::Value;

use super::HomeQuery;
use crate::{
    actions::{
        self,
        artifacts::{self, NewAttachment},
    },
    domain::PolicyChange,
    error::{Error, Result},
    state::Board,
    web::{extract::Caller, layers::limits::MAX_BODY_BYTES},
};

/// The form's fields; others are refused.
const FORM_FIELDS: &[&str] = &[
    "key", "goal", "viber", "agent", "model", "find", "look", "first", "propose", "mode", "leash", "cost", FILE_FIELD,
];
/// Its files. They come last, because what they are attached to is made of the other fields.
const FILE_FIELD: &str = "file";

/// A goal for a viber.
#[derive(Debug, Default, Deserialize)]
pub struct GoalForm {
    pub(in crate::web::pages) goal: String,
    #[serde(default)]
    pub(super) viber: String,
    #[serde(default)]
    pub(super) agent: String,
    /// Empty: the agent's own.
    #[serde(default)]
    pub(super) model: String,
    /// Words of the vibers that are offered.
    #[serde(default)]
    find: String,
    /// There when the vibers are searched, and nothing is submitted yet.
    pub(super) look: Option<String>,
    #[serde(default)]
    pub(super) key: String,
    /// The agent plans first, and waits.
    pub(super) first: Option<String>,
    /// Its changes of the plan are proposed.
    pub(super) propose: Option<String>,
    /// When the agent asks before it acts; empty: as its file says.
    #[serde(default)]
    pub(super) mode: String,
    /// It checks in after so many calls of tools; empty: never.
    #[serde(default)]
    pub(super) leash: String,
    /// USD that the task may cost; empty: as its agent's file says.
    #[serde(default)]
    pub(super) cost: String,
}

/// When the agent asks, checks in, and has used enough.
pub(super) struct TaskControl {
    pub mode: Option<AgentMode>,
    pub leash: Option<u32>,
    pub limits: TaskLimits,
}

/// A form that was sent.
pub struct GoalRequest {
    pub form: GoalForm,
    /// Files that are still arriving; `None` when none was chosen.
    pub files: Option<ArrivingFiles>,
}

/// Files of a form, in order.
pub struct ArrivingFiles {
    rest: Multipart<'static>,
    next: Field<'static>,
}

impl GoalForm {
    /// What the form starts with when it comes back.
    pub(super) fn again(self) -> HomeQuery {
        HomeQuery {
            goal: Some(self.goal),
            viber: Some(self.viber),
            agent: Some(self.agent),
            model: Some(self.model),
            find: Some(self.find),
            first: self.first,
            propose: self.propose,
            mode: self.mode,
            leash: self.leash,
            cost: self.cost,
        }
    }

    pub(super) fn viber(&self) -> Result<Option<ViberId>> {
        match self.viber.as_str() {
            "" => Ok(None),
            id => id.parse().map(Some).map_err(|_| Error::NotFound),
        }
    }

    pub(super) fn agent(&self) -> Option<String> {
        (!self.agent.is_empty()).then(|| self.agent.clone())
    }

    pub(super) fn model(&self) -> Option<String> {
        (!self.model.is_empty()).then(|| self.model.clone())
    }

    /// How people stay in control of the task.
    pub(super) fn control(&self) -> Result<TaskControl> {
        let bad = |_| Error::unacceptable("bad_mode", "choose when the agent asks from the list");
        let mode = given(&self.mode).map(|word| serde_json::from_value(Value::from(word)).map_err(bad)).transpose()?;
        let bad = |_| Error::unacceptable("bad_leash", "an agent checks in after a number of calls, such as 5");
        let leash = given(&self.leash).map(|text| text.parse().map_err(bad)).transpose()?;
        let bad = || Error::unacceptable("bad_limits", "what a task may cost is a number of dollars, such as 2.50");
        let cost = given(&self.cost).map(|text| text.trim_start_matches('$').replace(',', ".").parse());
        let cost_usd: Option<f64> = cost.transpose().map_err(|_| bad())?;
        if cost_usd.is_some_and(|cost| !cost.is_finite() || cost <= 0.0) {
            return Err(bad());
        }
        Ok(TaskControl { mode, leash, limits: TaskLimits { cost_usd, ..TaskLimits::default() } })
    }

    pub(super) fn policies(&self) -> PolicyChange {
        PolicyChange {
            plan: self.propose.as_ref().map(|_| Policy::Propose),
            memory: None,
            approve_first: self.first.as_ref().map(|_| true),
        }
    }

    /// Starts a session for it, without a task.
    pub(in crate::web::pages) async fn begin(&self, board: &Board, caller: &Caller) -> Result<SessionId> {
        let (viber, agent, policies) = (self.viber()?, self.agent(), self.policies());
        let about = self.goal.clone();
        let start = actions::sessions::NewSession { viber, agent, policies, about, ..Default::default() };
        Ok(actions::sessions::create(board, &caller.team.id, &caller.by, start).await?.id)
    }

    fn set(&mut self, name: &str, value: String) -> Result<()> {
        if value.contains('\0') {
            return Err(Error::unacceptable("nul", "Text may not contain U+0000."));
        }
        match name {
            "key" => self.key = value,
            "goal" => self.goal = value,
            "viber" => self.viber = value,
            "agent" => self.agent = value,
            "model" => self.model = value,
            "find" => self.find = value,
            "look" => self.look = Some(value),
            "first" => self.first = Some(value),
            "propose" => self.propose = Some(value),
            "mode" => self.mode = value,
            "leash" => self.leash = value,
            "cost" => self.cost = value,
            _ => {}
        }
        Ok(())
    }
}

impl GoalRequest {
    /// Reads the fields, in either encoding that a form has.
    pub async fn read(request: Request<Body>) -> Result<Self> {
        let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("");
        let Ok(boundary) = multer::parse_boundary(media) else {
            return Ok(Self { form: plain(request).await?, files: None });
        };
        // Fields are small. The files, the last of which may be large, have the limits of attachments.
        let sizes = FORM_FIELDS.iter().filter(|field| **field != FILE_FIELD).fold(SizeLimit::new(), |sizes, field| {
            sizes.for_field(*field, if *field == "goal" { MAX_BODY_BYTES as u64 } else { 4 * 1024 })
        });
        let limits = Constraints::new().allowed_fields(FORM_FIELDS.to_vec()).size_limit(sizes);
        let mut rest = Multipart::with_constraints(request.into_body().into_data_stream(), boundary, limits);
        let mut form = GoalForm::default();
        while let Some(field) = rest.next_field().await.map_err(broken)? {
            let name = field.name().unwrap_or_default().to_owned();
            if name != FILE_FIELD {
                form.set(&name, field.text().await.map_err(broken)?)?;
            } else if field.file_name().is_some_and(|name| !name.is_empty()) {
                return Ok(Self { form, files: Some(ArrivingFiles { rest, next: field }) });
            }
        }
        Ok(Self { form, files: None })
    }
}

impl ArrivingFiles {
    /// Attaches them to a session. Those before one that is refused stay attached.
    pub async fn attach(self, board: &Board, caller: &Caller, session: &SessionId) -> Result<()> {
        let Self { mut rest, next } = self;
        let mut next = Some(next);
        while let Some(field) = next {
            if field.name() == Some(FILE_FIELD)
                && let Some(name) = field.file_name().map(str::to_owned).filter(|name| !name.is_empty())
            {
                let claimed = field.content_type().map(|kind| kind.essence_str().to_owned()).unwrap_or_default();
                let upload = NewAttachment { session: session.clone(), name, claimed };
                artifacts::attach(board, &caller.team.id, &caller.by, upload, field.boxed()).await?;
            }
            next = rest.next_field().await.map_err(broken)?;
        }
        Ok(())
    }
}

fn given(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

async fn plain(request: Request<Body>) -> Result<GoalForm> {
    let form = request.extract::<Form<GoalForm>, _>().await;
    let Form(form) = form.map_err(|refused| Error::Malformed(format!("the form could not be read: {refused}")))?;
    Ok(form)
}

fn broken(error: multer::Error) -> Error {
    match error {
        multer::Error::FieldSizeExceeded { .. } => Error::TooLarge("a field of the form is larger than 1 MiB"),
        error => Error::Malformed(format!("the form could not be read: {error}")),
    }
}
