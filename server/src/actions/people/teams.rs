//! Teams: creating, naming, suspending and deleting them (except for what concerns their work), and their quotas.

use protocol::{Instant, TeamId};

use crate::{
    db::{self, audit::Entry},
    domain::{
        By, Team,
        input::{check_name, check_slug},
    },
    error::{Error, Result},
    hub::{Changed, Revoked},
    state::Board,
};

const MIB: u64 = 1024 * 1024;
/// The largest artifact that a team may allow, MiB.
const MAX_ARTIFACT_MIB: u64 = 1024 * 1024;

/// A new team, not stored yet.
pub fn new(now: Instant, slug: &str, name: &str) -> Team {
    Team {
        id: TeamId::new(now.0),
        slug: slug.to_owned(),
        name: name.to_owned(),
        claimed_at: None,
        suspended_at: None,
        lost_after_ms: 900_000,
        retention_days: 30,
        created_at: now,
    }
}

/// Makes a team without members.
pub async fn add(board: &Board, by: &By, slug: &str, name: &str) -> Result<Team> {
    check_slug(slug)?;
    let team = new(board.clock.now(), slug, &check_name(name)?);
    let (made, by) = (team.clone(), by.clone());
    let done = board.db.write(move |tx| {
        let (team, by) = (made.clone(), by.clone());
        Box::pin(async move {
            db::teams::insert(tx, &team).await?;
            let slug = team.slug.as_str();
            let entry = Entry::new("team.add", slug).detail(&team.name).after(slug);
            db::audit::append(&mut tx.change(&team.id, &by, team.created_at), entry).await
        })
    });
    done.await.map_err(|error| taken(error.into()))?;
    Ok(team)
}

/// What the settings page changes.
#[derive(Clone, Debug)]
pub struct TeamSettings {
    pub slug: String,
    pub name: String,
    pub lost_after_minutes: i64,
    pub retention_days: i64,
}

/// Changes how long a team keeps artifacts, and how large one may be.
pub async fn bound_artifacts(board: &Board, by: &By, team: &Team, bounds: db::blobs::ArtifactLimits) -> Result<()> {
    if !(0..=3650).contains(&bounds.days) {
        return Err(Error::unacceptable("bad_retention", "Artifacts are kept for 0 (for ever) to 3650 days."));
    }
    if !(1..=MAX_ARTIFACT_MIB).contains(&(bounds.bytes / MIB)) {
        return Err(Error::unacceptable("bad_size", "An artifact may have 1 to 1048576 MiB."));
    }
    let slug = team.slug.clone();
    let done = board.change(&team.id, by, move |tx| {
        let slug = slug.clone();
        Box::pin(async move {
            let before = db::blobs::bounds(tx).await?.ok_or(Error::NotFound)?;
            db::blobs::set_bounds(tx, bounds).await?;
            let words = |bounds: db::blobs::ArtifactLimits| {
                format!("artifacts kept {} days, at most {} MiB each", bounds.days, bounds.bytes / MIB)
            };
            let (old, new) = (words(before), words(bounds));
            let entry = Entry::new("team.artifacts", &slug).before(old.as_str()).after(new.as_str());
            Ok(db::audit::append(tx, entry).await?)
        })
    });
    done.await
}

/// Changes a team's name, slug and limits.
pub async fn update(board: &Board, by: &By, team: &Team, settings: TeamSettings) -> Result<Team> {
    check_slug(&settings.slug)?;
    let name = check_name(&settings.name)?;
    if !(0..=7 * 24 * 60).contains(&settings.lost_after_minutes) {
        return Err(Error::unacceptable("bad_lost_after", "Silence may last 0 (for ever) to 10080 minutes."));
    }
    if !(1..=3650).contains(&settings.retention_days) {
        return Err(Error::unacceptable("bad_retention", "Events are kept for 1 to 3650 days."));
    }
    let changed = Team {
        slug: settings.slug,
        name,
        lost_after_ms: settings.lost_after_minutes * 60_000,
        retention_days: settings.retention_days,
        ..team.clone()
    };
    let (was, is) = (words(team), changed.clone());
    let done = board.change(&team.id, by, move |tx| {
        let (was, is) = (was.clone(), is.clone());
        Box::pin(async move {
            db::teams::update(tx, &is).await?;
            let after = words(&is);
            let entry = Entry::new("team.update", &is.slug).detail(&after).before(was.as_str()).after(after.as_str());
            db::audit::append(tx, entry).await
        })
    });
    done.await.map_err(|error| taken(error.into()))?;
    board.guard.forget();
    board.hub.notify(&team.id, Changed::Team);
    Ok(changed)
}

/// Resumes a suspended team.
pub async fn resume(board: &Board, by: &By, team: &Team) -> Result<()> {
    set_suspended(board, by, team, false).await?;
    shut_everyone_out(board, &team.id);
    Ok(())
}

/// Records that a team is suspended, or that it no longer is.
pub(in crate::actions) async fn set_suspended(board: &Board, by: &By, team: &Team, suspended: bool) -> Result<()> {
    let done = board.change(&team.id, by, move |tx| {
        Box::pin(async move {
            let (team, now) = (tx.team.clone(), tx.now);
            db::teams::suspend(tx, suspended.then_some(now)).await?;
            let action = if suspended { "team.suspend" } else { "team.resume" };
            db::audit::append(tx, Entry::new(action, team.as_str())).await
        })
    });
    Ok(done.await?)
}

/// Hides a deleted team, and ends everybody's access to it.
pub(in crate::actions) async fn hide(board: &Board, by: &By, team: &Team) -> Result<()> {
    let hidden = board.change(&team.id, by, move |tx| {
        Box::pin(async move {
            let hidden = db::purge::hide_team(tx).await?;
            if hidden {
                db::audit::mark_team_deleted(tx).await?;
            }
            Ok::<_, Error>(hidden)
        })
    });
    if !hidden.await? {
        return Err(Error::NotFound);
    }
    // The team's audit goes with it: this line is what remains.
    tracing::warn!(team.id = %team.id, team.slug = team.slug, actor = by.actor.id(), "team deleted");
    shut_everyone_out(board, &team.id);
    Ok(())
}

/// People and vibers of the team are read again, and their open streams end.
pub(in crate::actions) fn shut_everyone_out(board: &Board, team: &TeamId) {
    board.guard.forget();
    board.hub.notify(team, Changed::Revoked(Revoked::Everyone));
}

fn taken(error: Error) -> Error {
    match error {
        Error::Conflict { .. } => Error::unacceptable("slug_taken", "Another team has this address."),
        other => other,
    }
}

fn words(team: &Team) -> String {
    let minutes = team.lost_after_ms / 60_000;
    format!("{} {:?} lost after {minutes} min, kept {} days", team.slug, team.name, team.retention_days)
}
