//! Where a Board is and whether its address may be used: no secret leaves this machine unencrypted.

use std::net::IpAddr;

use reqwest::Url;

/// Checks a Board's address as a person typed it, and returns the address of its HTTP root.
pub fn parse(text: &str, insecure: bool) -> Result<Url, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let http = match text.split_once("://") {
        Some(("ws", rest)) => format!("http://{rest}"),
        Some(("wss", rest)) => format!("https://{rest}"),
        _ => text.clone(),
    };
    let mut url = Url::parse(&http).map_err(|error| format!("{text} is not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("{text} is not an address such as https://board.example.com"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address of a Board has no user and no password in it".to_owned());
    }
    if url.scheme() == "http" && !is_loopback(&url) && !insecure {
        return Err(format!(
            "{text} is not encrypted, so the viber's credential could be read on the way: use https:// (or --insecure in a test lab)"
        ));
    }
    url.set_query(None);
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// The address of the daemon's WebSocket.
pub fn socket(board: &Url) -> String {
    let http = join(board, "ws/daemon");
    let text = http.as_str();
    text.strip_prefix("http").map_or_else(|| text.to_owned(), |rest| format!("ws{rest}"))
}

/// A path below the Board's root.
pub fn join(board: &Url, path: &str) -> Url {
    let mut url = board.clone();
    url.set_path(&format!("{}{}", board.path(), path.trim_start_matches('/')));
    url
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_may_be_in_the_clear() {
        for good in
            ["https://b.example", "b.example:8443", "http://127.0.0.1:7400", "http://[::1]:1/x", "ws://localhost:1"]
        {
            assert!(parse(good, false).is_ok(), "{good}");
        }
        for bad in
            ["http://b.example", "ws://10.0.0.1", "http://127.0.0.1.evil.example", "ftp://x", "https://u:p@b", ""]
        {
            assert!(parse(bad, false).is_err(), "{bad}");
        }
        assert!(parse("http://b.example", true).is_ok());
    }

    #[test]
    fn paths_are_below_the_root() {
        let board = parse("https://b.example/team?x=1#y", false).expect("good");
        assert_eq!(socket(&board), "wss://b.example/team/ws/daemon");
        assert_eq!(join(&board, "/api/daemon/join").as_str(), "https://b.example/team/api/daemon/join");
    }
}
