//! The files of a skill as they lie on a viber, against the version that was installed there: what a person looks at before
//! accepting them. The acceptance is of exactly these files.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{SkillInfo, SkillState, ViberId};
use serde::Deserialize;

use super::{
    files::{self, FindingView, SkillFileLinks, SkillFilesView, SkillReviewQuery},
    permissions::PermissionsView,
    places::{SkillPlaces, approved},
    review::stored,
    text::LinePiece,
    words,
};
use crate::{
    actions::skills::{self, SkillOnViber},
    db::{self, DbError, TeamTx},
    domain::{LibrarySkill, SkillContents, skills::marked},
    error::{Error, Result},
    state::Board,
    web::{
        AsAdmin, Rejection,
        extract::{Caller, Ids},
        html, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Which skill of its name is meant.
#[derive(Debug, Default, Deserialize)]
pub struct MeantSkillQuery {
    /// The one with these files; empty: the one in use.
    #[serde(default)]
    digest: String,
}

/// The page.
#[derive(Template)]
#[template(path = "fleet/skills/on_viber.html")]
struct Page {
    shell: Shell,
    slug: String,
    viber: ViberId,
    viber_name: String,
    /// As the viber reported it, if it still does.
    info: Option<SkillInfo>,
    name: String,
    description: String,
    /// Of the files that are shown.
    digest: String,
    size: u64,
    contents: SkillContents,
    /// What they are compared with.
    base: Option<LibrarySkill>,
    permissions: PermissionsView,
    files: Option<SkillFilesView>,
    /// Why there are no files.
    trouble: Option<&'static str>,
    findings: Vec<FindingView>,
}

impl Page {
    fn base_version(&self) -> String {
        self.base.as_ref().map(|base| words::version(base.version.as_deref(), &base.digest)).unwrap_or_default()
    }

    /// Whether these very files wait for somebody's word.
    fn can_be_accepted(&self) -> bool {
        let waits = |info: &SkillInfo| matches!(info.state, SkillState::Modified | SkillState::Untrusted);
        self.info.as_ref().is_some_and(|info| waits(info) && info.error.is_none())
    }

    fn is_installed(&self) -> bool {
        let is_of_library = |info: &SkillInfo| matches!(info.source.kind.as_str(), "library" | "clawhub");
        self.info.as_ref().is_some_and(is_of_library)
    }
}

impl SkillFileLinks for Page {
    fn link(&self, parameters: &[(&str, &str)]) -> String {
        let parameters = [&[("digest", self.digest.as_str())][..], parameters].concat();
        urls::viber_skill(&self.slug, &self.viber, &self.name, &parameters)
    }
}

/// The version of this name that was installed last on a viber, else the newest approved one.
async fn base_of(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    name: &str,
) -> Result<Option<(LibrarySkill, SkillContents)>, DbError> {
    let installed = match db::skill_orders::last_install(tx, viber, name).await? {
        Some(digest) => db::skills::by_digest(tx, name, &digest).await?,
        None => None,
    };
    let base = match installed {
        Some(installed) => Some(installed),
        None => {
            let places = SkillPlaces::load(tx, Some(name)).await?;
            let newest = places.versions.get(name).and_then(|versions| approved(versions));
            match newest {
                Some(version) => db::skills::load(tx, &version.id).await?,
                None => None,
            }
        }
    };
    match base {
        Some(base) => Ok(db::skills::contents(tx, &base.id).await?.map(|contents| (base, contents))),
        None => Ok(None),
    }
}

/// `GET /t/{team}/vibers/{id}/skills/{name}`
pub async fn show(
    State(board): State<Board>,
    caller: AsAdmin,
    Ids((id, name)): Ids<(ViberId, String)>,
    Query(meant): Query<MeantSkillQuery>,
    Query(asked): Query<SkillReviewQuery>,
) -> Result<Html<String>, Rejection> {
    html(&page(&board, &caller, (&id, name.as_str()), meant, asked).await?)
}

async fn page(
    board: &Board,
    caller: &Caller,
    (id, name): (&ViberId, &str),
    meant: MeantSkillQuery,
    asked: SkillReviewQuery,
) -> Result<Page> {
    let team = &caller.team.id;
    let (viber, base) = {
        let mut tx = board.db.reader_of(team).await?;
        let viber = db::vibers::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
        (viber, base_of(&mut tx, id, name).await?)
    };
    let digest = Some(meant.digest.as_str()).filter(|digest| !digest.is_empty());
    let arrived = skills::files_on(board, team, SkillOnViber { viber: id, name, digest }).await?;
    let shell = Shell::load(board, caller).await?.at(PageLocation::Skills);
    let turn = skills::turn(team).await?;
    let new = arrived.read().await?;
    let old = match &base {
        Some((base, before)) => stored(board, caller, base).await?.ok().map(|old| (old, before.permissions.clone())),
        None => None,
    };
    let base = base.map(|(base, _)| base).filter(|_| old.is_some());
    let (digest, description, size) = (new.digest.clone(), new.description.clone(), new.size);
    let work = tokio::task::spawn_blocking(move || {
        let contents = SkillContents::from(&new);
        let old = old.as_ref().map(|(old, before)| (old, before));
        let (permissions, files) = files::compare((&new, &contents), old, &asked);
        (contents, permissions, files)
    });
    let (contents, permissions, files) = work.await.map_err(|error| Error::Internal(error.to_string()))?;
    drop(turn);
    let slug = caller.team.slug.clone();
    let info = viber.skills.into_iter().find(|info| info.name == name && info.digest == digest);
    let link = |parameters: &[(&str, &str)], place: &str| {
        let parameters = [&[("digest", digest.as_str())][..], parameters].concat();
        format!("{}#{place}", urls::viber_skill(&slug, id, name, &parameters))
    };
    Ok(Page {
        shell,
        viber: id.clone(),
        viber_name: viber.name,
        info,
        name: name.to_owned(),
        description,
        size,
        permissions,
        files: Some(files),
        trouble: None,
        findings: contents.findings.iter().map(|finding| FindingView::of(finding, link)).collect(),
        base,
        contents,
        digest,
        slug,
    })
}
