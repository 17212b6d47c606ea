//! The team's library of skills: what is in it, what waits for a review, and what of it is on which viber.

mod decide;
pub(in crate::web::pages) mod of_viber;
mod permissions;
mod places;
mod review;
mod text;
mod tree;
mod words;

use askama::Template;
use axum::{
    Router,
    body::Body,
    extract::{Query, Request, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use axum_extra::extract::Form;
use multer::{Constraints, Multipart, SizeLimit};
use protocol::{SKILLS_CAPABILITY, SkillId};
use serde::Deserialize;

use self::places::{LibraryRow, PlaceMatrix, SkillPlaces, SkillStanding};
use crate::{
    actions::skills,
    domain::{ContactState, Role, SkillReviewState},
    error::{Error, Result},
    state::Board,
    web::{
        AsAdmin, AsViewer, Rejection,
        extract::Caller,
        html, html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Skills of a page.
const SKILLS_PER_PAGE: usize = 25;
/// Vibers that the form offers to take a skill from.
const MAX_OFFERED_VIBERS: usize = 100;
/// Vibers whose changed skills are named.
const MAX_NAMED_CHANGES: usize = 5;
/// Longest search, bytes.
const MAX_SEARCH_BYTES: usize = 200;
/// The upload form's fields; other fields are refused.
const FORM_FIELDS: &[&str] = &["file"];

/// The pages of the library.
pub fn routes() -> Router<Board> {
    let skill = "/t/{team}/skills/{id}";
    let at = |rest: &str| format!("{skill}/{rest}");
    Router::new()
        .route("/t/{team}/skills", get(list))
        .route("/t/{team}/skills/take", post(take))
        .route(skill, get(review::show))
        .route(&at("review"), post(decide::review))
        .route(&at("install"), post(decide::install))
        .route(&at("delete"), get(decide::confirm_delete).post(decide::delete))
        .route("/t/{team}/vibers/{id}/skills", post(of_viber::change))
}

/// Routes whose bodies may be as large as a skill.
pub fn uploads() -> Router<Board> {
    Router::new().route("/t/{team}/skills", post(upload))
}

/// Which skills the list shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillFilter {
    #[default]
    All,
    /// The newest version waits for a review.
    Review,
    Approved,
    Rejected,
    /// On some viber it is not the newest approved version, or was changed there.
    Drift,
}

impl SkillFilter {
    const EVERY: [(Self, &'static str); 5] = [
        (Self::All, "All"),
        (Self::Review, "To review"),
        (Self::Approved, "Approved"),
        (Self::Rejected, "Rejected"),
        (Self::Drift, "Drift"),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Review => "review",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Drift => "drift",
        }
    }

    fn admits(self, row: &LibraryRow) -> bool {
        match self {
            Self::All => true,
            Self::Review => row.skill.review.state == SkillReviewState::Unreviewed,
            Self::Approved => row.skill.review.state == SkillReviewState::Approved,
            Self::Rejected => row.skill.review.state == SkillReviewState::Rejected,
            Self::Drift => row.has_drift(),
        }
    }
}

/// What the list shows.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SkillListQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    show: SkillFilter,
    /// How many skills come before.
    #[serde(default)]
    from: usize,
}

impl SkillListQuery {
    fn address(&self, slug: &str) -> String {
        let from = if self.from == 0 { String::new() } else { self.from.to_string() };
        urls::skills_with(slug, &[("q", &self.q), ("show", self.show.as_str()), ("from", &from)])
    }

    /// Whether every word is somewhere in what the list says of it.
    fn finds(&self, row: &LibraryRow) -> bool {
        let skill = &row.skill;
        let version = skill.version.as_deref().unwrap_or("");
        let text =
            [&skill.name, &skill.description, version, &skill.adder, &skill.digest].map(str::to_lowercase).join(" ");
        self.q.to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}

/// A filter with how many skills it shows.
struct FilterLink {
    href: String,
    title: &'static str,
    count: usize,
    is_chosen: bool,
}

/// What is said of somebody's attempt to add a skill.
#[derive(Default)]
struct AddForm {
    error: Option<String>,
    viber: String,
    name: String,
}

/// The page.
#[derive(Template)]
#[template(path = "fleet/skills/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    asked: SkillListQuery,
    filters: Vec<FilterLink>,
    rows: Vec<LibraryRow>,
    /// Skills in the library, and how many of them wait for a review.
    all: usize,
    waiting: usize,
    next: Option<String>,
    matrix: Option<PlaceMatrix>,
    /// Where a skill of this page was changed: its name, the viber's, and the viber's page.
    changed: Vec<(String, String, String)>,
    add: AddForm,
    /// Vibers that a skill can be taken from now.
    vibers: Vec<(String, String)>,
    is_admin: bool,
}

impl Page {
    async fn load(board: &Board, caller: &Caller, asked: SkillListQuery, add: AddForm) -> Result<Self> {
        let slug = caller.team.slug.clone();
        let places = SkillPlaces::load(board, &caller.team.id).await?;
        let shell = Shell::load(board, caller).await?.at(PageLocation::Skills);
        let rows = places.rows(&slug);
        let all = rows.len();
        let waiting = rows.iter().filter(|row| SkillFilter::Review.admits(row)).count();
        let found: Vec<LibraryRow> = rows.into_iter().filter(|row| asked.finds(row)).collect();
        let filters = SkillFilter::EVERY.map(|(show, title)| FilterLink {
            href: SkillListQuery { show, from: 0, ..asked.clone() }.address(&slug),
            title,
            count: found.iter().filter(|row| show.admits(row)).count(),
            is_chosen: asked.show == show,
        });
        let mut rows = found.into_iter().filter(|row| asked.show.admits(row)).skip(asked.from);
        let shown: Vec<LibraryRow> = rows.by_ref().take(SKILLS_PER_PAGE).collect();
        let next = rows.next().is_some().then(|| asked.from + SKILLS_PER_PAGE);
        let next = next.map(|from| SkillListQuery { from, ..asked.clone() }.address(&slug));
        let changed = shown.iter().flat_map(|row| {
            let changed = row.placements.iter().filter(|place| place.standing == SkillStanding::Modified);
            changed.map(|place| {
                (row.skill.name.clone(), place.viber_name.clone(), urls::viber_skills(&slug, &place.viber))
            })
        });
        let can_give = places.vibers.iter().filter(|viber| {
            viber.contact.state == ContactState::Connected
                && viber.capabilities.iter().any(|word| word == SKILLS_CAPABILITY)
        });
        Ok(Self {
            shell,
            filters: filters.into(),
            matrix: PlaceMatrix::of(&slug, &shown, &places),
            changed: changed.take(MAX_NAMED_CHANGES).collect(),
            vibers: can_give.take(MAX_OFFERED_VIBERS).map(|viber| (viber.id.to_string(), viber.name.clone())).collect(),
            is_admin: caller.role >= Role::Admin,
            rows: shown,
            slug,
            asked,
            all,
            waiting,
            next,
            add,
        })
    }
}

/// `GET /t/{team}/skills`
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<SkillListQuery>,
) -> Result<Html<String>, Rejection> {
    let asked = SkillListQuery { q: protocol::text::head(asked.q.trim(), MAX_SEARCH_BYTES).to_owned(), ..asked };
    html(&Page::load(&board, &caller, asked, AddForm::default()).await?)
}

/// What a page says when something was refused; what is wrong with the Board itself is no refusal.
fn refusal(error: Error) -> Result<(StatusCode, String), Rejection> {
    match error {
        Error::Unacceptable { .. }
        | Error::Conflict { .. }
        | Error::Forbidden(_)
        | Error::QuotaExceeded { .. }
        | Error::TooLarge(_)
        | Error::Gone(_)
        | Error::Unavailable { .. } => Ok((respond::status(&error), error.to_string())),
        Error::Offline { .. } => Ok((respond::status(&error), "the viber is offline".to_owned())),
        error => Err(error.into()),
    }
}

/// The version that was added, or the page with the reason why not.
async fn added(board: &Board, caller: &Caller, added: Result<SkillId>, form: AddForm) -> Result<Response, Rejection> {
    match added {
        Ok(id) => Ok(Redirect::to(&urls::skill(&caller.team.slug, &id)).into_response()),
        Err(error) => {
            let (status, reason) = refusal(error)?;
            let form = AddForm { error: Some(reason), ..form };
            html_with(status, &Page::load(board, caller, SkillListQuery::default(), form).await?)
        }
    }
}

/// `POST /t/{team}/skills`: `multipart/form-data` with one `file`, a zip or a tar.gz.
async fn upload(State(board): State<Board>, caller: AsAdmin, request: Request<Body>) -> Result<Response, Rejection> {
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("");
    let boundary = multer::parse_boundary(media).map_err(|_| Error::WrongMedia("multipart/form-data"))?;
    let limits = Constraints::new().allowed_fields(FORM_FIELDS.to_vec()).size_limit(SizeLimit::new());
    let mut form = Multipart::with_constraints(request.into_body().into_data_stream(), boundary, limits);
    let broken = |error: multer::Error| Error::Malformed(format!("the form could not be read: {error}"));
    let field = form.next_field().await.map_err(broken)?;
    let field = field.filter(|field| field.file_name().is_some_and(|name| !name.is_empty()));
    let done = match field {
        Some(field) => match skills::receive(field).await {
            Ok(archive) => skills::upload(&board, &caller.team.id, &caller.by, archive).await.map(|skill| skill.id),
            Err(error) => Err(error),
        },
        None => Err(Error::unacceptable("no_file", "choose a file first")),
    };
    added(&board, &caller, done, AddForm::default()).await
}

/// A skill that lies on a viber.
#[derive(Debug, Deserialize)]
struct TakeForm {
    #[serde(default)]
    viber: String,
    #[serde(default)]
    name: String,
}

/// `POST /t/{team}/skills/take`
async fn take(State(board): State<Board>, caller: AsAdmin, Form(form): Form<TakeForm>) -> Result<Response, Rejection> {
    let name = form.name.trim();
    let done = match form.viber.parse() {
        Ok(viber) if !name.is_empty() => {
            skills::take(&board, &caller.team.id, &caller.by, &viber, name).await.map(|skill| skill.id)
        }
        _ => Err(Error::unacceptable("no_skill", "choose a viber, and name a skill that it has")),
    };
    let form = AddForm { error: None, name: name.to_owned(), viber: form.viber };
    added(&board, &caller, done, form).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_found_again_by_its_address() {
        let address = |q: &str, show, from| SkillListQuery { q: q.to_owned(), show, from }.address("home");
        assert_eq!(address("", SkillFilter::All, 0), "/t/home/skills");
        assert_eq!(address("a b&", SkillFilter::Drift, 25), "/t/home/skills?q=a%20b%26&show=drift&from=25");
    }
}
