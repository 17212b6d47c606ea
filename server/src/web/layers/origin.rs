//! Whether a request is meant for this Board, and whether one of its own pages caused it.

use axum::http::{HeaderMap, Method, Uri, header};

use crate::web::urls;

/// Why the name in a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHost {
    /// No `Host` header, several, or one that is not a host.
    Malformed,
    /// Another host name: somebody may have pointed their domain at this Board.
    Foreign,
}

/// Checks the Host header and the target's authority against the accepted hosts.
pub fn check_host(uri: &Uri, headers: &HeaderMap, hosts: &[String]) -> Result<(), BadHost> {
    let mut named = headers.get_all(header::HOST).iter();
    let header = match (named.next(), named.next()) {
        (Some(host), None) => Some(host.to_str().map_err(|_| BadHost::Malformed)?),
        (None, None) => None,
        _ => return Err(BadHost::Malformed),
    };
    let target = uri.authority().map(|authority| authority.as_str());
    if header.is_none() && target.is_none() {
        return Err(BadHost::Malformed);
    }
    let ours = |host: &str| hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
    if [header, target].into_iter().flatten().all(ours) { Ok(()) } else { Err(BadHost::Foreign) }
}

/// Whether a request is a program's call with a token. Browsers send other schemes by themselves (a proxy's `Basic`), and
/// pages do not read tokens: neither says anything about who caused a request.
pub fn is_call(uri: &Uri, headers: &HeaderMap) -> bool {
    let path = uri.path();
    let api = ["/api/", "/ws/"].iter().any(|start| path.starts_with(start)) || path == urls::MCP;
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    api && all
        .next()
        .is_some_and(|one| one.as_bytes().get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"bearer ")))
}

/// What is known about where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    /// It carries the session cookie.
    pub cookie: bool,
    /// It is a call of the API with a token: no browser adds that by itself.
    pub bearer: bool,
}

/// Whether a request may have been caused by another site. Reads that change nothing pass; everything else needs the
/// word of the browser that one of our pages asked for it, or must carry nothing that a browser adds by itself.
pub fn is_foreign(request: Request<'_>, origins: &[String]) -> bool {
    let upgrade = request.headers.contains_key(header::UPGRADE);
    let safe = matches!(*request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    if safe && !upgrade {
        return false;
    }
    let site = request.headers.get("sec-fetch-site").map(|site| site.as_bytes() == b"same-origin");
    let mut named = request.headers.get_all(header::ORIGIN).iter();
    let origin = match (named.next(), named.next()) {
        (None, _) => None,
        (Some(origin), None) => Some(origins.iter().any(|own| own.as_bytes() == origin.as_bytes())),
        _ => Some(false),
    };
    if request.bearer && !upgrade && !request.cookie {
        return false;
    }
    match (site, origin) {
        (Some(false), _) | (_, Some(false)) => true,
        (Some(true), _) | (_, Some(true)) => false,
        (None, None) => request.cookie && !request.bearer,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const OWN: &str = "https://board.test";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn foreign(method: &Method, pairs: &[(&'static str, &'static str)], cookie: bool, bearer: bool) -> bool {
        is_foreign(Request { method, headers: &headers(pairs), cookie, bearer }, &[OWN.to_owned()])
    }

    #[test]
    fn only_the_exact_origin_passes() {
        let post = Method::POST;
        assert!(!foreign(&post, &[("origin", OWN)], true, false));
        for origin in [
            "null",
            "https://board.test.evil.test",
            "https://evilboard.test",
            "https://board.test:444",
            "https://BOARD.test",
            "https://board.test.",
            "https://u@board.test",
            "http://board.test",
        ] {
            assert!(foreign(&post, &[("origin", origin)], true, false), "{origin}");
            assert!(foreign(&post, &[("origin", origin), ("sec-fetch-site", "same-origin")], true, false), "{origin}");
        }
        assert!(foreign(&post, &[("origin", OWN), ("origin", "null")], true, false));
    }

    #[test]
    fn a_cookie_without_a_word_from_the_browser_is_refused_and_a_token_is_not() {
        assert!(foreign(&Method::POST, &[], true, false));
        assert!(!foreign(&Method::POST, &[], false, false), "nothing is carried that a browser adds");
        assert!(!foreign(&Method::DELETE, &[], false, true));
        assert!(!foreign(&Method::POST, &[("sec-fetch-site", "same-origin")], true, false));
        for site in ["cross-site", "same-site", "none"] {
            assert!(foreign(&Method::POST, &[("sec-fetch-site", site)], true, false), "{site}");
        }
        assert!(foreign(&Method::POST, &[("sec-fetch-site", "cross-site")], false, false), "a sign-in by another site");
        assert!(!foreign(&Method::GET, &[("sec-fetch-site", "cross-site")], true, false));
    }

    #[test]
    fn only_a_token_for_the_api_is_a_programs() {
        let call = |path: &str, pairs: &[(&'static str, &'static str)]| {
            is_call(&path.parse().expect("a path"), &headers(pairs))
        };
        assert!(
            call("/api/v1/tasks", &[("authorization", "Bearer vbt_x")])
                && call("/ws/daemon", &[("authorization", "bearer x")])
                && call("/mcp", &[("authorization", "Bearer vbt_x")])
        );
        for (path, value) in [
            ("/t/home/tasks", "Bearer vbt_x"),
            ("/api/v1/tasks", "Basic YTpi"),
            ("/api/v1/tasks", "Bearer"),
            ("/mcp", "Basic YTpi"),
            ("/mcp/x", "Bearer vbt_x"),
        ] {
            assert!(!call(path, &[("authorization", value)]), "{path} {value}");
        }
        assert!(!call("/api/v1/tasks", &[]));
    }

    #[test]
    fn an_upgrade_by_another_site_is_refused_and_a_daemon_is_not() {
        let upgrade = ("upgrade", "websocket");
        assert!(foreign(&Method::GET, &[upgrade, ("origin", "https://evil.test")], false, false));
        assert!(foreign(&Method::GET, &[upgrade, ("origin", "https://evil.test")], false, true));
        assert!(!foreign(&Method::GET, &[upgrade], false, true));
        assert!(!foreign(&Method::GET, &[upgrade, ("origin", OWN)], true, false));
    }

    #[test]
    fn other_names_are_refused() {
        let hosts = ["board.test".to_owned()];
        let check = |uri: &str, pairs: &[(&'static str, &'static str)]| {
            check_host(&uri.parse().expect("a target"), &headers(pairs), &hosts)
        };
        assert_eq!(check("/", &[("host", "Board.test")]), Ok(()));
        assert_eq!(check("/", &[("host", "evil.test")]), Err(BadHost::Foreign));
        assert_eq!(check("/", &[("host", "board.test:81")]), Err(BadHost::Foreign));
        assert_eq!(check("/", &[]), Err(BadHost::Malformed));
        assert_eq!(check("/", &[("host", "board.test"), ("host", "board.test")]), Err(BadHost::Malformed));
        assert_eq!(check("http://evil.test/", &[("host", "board.test")]), Err(BadHost::Foreign));
        assert_eq!(check("https://board.test/", &[]), Ok(()), "HTTP/2 names the host in the target");
    }
}
