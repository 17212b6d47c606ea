//! After a break-in: revokes everything that grants access, of one team or of the whole Board.
//!
//! Each credential is revoked by its own verb, with a row in the audit. It is not one change: a Board that is killed in
//! the middle has revoked a part, and repeating it revokes the rest.

use protocol::{InvitationId, JoinTokenId, TeamId, TokenId, ViberId};

use crate::{
    actions::{invitations, tokens, vibers},
    db::{self, audit::Entry},
    domain::{By, Team},
    error::{Error, Result},
    hub::{Changed, Revoked},
    state::Board,
};

/// Logins ended in one change.
const LOGINS_PER_CHANGE: u64 = 200;
/// Join tokens and invitations read in one round.
const CREDENTIALS_PER_ROUND: u64 = 500;
/// Vibers read of one team.
const MAX_VIBERS: u64 = 10_000;
/// Teams read.
const MAX_TEAMS: u64 = 100_000;

/// How many credentials of each kind there are to revoke, or were revoked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    pub logins: u64,
    /// How many people the logins belong to.
    pub people: u64,
    pub tokens: u64,
    pub join_tokens: u64,
    pub invitations: u64,
    pub vibers: u64,
}

impl AccessCounts {
    fn add(&mut self, other: Self) {
        self.logins += other.logins;
        self.tokens += other.tokens;
        self.join_tokens += other.join_tokens;
        self.invitations += other.invitations;
        self.vibers += other.vibers;
    }

    fn words(&self) -> String {
        format!(
            "{} logins, {} API tokens, {} join tokens, {} invitations, {} vibers",
            self.logins, self.tokens, self.join_tokens, self.invitations, self.vibers
        )
    }
}

/// Counts what grants access to one team, or to the whole Board.
pub async fn count(board: &Board, team: Option<&Team>) -> Result<AccessCounts> {
    let mut all = AccessCounts::default();
    for team in teams(board, team).await? {
        let open = OpenAccess::of(board, &team.id).await?;
        all.tokens += open.tokens.len() as u64;
        all.join_tokens += open.join_tokens.len() as u64;
        all.invitations += open.invitations.len() as u64;
        all.vibers += open.vibers.len() as u64;
    }
    let (id, now) = (team.map(|team| &team.id), board.clock.now());
    (all.logins, all.people) = db::logins::count(&mut *board.db.reader().await?, id, now).await?;
    Ok(all)
}

/// Revokes all of it. `with_vibers`: the vibers too; each has to join again.
pub async fn revoke_all(board: &Board, by: &By, team: Option<&Team>, with_vibers: bool) -> Result<AccessCounts> {
    let mut done = AccessCounts::default();
    if team.is_none() {
        // The setup code comes first: whoever holds it can become an owner.
        let drop_code =
            board.db.write(|tx| Box::pin(async move { db::settings::remove(tx, db::settings::SETUP_CODE).await }));
        drop_code.await.map_err(Error::from)?;
        done.logins += end_logins(board, None).await?;
    }
    for team in teams(board, team).await? {
        let ended = of_team(board, by, &team.id, with_vibers).await?;
        done.add(ended);
        note(board, by, &team.id, ended).await?;
        board.hub.notify(&team.id, Changed::Revoked(Revoked::Everyone));
    }
    board.guard.forget();
    Ok(done)
}

/// Repeats revoking until nothing is left: somebody with access may have made new credentials meanwhile.
async fn of_team(board: &Board, by: &By, team: &TeamId, with_vibers: bool) -> Result<AccessCounts> {
    let mut done = AccessCounts::default();
    loop {
        let mut ended = AccessCounts { logins: end_logins(board, Some(team)).await?, ..AccessCounts::default() };
        let open = OpenAccess::of(board, team).await?;
        for id in &open.tokens {
            ended.tokens += was_there(tokens::revoke(board, team, by, id).await)?;
        }
        for id in &open.join_tokens {
            ended.join_tokens += was_there(vibers::revoke_join_token(board, team, by, id).await)?;
        }
        for id in &open.invitations {
            ended.invitations += was_there(invitations::revoke(board, team, by, id).await)?;
        }
        for id in open.vibers.iter().filter(|_| with_vibers) {
            ended.vibers += was_there(super::revoke_viber(board, team, by, id).await)?;
        }
        if ended == AccessCounts::default() {
            return Ok(done);
        }
        done.add(ended);
    }
}

/// Counts a revocation, unless somebody else revoked it first.
fn was_there(done: Result<()>) -> Result<u64> {
    match done {
        Ok(()) => Ok(1),
        Err(Error::NotFound) => Ok(0),
        Err(error) => Err(error),
    }
}

async fn end_logins(board: &Board, team: Option<&TeamId>) -> Result<u64> {
    let mut all = 0;
    loop {
        let (team, now) = (team.cloned(), board.clock.now());
        let some = board.db.write(move |tx| {
            let team = team.clone();
            Box::pin(async move { db::logins::revoke_some(tx, team.as_ref(), LOGINS_PER_CHANGE, now).await })
        });
        let ended: u64 = some.await.map_err(Error::from)?;
        all += ended;
        if ended < LOGINS_PER_CHANGE {
            return Ok(all);
        }
    }
}

async fn note(board: &Board, by: &By, team: &TeamId, ended: AccessCounts) -> Result<()> {
    let noted = board.change(team, by, move |tx| {
        Box::pin(async move {
            let team = tx.team.clone();
            db::audit::append(tx, Entry::new("team.revoke_all", team.as_str()).detail(&ended.words())).await
        })
    });
    Ok(noted.await?)
}

async fn teams(board: &Board, team: Option<&Team>) -> Result<Vec<Team>> {
    match team {
        Some(team) => Ok(vec![team.clone()]),
        None => Ok(db::teams::all(&mut *board.db.reader().await?, MAX_TEAMS).await?),
    }
}

/// What grants access to a team, except logins.
struct OpenAccess {
    tokens: Vec<TokenId>,
    join_tokens: Vec<JoinTokenId>,
    invitations: Vec<InvitationId>,
    vibers: Vec<ViberId>,
}

impl OpenAccess {
    async fn of(board: &Board, team: &TeamId) -> Result<Self> {
        let now = board.clock.now();
        let mut tx = board.db.reader_of(team).await?;
        let tokens = db::tokens::list(&mut tx).await?.into_iter();
        let join_tokens = db::join_tokens::open(&mut tx, now, CREDENTIALS_PER_ROUND).await?.into_iter();
        let vibers = db::vibers::list(&mut tx, None, MAX_VIBERS).await?.into_iter();
        Ok(Self {
            tokens: tokens.map(|token| token.id).collect(),
            invitations: db::invitations::open(&mut tx, now, CREDENTIALS_PER_ROUND).await?,
            join_tokens: join_tokens.map(|token| token.id).collect(),
            vibers: vibers.map(|viber| viber.id).collect(),
        })
    }
}
