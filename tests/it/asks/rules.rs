//! What a team decides beforehand: its rules, who decides, how long a question waits, and what a task may use.

use super::*;

crate::on_both_databases!(
    rules_go_with_every_task,
    limits_of_the_team_go_with_every_task,
    limits_of_the_team_are_changed_on_the_page,
    a_rule_is_written_by_an_admin_for_what_was_asked,
    the_team_says_who_decides,
    two_who_change_the_rules_do_not_undo_each_other,
    whoever_says_something_with_a_decision_decides_no_more,
    an_owner_alone_lets_lower_roles_decide,
    while_owners_alone_decide_they_alone_loosen_the_rules,
    a_daemon_that_would_ignore_rules_is_given_no_task,
    what_was_queued_before_the_rules_is_not_given_to_such_a_daemon,
    a_long_queue_that_is_refused_goes_on_by_itself,
);

const RULES: &str = "/api/v1/approval-rules";
const APPROVALS: &str = "/t/home/settings/approvals";

async fn rules_go_with_every_task(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    assert!(submit.rules.is_empty());
    assert_eq!(submit.approval_minutes, Some(1440));
    let admin = fixture.board.token("home", "admin").await;
    let kept = fixture.operator.get(RULES).await.expect(200).json();
    let defaults = json!({ "deny": [], "ask": [], "allow": [], "minRole": "operator", "notRequester": false, "expiryMinutes": 1440,
        "limits": {} });
    assert_eq!(kept, defaults);
    let rules =
        json!({ "deny": ["shell(git push **)", "shell(git push **)"], "allow": ["read_file"], "expiryMinutes": 30 });
    fixture.operator.put(RULES, &rules).await.expect(403);
    let stored = admin.put(RULES, &rules).await.expect(200).json();
    assert_eq!((&stored["deny"], &stored["expiryMinutes"]), (&json!(["shell(git push **)"]), &json!(30)));
    assert_eq!(fixture.operator.get(RULES).await.expect(200).json(), stored);
    for (rules, code) in [
        (json!({ "ask": ["shell(("] }), "bad_rule"),
        (json!({ "allow": ["shell"] }), "rule_too_wide"),
        (json!({ "allow": ["shell(sudo **)"] }), "rule_too_wide"),
        (json!({ "allow": ["skill:publish"] }), "rule_too_wide"),
        (json!({ "expiryMinutes": 0 }), "bad_expiry"),
        (
            json!({ "deny": (0..160).map(|n| format!("write_file({n}/{})", "x".repeat(400))).collect::<Vec<_>>() }),
            "rules_too_large",
        ),
    ] {
        let refused = admin.put(RULES, &rules).await.expect(422);
        assert_eq!(refused.code(), code, "{}", refused.body);
    }
    let named = admin.put(RULES, &json!({ "ask": ["shell(("] })).await.expect(422).body;
    assert!(named.contains("shell(("), "{named}");

    // Also with a session's first task, which is sent without reading anything back.
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let viber_id = fixture.viber_id.clone();
    fixture.operator.submit(&viber_id, "Something else").await;
    let first = fixture.viber.submitted().await;
    fixture.operator.follow_up(&task, "Go on").await;
    let next = fixture.viber.submitted().await;
    for submit in [first, next] {
        assert_eq!(
            (submit.rules.deny.as_slice(), submit.approval_minutes),
            (&["shell(git push **)".to_owned()][..], Some(30))
        );
    }
    let audit = fixture.owner().get("/api/v1/audit").await.expect(200).body;
    assert!(audit.contains("approval.rules"), "{audit}");
    fixture.board.assert_invariants().await;
}

async fn limits_of_the_team_go_with_every_task(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    assert_eq!(submit.limits, TaskLimits::default());
    let admin = fixture.board.token("home", "admin").await;
    let limits = json!({ "steps": 50, "toolCalls": 20, "tokens": 90_000, "costUsd": 1.5, "minutes": 30 });
    fixture.operator.put(RULES, &json!({ "limits": limits })).await.expect(403);
    assert_eq!(admin.put(RULES, &json!({ "limits": limits })).await.expect(200).json()["limits"], limits);
    assert_eq!(fixture.operator.get(RULES).await.expect(200).json()["limits"], limits);
    for (bad, code) in [
        (json!({ "steps": 0 }), "bad_limit"),
        (json!({ "tokens": 0 }), "bad_limit"),
        (json!({ "costUsd": 0.0 }), "bad_limit"),
        (json!({ "costUsd": -1 }), "bad_limit"),
        (json!({ "costUsd": 1e7 }), "bad_limit"),
        (json!({ "minutes": -1 }), "invalid_body"),
        (json!({ "onLimit": "stop" }), "invalid_body"),
    ] {
        let refused = admin.put(RULES, &json!({ "limits": bad })).await;
        assert_eq!((refused.status / 100, refused.code().as_str()), (4, code), "{bad}: {}", refused.body);
    }

    // A first task, which is sent without reading anything back, and a further one with limits of its own.
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let viber_id = fixture.viber_id.clone();
    fixture.operator.submit(&viber_id, "Something else").await;
    let first = fixture.viber.submitted().await;
    let all = TaskLimits {
        steps: Some(50),
        tool_calls: Some(20),
        tokens: Some(90_000),
        cost_usd: Some(1.5),
        minutes: Some(30),
        on_limit: None,
    };
    assert_eq!(first.limits, all);
    let own = json!({ "goal": "Go on", "viberId": viber_id, "sessionId": id(&task, "sessionId"),
        "limits": { "toolCalls": 900, "costUsd": 0.5, "minutes": 30 } });
    fixture.operator.post("/api/v1/tasks", &own).await.expect(201);
    let next = fixture.viber.submitted().await;
    assert_eq!(next.limits, TaskLimits { cost_usd: Some(0.5), ..all }, "the smaller of each");
    let audit = fixture.owner().get("/api/v1/audit").await.expect(200).body;
    assert!(audit.contains("approval.rules"), "{audit}");
    let stranger = fixture.board.operator("elsewhere", "stranger@example.org", "owner").await;
    assert_eq!(stranger.get(RULES).await.expect(200).json()["limits"], json!({}));
    fixture.board.assert_invariants().await;
}

async fn limits_of_the_team_are_changed_on_the_page(engine: Engine) {
    let (fixture, _task, _submit) = asking(engine).await;
    let owner = fixture.owner();
    let form = |version: &'static str, tokens: &'static str| {
        vec![
            ("version", version),
            ("min_role", "operator"),
            ("expiry_minutes", "60"),
            ("tokens", tokens),
            ("cost_usd", "1,5"),
        ]
    };
    let refused = owner.post_form(APPROVALS, &form("0", "many")).await.expect(422).body;
    assert!(refused.contains("“many” is no limit") && refused.contains(r#"value="1,5""#), "{refused}");
    owner.post_form(APPROVALS, &form("0", "0")).await.expect(422);
    owner.post_form(APPROVALS, &form("0", " 90000 ")).await.expect(303);
    let limits = owner.get(RULES).await.expect(200).json()["limits"].clone();
    assert_eq!(limits, json!({ "tokens": 90_000, "costUsd": 1.5 }));
    let late = owner.post_form(APPROVALS, &form("0", "7")).await.expect(409).body;
    assert!(late.contains("Each task at most: 90000 tokens, 1.5 USD"), "{late}");
    let viewer = fixture.board.operator("home", "vera@example.org", "viewer").await;
    let page = viewer.page(APPROVALS).await.expect(200).body;
    assert!(page.contains(r#"name="tokens" maxlength="12" placeholder="No limit" value="90000" disabled"#), "{page}");
    fixture.board.assert_invariants().await;
}

async fn a_rule_is_written_by_an_admin_for_what_was_asked(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (first, second, file) = (named(1), named(2), named(3));
    let mut writes = command(&file, "x");
    writes["tool"] = json!("write_file");
    writes["args"] = json!({ "path": "src/main.rs", "content": "" });
    writes["files"] = json!([{ "path": "/srv/app/src/main.rs" }]);
    writes["rule"] = json!("write_file(src/**)");
    let all = [command(&first, "cargo test -p app"), command(&second, "ls; rm x"), writes];
    ask(&mut fixture, &submit, 4, &all).await;
    let admin = fixture.board.token("home", "admin").await;
    let word = |digest: &str, rule: Option<&str>| {
        let mut word = json!({ "decision": "allow", "digest": digest, "scope": "rule" });
        if let Some(rule) = rule {
            word["rule"] = json!(rule);
        }
        word
    };
    let test = "digest of cargo test -p app";
    for (approval_id, digest, rule, code) in [
        (&first, test, Some("shell"), "rule_too_wide"),
        (&first, test, Some("shell(env **)"), "rule_too_wide"),
        (&first, test, Some("shell(cargo build **)"), "other_call"),
        (&first, test, Some("write_file(**)"), "rule_too_wide"),
        (&first, test, Some("write_file(docs/**)"), "other_call"),
        (&first, test, Some("shell(cargo"), "bad_rule"),
        (&second, "digest of ls; rm x", Some("shell(ls)"), "other_call"),
        (&file, "digest of x", Some("write_file(docs/**)"), "other_call"),
    ] {
        assert_eq!(decide(&admin, approval_id, word(digest, rule)).await.expect(422).code(), code, "{rule:?}");
    }
    let mine = word(test, Some("shell(cargo test **)"));
    decide(&fixture.operator, &first, mine.clone()).await.expect(403);
    assert_eq!(fixture.operator.get(RULES).await.expect(200).json()["allow"], json!([]), "nothing of it was done");
    let allowed = decide(&admin, &first, mine).await.expect(200).json();
    assert_eq!((&allowed["scope"], &allowed["rule"]), (&json!("rule"), &json!("shell(cargo test **)")));
    assert_eq!(fixture.viber.decided().await.rule.as_deref(), Some("shell(cargo test **)"));
    decide(&admin, &file, word("digest of x", None)).await.expect(200);
    assert_eq!(fixture.viber.decided().await.rule.as_deref(), Some("write_file(src/**)"), "as it was proposed");
    let allow = json!(["shell(cargo test **)", "write_file(src/**)"]);
    assert_eq!(fixture.operator.get(RULES).await.expect(200).json()["allow"], allow);

    fixture.viber.report(&submit.task_id, 1, 7, vec![completed("done")]).await;
    fixture.operator.follow_up(&task, "Go on").await;
    assert_eq!(json!(fixture.viber.submitted().await.rules.allow), allow);
    fixture.board.assert_invariants().await;
}

async fn the_team_says_who_decides(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let (first, second, third, asked) = (named(1), named(2), named(3), named(4));
    let all = [command(&first, "a"), command(&second, "b"), command(&third, "c"), question(&asked)];
    ask(&mut fixture, &submit, 4, &all).await;
    let admin = fixture.board.token("home", "admin").await;
    let allow = |digest: &str| json!({ "decision": "allow", "digest": digest, "reason": "It burns" });
    admin.put(RULES, &json!({ "minRole": "admin" })).await.expect(200);
    decide(&fixture.operator, &first, allow("digest of a")).await.expect(403);
    let decided = decide(&admin, &first, allow("digest of a")).await.expect(200).json();
    assert_eq!(decided["breakGlass"], Value::Null, "it was not needed");

    // Who gave the task does not decide, with whatever token of theirs.
    fixture.viber.report(&submit.task_id, 1, 8, vec![completed("done")]).await;
    let viber_id = fixture.viber_id.clone();
    fixture.owner().submit(&viber_id, "Mine").await;
    let submit = fixture.viber.submitted().await;
    let (first, second, asked) = (named(21), named(22), named(24));
    let all = [command(&first, "a"), command(&second, "b"), question(&asked)];
    let events = all.iter().map(progress);
    fixture.viber.report(&submit.task_id, 1, 1, [accepted(), started()].into_iter().chain(events).collect()).await;
    fixture.owner().put(RULES, &json!({ "notRequester": true })).await.expect(200);
    let token =
        fixture.owner().post("/api/v1/tokens", &json!({ "name": "mine", "role": "admin" })).await.expect(201).json();
    let mine = Person::with_token(&fixture.board.url, id(&token, "token"));
    decide(&mine, &first, allow("digest of a")).await.expect(403);
    decide(fixture.owner(), &first, json!({ "decision": "allow", "digest": "digest of a" })).await.expect(403);
    decide(fixture.owner(), &asked, json!({ "decision": "answer", "digest": "q", "answer": "A" })).await.expect(200);
    decide(&fixture.operator, &second, allow("digest of b")).await.expect(200);
    let broken = decide(fixture.owner(), &first, allow("digest of a")).await.expect(200).json();
    assert_eq!((&broken["breakGlass"], &broken["state"]), (&json!("It burns"), &json!("allowed")));
    // Nor does who told the agent something.
    let told = fixture.board.token("home", "operator").await;
    let path = format!("/api/v1/tasks/{}/messages", submit.task_id);
    told.post(&path, &json!({ "content": "Do it", "injectionMode": "steer" })).await.expect(202);
    let message = loop {
        if let protocol::Command::Message(message) = fixture.viber.command().await {
            break message;
        }
    };
    let steered = [named(31)];
    let state =
        json!({ "type": "message-state", "messageId": message.message_id, "rev": message.rev, "state": "consumed" });
    fixture.viber.report(&submit.task_id, 1, 6, vec![progress(&state), progress(&command(&steered[0], "c"))]).await;
    decide(&told, &steered[0], allow("digest of c")).await.expect(403);
    decide(&fixture.operator, &steered[0], allow("digest of c")).await.expect(200);
    let audit = fixture.owner().get("/api/v1/audit").await.expect(200).body;
    assert!(audit.contains("approval.break_glass") && audit.contains("It burns"), "{audit}");
    assert!(audit.contains("does not decide what it asks"), "who was refused is noted");
    fixture.board.assert_invariants().await;
}

async fn whoever_says_something_with_a_decision_decides_no_more(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    fixture.owner().put(RULES, &json!({ "notRequester": true })).await.expect(200);
    let asked = named(1);
    let calls: Vec<_> = ["a", "b", "c", "d"].into_iter().zip([2, 3, 4, 5].map(named)).collect();
    let mut all = vec![question(&asked)];
    all.extend(calls.iter().map(|(text, approval)| command(approval, text)));
    ask(&mut fixture, &submit, 4, &all).await;
    let [a, b, c, d] = &calls[..] else { panic!("four calls") };
    let allow = |(text, _): &(&str, ApprovalId)| json!({ "decision": "allow", "digest": format!("digest of {text}") });
    let with = |mut word: Value, key: &str, value: Value| {
        word[key] = value;
        word
    };
    let mut people = Vec::new();
    for _ in 0..3 {
        people.push(fixture.board.token("home", "operator").await);
    }
    let answer = json!({ "decision": "answer", "digest": "q", "answer": "Do all of it" });
    decide(&people[0], &asked, answer).await.expect(200);
    decide(&people[0], &a.1, allow(a)).await.expect(403);
    let deny = json!({ "decision": "deny", "digest": "digest of a", "note": "Do b instead" });
    decide(&people[1], &a.1, deny).await.expect(200);
    decide(&people[1], &b.1, allow(b)).await.expect(403);
    let other = |of| with(allow(of), "args", json!({ "command": "rm -rf build" }));
    decide(&people[2], &b.1, other(b)).await.expect(403);
    decide(&people[2], &b.1, with(allow(b), "args", json!({ "command": "b" }))).await.expect(200);
    let broken = with(other(c), "reason", json!("It burns"));
    let broken = decide(fixture.owner(), &c.1, broken).await.expect(200).json();
    assert_eq!((&broken["breakGlass"], &broken["state"]), (&json!("It burns"), &json!("allowed")));
    decide(fixture.owner(), &d.1, allow(d)).await.expect(403);
    decide(&people[2], &d.1, allow(d)).await.expect(200);
    fixture.board.assert_invariants().await;
}

/// Puts JSON with the version that the author saw.
async fn put_over(person: &Person, path: &str, version: &str, body: &Value) -> Answer {
    person.send(person.request(reqwest::Method::PUT, path).header("if-match", version).json(body)).await
}

async fn two_who_change_the_rules_do_not_undo_each_other(engine: Engine) {
    let (fixture, _task, _submit) = asking(engine).await;
    let admin = fixture.board.token("home", "admin").await;
    let tag = |answer: &Answer| answer.headers["etag"].to_str().expect("a tag").to_owned();
    let seen = tag(&fixture.operator.get(RULES).await.expect(200));
    assert_eq!(seen, "\"0\"");
    let mine = put_over(&admin, RULES, &seen, &json!({ "deny": ["shell(a)"] })).await.expect(200);
    assert_eq!(tag(&mine), "\"1\"");
    let late = put_over(&admin, RULES, &seen, &json!({ "deny": ["shell(b)"] })).await.expect(412);
    assert_eq!((late.code().as_str(), late.json()["current"].as_str()), ("stale", Some("1")));
    for odd in ["\"one\"", "\"\""] {
        put_over(&admin, RULES, odd, &json!({})).await.expect(412);
    }
    assert_eq!(fixture.operator.get(RULES).await.expect(200).json()["deny"], json!(["shell(a)"]));

    // The form carries the version too, and shows what is there now.
    let page = "/t/home/settings/approvals";
    let form = |version: &'static str, deny: &'static str| {
        [
            ("version", version),
            ("deny", deny),
            ("ask", ""),
            ("allow", ""),
            ("min_role", "operator"),
            ("expiry_minutes", "60"),
        ]
    };
    let shown = fixture.owner().page(page).await.expect(200).body;
    assert!(shown.contains(r#"name="version" value="1""#), "{shown}");
    let late = fixture.owner().post_form(page, &form("0", "shell(c)")).await.expect(409).body;
    assert!(late.contains("Somebody else changed these") && late.contains("shell(c)"), "what was typed stays: {late}");
    assert!(late.contains("shell(a)") && late.contains(r#"name="version" value="1""#), "what is there now: {late}");
    fixture.owner().post_form(page, &form("1", "shell(c)")).await.expect(303);
    assert_eq!(fixture.operator.get(RULES).await.expect(200).json()["deny"], json!(["shell(c)"]));
    fixture.board.assert_invariants().await;
}

async fn an_owner_alone_lets_lower_roles_decide(engine: Engine) {
    let (fixture, _task, _submit) = asking(engine).await;
    let (admin, owner) = (fixture.board.token("home", "admin").await, fixture.owner());
    admin.put(RULES, &json!({ "minRole": "admin" })).await.expect(200);
    admin.put(RULES, &json!({ "minRole": "operator" })).await.expect(403);
    admin.put(RULES, &json!({ "minRole": "admin", "ask": ["shell"] })).await.expect(200);
    let yuki = fixture.board.operator("home", "yuki@example.org", "admin").await;
    let page = "/t/home/settings/approvals";
    let shown = yuki.page(page).await.expect(200).body;
    assert!(shown.contains("Only owners let lower roles decide") && shown.contains(r#"value="operator" disabled"#));
    assert!(!owner.page(page).await.expect(200).body.contains(r#"value="operator" disabled"#));
    owner.put(RULES, &json!({ "minRole": "operator" })).await.expect(200);
    let audit = owner.get("/api/v1/audit").await.expect(200).body;
    assert!(audit.contains("refused"), "{audit}");
    fixture.board.assert_invariants().await;
}

async fn while_owners_alone_decide_they_alone_loosen_the_rules(engine: Engine) {
    let (fixture, _task, _submit) = asking(engine).await;
    let (admin, owner) = (fixture.board.token("home", "admin").await, fixture.owner());
    let strict = json!({ "minRole": "owner", "notRequester": true, "deny": ["shell(a)"], "ask": ["shell(b)"],
        "allow": ["read_file"], "limits": { "steps": 5, "tokens": 100 } });
    owner.put(RULES, &strict).await.expect(200);
    let with = |key: &str, value: Value| {
        let mut changed = strict.clone();
        changed[key] = value;
        changed
    };
    for (key, value) in [
        ("minRole", json!("admin")),
        ("notRequester", json!(false)),
        ("deny", json!([])),
        ("ask", json!([])),
        ("allow", json!(["read_file", "write_file(src/**)"])),
        ("limits", json!({ "steps": 5, "tokens": 101 })),
        ("limits", json!({ "tokens": 100 })),
    ] {
        admin.put(RULES, &with(key, value.clone())).await.expect(403);
        assert_eq!(owner.get(RULES).await.expect(200).json()["limits"]["tokens"], 100, "{key}: {value}");
    }
    let mut stricter = with("deny", json!(["shell(a)", "shell(b)"]));
    (stricter["ask"], stricter["allow"]) = (json!([]), json!([]));
    stricter["limits"] = json!({ "steps": 4, "tokens": 100, "costUsd": 1.5 });
    admin.put(RULES, &stricter).await.expect(200);

    owner.put(RULES, &json!({ "minRole": "admin", "notRequester": true, "deny": ["shell(a)"] })).await.expect(200);
    admin.put(RULES, &json!({ "minRole": "admin", "notRequester": true, "allow": ["read_file"] })).await.expect(200);
    admin.put(RULES, &json!({ "minRole": "admin" })).await.expect(403);
    owner.put(RULES, &json!({})).await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn a_daemon_that_would_ignore_rules_is_given_no_task(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    fixture.viber.report(&submit.task_id, 1, 4, vec![board_tests::fake_daemon::stopped()]).await;
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Steer];
    fixture.viber.connect().await;
    let (owner, viber) = (fixture.owner(), fixture.viber_id.clone());
    let new = json!({ "goal": "Go", "viberId": viber });
    let home = format!("/t/home?viber={viber}");
    assert!(!owner.page(&home).await.expect(200).body.contains("does not know the team"), "there are no rules");
    for rules in [json!({ "deny": ["shell"] }), json!({ "ask": ["shell"] }), json!({ "minRole": "owner" })] {
        owner.put(RULES, &rules).await.expect(200);
        let refused = fixture.operator.post("/api/v1/tasks", &new).await.expect(422);
        assert_eq!(refused.code(), "rules_unknown", "{rules}");
        let page = owner.page(&home).await.expect(200).body;
        assert!(page.contains("does not know the team"), "{rules}: {page}");
    }
    let retry = format!("/api/v1/tasks/{}/retry", id(&task, "id"));
    assert_eq!(fixture.operator.post(&retry, &json!({})).await.expect(422).code(), "rules_unknown");
    // What only allows takes nothing away.
    owner.put(RULES, &json!({ "allow": ["read_file"] })).await.expect(200);
    fixture.operator.post("/api/v1/tasks", &new).await.expect(201);
    fixture.board.assert_invariants().await;
}

/// A session with a task that runs on a daemon which no longer knows rules.
async fn with_an_older_daemon(engine: Engine) -> (Fixture<FakeDaemon>, Value, TaskSubmit) {
    let (mut fixture, task, submit) = asking(engine).await;
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Steer];
    fixture.viber.running = vec![protocol::AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    fixture.viber.connect().await;
    (fixture, task, submit)
}

async fn what_was_queued_before_the_rules_is_not_given_to_such_a_daemon(engine: Engine) {
    let (mut fixture, task, submit) = with_an_older_daemon(engine).await;
    let waits = [fixture.operator.follow_up(&task, "One").await, fixture.operator.follow_up(&task, "Two").await];
    fixture.owner().put(RULES, &json!({ "deny": ["shell"] })).await.expect(200);
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    for task in &waits {
        let ended = fixture.operator.task_that(id(task, "id"), "ended", |task| task["endedAt"].is_string()).await;
        assert_eq!(ended["state"], "error", "{ended:#}");
        let why = ended["error"]["message"].as_str().expect("a sentence");
        assert!(why.contains("does not know the team's rules"), "{why}");
    }
    fixture.board.assert_invariants().await;
}

async fn a_long_queue_that_is_refused_goes_on_by_itself(engine: Engine) {
    let (mut fixture, task, submit) = with_an_older_daemon(engine).await;
    let mut last = Value::Null;
    for n in 1..=120 {
        last = fixture.operator.follow_up(&task, &format!("Number {n}")).await;
    }
    fixture.owner().put(RULES, &json!({ "deny": ["shell"] })).await.expect(200);
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    // Nothing else happens in the session.
    let ended = fixture.operator.task_that(id(&last, "id"), "ended", |task| task["endedAt"].is_string()).await;
    assert_eq!(ended["state"], "error", "{ended:#}");
    fixture.board.assert_invariants().await;
}
