//! Teams: making, naming, suspending and deleting them.

use protocol::{Instant, TeamId};

use crate::{
    actions::{accounts::check_name, purge},
    db::{self, audit::Entry},
    domain::{By, Team},
    error::{Error, Result},
    hub::{News, Revoked},
    state::Board,
};

/// Longest slug, characters.
const SLUG: usize = 40;
const MIB: u64 = 1024 * 1024;
/// The largest artifact that a team may allow, MiB.
const MOST_MIB: u64 = 1024 * 1024;

/// A team, not yet kept.
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

/// Whether a text can be a team's slug: lower-case letters, digits and inner hyphens.
pub fn is_slug(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=SLUG).contains(&text.len()) && text.bytes().all(good) && !text.starts_with('-') && !text.ends_with('-')
}

/// The slug that a name asks for, if it has any letter or digit in it.
pub fn slug_of(name: &str) -> Option<String> {
    let mut slug = String::new();
    for c in name.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => slug.push(c),
            'à'..='å' => slug.push('a'),
            'è'..='ë' => slug.push('e'),
            'ì'..='ï' => slug.push('i'),
            'ò'..='ö' | 'ø' => slug.push('o'),
            'ù'..='ü' => slug.push('u'),
            'ç' => slug.push('c'),
            'ñ' => slug.push('n'),
            'ß' => slug.push_str("ss"),
            _ if slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(SLUG);
    let slug = slug.trim_matches('-').to_owned();
    (!slug.is_empty()).then_some(slug)
}

/// A new team without anybody in it.
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

/// Changes how long artifacts are kept, and how large one may be.
pub async fn bound_artifacts(board: &Board, by: &By, team: &Team, bounds: db::blobs::Bounds) -> Result<()> {
    if !(0..=3650).contains(&bounds.days) {
        return Err(Error::unacceptable("bad_retention", "Artifacts are kept for 0 (for ever) to 3650 days."));
    }
    if !(1..=MOST_MIB).contains(&(bounds.bytes / MIB)) {
        return Err(Error::unacceptable("bad_size", "An artifact may have 1 to 1048576 MiB."));
    }
    let slug = team.slug.clone();
    let done = board.change(&team.id, by, move |tx| {
        let slug = slug.clone();
        Box::pin(async move {
            let before = db::blobs::bounds(tx).await?.ok_or(Error::NotFound)?;
            db::blobs::set_bounds(tx, bounds).await?;
            let words = |bounds: db::blobs::Bounds| {
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
    board.hub.ring(&team.id, News::Team);
    Ok(changed)
}

/// Shuts a team, or opens it again: nobody and no viber gets in meanwhile. Its work is stopped, for nobody can watch it.
pub async fn suspend(board: &Board, by: &By, team: &Team, suspended: bool) -> Result<()> {
    let done = board.change(&team.id, by, move |tx| {
        Box::pin(async move {
            let (team, now) = (tx.team.clone(), tx.now);
            db::teams::suspend(tx, suspended.then_some(now)).await?;
            let action = if suspended { "team.suspend" } else { "team.resume" };
            db::audit::append(tx, Entry::new(action, team.as_str())).await
        })
    });
    done.await?;
    // Their vibers are told before their links are closed, as far as that goes at once.
    let stopped = !suspended || purge::stop_some(board, team, by).await?;
    everyone_out(board, &team.id);
    if !stopped {
        purge::stop_team(board, team, by).await?;
    }
    Ok(())
}

/// Deletes a team and all that is in it. There is no way back: it is shut and hidden at once, and taken away by and by, by
/// the Board that serves, or here when none does; if that is cut off the next Board goes on with it (`purge`).
pub async fn delete(board: &Board, by: &By, team: &Team) -> Result<()> {
    let hidden = board.change(&team.id, by, move |tx| {
        Box::pin(async move {
            let hidden = db::purge::hide_team(tx).await?;
            if hidden {
                db::audit::bury(tx).await?;
            }
            Ok::<_, Error>(hidden)
        })
    });
    if !hidden.await? {
        return Err(Error::NotFound);
    }
    // The team's audit goes with it: this line is what remains.
    tracing::warn!(team.id = %team.id, team.slug = team.slug, actor = by.actor.id(), "team deleted");
    everyone_out(board, &team.id);
    purge::team_unless_served(board, &team.id).await
}

fn everyone_out(board: &Board, team: &TeamId) {
    board.guard.forget();
    board.hub.ring(team, News::Revoked(Revoked::Everyone));
}

fn check_slug(slug: &str) -> Result<()> {
    if is_slug(slug) {
        return Ok(());
    }
    let rule = "The address of a team consists of a-z, 0-9 and inner hyphens, at most 40 of them.";
    Err(Error::unacceptable("bad_slug", rule))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_slugs() {
        assert_eq!(slug_of("Fernworks").as_deref(), Some("fernworks"));
        assert_eq!(slug_of("  Ærø & Sons, Ltd. ").as_deref(), Some("ro-sons-ltd"));
        assert_eq!(slug_of("Müller/Söhne").as_deref(), Some("muller-sohne"));
        assert_eq!(slug_of("日本"), None);
        assert!(slug_of(&"x-".repeat(60)).is_some_and(|slug| is_slug(&slug)));
        for bad in ["", "-a", "a-", "A", "a/b", "..", "a b", &"a".repeat(41)] {
            assert!(!is_slug(bad), "{bad}");
        }
    }
}
