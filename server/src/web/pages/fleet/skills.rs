//! The team's library of skills: what is in it, what waits for a review, and what of it is on which viber.

mod decide;
mod files;
pub(in crate::web::pages) mod of_viber;
mod on_viber;
mod permissions;
mod places;
mod review;
pub(in crate::web::pages) mod rollouts;
mod surroundings;
mod text;
mod tree;
pub(in crate::web::pages) mod words;

use std::collections::BTreeSet;

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
use protocol::{SkillId, ViberId};
use serde::Deserialize;

use self::places::{LibraryRow, PlaceMatrix, PlacedSkill, SkillPlaces, SkillStanding};
use crate::{
    actions::skills::{self, SkillOnViber},
    db::{self, DbError, TeamTx},
    domain::{LibrarySkill, Role, SkillOrigin, SkillReviewState, SkillVersion},
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
/// Skills of which it is shown where they are, whatever page is shown.
const MAX_PLACED_SKILLS: usize = 100;
/// Vibers that the form offers to take a skill from.
const MAX_OFFERED_VIBERS: u64 = 100;
/// Versions whose texts are searched: as many as a library may have.
const MAX_SEARCHED_VERSIONS: u64 = 2_000;
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
        .route("/t/{team}/skills/fetch", post(fetch))
        .route(skill, get(review::show))
        .route(&at("review"), post(decide::review))
        .route(&at("install"), post(decide::install))
        .route(&at("rollout"), post(rollouts::begin))
        .route(&at("delete"), get(decide::confirm_delete).post(decide::delete))
        .route("/t/{team}/skill-rollouts/{id}/stop", post(rollouts::stop))
        .route("/t/{team}/vibers/{id}/skills", post(of_viber::change))
        .route("/t/{team}/vibers/{id}/skills/{name}", get(on_viber::show))
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

    /// Whether it shows a skill with this newest version; `drifting` are the names of those that have drifted.
    fn admits(self, newest: &SkillVersion, drifting: &BTreeSet<String>) -> bool {
        match self {
            Self::All => true,
            Self::Review => newest.state == SkillReviewState::Unreviewed,
            Self::Approved => newest.state == SkillReviewState::Approved,
            Self::Rejected => newest.state == SkillReviewState::Rejected,
            Self::Drift => drifting.contains(&newest.name),
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

    /// Those of these versions in whose texts every word is.
    async fn find<'v>(
        &self,
        tx: &mut TeamTx<'_>,
        versions: Vec<&'v SkillVersion>,
    ) -> Result<Vec<&'v SkillVersion>, DbError> {
        let words: Vec<String> = self.q.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() {
            return Ok(versions);
        }
        let texts = db::skills::searched_texts(tx, MAX_SEARCHED_VERSIONS).await?;
        let has_all = |text: &str| words.iter().all(|word| text.contains(word.as_str()));
        let found: BTreeSet<SkillId> =
            texts.into_iter().filter(|(_, text)| has_all(text)).map(|(version, _)| version).collect();
        Ok(versions.into_iter().filter(|version| found.contains(&version.id)).collect())
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
    source: String,
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
    /// Where a skill was changed: its name, the viber's, and the viber's page.
    changed: Vec<(String, String, String)>,
    add: AddForm,
    /// Vibers that a skill can be taken from now.
    vibers: Vec<(String, String)>,
    /// The host of the registry, if there is one.
    registry: Option<String>,
    is_admin: bool,
}

/// The name of the viber that a version was taken from, if it is still there.
async fn giver(tx: &mut TeamTx<'_>, skill: &LibrarySkill) -> Result<Option<String>, DbError> {
    let reference = skill.reference.as_deref().filter(|_| skill.origin == SkillOrigin::Viber);
    match reference.and_then(|id| id.parse::<ViberId>().ok()) {
        Some(id) => Ok(db::vibers::named(tx, &id).await?.map(|viber| viber.name)),
        None => Ok(None),
    }
}

impl Page {
    async fn load(board: &Board, caller: &Caller, asked: SkillListQuery, add: AddForm) -> Result<Self> {
        let slug = caller.team.slug.clone();
        let shell = Shell::load(board, caller).await?.at(PageLocation::Skills);
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let places = SkillPlaces::load(&mut tx, None).await?;
        let newest = places.newest();
        let all = newest.len();
        let waiting = newest.iter().filter(|skill| skill.state == SkillReviewState::Unreviewed).count();
        let matching = asked.find(&mut tx, newest).await?;
        // Which skills have drifted only the vibers say: they are looked at first if that decides what is shown.
        let drifting = match asked.show {
            SkillFilter::Drift => places.find(&mut tx, &BTreeSet::new()).await?.drifting,
            _ => BTreeSet::new(),
        };
        let admitted: Vec<&SkillVersion> =
            matching.iter().filter(|skill| asked.show.admits(skill, &drifting)).copied().collect();
        let shown: Vec<&SkillVersion> = admitted.iter().skip(asked.from).take(SKILLS_PER_PAGE).copied().collect();
        let end = asked.from.saturating_add(SKILLS_PER_PAGE);
        let next = (admitted.len() > end).then_some(end);
        let names = admitted.iter().take(MAX_PLACED_SKILLS).chain(&shown).map(|skill| skill.name.clone()).collect();
        let mut found = places.find(&mut tx, &names).await?;
        let placed = admitted.iter().take(MAX_PLACED_SKILLS).map(|skill| PlacedSkill {
            name: skill.name.clone(),
            href: urls::skill(&slug, &skill.id),
            placements: found.placements.get(&skill.name).cloned().unwrap_or_default(),
        });
        let placed: Vec<PlacedSkill> = placed.collect();
        let (vibers, _) = db::vibers::connectivity(&mut tx).await?;
        let mut rows = Vec::new();
        for version in shown {
            // It may have been deleted meanwhile.
            let Some(skill) = db::skills::load(&mut tx, &version.id).await? else { continue };
            let versions = places.versions.get(&skill.name).map(Vec::as_slice).unwrap_or_default();
            let in_use = places::approved(versions).filter(|approved| approved.id != skill.id);
            rows.push(LibraryRow {
                href: urls::skill(&slug, &skill.id),
                badge: words::review_badge(skill.review.state),
                origin: words::origin(&skill, giver(&mut tx, &skill).await?.as_deref()),
                in_use: in_use.map(|approved| words::version(approved.version.as_deref(), &approved.digest)),
                placements: found.placements.remove(&skill.name).unwrap_or_default(),
                vibers,
                is_cut: found.is_cut,
                skill,
            });
        }
        let filters = SkillFilter::EVERY.map(|(show, title)| FilterLink {
            href: SkillListQuery { show, from: 0, ..asked.clone() }.address(&slug),
            title,
            count: matching.iter().filter(|skill| show.admits(skill, &found.drifting)).count(),
            is_chosen: asked.show == show,
        });
        let can_give = db::vibers::connected_taking_skills(&mut tx, MAX_OFFERED_VIBERS).await?;
        let changed = placed.iter().flat_map(|skill| {
            let changed = skill.placements.iter().filter(|place| place.standing == SkillStanding::Modified);
            changed
                .map(|place| (skill.name.clone(), place.viber.name.clone(), urls::viber_skills(&slug, &place.viber.id)))
        });
        Ok(Self {
            shell,
            filters: filters.into(),
            matrix: PlaceMatrix::of(&slug, &placed, admitted.len() - placed.len(), found.is_cut),
            changed: changed.take(MAX_NAMED_CHANGES).collect(),
            vibers: can_give.into_iter().map(|viber| (viber.id.to_string(), viber.name)).collect(),
            registry: board.registry.as_ref().map(|registry| registry.host().to_owned()),
            is_admin: caller.role >= Role::Admin,
            next: next.map(|from| SkillListQuery { from, ..asked.clone() }.address(&slug)),
            rows,
            slug,
            asked,
            all,
            waiting,
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
pub(in crate::web::pages) fn refusal(error: Error) -> Result<(StatusCode, String), Rejection> {
    match error {
        Error::Unacceptable { .. }
        | Error::Conflict { .. }
        | Error::Forbidden(_)
        | Error::QuotaExceeded { .. }
        | Error::TooLarge(_)
        | Error::Gone(_)
        | Error::Throttled { .. }
        | Error::RegistryAway { .. }
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
        Some(field) => match skills::receive(&board, field).await {
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
    /// Of several skills of this name the one with these files; empty: the one in use.
    #[serde(default)]
    digest: String,
}

/// `POST /t/{team}/skills/take`
async fn take(State(board): State<Board>, caller: AsAdmin, Form(form): Form<TakeForm>) -> Result<Response, Rejection> {
    let name = form.name.trim();
    let done = match form.viber.parse::<ViberId>() {
        Ok(viber) if !name.is_empty() => {
            let digest = Some(form.digest.as_str()).filter(|digest| !digest.is_empty());
            let wanted = SkillOnViber { viber: &viber, name, digest };
            skills::take(&board, &caller.team.id, &caller.by, wanted).await.map(|skill| skill.id)
        }
        _ => Err(Error::unacceptable("no_skill", "choose a viber, and name a skill that it has")),
    };
    let form = AddForm { name: name.to_owned(), viber: form.viber, ..AddForm::default() };
    added(&board, &caller, done, form).await
}

/// A skill of the registry.
#[derive(Debug, Deserialize)]
struct FetchForm {
    /// `SLUG@VERSION`, with or without `clawhub:` before it.
    #[serde(default)]
    source: String,
}

/// `POST /t/{team}/skills/fetch`
async fn fetch(
    State(board): State<Board>,
    caller: AsAdmin,
    Form(form): Form<FetchForm>,
) -> Result<Response, Rejection> {
    let typed = form.source.trim();
    let source = if typed.contains(':') { typed.to_owned() } else { format!("clawhub:{typed}") };
    let done = skills::fetch(&board, &caller.team.id, &caller.by, &source).await.map(|skill| skill.id);
    added(&board, &caller, done, AddForm { source: form.source, ..AddForm::default() }).await
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
