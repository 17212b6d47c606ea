//! Answers to unsafe calls that carried a key, kept 24 h: per team and actor, so that no key meets another's.

use protocol::Instant;

use crate::{
    args,
    db::{Error, TeamTx, Tx},
    domain::idempotency::{Earlier, KEPT_FOR, Kept, Once},
};

/// What this actor's key was answered before.
pub async fn find(tx: &mut TeamTx<'_>, actor: &str, once: &Once, now: Instant) -> Result<Earlier, Error> {
    let sql = "SELECT body_hash, status, answer, created_at FROM idempotency \
               WHERE team_id = $1 AND actor = $2 AND key = $3 AND created_at > $4";
    let Some(row) = tx.row(sql, args![actor, &once.key, now.0 - KEPT_FOR]).await? else {
        return Ok(Earlier::No);
    };
    if row.text("body_hash")? != once.asks {
        return Ok(Earlier::Other);
    }
    let status = u16::try_from(row.int("status")?).map_err(|_| Error::Broken("status is not an HTTP status".into()))?;
    Ok(Earlier::Same(Kept { status, answer: row.text("answer")?, at: row.instant("created_at")? }))
}

/// Keeps the answer of a call, in the transaction of its change. A call with the same key that committed meanwhile makes
/// the whole change start over, so that `find` sees it.
pub async fn keep(tx: &mut TeamTx<'_>, actor: &str, once: &Once, kept: &Kept) -> Result<(), Error> {
    let sql = "INSERT INTO idempotency (team_id, actor, key, body_hash, status, answer, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) \
               ON CONFLICT (team_id, actor, key) DO UPDATE SET body_hash = excluded.body_hash, \
               status = excluded.status, answer = excluded.answer, created_at = excluded.created_at \
               WHERE idempotency.created_at <= $8";
    let args = args![actor, &once.key, &once.asks, i64::from(kept.status), &kept.answer, kept.at, kept.at.0 - KEPT_FOR];
    if tx.execute(sql, args).await? == 0 {
        tx.board().raced = true;
        return Err(Error::Taken);
    }
    Ok(())
}

/// Drops answers of any team that are older than 24 h, at most `limit`.
pub async fn forget(tx: &mut Tx, now: Instant, limit: u64) -> Result<u64, Error> {
    let sql = "DELETE FROM idempotency WHERE (team_id, actor, key) IN (SELECT team_id, actor, key FROM idempotency \
               WHERE created_at <= $1 ORDER BY created_at LIMIT $2 + 0)";
    tx.execute(sql, args![now.0 - KEPT_FOR, limit]).await
}

#[cfg(test)]
mod tests {
    use protocol::TeamId;

    use super::*;
    use crate::{db::Db, domain::By};

    const NOW: Instant = Instant(1_700_000_000_000);

    fn once(asks: &str) -> Once {
        Once { key: "k1".into(), asks: asks.into() }
    }

    async fn found(db: &Db, team: &TeamId, asks: &'static str, now: Instant) -> Earlier {
        let mut tx = db.reader_of(team).await.expect("a reader");
        find(&mut tx, "tok", &once(asks), now).await.expect("a read")
    }

    async fn kept(db: &Db, team: &TeamId, answer: &'static str, at: Instant) -> Result<(), Error> {
        db.change(team, &By::board(), at, move |tx| {
            Box::pin(async move {
                let kept = Kept { status: 201, answer: answer.into(), at };
                keep(tx, "tok", &once("a"), &kept).await
            })
        })
        .await
    }

    #[tokio::test]
    async fn a_key_is_answered_once_and_forgotten_after_a_day() {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await.expect("a database");
        let team = TeamId::new(1);
        let id = team.clone();
        db.write(move |tx| {
            let id = id.clone();
            Box::pin(async move {
                let sql = "INSERT INTO teams (team_id, slug, name, created_at) VALUES ($1, 'a', 'A', 1)";
                tx.execute(sql, args![&id]).await
            })
        })
        .await
        .expect("a team");
        assert_eq!(found(&db, &team, "a", NOW).await, Earlier::No);
        kept(&db, &team, "{}", NOW).await.expect("kept");
        assert!(matches!(found(&db, &team, "a", NOW).await, Earlier::Same(kept) if kept.answer == "{}"));
        assert_eq!(found(&db, &team, "b", NOW).await, Earlier::Other);
        assert!(matches!(kept(&db, &team, "other", NOW).await, Err(Error::Taken)));
        let tomorrow = Instant(NOW.0 + KEPT_FOR);
        assert_eq!(found(&db, &team, "a", tomorrow).await, Earlier::No);
        kept(&db, &team, "[]", tomorrow).await.expect("the old answer makes room");
        assert!(matches!(found(&db, &team, "a", tomorrow).await, Earlier::Same(kept) if kept.answer == "[]"));
        let later = Instant(tomorrow.0 + KEPT_FOR);
        let gone = db.write(move |tx| Box::pin(async move { forget(tx, later, 10).await })).await;
        assert_eq!(gone.expect("a sweep"), 1);
    }
}
