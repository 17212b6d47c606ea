//! The first owner: a one-use code that stops working when any owner exists.

use std::sync::Arc;

use protocol::{Instant, TeamId};

use crate::{
    actions::{
        accounts::{self, NewOperator},
        teams,
    },
    db::{self, DbError, Tx, audit::Entry, settings::SETUP_CODE},
    domain::{
        Actor, By, Login, Operator, Role, Team,
        input::{check_name, slug_of},
    },
    error::{Error, Result},
    secret::{self, Secret},
    state::Board,
};

/// Serializes claims: of many at once only the first computes a password hash, and the others find the code used. Between
/// replicas the database decides.
static CLAIM_TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Slug of the team that a Board makes at its first start.
pub const FIRST_TEAM_SLUG: &str = "home";

/// Makes the first team on an empty database. Returns a setup code as long as there is no owner.
pub async fn first_start(board: &Board) -> Result<Option<Secret>> {
    let now = board.clock.now();
    let code = Arc::new(Secret::new("vbs_"));
    let kept = code.clone();
    let fresh = board.db.write(move |tx| {
        let code = kept.clone();
        Box::pin(async move {
            if db::members::any_owner(tx).await? {
                return Ok(false);
            }
            if db::teams::all(tx, 1).await?.is_empty() {
                db::teams::insert(tx, &teams::new(now, FIRST_TEAM_SLUG, "Home")).await?;
            }
            db::settings::set(tx, SETUP_CODE, &code.hash()).await?;
            Ok::<_, DbError>(true)
        })
    });
    match fresh.await {
        Ok(true) => Ok(Some((*code).clone())),
        // Another process started at the same moment and made the team.
        Ok(false) | Err(DbError::Taken) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes a new setup code; the one before stops working. Refused once there is an owner.
pub async fn new_code(board: &Board) -> Result<Secret> {
    let done = || Error::conflict("set_up", "this Board has an owner already; use: viber-board operator add");
    first_start(board).await?.ok_or_else(done)
}

/// Whether a setup code works now.
pub async fn is_open(board: &Board, code: &str) -> Result<bool> {
    let hash = secret::hash(code);
    let mut tx = board.db.reader().await?;
    let kept = db::settings::value(&mut tx, SETUP_CODE).await?;
    Ok(kept.is_some_and(|kept| kept == hash) && !db::members::any_owner(&mut tx).await?)
}

/// What the setup page asks for.
#[derive(Clone, Debug)]
pub struct FirstOwner {
    pub owner: NewOperator,
    pub team_name: String,
    pub address: String,
    pub user_agent: String,
}

/// Makes the first owner, names the team and signs the owner in. Of many who try at once, one succeeds.
pub async fn claim(board: &Board, code: &str, claim: FirstOwner) -> Result<(Operator, Team, Login)> {
    let _turn = CLAIM_TURN.lock().await;
    if !is_open(board, code).await? {
        return Err(Error::NotFound);
    }
    let team_name = check_name(&claim.team_name)?;
    let (operator, password_hash) = accounts::prepare(board, claim.owner).await?;
    let now = board.clock.now();
    let login = accounts::new_login(now, &operator.id, claim.address.clone(), claim.user_agent);
    let actor = Actor::Operator { id: operator.id.clone(), name: operator.name.clone(), login: login.id.clone() };
    let by = By { actor, address: claim.address };
    let all = Arc::new((operator, password_hash, login, by, team_name, secret::hash(code)));
    let made = all.clone();
    let done = board.db.write(move |tx| {
        let all = all.clone();
        Box::pin(async move {
            let (operator, password_hash, login, by, team_name, code) = &*all;
            if !db::settings::remove_if_equal(tx, SETUP_CODE, code).await? || db::members::any_owner(tx).await? {
                return Err(Error::conflict("set_up", "this Board has an owner already"));
            }
            let mut team = first_team(tx, now).await?;
            team.name.clone_from(team_name);
            if let Some(slug) = free_slug(tx, &team.id, team_name).await? {
                team.slug = slug;
            }
            let tx = &mut tx.change(&team.id, by, now);
            db::teams::update(tx, &team).await?;
            db::teams::claim(tx).await?;
            team.claimed_at = Some(now);
            db::operators::insert(tx.without_team(), operator, password_hash).await?;
            db::members::insert(tx, &operator.id, Role::Owner).await?;
            db::logins::insert(tx.without_team(), login).await?;
            let (object, after) = (operator.id.as_str(), format!("{} owner", operator.email));
            let entry = Entry::new("team.claim", object).detail(team_name).after(after.as_str());
            db::audit::append(tx, entry).await?;
            Ok(team)
        })
    });
    let team = done.await?;
    board.guard.forget();
    Ok((made.0.clone(), team, made.2.clone()))
}

/// The unclaimed team of the first start, or a new one when it was deleted.
async fn first_team(tx: &mut Tx, now: Instant) -> Result<Team> {
    if let Some(team) = db::teams::all(tx, 500).await?.into_iter().find(|team| team.claimed_at.is_none()) {
        return Ok(team);
    }
    let team = teams::new(now, FIRST_TEAM_SLUG, "Home");
    db::teams::insert(tx, &team).await?;
    Ok(team)
}

/// The slug that a team's name asks for, if nobody else has it.
async fn free_slug(tx: &mut Tx, team: &TeamId, name: &str) -> Result<Option<String>, DbError> {
    let Some(slug) = slug_of(name) else { return Ok(None) };
    match db::teams::by_slug(tx, &slug).await? {
        Some(other) if other.id != *team => Ok(None),
        _ => Ok(Some(slug)),
    }
}
