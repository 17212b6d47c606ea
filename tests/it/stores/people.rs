//! Teams, operators, members, logins, invitations, tokens, the audit, facts of the Board, kept answers.

use protocol::{Instant, InvitationId, LoginId, OperatorId, TokenId};
use server::{
    db::{
        DbError, Tx,
        audit::{self, ChainFault, ChainReport},
        idempotency, invitations, logins, members, operators, purge, settings, teams, tokens,
    },
    domain::{
        By, CookieState, Invitation, Login, Operator, Role, Token,
        idempotency::{ANSWER_LIFETIME_MS, EarlierCall, IdempotentCall, KeptAnswer},
    },
    secret::audit_keys::AuditKeys,
};

use super::{NOW, after, audit_keys, session, stories, task, team, viber};

stories!(
    teams_and_members_are_kept,
    logins_stand_until_they_end,
    invitations_are_taken_once,
    tokens_are_found_by_their_hash,
    the_audit_is_a_chain,
    facts_and_answers_are_kept,
);

async fn operator(tx: &mut Tx, email: &str) -> Result<Operator, DbError> {
    let operator = Operator {
        id: OperatorId::new(NOW.0),
        email: email.into(),
        name: "Somebody".into(),
        theme: "system".into(),
        disabled_at: None,
        created_at: NOW,
    };
    operators::insert(tx, &operator, "hash").await?;
    Ok(operator)
}

async fn teams_and_members_are_kept(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?, team(tx, "far").await?);
    let ada = operator(tx, "ada@example.org").await?;
    assert_eq!(teams::load(tx, &home.id).await?.as_ref(), Some(&home));
    assert_eq!(teams::by_slug(tx, "far").await?.as_ref(), Some(&far));
    assert!(teams::by_slug(tx, "nowhere").await?.is_none());
    assert_eq!(teams::all(tx, 10).await?.iter().map(|team| team.slug.as_str()).collect::<Vec<_>>(), ["far", "home"]);

    assert!(!members::any_owner(tx).await?);
    members::insert(&mut tx.change(&home.id, &By::board(), after(1)), &ada.id, Role::Operator).await?;
    assert_eq!(members::of_slug(tx, &ada.id, "home").await?.map(|(_, role)| role), Some(Role::Operator));
    assert!(members::of_slug(tx, &ada.id, "far").await?.is_none(), "not a member, so unknown");
    members::set_role(&mut tx.of(&home.id), &ada.id, Role::Owner).await?;
    members::set_role(&mut tx.of(&far.id), &ada.id, Role::Owner).await?;
    assert_eq!(members::owners(&mut tx.of(&home.id)).await?, 1);
    assert_eq!(members::owners(&mut tx.of(&far.id)).await?, 0);
    assert!(members::any_owner(tx).await?);
    let member = members::load(&mut tx.of(&home.id), &ada.id).await?.expect("there");
    assert_eq!((member.role, member.since, &member.operator.email), (Role::Owner, after(1), &ada.email));
    assert!(members::load(&mut tx.of(&far.id), &ada.id).await?.is_none());
    assert_eq!(members::list(&mut tx.of(&home.id)).await?.len(), 1);
    assert_eq!(teams::of_operator(tx, &ada.id).await?.len(), 1);

    operators::disable(tx, &ada.id, Some(after(2))).await?;
    assert_eq!(members::owners(&mut tx.of(&home.id)).await?, 0, "one who can't sign in is no owner to rely on");
    operators::disable(tx, &ada.id, None).await?;
    operators::update_profile(tx, &ada.id, "Ada", "dark").await?;
    operators::set_password(tx, &ada.id, "another", after(3)).await?;
    let (found, hash) = operators::by_email(tx, "ada@example.org").await?.expect("there");
    assert_eq!((found.name.as_str(), found.theme.as_str(), hash.as_str()), ("Ada", "dark", "another"));
    assert_eq!(operators::load(tx, &ada.id).await?, Some(found));
    assert!(operators::by_email(tx, "nobody@example.org").await?.is_none());

    teams::claim(&mut tx.change(&home.id, &By::board(), after(4))).await?;
    teams::claim(&mut tx.change(&home.id, &By::board(), after(5))).await?;
    assert_eq!(teams::load(tx, &home.id).await?.expect("there").claimed_at, Some(after(4)), "the first stays");
    teams::suspend(&mut tx.of(&home.id), Some(after(6))).await?;
    assert_eq!(teams::load(tx, &home.id).await?.expect("there").suspended_at, Some(after(6)));
    teams::update(
        &mut tx.of(&home.id),
        &server::domain::Team { slug: "den".into(), retention_days: 7, ..home.clone() },
    )
    .await?;
    assert_eq!(teams::by_slug(tx, "den").await?.expect("there").retention_days, 7);
    assert!(teams::lock(&mut tx.of(&home.id)).await?);

    members::delete(&mut tx.of(&home.id), &ada.id).await?;
    assert!(members::list(&mut tx.of(&home.id)).await?.is_empty());
    let lab = viber(tx, &home.id, "lab").await?;
    let talk = session(tx, &home.id, &lab, "talk", NOW).await?;
    task(tx, &home.id, &talk, "work", NOW).await?;
    assert!(purge::hide_team(&mut tx.change(&home.id, &By::board(), NOW)).await?);
    assert!(!purge::hide_team(&mut tx.change(&home.id, &By::board(), NOW)).await?);
    assert!(teams::load(tx, &home.id).await?.is_none() && teams::by_slug(tx, "den").await?.is_none());
    assert_eq!(purge::teams(tx).await?, std::slice::from_ref(&home.id));
    while !purge::sessions_of_team(&mut tx.change(&home.id, &By::board(), NOW)).await? {}
    for (team, id) in purge::sessions(tx, 10).await? {
        while !purge::session(&mut tx.of(&team), &id).await? {}
    }
    while !purge::team(&mut tx.of(&home.id)).await? {}
    purge::team_row(&mut tx.of(&home.id)).await?;
    assert!(!teams::lock(&mut tx.of(&home.id)).await?);
    assert_eq!(teams::all(tx, 10).await?, [far]);
    Ok(())
}

async fn logins_stand_until_they_end(tx: &mut Tx) -> Result<(), DbError> {
    let (ada, bob) = (operator(tx, "ada@example.org").await?, operator(tx, "bob@example.org").await?);
    let login = |operator: &Operator| Login {
        id: LoginId::new(NOW.0),
        operator_id: operator.id.clone(),
        user_agent: "Chromium".into(),
        address: "192.0.2.7".into(),
        created_at: NOW,
        seen_at: NOW,
        expires_at: after(100),
        ends_at: after(180),
        ended_at: None,
        cookie: CookieState::first(NOW),
    };
    let (desk, phone, bobs) = (login(&ada), login(&ada), login(&bob));
    for login in [&desk, &phone, &bobs] {
        logins::insert(tx, login).await?;
    }
    let (found, who) = logins::load_valid(tx, &desk.id, after(1)).await?.expect("stands");
    assert_eq!((&found, &who), (&desk, &ada));
    assert!(logins::load_valid(tx, &desk.id, after(100)).await?.is_none(), "expired");
    assert_eq!(logins::of_operator(tx, &ada.id, NOW).await?.len(), 2);
    assert!(logins::known_address(tx, "ada@example.org", "192.0.2.7").await?);
    assert!(!logins::known_address(tx, "ada@example.org", "192.0.2.8").await?);

    logins::seen(tx, &desk.id, after(30), Instant(NOW.0 - 1), after(200)).await?;
    assert_eq!(
        logins::load_valid(tx, &desk.id, after(1)).await?.expect("stands").0.expires_at,
        after(100),
        "seen just now"
    );
    logins::seen(tx, &desk.id, after(61), after(1), after(200)).await?;
    let (moved, _) = logins::load_valid(tx, &desk.id, after(150)).await?.expect("stands");
    assert_eq!((moved.seen_at, moved.expires_at), (after(61), after(180)), "use moves its end, not beyond the last");
    assert!(logins::load_valid(tx, &desk.id, after(180)).await?.is_none(), "over");
    cookies_are_counted(tx, &phone).await?;

    assert!(!logins::end(tx, &bob.id, &desk.id, after(70)).await?, "not his");
    assert!(logins::end(tx, &ada.id, &desk.id, after(70)).await?);
    assert!(!logins::end(tx, &ada.id, &desk.id, after(71)).await?, "once");
    assert!(logins::load_valid(tx, &desk.id, after(71)).await?.is_none());
    assert_eq!(logins::end_others(tx, &ada.id, Some(&phone.id), after(72)).await?, 0);
    assert_eq!(logins::end_others(tx, &ada.id, None, after(72)).await?, 1);
    operators::disable(tx, &bob.id, Some(after(73))).await?;
    assert!(logins::load_valid(tx, &bobs.id, after(74)).await?.is_none(), "a disabled account is signed in nowhere");
    assert_eq!(logins::sweep(tx, after(80), 10).await?, 2);
    assert_eq!(logins::sweep(tx, after(101), 10).await?, 1);
    Ok(())
}

async fn cookies_are_counted(tx: &mut Tx, login: &Login) -> Result<(), DbError> {
    let id = &login.id;
    assert_eq!(logins::rotate(tx, id, 0, after(1)).await?, Some(1));
    assert_eq!(logins::rotate(tx, id, 0, after(2)).await?, Some(1), "of two at once there is one");
    assert!(!logins::end_reused(tx, id, 0, after(1000)).await?, "nobody has seen the newer one");
    logins::confirm(tx, id, 2, after(3)).await?;
    let state = CookieState { generation: 1, rotated_at: after(1), seen: 0, confirmed_at: NOW };
    assert_eq!(logins::load_valid(tx, id, after(3)).await?.expect("stands").0.cookie, state, "never made");
    logins::confirm(tx, id, 1, after(3)).await?;
    logins::confirm(tx, id, 1, after(9)).await?;
    let state = CookieState { seen: 1, confirmed_at: after(3), ..state };
    assert_eq!(logins::load_valid(tx, id, after(9)).await?.expect("stands").0.cookie, state);
    logins::catch_up(tx, id, 5, after(10)).await?;
    logins::catch_up(tx, id, 4, after(11)).await?;
    let state = CookieState { generation: 5, rotated_at: after(10), seen: 5, confirmed_at: after(10) };
    assert_eq!(logins::load_valid(tx, id, after(11)).await?.expect("stands").0.cookie, state);

    let (home, far) = (team(tx, "home").await?, team(tx, "far").await?);
    members::insert(&mut tx.change(&home.id, &By::board(), NOW), &login.operator_id, Role::Viewer).await?;
    assert_eq!(logins::count(tx, Some(&far.id), after(1)).await?, (0, 0));
    assert_eq!(logins::count(tx, Some(&home.id), after(1)).await?, (2, 1));
    assert_eq!(logins::count(tx, None, after(1)).await?, (3, 2));
    assert_eq!(logins::revoke_some(tx, Some(&far.id), 10, after(1)).await?, 0);
    let other = Login { id: LoginId::new(NOW.0 + 9), ..login.clone() };
    logins::insert(tx, &other).await?;
    assert!(!logins::end_reused(tx, &other.id, 0, after(2000)).await?);
    logins::rotate(tx, &other.id, 0, after(1)).await?;
    logins::confirm(tx, &other.id, 1, after(1)).await?;
    assert!(!logins::end_reused(tx, &other.id, 0, after(60)).await?, "it may have been on its way");
    assert!(!logins::end_reused(tx, &other.id, 1, after(61)).await?, "the newest is good");
    assert_eq!(logins::end_reason(tx, &other.id).await?, None);
    assert!(logins::end_reused(tx, &other.id, 0, after(61)).await?);
    assert!(!logins::end_reused(tx, &other.id, 0, after(62)).await?, "once");
    assert_eq!(logins::end_reason(tx, &other.id).await?.as_deref(), Some("reused"));
    // It is in nobody's way further on.
    assert_eq!(logins::sweep(tx, after(61), 100).await?, 0);
    tx.execute("DELETE FROM logins WHERE end_reason = 'reused'", &[]).await.map(drop)
}

async fn invitations_are_taken_once(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?, team(tx, "far").await?);
    let ada = operator(tx, "ada@example.org").await?;
    let invitation = |n| Invitation {
        id: InvitationId::new(NOW.0 + n),
        email: String::new(),
        role: Role::Viewer,
        invited_by: "op".into(),
        created_at: after(n),
        expires_at: after(100),
        used_at: None,
        revoked_at: None,
    };
    let (one, two) = (invitation(1), invitation(2));
    invitations::insert(&mut tx.of(&home.id), &one, "h1").await?;
    invitations::insert(&mut tx.of(&home.id), &two, "h2").await?;
    assert_eq!(invitations::list(&mut tx.of(&home.id)).await?, [two.clone(), one.clone()], "the newest first");
    assert!(invitations::list(&mut tx.of(&far.id)).await?.is_empty());
    assert_eq!(invitations::load(&mut tx.of(&home.id), &one.id).await?.as_ref(), Some(&one));
    assert!(invitations::load(&mut tx.of(&far.id), &one.id).await?.is_none());
    let (of, found) = invitations::by_hash(tx, "h1").await?.expect("there");
    assert_eq!((of, found), (home.clone(), one.clone()));
    assert!(invitations::by_hash(tx, "h3").await?.is_none());
    assert!(
        !invitations::take(&mut tx.change(&home.id, &By::board(), after(100)), &one.id, &ada.id).await?,
        "too late"
    );
    assert!(invitations::take(&mut tx.change(&home.id, &By::board(), after(5)), &one.id, &ada.id).await?);
    assert!(!invitations::take(&mut tx.change(&home.id, &By::board(), after(6)), &one.id, &ada.id).await?, "once");
    assert!(!invitations::revoke(&mut tx.change(&far.id, &By::board(), after(7)), &two.id).await?);
    assert!(invitations::revoke(&mut tx.change(&home.id, &By::board(), after(7)), &two.id).await?);
    assert!(!invitations::take(&mut tx.change(&home.id, &By::board(), after(8)), &two.id, &ada.id).await?, "withdrawn");
    assert_eq!(invitations::load(&mut tx.of(&home.id), &one.id).await?.expect("there").used_at, Some(after(5)));
    Ok(())
}

async fn tokens_are_found_by_their_hash(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?, team(tx, "far").await?);
    let token = Token {
        id: TokenId::new(NOW.0),
        name: "ci".into(),
        role: Role::Operator,
        created_by: "op".into(),
        created_at: NOW,
        seen_at: None,
        revoked_at: None,
    };
    tokens::insert(&mut tx.of(&home.id), &token, "h1").await?;
    assert_eq!(tokens::list(&mut tx.of(&home.id)).await?, std::slice::from_ref(&token));
    assert!(tokens::list(&mut tx.of(&far.id)).await?.is_empty());
    assert_eq!(tokens::load(&mut tx.of(&home.id), &token.id).await?.as_ref(), Some(&token));
    assert_eq!(tokens::by_hash(tx, "h1").await?, Some((home.clone(), token.clone())));
    tokens::seen(&mut tx.change(&home.id, &By::board(), after(60)), &token.id, after(0)).await?;
    tokens::seen(&mut tx.change(&home.id, &By::board(), after(61)), &token.id, after(1)).await?;
    assert_eq!(
        tokens::load(&mut tx.of(&home.id), &token.id).await?.expect("there").seen_at,
        Some(after(60)),
        "once a minute"
    );
    assert!(!tokens::revoke(&mut tx.change(&far.id, &By::board(), NOW), &token.id).await?);
    assert!(tokens::revoke(&mut tx.change(&home.id, &By::board(), NOW), &token.id).await?);
    assert!(!tokens::revoke(&mut tx.change(&home.id, &By::board(), NOW), &token.id).await?);
    assert!(tokens::by_hash(tx, "h1").await?.is_none());
    assert!(tokens::list(&mut tx.of(&home.id)).await?.is_empty());
    Ok(())
}

async fn the_audit_is_a_chain(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?, team(tx, "far").await?);
    let by = By::console();
    for n in 0..3 {
        let detail = format!("n={n}\nwith a line");
        audit::append(
            &mut tx.change(&home.id, &by, after(n)),
            audit::Entry::new("viber.revoke", "vib_1").detail(&detail).before(Some("before")),
        )
        .await?;
    }
    audit::append(&mut tx.change(&far.id, &by, NOW), audit::Entry::new("team.add", "far").after(Some("after"))).await?;
    // On PostgreSQL entries wait for their numbers.
    for team in [&home, &far] {
        let is_pending = audit::is_pending(&mut tx.of(&team.id)).await?;
        assert_eq!(is_pending, !tx.is_sqlite());
        let sealed = audit::seal(&mut tx.change(&team.id, &By::board(), after(3)), 2).await?;
        assert_eq!(
            sealed,
            if tx.is_sqlite() {
                0
            } else if *team == home {
                2
            } else {
                1
            }
        );
        assert_eq!(audit::unsettled(tx).await?.contains(&team.id), !tx.is_sqlite() && *team == home);
        while audit::seal(&mut tx.change(&team.id, &By::board(), after(3)), 2).await? > 0 {}
        assert!(!audit::is_pending(&mut tx.of(&team.id)).await?);
    }
    assert!(audit::unsettled(tx).await?.is_empty());
    let mut newest = audit::newest_of_teams(tx, 10).await?;
    newest.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.seq));
    let home_end = audit::newest(&mut tx.of(&home.id)).await?.expect("an entry");
    let far_end = audit::newest(&mut tx.of(&far.id)).await?.expect("an entry");
    let ends = [(home.id.clone(), home_end), (far.id.clone(), far_end)];
    assert_eq!(newest, ends, "the end of each team's audit");
    // PostgreSQL has a clock of its own; SQLite knows what was written.
    assert!(
        server::db::settings::newest_instant(tx).await?.is_some_and(|newest| !tx.is_sqlite() || newest == after(2))
    );
    let page = audit::page(&mut tx.of(&home.id), None, 2).await?;
    assert_eq!(page.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [3, 2], "the newest first");
    assert_eq!(audit::page(&mut tx.of(&home.id), Some(2), 10).await?.len(), 1);
    assert_eq!(page[0].prev_hash, page[1].hash);
    assert!(!page[0].detail.contains('\n') && page[0].after_hash.is_empty() && !page[0].before_hash.is_empty());
    let keys = audit_keys();
    let head = page[0].hash.clone();
    let fault = |report: ChainReport| report.fault;
    let good = audit::verify(&mut tx.of(&home.id), Some(&keys), Some((3, &head))).await?;
    assert_eq!((good.rows, good.unknown, good.fault), (3, 0, None));
    let other = AuditKeys::new(&[8; 32], &[]);
    let elsewhere = audit::verify(&mut tx.of(&home.id), Some(&other), None).await?;
    assert!(matches!(elsewhere.fault, Some(ChainFault::NeverSealed { key: Some(_) })), "{elsewhere:?}");
    assert_eq!(
        audit::verify(&mut tx.of(&home.id), None, None).await?.fault,
        None,
        "what can be said without keys is good"
    );
    let replaced = audit::verify(&mut tx.of(&home.id), Some(&keys), Some((2, &head))).await?;
    assert_eq!(replaced.fault, Some(ChainFault::Replaced { seq: 2 }));
    let cut = audit::verify(&mut tx.of(&home.id), Some(&keys), Some((5, &head))).await?;
    assert_eq!(cut.fault, Some(ChainFault::Cut { seq: 3, of: 5 }));
    tx.execute("UPDATE audit SET detail = 'nothing happened' WHERE seq = 2", &[]).await?;
    for keys in [Some(&keys), None] {
        let found = fault(audit::verify(&mut tx.of(&home.id), keys, None).await?);
        assert_eq!(found, keys.map(|_| ChainFault::Changed { seq: 2 }), "without a key nobody can say");
    }
    assert_eq!(fault(audit::verify(&mut tx.of(&far.id), Some(&keys), None).await?), None);
    tx.execute("DELETE FROM audit WHERE seq = 2", &[]).await?;
    let found = fault(audit::verify(&mut tx.of(&home.id), Some(&keys), None).await?);
    assert_eq!(found, Some(ChainFault::Missing { from: 2, to: 2 }));
    if !tx.is_sqlite() {
        let by = By::console();
        audit::append(&mut tx.change(&far.id, &by, after(4)), audit::Entry::new("team.rename", "far")).await?;
        audit::append(&mut tx.change(&far.id, &by, after(5)), audit::Entry::new("team.rename", "far")).await?;
        let forged = "UPDATE audit_pending SET actor_name = 'Somebody' WHERE at = $1";
        assert_eq!(tx.execute(forged, server::args![after(4)]).await?, 1);
        audit::seal(&mut tx.change(&far.id, &By::board(), after(6)), 10).await?;
        let page = audit::page(&mut tx.of(&far.id), None, 2).await?;
        assert_eq!(
            page.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(),
            ["team.rename", "audit.changed"]
        );
        assert_eq!(fault(audit::verify(&mut tx.of(&far.id), Some(&keys), None).await?), None);
    }
    purge::hide_team(&mut tx.change(&far.id, &By::board(), after(8))).await?;
    while !purge::team(&mut tx.of(&far.id)).await? {}
    purge::team_row(&mut tx.of(&far.id)).await?;
    assert!(!audit::is_team_deleted(&mut tx.of(&far.id), &keys).await?);
    audit::mark_team_deleted(&mut tx.change(&far.id, &By::board(), after(9))).await?;
    assert_eq!(audit::unsettled(tx).await?, [far.id.clone()].into());
    assert!(
        audit::is_team_deleted(&mut tx.of(&far.id), &keys).await?
            && !audit::is_team_deleted(&mut tx.of(&home.id), &keys).await?
    );
    assert!(!audit::is_team_deleted(&mut tx.of(&far.id), &other).await?);
    Ok(())
}

async fn facts_and_answers_are_kept(tx: &mut Tx) -> Result<(), DbError> {
    assert_eq!(settings::value(tx, "k").await?, None);
    settings::set(tx, "k", "one").await?;
    settings::set(tx, "k", "two").await?;
    assert_eq!(settings::value(tx, "k").await?.as_deref(), Some("two"));
    assert!(!settings::remove_if_equal(tx, "k", "one").await?);
    assert!(settings::remove_if_equal(tx, "k", "two").await?);
    assert!(!settings::remove_if_equal(tx, "k", "two").await?, "once");
    settings::set(tx, "k", "three").await?;
    settings::remove(tx, "k").await?;
    assert_eq!(settings::value(tx, "k").await?, None);
    assert!(settings::size(tx).await? > 10_000);

    let home = team(tx, "home").await?.id;
    let once = |asks: &str| IdempotentCall { key: "k1".into(), asks: asks.into() };
    let kept = KeptAnswer { status: 201, answer: "{}".into(), at: NOW };
    assert_eq!(idempotency::find(&mut tx.of(&home), "op", &once("a"), NOW).await?, EarlierCall::No);
    idempotency::keep(&mut tx.of(&home), "op", &once("a"), &kept).await?;
    assert_eq!(idempotency::find(&mut tx.of(&home), "op", &once("a"), NOW).await?, EarlierCall::Same(kept));
    assert_eq!(idempotency::find(&mut tx.of(&home), "op", &once("b"), NOW).await?, EarlierCall::Other);
    assert_eq!(idempotency::find(&mut tx.of(&home), "else", &once("a"), NOW).await?, EarlierCall::No);
    let tomorrow = Instant(NOW.0 + ANSWER_LIFETIME_MS);
    assert_eq!(idempotency::find(&mut tx.of(&home), "op", &once("a"), tomorrow).await?, EarlierCall::No);
    assert_eq!(idempotency::forget(tx, tomorrow, 10).await?, 1);
    Ok(())
}
