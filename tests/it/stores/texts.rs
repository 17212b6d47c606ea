//! What people and agents wrote is found by its words, on both databases alike, and leaves the index with its session.

use protocol::TeamId;
use server::{
    db::{
        DbError, Tx,
        messages::{self, search},
        purge,
        sessions::{self, Unindexed, index_some, next_unindexed},
    },
    domain::{By, Part},
};

use super::{NOW, after, session, stories, task, team, viber};

stories!(
    messages_are_found_by_their_words,
    what_is_said_to_a_running_task_is_found_under_its_author,
    older_texts_are_indexed_behind_newer_ones,
    a_word_that_all_texts_have_is_found_page_by_page,
    hostile_words_are_words,
    what_is_deleted_leaves_the_index,
    a_damaged_text_holds_up_nothing,
    a_page_reads_no_more_than_some_large_texts,
    no_team_waits_for_another,
);

/// Adds all texts to the index.
async fn index(tx: &mut Tx) -> Result<(), DbError> {
    for texts in [Unindexed::NewTexts, Unindexed::OlderTexts] {
        while let Some(team) = next_unindexed(tx, texts, None).await? {
            index_some(&mut tx.of(&team), texts).await?;
        }
    }
    Ok(())
}

/// The snippets of what is found, page by page.
async fn found(tx: &mut Tx, team: &TeamId, query: &str, limit: usize) -> Result<Vec<String>, DbError> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = search::search(&mut tx.of(team), query, cursor, limit).await?;
        assert!(page.hits.len() <= limit);
        all.extend(page.hits.iter().map(|hit| {
            let pieces = hit.snippet.iter();
            pieces.map(|p| if p.hit { format!("[{}]", p.text) } else { p.text.clone() }).collect::<String>()
        }));
        match page.next {
            Some(next) => {
                assert!(cursor.is_none_or(|cursor| next < cursor), "it goes on");
                cursor = Some(next);
            }
            None => return Ok(all),
        }
    }
}

async fn messages_are_found_by_their_words(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, theirs) = (viber(tx, &home, "lab").await?, viber(tx, &far, "theirs").await?);
    let talk = session(tx, &home, &lab, "A talk", NOW).await?;
    let foreign = session(tx, &far, &theirs, "Theirs", NOW).await?;
    let goals = ["The voucher is slow", "PaymentStep charges the VOUCHER twice", "Größe und 数据库", "vouchers"];
    for (n, goal) in (1..).zip(goals) {
        task(tx, &home, &talk, goal, after(n)).await?;
    }
    task(tx, &far, &foreign, "their voucher", after(9)).await?;
    let page = search::search(&mut tx.of(&home), "voucher", None, 10).await?;
    assert!(page.hits.is_empty() && page.next.is_none() && !page.is_behind, "it takes some seconds");
    index(tx).await?;
    for (query, due) in [
        ("voucher", vec!["PaymentStep charges the [VOUCHER] twice", "The [voucher] is slow"]),
        ("slow VOUCHER", vec!["The [voucher] is [slow]"]),
        ("payment", vec!["[Payment]Step charges the VOUCHER twice"]),
        ("paymentstep", vec!["[PaymentStep] charges the VOUCHER twice"]),
        ("vouch", vec![]),
        ("GRÖSSE", vec![]),
        ("größe", vec!["[Größe] und 数据库"]),
        ("数据", vec!["Größe und [数据]库"]),
        ("据库", vec!["Größe und 数[据库]"]),
        ("voucher 数据", vec![]),
        ("their", vec![]),
        ("", vec![]),
        ("…", vec![]),
    ] {
        assert_eq!(found(tx, &home, query, 10).await?, due, "{query}");
    }
    assert_eq!(found(tx, &far, "voucher", 10).await?, ["their [voucher]"]);
    let hit = search::search(&mut tx.of(&home), "slow", None, 10).await?.hits.remove(0);
    assert_eq!((hit.session, hit.title.as_str(), hit.seq, hit.idx, hit.last_idx), (talk, "A talk", 1, 0, 0));
    Ok(())
}

async fn what_is_said_to_a_running_task_is_found_under_its_author(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "A talk", NOW).await?;
    let work = task(tx, &home, &talk, "The goal", after(1)).await?;
    let said = Part::Message {
        id: protocol::MessageId::new(1),
        author: "op_ada".into(),
        name: "Ada".into(),
        mode: protocol::InjectionPoint::Steer,
        text: "Keep the voucher".into(),
        files: Vec::new(),
        seq: 3,
    };
    let notice =
        Part::Notice { level: protocol::NoticeLevel::Info, text: r#"{"type":"message" voucher"#.into(), folded: None };
    messages::append(&mut tx.change(&home, &By::board(), after(2)), &work.message_id, &[notice, said]).await?;
    index(tx).await?;
    let hits = search::search(&mut tx.of(&home), "voucher", None, 10).await?.hits;
    let [hit] = hits.as_slice() else { panic!("{hits:?}") };
    assert_eq!((hit.author.as_str(), hit.role, hit.idx), ("op_ada", server::domain::MessageRole::User, 2));
    Ok(())
}

async fn older_texts_are_indexed_behind_newer_ones(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "A talk", NOW).await?;
    for n in 0..90 {
        let work = task(tx, &home, &talk, &format!("needle {n}"), after(n)).await?;
        // What is no text is not indexed, and does not stop it.
        let call = Part::Reasoning { text: "needle".into(), duration_ms: 1 };
        messages::append(&mut tx.change(&home, &By::board(), after(n)), &work.message_id, &[call]).await?;
    }
    // As the migration leaves them.
    tx.execute("DELETE FROM unindexed_texts", &[]).await?;
    let sql = "INSERT INTO unindexed_history (team_id, message_id, idx) SELECT team_id, 'msh', 0 FROM teams";
    tx.execute(sql, &[]).await?;
    for n in 90..100 {
        task(tx, &home, &talk, &format!("needle {n}"), after(n)).await?;
    }
    // This change is full all the time: each call adds a text, as one that is large by itself.
    for _ in 0..10 {
        index_some(&mut tx.of(&home), Unindexed::NewTexts).await?;
    }
    let page = search::search(&mut tx.of(&home), "needle", None, 200).await?;
    assert_eq!((page.hits.len(), page.is_behind), (10, true), "new ones come first");
    // It begins with the newest of all, which the index has by now.
    for _ in 0..20 {
        index_some(&mut tx.of(&home), Unindexed::OlderTexts).await?;
    }
    let page = search::search(&mut tx.of(&home), "needle", None, 200).await?;
    assert!(page.hits.len() > 10 && page.is_behind, "then the newest of the older ones");
    assert_eq!(found(tx, &home, "needle 89", 10).await?.len(), 1);
    assert_eq!(found(tx, &home, "needle 0", 10).await?.len(), 0);
    index(tx).await?;
    let due: Vec<String> = (0..100).rev().map(|n| format!("[needle] {n}")).collect();
    for limit in [1, 7, 100, 200] {
        assert_eq!(found(tx, &home, "needle", limit).await?, due, "{limit}");
    }
    assert!(!search::search(&mut tx.of(&home), "needle", None, 1).await?.is_behind);
    // What comes next is newer than all of them.
    task(tx, &home, &talk, "needle 100", after(100)).await?;
    index(tx).await?;
    assert_eq!(found(tx, &home, "needle", 50).await?[0], "[needle] 100");
    Ok(())
}

async fn a_word_that_all_texts_have_is_found_page_by_page(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "A talk", NOW).await?;
    task(tx, &home, &talk, "a rare needle in the hay", NOW).await?;
    index(tx).await?;
    for n in 0..30 {
        task(tx, &home, &talk, &format!("hay {n}"), after(n)).await?;
    }
    index(tx).await?;
    if tx.is_sqlite() {
        // More than a range of numbers away, with its words.
        let words = "INSERT INTO text_words (rowid, words) SELECT text_no - 200000, 'a hay in needle rare the' FROM indexed_texts WHERE seq = 1";
        tx.execute(words, &[]).await?;
        tx.execute("UPDATE indexed_texts SET text_no = text_no - 200000 WHERE seq = 1", &[]).await?;
    }
    assert_eq!(found(tx, &home, "hay", 9).await?.len(), 31);
    assert_eq!(found(tx, &home, "needle", 9).await?, ["a rare [needle] in the hay"]);
    assert!(found(tx, &far, "hay", 9).await?.is_empty());
    // A cursor from nowhere is a place like any other.
    for cursor in [i64::MIN, -1, 0, 1, i64::MAX] {
        let (mut place, mut hits) = (Some(cursor), 0);
        // A page ends early when its time is up.
        while let Some(from) = place {
            let page = search::search(&mut tx.of(&home), "hay", Some(from), 50).await?;
            (place, hits) = (page.next, hits + page.hits.len());
        }
        assert!(hits == 0 || hits == 31, "{cursor}: {hits}");
    }
    Ok(())
}

async fn hostile_words_are_words(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "A talk", NOW).await?;
    let texts = ["near or not", "<script>alert('pwn')</script>", "\" OR 1 = 1 --", "{1,2} \u{0} * ^ : ( )"];
    for (n, goal) in (1..).zip(texts) {
        task(tx, &home, &talk, goal, after(n)).await?;
    }
    let long = "word".repeat(200_000);
    task(tx, &home, &talk, &long, after(8)).await?;
    let many: String = (0..20_000).map(|n| format!("m{n} ")).collect();
    task(tx, &home, &talk, &many, after(9)).await?;
    index(tx).await?;
    for (query, count) in [
        ("NEAR(near not, 1)", 0),
        ("near OR not", 1),
        ("near AND not", 0),
        ("near NOT not", 1),
        ("words:near", 0),
        ("near*", 1),
        ("^near", 1),
        ("-near", 1),
        ("\"near or\"", 1),
        ("\"", 0),
        ("'near", 1),
        ("near;1", 0),
        ("{1,2}", 1),
        ("script alert", 1),
        ("near\u{0}not", 1),
        ("%", 0),
        ("m0 m1999", 1),
        ("m19999", 0),
    ] {
        assert_eq!(found(tx, &home, query, 10).await?.len(), count, "{query:?}");
    }
    assert_eq!(found(tx, &home, "alert", 10).await?, ["<script>[alert]('pwn')</script>"], "a text is shown as it is");
    assert!(found(tx, &home, &"near ".repeat(100_000), 10).await?.len() == 1);
    assert!(found(tx, &home, &long, 10).await?.is_empty());
    Ok(())
}

async fn what_is_deleted_leaves_the_index(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let (kept, gone) = (session(tx, &home, &lab, "Kept", NOW).await?, session(tx, &home, &lab, "Gone", NOW).await?);
    task(tx, &home, &kept, "a needle", after(1)).await?;
    for n in 2..60 {
        task(tx, &home, &gone, &format!("needle {n}"), after(n)).await?;
    }
    index(tx).await?;
    task(tx, &home, &gone, "needle that waits", after(99)).await?;
    assert!(sessions::set_archived(&mut tx.of(&home), &kept, Some(after(100))).await?);
    assert_eq!(found(tx, &home, "needle", 10).await?.len(), 59, "archived sessions are searched, too");
    assert!(purge::hide_session(&mut tx.change(&home, &By::board(), after(100)), &gone).await?);
    assert_eq!(found(tx, &home, "needle", 10).await?, ["a [needle]"], "at once");
    index(tx).await?;
    while !purge::session(&mut tx.of(&home), &gone).await? {}
    assert_eq!(found(tx, &home, "needle", 10).await?, ["a [needle]"]);
    let left = tx.row("SELECT COUNT(*) AS n FROM indexed_texts", &[]).await?.expect("a count").count("n")?;
    assert_eq!(left, 1);
    if tx.is_sqlite() {
        let sql = "SELECT COUNT(*) AS n FROM text_words WHERE text_words MATCH 'needle'";
        assert_eq!(tx.row(sql, &[]).await?.expect("a count").count("n")?, 1);
        tx.execute("INSERT INTO text_words (text_words) VALUES ('integrity-check')", &[]).await?;
    }
    // And the team.
    task(tx, &home, &kept, "another needle", after(200)).await?;
    tx.execute("INSERT INTO unindexed_history (team_id, message_id, idx) SELECT team_id, 'msh', 0 FROM teams", &[])
        .await?;
    assert!(purge::hide_team(&mut tx.change(&home, &By::board(), after(201))).await?);
    while !purge::sessions_of_team(&mut tx.change(&home, &By::board(), after(201))).await? {}
    while !purge::session(&mut tx.of(&home), &kept).await? {}
    while !purge::team(&mut tx.of(&home)).await? {}
    for table in ["indexed_texts", "unindexed_texts", "unindexed_history"] {
        let sql: &'static str = match table {
            "indexed_texts" => "SELECT COUNT(*) AS n FROM indexed_texts",
            "unindexed_texts" => "SELECT COUNT(*) AS n FROM unindexed_texts",
            _ => "SELECT COUNT(*) AS n FROM unindexed_history",
        };
        assert_eq!(tx.row(sql, &[]).await?.expect("a count").count("n")?, 0, "{table}");
    }
    Ok(())
}

async fn a_damaged_text_holds_up_nothing(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "A talk", NOW).await?;
    for n in 0..3 {
        task(tx, &home, &talk, &format!("needle {n}"), after(n)).await?;
    }
    // One that the index does not have yet, and one that it has.
    tx.execute("UPDATE parts SET body = '{' WHERE body LIKE '%needle 1%'", &[]).await?;
    index(tx).await?;
    assert_eq!(found(tx, &home, "needle", 10).await?, ["[needle] 2", "[needle] 0"]);
    tx.execute("UPDATE parts SET body = '{' WHERE body LIKE '%needle 2%'", &[]).await?;
    assert_eq!(found(tx, &home, "needle", 10).await?, ["[needle] 0"]);
    Ok(())
}

async fn a_page_reads_no_more_than_some_large_texts(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let (talk, gone) = (session(tx, &home, &lab, "A talk", NOW).await?, session(tx, &home, &lab, "Gone", NOW).await?);
    for n in 0..7 {
        let goal = format!("needle {n} {}", "x".repeat(800_000));
        task(tx, &home, if n == 5 { &gone } else { &talk }, &goal, after(n)).await?;
    }
    index(tx).await?;
    assert!(purge::hide_session(&mut tx.change(&home, &By::board(), after(100)), &gone).await?);
    // Two MiB are full with the third one; one that is deleted takes no room.
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let page = search::search(&mut tx.of(&home), "needle", cursor, 10).await?;
        pages.push(page.hits.iter().map(|hit| hit.snippet[1].text[..2].trim().to_owned()).collect::<Vec<_>>());
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, [["6", "4", "3"], ["2", "1", "0"]]);
    Ok(())
}

async fn no_team_waits_for_another(tx: &mut Tx) -> Result<(), DbError> {
    // More of them than anybody would ask for at once, each with an old text and a new title.
    let mut teams = Vec::new();
    for n in 0..130 {
        teams.push(team(tx, &format!("team-{n}")).await?.id);
    }
    tx.execute("INSERT INTO unindexed_history (team_id, message_id, idx) SELECT team_id, 'msh', 0 FROM teams", &[])
        .await?;
    let (home, gone) = (teams[7].clone(), teams.pop().expect("a team"));
    assert!(purge::hide_team(&mut tx.change(&gone, &By::board(), after(1))).await?);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "A talk", NOW).await?;
    task(tx, &home, &talk, "a needle", NOW).await?;
    let (mut served, mut last) = (Vec::new(), None);
    while let Some(next) = next_unindexed(tx, Unindexed::OlderTexts, last.as_ref()).await? {
        served.push(next.clone());
        last = Some(next);
    }
    served.sort();
    teams.sort();
    assert_eq!(served, teams, "each once, but for the one that is deleted");
    for what in [Unindexed::Titles, Unindexed::NewTexts] {
        assert_eq!(next_unindexed(tx, what, None).await?.as_ref(), Some(&home));
        assert_eq!(next_unindexed(tx, what, Some(&home)).await?, None);
        index_some(&mut tx.of(&home), what).await?;
        assert_eq!(next_unindexed(tx, what, None).await?, None);
    }
    assert_eq!(found(tx, &home, "needle", 10).await?.len(), 1, "behind the history of nobody");
    Ok(())
}
