//! A88: requests that two readers could take apart in two ways.

use board_tests::{Fixture, RawConnection, bench::proc, wait::EVENT_TIMEOUT};

use super::{ANSWER_TIMEOUT, ANY_ENGINE, served};

/// What is wrong, the headers about the body, and what follows the head. `X` stands for a smuggled request.
fn cases() -> Vec<(&'static str, String, String)> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let length = |value: &str| format!("Content-Length: {value}\r\n");
    // A body that would be taken: it is the head that is refused.
    let zero = "2\r\n{}\r\n0\r\n\r\nX";
    let coded = |value: &str| format!("Transfer-Encoding: {value}\r\n");
    let mut all = vec![
        ("CL then TE", format!("{}{chunked}", length("5")), zero.to_owned()),
        ("TE then CL", format!("{chunked}{}", length("5")), zero.to_owned()),
        ("TE and CL 0", format!("{chunked}{}", length("0")), zero.to_owned()),
        ("TE then CL, other case", "transfer-ENCODING: Chunked\r\ncontent-LENGTH: 3\r\n".into(), zero.into()),
        ("unknown coding", coded("xchunked"), zero.into()),
        ("chunked is not last", coded("chunked, identity"), zero.into()),
        ("chunked twice in a list", coded("chunked, chunked"), zero.into()),
        ("identity", coded("identity"), zero.into()),
        ("gzip, chunked", coded("gzip, chunked"), zero.into()),
        ("empty coding", coded(""), zero.into()),
        ("vertical tab", coded("\u{b}chunked"), zero.into()),
        ("quoted", coded("\"chunked\""), zero.into()),
        ("chunked twice", chunked.repeat(2), zero.into()),
        ("two codings", format!("{chunked}{}", coded("identity")), zero.into()),
        ("space before the colon", "Transfer-Encoding : chunked\r\n".into(), zero.into()),
        ("tab before the colon", "Transfer-Encoding\t: chunked\r\n".into(), zero.into()),
        ("folded", "X-Folded: a\r\n Transfer-Encoding: chunked\r\n".into(), zero.into()),
        ("folded coding", "Transfer-Encoding:\r\n chunked\r\n".into(), zero.into()),
        ("two lengths", format!("{}{}", length("5"), length("50")), "12345X".into()),
        ("two equal lengths", length("5").repeat(2), "12345X".into()),
        ("bare LF in a header", "X-Bare: a\nContent-Length: 5\r\n".into(), "12345X".into()),
        (
            "bare LF hides a header",
            "X-Bare: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n".into(),
            zero.into(),
        ),
        ("bare CR in a header", "X-Bare: a\rContent-Length: 5\r\n".into(), "X".into()),
        ("NUL in a header", "X-Nul: a\0b\r\nContent-Length: 5\r\n".into(), "12345X".into()),
        ("a header without a name", ": x\r\nContent-Length: 5\r\n".into(), "12345X".into()),
        ("a header without a colon", "Garbage\r\nContent-Length: 5\r\n".into(), "12345X".into()),
    ];
    for value in ["5, 5", "+5", "-5", "5 5", "0x5", "5.0", "18446744073709551616", "99999999999999999999999"] {
        all.push(("bad length", length(value), "12345X".to_owned()));
    }
    for size in ["FFFFFFFFFFFFFFFFF", "10000000000000000", "-1", "0x5", "+5", "", " 5", "5 5", "G"] {
        all.push(("bad chunk size", chunked.to_owned(), format!("{size}\r\n12345\r\n{zero}")));
    }
    all.push(("chunk longer than said", chunked.to_owned(), format!("3\r\n12345\r\n{zero}")));
    all.push(("bare LF after the size", chunked.to_owned(), format!("5\n12345\r\n{zero}")));
    all.push(("bare LF in an extension", chunked.to_owned(), format!("5;a\nb\r\n12345\r\n{zero}")));
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a88_what_can_be_read_in_two_ways_is_refused_and_ends_the_connection() {
    let (Fixture { board, operator, .. }, host) = served(ANY_ENGINE).await;
    let token = operator.bearer().expect("a token");
    let smuggled = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let post = |headers: &str, rest: &str| {
        let rest = rest.replace('X', &smuggled);
        format!(
            "POST /api/v1/tasks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\n{headers}\r\n{rest}"
        )
    };
    let mut all: Vec<(String, String)> = cases()
        .into_iter()
        .map(|(what, headers, rest)| (format!("{what}: {headers:?} {rest:?}"), post(&headers, &rest)))
        .collect();
    let one = "Content-Length: 5\r\n";
    all.push(("bare LF after the first line".into(), post(one, "12345X").replacen("HTTP/1.1\r\n", "HTTP/1.1\n", 1)));
    all.push(("bare LF at the end".into(), post(one, "12345X").replacen("\r\n\r\n", "\r\n\n", 1)));
    all.push((
        "TE in HTTP/1.0".into(),
        post("Transfer-Encoding: chunked\r\n", "0\r\n\r\nX").replacen("HTTP/1.1", "HTTP/1.0", 1),
    ));
    all.push(("two hosts".into(), post(&format!("Host: evil.example\r\n{one}"), "12345X")));
    all.push(("another host in the target".into(), post(one, "12345X").replacen("/api", "http://evil.example/api", 1)));
    all.push(("a second request that is ambiguous".into(), format!("{smuggled}{}", post(&one.repeat(2), "12345X"))));
    for (what, request) in all {
        // A connection that may stay open is listened to for a while.
        let limit = if what.contains("host") { ANSWER_TIMEOUT } else { EVENT_TIMEOUT };
        let heard = RawConnection::ask(&board, request.as_bytes(), limit).await;
        let mut statuses = heard.statuses();
        if what.starts_with("a second") {
            assert_eq!(statuses.remove(0), 200, "{what}");
        }
        let refused = if what.starts_with("another host") { &[400, 421][..] } else { &[400] };
        assert!(statuses.len() == 1 && refused.contains(&statuses[0]), "{what}: {statuses:?}\n{}", heard.text);
        assert!(heard.closed || what.contains("host"), "{what}: the connection is still open");
    }
    // What is clear goes on.
    let clear = format!("{smuggled}{}{smuggled}", post("Content-Length: 2\r\n", "{}"));
    let mut raw = RawConnection::open(&board).await;
    raw.say(clear.as_bytes()).await;
    let heard = raw.answers(3).await;
    assert_eq!((heard.statuses(), heard.closed), (vec![200, 422, 200], false), "{}", heard.text);
    let chunked = post("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\nX");
    let heard = RawConnection::ask(&board, chunked.as_bytes(), EVENT_TIMEOUT).await;
    assert_eq!((heard.statuses(), heard.closed), (vec![422], true), "a chunked request is a connection's last one");
    assert!(proc::processor(board.pid()) < 60.0);
    board.assert_invariants().await;
}
