//! Answers to unsafe calls with a key, kept for 24 h per team and actor, so that keys of different callers do not collide.

use protocol::Instant;

use crate::{
    args,
    db::{DbError, TeamTx, Tx},
    domain::idempotency::{ANSWER_LIFETIME_MS, EarlierCall, IdempotentCall, KeptAnswer},
};

/// Whether this actor's key was used before, and the answer.
pub async fn find(
    tx: &mut TeamTx<'_>,
    actor: &str,
    once: &IdempotentCall,
    now: Instant,
) -> Result<EarlierCall, DbError> {
    let sql = "SELECT body_hash, status, answer, created_at FROM idempotency \
               WHERE team_id = $1 AND actor = $2 AND key = $3 AND created_at > $4";
    let Some(row) = tx.row(sql, args![actor, &once.key, now.0 - ANSWER_LIFETIME_MS]).await? else {
        return Ok(EarlierCall::No);
    };
    if row.text("body_hash")? != once.asks {
        return Ok(EarlierCall::Other);
    }
    let status =
        u16::try_from(row.int("status")?).map_err(|_| DbError::Broken("status is not an HTTP status".into()))?;
    Ok(EarlierCall::Same(KeptAnswer { status, answer: row.text("answer")?, at: row.instant("created_at")? }))
}

/// Keeps the answer to a call, in the transaction of its change. If a call with the same key committed meanwhile, the whole
/// change starts over, so that `find` sees it.
pub async fn keep(tx: &mut TeamTx<'_>, actor: &str, once: &IdempotentCall, kept: &KeptAnswer) -> Result<(), DbError> {
    let sql = "INSERT INTO idempotency (team_id, actor, key, body_hash, status, answer, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) \
               ON CONFLICT (team_id, actor, key) DO UPDATE SET body_hash = excluded.body_hash, \
               status = excluded.status, answer = excluded.answer, created_at = excluded.created_at \
               WHERE idempotency.created_at <= $8";
    let args = args![
        actor,
        &once.key,
        &once.asks,
        i64::from(kept.status),
        &kept.answer,
        kept.at,
        kept.at.0 - ANSWER_LIFETIME_MS
    ];
    if tx.execute(sql, args).await? == 0 {
        tx.without_team().raced = true;
        return Err(DbError::Taken);
    }
    Ok(())
}

/// Removes answers of any team that are older than 24 h, at most `limit`.
pub async fn forget(tx: &mut Tx, now: Instant, limit: u64) -> Result<u64, DbError> {
    let sql = "DELETE FROM idempotency WHERE (team_id, actor, key) IN (SELECT team_id, actor, key FROM idempotency \
               WHERE created_at <= $1 ORDER BY created_at LIMIT $2 + 0)";
    tx.execute(sql, args![now.0 - ANSWER_LIFETIME_MS, limit]).await
}

#[cfg(test)]
mod tests {
    use protocol::TeamId;

    use super::*;
    use crate::{db::Db, domain::By};

    const NOW: Instant = Instant(1_700_000_000_000);

    fn once(asks: &str) -> IdempotentCall {
        IdempotentCall { key: "k1".into(), asks: asks.into() }
    }

    async fn found(db: &Db, team: &TeamId, asks: &'static str, now: Instant) -> EarlierCall {
        let mut tx = db.reader_of(team).await.expect("a reader");
        find(&mut tx, "tok", &once(asks), now).await.expect("a read")
    }

    async fn kept(db: &Db, team: &TeamId, answer: &'static str, at: Instant) -> Result<(), DbError> {
        db.change(team, &By::board(), at, move |tx| {
            Box::pin(async move {
                let kept = KeptAnswer { status: 201, answer: answer.into(), at };
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
        assert_eq!(found(&db, &team, "a", NOW).await, EarlierCall::No);
        kept(&db, &team, "{}", NOW).await.expect("kept");
        assert!(matches!(found(&db, &team, "a", NOW).await, EarlierCall::Same(kept) if kept.answer == "{}"));
        assert_eq!(found(&db, &team, "b", NOW).await, EarlierCall::Other);
        assert!(matches!(kept(&db, &team, "other", NOW).await, Err(DbError::Taken)));
        let tomorrow = Instant(NOW.0 + ANSWER_LIFETIME_MS);
        assert_eq!(found(&db, &team, "a", tomorrow).await, EarlierCall::No);
        kept(&db, &team, "[]", tomorrow).await.expect("the old answer makes room");
        assert!(matches!(found(&db, &team, "a", tomorrow).await, EarlierCall::Same(kept) if kept.answer == "[]"));
        let later = Instant(tomorrow.0 + ANSWER_LIFETIME_MS);
        let gone = db.write(move |tx| Box::pin(async move { forget(tx, later, 10).await })).await;
        assert_eq!(gone.expect("a sweep"), 1);
    }
}
