//! Session tokens that the Board did not make, and some that it could have made for something else.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use board_tests::{Board, Engine, FakeDaemon, board::HOME, hostile_site::Collector};
use jsonwebtoken::{Algorithm, EncodingKey, crypto::sign};
use reqwest::{Method, header};
use serde_json::{Value, json};

/// What the Board signs with; an attacker does not know it, but here it may not help them either.
const KEY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";

fn coded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// `header`.`claims` signed with `key` by HS256, whatever the header says.
fn signed(header: &Value, claims: &Value, key: &str) -> String {
    let message = format!("{}.{}", coded(&header.to_string()), coded(&claims.to_string()));
    let key = EncodingKey::from_secret(key.as_bytes());
    let signature = sign(message.as_bytes(), &key, Algorithm::HS256).expect("a signature");
    format!("{message}.{signature}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a06_a_forged_token_is_nobodys() {
    use std::os::unix::fs::PermissionsExt as _;
    jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, KEY).expect("a key");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let board = Board::start_with(Engine::Sqlite, &["--signing-key-file", file.to_str().expect("text")]).await;
    let owner = board.owner().await;
    let collector = Collector::start([127, 0, 0, 3]).await;
    let far = format!("http://{}", collector.address);

    let cookie = owner.cookie().expect("signed in");
    let (name, real) = cookie.split_once('=').expect("a value");
    let parts: Vec<&str> = real.split('.').collect();
    let decoded =
        |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("JSON") };
    let (head, claims) = (decoded(parts[0]), decoded(parts[1]));
    let with = |base: &Value, field: &str, value: Value| {
        let mut changed = base.clone();
        changed[field] = value;
        changed
    };
    // What this test signs is what the Board signs, byte for byte where the JSON is: only the lie makes it a forgery.
    let own = signed(&head, &claims, KEY);
    let request = board.anon().request(Method::GET, "/api/v1/vibers").header("x-team", HOME);
    let own = request.header(header::COOKIE, format!("{name}={own}")).send().await.expect("an answer");
    assert_eq!(own.status(), 200, "the same claims under the same key are good");

    let mut forged: Vec<(String, String)> = Vec::new();
    let mut try_ = |what: &str, token: String| forged.push((what.to_owned(), token));
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let header = coded(&with(&head, "alg", json!(alg)).to_string());
        try_("alg none", format!("{header}.{}.", parts[1]));
        try_("alg none, signed", format!("{header}.{}.{}", parts[1], parts[2]));
        try_("alg none, two parts", format!("{header}.{}", parts[1]));
    }
    for alg in ["RS256", "RS384", "PS256", "ES256", "EdDSA", "HS384", "HS512", "hs256", "A128KW", "dir"] {
        let header = with(&head, "alg", json!(alg));
        try_(alg, signed(&header, &claims, KEY));
        try_(alg, format!("{}.{}.{}", coded(&header.to_string()), parts[1], parts[2]));
    }
    for (alg, word) in [(Algorithm::HS384, "HS384"), (Algorithm::HS512, "HS512")] {
        let header = with(&head, "alg", json!(word));
        let message = format!("{}.{}", coded(&header.to_string()), parts[1]);
        let key = EncodingKey::from_secret(KEY.as_bytes());
        let signature = sign(message.as_bytes(), &key, alg).expect("a signature");
        try_("another MAC, rightly signed", format!("{message}.{signature}"));
    }
    try_("no signature", format!("{}.{}.", parts[0], parts[1]));
    try_("no dot", format!("{}.{}", parts[0], parts[1]));
    try_("half a signature", format!("{}.{}.{}", parts[0], parts[1], &parts[2][..20]));
    try_("padding", format!("{real}=="));
    try_("a fourth part", format!("{real}.x"));
    try_("a signature of zeros", format!("{}.{}.{}", parts[0], parts[1], "A".repeat(43)));
    let kids = [
        json!("../../dev/null"),
        json!("/dev/null"),
        json!("../../../../../../dev/null\0"),
        json!("' OR 1=1 --"),
        json!("x' UNION SELECT '' --"),
        json!(""),
        json!(null),
        json!(7),
        json!([head["kid"]]),
        json!({"kid": head["kid"]}),
        json!(format!("{far}/key")),
        json!("|/bin/sleep 10|"),
        json!("x".repeat(2000)),
    ];
    for kid in kids {
        let header = with(&head, "kid", kid);
        for key in ["", "\0", KEY] {
            try_("kid", signed(&header, &claims, key));
        }
    }
    for field in ["jku", "x5u", "jwk", "x5c"] {
        let value = match field {
            "jwk" => json!({"kty": "oct", "k": coded("forger's own key")}),
            "x5c" => json!([coded("a certificate")]),
            _ => json!(format!("{far}/{field}")),
        };
        let mut header = with(&head, field, value);
        try_(field, signed(&header, &claims, "forger's own key"));
        header["kid"] = json!(format!("{far}/kid"));
        try_(field, signed(&header, &claims, "forger's own key"));
    }
    // Rightly signed, but not a session token of this Board.
    for (field, value) in [("typ", json!("JWT")), ("typ", json!(null)), ("typ", json!("vb-other+jwt"))] {
        try_("typ", signed(&with(&head, field, value), &claims, KEY));
    }
    for (field, value) in [
        ("iss", json!("elsewhere")),
        ("aud", json!("viber-board/api")),
        ("aud", json!([])),
        ("sub", json!("op_0")),
        ("sid", json!("sid_0")),
        ("sid", json!(["x"])),
        ("sid", json!(format!("sid_{}", "0".repeat(32)))),
        ("sub", json!(format!("op_{}", "0".repeat(32)))),
        ("iat", json!("now")),
        ("exp", json!(null)),
        ("iat", json!(1e308)),
        ("iat", json!(i64::MIN)),
        ("iat", json!(i64::MAX)),
    ] {
        try_(field, signed(&head, &with(&claims, field, value), KEY));
    }
    try_(
        "claims of another",
        format!("{}.{}.{}", parts[0], coded(&with(&claims, "role", json!("owner")).to_string()), parts[2]),
    );
    try_("nested", signed(&with(&head, "cty", json!("JWT")), &json!({"jwt": real}), KEY));
    try_("encrypted", "eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..x.y.z".to_owned());
    for junk in ["", ".", "..", "a.b.c", "null", "undefined", "0", "%00", "eyJ9"] {
        try_("junk", junk.to_owned());
    }

    let anon = board.anon();
    let mut wrong = Vec::new();
    for (what, token) in &forged {
        let cookie = format!("{name}={token}");
        let ask = |path: &str| anon.request(Method::GET, path).header(header::COOKIE, &cookie).header("x-team", HOME);
        let api = anon.send(ask("/api/v1/vibers")).await;
        let page = anon.send(ask("/t/home").header(header::ACCEPT, "text/html")).await;
        let bearer = anon
            .send(anon.request(Method::GET, "/api/v1/vibers").header(header::AUTHORIZATION, format!("Bearer {token}")))
            .await;
        let renewed = [&api, &page, &bearer].iter().any(|answer| answer.headers.contains_key(header::SET_COOKIE));
        if (api.status, page.status, bearer.status) != (401, 303, 401) || renewed {
            wrong.push(format!("{what}: {} {} {} {renewed}: {token}", api.status, page.status, bearer.status));
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), forged.len(), wrong.join("\n"));
    assert!(forged.len() > 80, "{}", forged.len());
    let mut viber = FakeDaemon::enrol(&board, "lab").await;
    let refused =
        viber.dial_with(&[("authorization", &format!("Bearer {real}"))]).await.expect_err("a login is no viber");
    assert!(refused.to_string().contains("401"), "{refused}");
    assert_eq!(collector.heard(), Vec::<String>::new(), "nobody fetched a key");
    owner.page("/t/home").await.expect(200);
    board.assert_invariants().await;
}
