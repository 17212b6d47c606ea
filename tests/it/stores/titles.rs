//! Titles: a search finds the same before and after they are indexed, and reads a bounded number of them for a page.

use std::{collections::BTreeSet, ops::RangeInclusive};

use protocol::{Instant, SessionId, TeamId, ViberId};
use server::{
    db::{DbError, Tx, purge, sessions},
    domain::By,
};

use super::{NOW, after, lists::found, session, stories, team, viber};

stories!(titles_are_found_however_many_there_are, a_search_reads_so_many_sessions_at_most, long_titles_are_found);

/// Sessions, each newer than the one before; every fortieth has the first of two titles.
async fn many_sessions(
    tx: &mut Tx,
    team: &TeamId,
    viber: &ViberId,
    numbers: RangeInclusive<i64>,
    titles: [&str; 2],
) -> Result<(), DbError> {
    macro_rules! many {
        ($id:literal) => {
            concat!(
                "INSERT INTO sessions (team_id, session_id, viber_id, agent_id, title, title_folded, created_by, \
                 created_at, active_at) WITH RECURSIVE n(i) AS (SELECT CAST($4 AS BIGINT) UNION ALL SELECT i + 1 FROM n \
                 WHERE i < $5) SELECT $1, ",
                $id,
                ", $2, 'default', CASE WHEN i % 40 = 0 THEN $6 ELSE $7 END, \
                 CASE WHEN i % 40 = 0 THEN LOWER($6) ELSE LOWER($7) END, 'op', $3 + i, $3 + i FROM n"
            )
        };
    }
    let sql = match tx.is_sqlite() {
        true => many!("printf('ses_%032x', i)"),
        false => many!("'ses_' || lpad(to_hex(i), 32, '0')"),
    };
    let args = server::args![team, viber, after(1_000), *numbers.start(), *numbers.end(), titles[0], titles[1]];
    tx.execute(sql, args).await.map(drop)
}

/// Adds all titles to the index.
async fn index(tx: &mut Tx) -> Result<(), DbError> {
    let titles = sessions::Unindexed::Titles;
    while let Some(team) = sessions::next_unindexed(tx, titles, None).await? {
        sessions::index_some(&mut tx.of(&team), titles).await?;
    }
    Ok(())
}

async fn titles_are_found_however_many_there_are(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let titles = ["A needle", "Two NEEDLES", "Nee dle", "50%_off \"now\"", "Grüße aus Köln", "数据库 慢", "zq"];
    let mut ids = Vec::new();
    for (n, title) in (0..).zip(titles) {
        ids.push(session(tx, &home, if n % 2 == 0 { &lab } else { &den }, title, after(n)).await?);
    }
    let old = session(tx, &home, &lab, "An archived needle", after(9)).await?;
    sessions::set_archived(&mut tx.of(&home), &old, Some(after(10))).await?;
    let theirs = viber(tx, &far, "theirs").await?;
    session(tx, &far, &theirs, "Their needle", NOW).await?;
    // More than a search reads one by one, all of them newer than those that it finds.
    many_sessions(tx, &home, &lab, 1..=4_100, ["Straw", "Hay"]).await?;
    let any = sessions::SessionFilter::default();
    for indexed in [false, true] {
        if indexed {
            index(tx).await?;
        }
        let wanted: [(&str, &[usize]); 14] = [
            ("needle", &[1, 0]),
            ("EEDLES", &[1]),
            ("a needle", &[0]),
            ("ee d", &[2]),
            ("no such needle", &[]),
            ("50%_", &[3]),
            ("%_off", &[3]),
            ("f \"now\"", &[3]),
            ("___", &[]),
            ("GRÜ", &[4]),
            ("grusse", &[]),
            ("数据库", &[5]),
            ("据库", &[5]),
            ("zq", &[6]),
        ];
        for (title, due) in wanted {
            let found: Vec<SessionId> = found(tx, &home, &any, title).await?.into_iter().map(|(_, id)| id).collect();
            let due: Vec<SessionId> = due.iter().map(|n| ids[*n].clone()).collect();
            assert_eq!(found, due, "{title}, indexed: {indexed}");
        }
        // Other filters hold as well, and other teams' titles are not found.
        let on_lab = sessions::SessionFilter { viber: Some(lab.clone()), ..Default::default() };
        assert_eq!(found(tx, &home, &on_lab, "needle").await?, [(NOW, ids[0].clone())]);
        let archived = sessions::SessionFilter { archived: true, ..Default::default() };
        assert_eq!(found(tx, &home, &archived, "needle").await?, [(after(9), old.clone())]);
        assert_eq!(found(tx, &far, &any, "needle").await?.len(), 1);
        // A word that one of forty titles has fills a page without the index, and the next pages have the others.
        let page = sessions::search(&mut tx.of(&home), asked(&any, "straw"), None, 50).await?;
        assert!(page.lines.len() == 50 && page.next.is_some());
        assert_eq!(found(tx, &home, &any, "straw").await?.len(), 102);
        // A word that most titles have is found at once; one too short for the index goes on behind what was read.
        let page = sessions::search(&mut tx.of(&home), asked(&any, "hay"), None, 50).await?;
        assert!(page.lines.len() == 50 && page.next.is_some());
        let page = sessions::search(&mut tx.of(&home), asked(&any, "zq"), None, 50).await?;
        assert!(page.lines.is_empty() && page.next.is_some());
    }
    // A new title is found at once and the old one no longer, before and after it is indexed.
    assert!(sessions::rename(&mut tx.change(&home, &By::board(), after(11)), &ids[0], "A pin").await?);
    sessions::entitle(&mut tx.of(&home), &ids[2], "A pinwheel").await?;
    for indexed in [false, true] {
        if indexed {
            index(tx).await?;
        }
        let ids_of = |found: Vec<(Instant, SessionId)>| found.into_iter().map(|(_, id)| id).collect::<Vec<_>>();
        assert_eq!(ids_of(found(tx, &home, &any, "needle").await?), ids[1..2], "indexed: {indexed}");
        assert_eq!(ids_of(found(tx, &home, &any, "a pin").await?), [ids[2].clone(), ids[0].clone()], "{indexed}");
    }
    // A deleted session is not found, and nothing of it stays in the index.
    assert!(purge::hide_session(&mut tx.change(&home, &By::board(), NOW), &ids[1]).await?);
    assert!(found(tx, &home, &any, "needle").await?.is_empty());
    while !purge::session(&mut tx.of(&home), &ids[1]).await? {}
    assert!(found(tx, &home, &any, "needle").await?.is_empty());
    let row = tx.row("SELECT COUNT(*) AS n FROM session_titles WHERE title = 'two needles'", &[]).await?;
    assert_eq!(row.expect("a count").count("n")?, 0);
    Ok(())
}

/// A title that nobody in particular looks for.
fn asked<'a>(filter: &'a sessions::SessionFilter, title: &'a str) -> sessions::TitleSearch<'a> {
    sessions::TitleSearch { reader: None, filter, title }
}

/// What a search finds page by page, in order, and how many pages hold nothing.
async fn found_by_large_pages(
    tx: &mut Tx,
    team: &TeamId,
    filter: &sessions::SessionFilter,
    title: &str,
) -> Result<(Vec<SessionId>, usize), DbError> {
    let (mut found, mut empty, mut cursor): (_, _, Option<(Instant, SessionId)>) = (Vec::new(), 0, None);
    loop {
        let before = cursor.as_ref().map(|(at, id)| (*at, id));
        let page = sessions::search(&mut tx.of(team), asked(filter, title), before, 5_000).await?;
        empty += usize::from(page.lines.is_empty());
        found.extend(page.lines.into_iter().map(|line| line.session.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok((found, empty)),
        }
    }
}

async fn a_search_reads_so_many_sessions_at_most(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let rare = session(tx, &home, &den, "A needle", NOW).await?;
    many_sessions(tx, &home, &den, 1..=4_100, ["Chaff", "Chaff"]).await?;
    index(tx).await?;
    // These wait for the index, too few of them to matter by themselves.
    many_sessions(tx, &home, &lab, 4_101..=20_500, ["Straw", "Hay"]).await?;
    let any = sessions::SessionFilter::default();
    // Whatever is rare is found at once, however old it is.
    let page = sessions::search(&mut tx.of(&home), asked(&any, "needle"), None, 50).await?;
    assert_eq!((page.lines.len(), page.next), (1, None));
    let page = sessions::search(&mut tx.of(&home), asked(&any, "no such needle"), None, 50).await?;
    assert_eq!((page.lines.len(), page.next), (0, None));
    // Together with what the index finds they are too many: the first page ends before the first that fits.
    let page = sessions::search(&mut tx.of(&home), asked(&any, "chaff"), None, 50).await?;
    assert!(page.lines.is_empty() && page.next.is_some());
    let (all, empty) = found_by_large_pages(tx, &home, &any, "chaff").await?;
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (4_100, 4_100), "each once");
    assert!(all.is_sorted_by(|one, two| one > two) && empty >= 4, "{empty} empty pages");
    // The same where the filter leaves nothing of what the index finds.
    let on_lab = sessions::SessionFilter { viber: Some(lab.clone()), ..Default::default() };
    let page = sessions::search(&mut tx.of(&home), asked(&on_lab, "chaff"), None, 50).await?;
    assert!(page.lines.is_empty() && page.next.is_some());
    assert!(found_by_large_pages(tx, &home, &on_lab, "chaff").await?.0.is_empty());
    // Once fewer wait, the index answers.
    tx.execute("DELETE FROM unindexed_titles", &[]).await?;
    let page = sessions::search(&mut tx.of(&home), asked(&any, "chaff"), None, 50).await?;
    assert!(page.lines.len() == 50 && page.next.is_some());
    // Very many that wait are too many, whatever is looked for.
    many_sessions(tx, &home, &lab, 20_501..=40_501, ["Straw", "Hay"]).await?;
    let page = sessions::search(&mut tx.of(&home), asked(&any, "needle"), None, 50).await?;
    assert!(page.lines.is_empty() && page.next.is_some());
    assert_eq!(found_by_large_pages(tx, &home, &any, "needle").await?.0, [rare]);
    Ok(())
}

async fn long_titles_are_found(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let longest = "Lorem ip".repeat(20);
    assert_eq!(longest.chars().count(), sessions::MAX_GIVEN_TITLE_CHARS);
    let long = session(tx, &home, &lab, &longest, NOW).await?;
    many_sessions(tx, &home, &lab, 1..=600, ["Straw", "Hay"]).await?;
    let any = sessions::SessionFilter::default();
    for indexed in [false, true] {
        if indexed {
            index(tx).await?;
        }
        assert_eq!(found(tx, &home, &any, &longest).await?, [(NOW, long.clone())], "indexed: {indexed}");
        // The index is asked for the beginning alone; the title decides.
        let other = format!("{}x", &longest[1..]);
        for none in [other, longest.repeat(2), longest.repeat(200)] {
            assert!(found(tx, &home, &any, &none).await?.is_empty(), "{} bytes, indexed: {indexed}", none.len());
        }
    }
    Ok(())
}
