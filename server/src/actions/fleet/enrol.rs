//! Enrolment: a join token becomes a viber with a credential of its own, once.

use std::collections::BTreeMap;

use protocol::{TeamId, ViberId};

use crate::{
    actions::{AfterCommit, vibers::check_labels},
    db::{self, audit::Entry},
    domain::{Actor, By, name},
    error::{Error, Result},
    secret::{self, Secret},
    state::Board,
};

/// What a machine sends to join.
#[derive(Clone, Debug, Default)]
pub struct JoinRequest {
    pub token: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub hostname: String,
    pub platform: String,
    pub version: String,
}

/// A viber that has just been enrolled.
#[derive(Clone, Debug)]
pub struct EnrolledViber {
    pub viber: ViberId,
    /// Returned only here: the Board keeps its hash.
    pub credential: Secret,
    /// The team's slug.
    pub team: String,
}

/// Enrols a machine. Any invalid token is `Unauthenticated`, whatever is wrong with it.
pub async fn join(board: &Board, joining: JoinRequest, address: &str) -> Result<EnrolledViber> {
    let now = board.clock.now();
    let given = check_labels(&joining.labels)?;
    let (viber, credential) = (ViberId::new(now.0), Secret::new("vbc_"));
    let (token_hash, credential_hash) = (secret::hash(&joining.token), credential.hash());
    let (id, address) = (viber.clone(), address.to_owned());
    let (team, slug) = board
        .db
        .write(move |tx| {
            let (joining, given, id, address) = (joining.clone(), given.clone(), id.clone(), address.clone());
            let (token_hash, credential_hash) = (token_hash.clone(), credential_hash.clone());
            Box::pin(async move {
                let redeemed = db::join_tokens::redeem(tx, &token_hash, &id, now).await?;
                let (team, mut labels) = redeemed.ok_or(Error::Unauthenticated)?;
                // What the token's creator chose takes precedence over what the machine reports.
                for (key, value) in given {
                    labels.entry(key).or_insert(value);
                }
                let taken = db::vibers::names(&mut tx.of(&team), None).await?;
                let wanted = name::clean(&joining.name, name::MAX_NAME_CHARS);
                let wanted = wanted.or_else(|| name::clean(&joining.hostname, name::MAX_NAME_CHARS));
                let name = name::unique(&wanted.unwrap_or_else(|| "viber".into()), &taken);
                let line = |text: &str| name::clean(text, 200).unwrap_or_default();
                let viber = db::vibers::NewViber {
                    id: &id,
                    name: &name,
                    labels: &labels,
                    hostname: &line(&joining.hostname),
                    platform: &line(&joining.platform),
                    version: &line(&joining.version),
                    credential_hash: &credential_hash,
                };
                let by = By { actor: Actor::Viber { id: id.clone(), name: name.clone() }, address };
                let tx = &mut tx.change(&team, &by, now);
                db::vibers::insert(tx, viber).await?;
                db::audit::append(tx, Entry::new("viber.join", id.as_str()).detail(&name).after(name.as_str())).await?;
                let found = db::teams::load(tx.without_team(), &team).await?.ok_or(Error::Unauthenticated)?;
                Ok::<(TeamId, String), Error>((team, found.slug))
            })
        })
        .await?;
    let mut after = AfterCommit::default();
    after.viber(&viber);
    after.publish(board, &team);
    Ok(EnrolledViber { viber, credential, team: slug })
}
