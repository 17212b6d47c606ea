//! A Board with one of everything that the API can name, so that its calls find something.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use board_tests::{
    Board, Engine, FakeDaemon, FakeMachine, Person,
    board::HOME,
    eventually,
    fake_daemon::{SPACE, accepted, completed, progress, started, stopped, text},
    fake_machine,
    tasks::{self, id},
};
use protocol::SessionId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::library;

/// The digits of every identifier in the description's examples.
pub const EXAMPLE: &str = "0192d1c7a0f07a3cb1f0c6f8d1f1a2b3";

/// What the question of an agent is named by.
const DIGEST: &str = "5f2b51ca2fdc5baa31ec02e002f69aec";

/// The Board, who calls it, and what there is.
pub struct World {
    pub board: Board,
    /// Programs with the role `owner`: each has its own share of requests.
    pub owners: Vec<Person>,
    pub viewer: Person,
    pub machine: FakeMachine,
    /// Identifiers by their prefix, as they are known; the first of each is what examples mean.
    pub known: BTreeMap<String, Vec<String>>,
    /// Those that must stay while calls are made at random.
    pub kept: BTreeSet<String>,
    /// What stands in paths, by operation and parameter, when it is not the first that is known.
    pub special: BTreeMap<(&'static str, &'static str), String>,
    pub space: String,
}

impl World {
    pub async fn make(board: Board) -> Self {
        let mut owners = Vec::new();
        for _ in 0..6 {
            owners.push(board.token(HOME, "owner").await);
        }
        let viewer = board.token(HOME, "viewer").await;
        let machine = FakeMachine::connected(&board, "lab").await;
        let away = FakeDaemon::enrol(&board, "away").await;
        let mut world = Self {
            known: BTreeMap::from([("vib".to_owned(), vec![machine.id.to_string(), away.id.to_string()])]),
            space: tasks::space(SPACE),
            kept: BTreeSet::new(),
            special: BTreeMap::new(),
            board,
            owners,
            viewer,
            machine,
        };
        world.lay_down_files();
        world.work().await;
        world.people().await;
        world.run().await;
        let answers = [world.owner().get("/api/v1/tokens").await, world.owner().get("/api/v1/vibers").await];
        answers.iter().for_each(|answer| world.learn(&answer.body));
        world.kept.extend(world.known.values().flatten().cloned());
        world
    }

    /// A run of a playbook at its gate.
    async fn run(&mut self) {
        let inputs = json!({ "version": "4.12.0" });
        let wanted = json!({ "viberId": self.machine.id, "playbook": "release-feature", "inputs": inputs,
            "supervised": false });
        let run = self.owner().post("/api/v1/playbook-runs", &wanted).await.expect(201).json();
        let path = format!("/api/v1/playbook-runs/{}", id(&run, "id"));
        let digest = eventually("the gate", async || {
            let run = self.owner().get(&path).await.expect(200).json();
            run["steps"][0]["gateDigest"].as_str().map(str::to_owned)
        })
        .await;
        self.learn(&run.to_string());
        self.special
            .extend([(("playbookRuns.decide", "n"), "1".to_owned()), (("playbookRuns.decide", "digest"), digest)]);
    }

    pub async fn start(engine: Engine) -> Self {
        Self::make(Board::start(engine).await).await
    }

    pub fn owner(&self) -> &Person {
        &self.owners[0]
    }

    fn lay_down_files(&self) {
        let mut state = self.machine.state();
        let playbook = "# Playbook: release-feature\n\n## Goal\nRelease <version>.\n\n## Steps\n1. [default] Push it.\n   \
            - Approve: before\n";
        let files = [
            ("MEMORY.md", "# Memory\n"),
            ("notes/today.md", "# Today\n"),
            ("notes/old.md", ""),
            ("playbooks/release-feature.md", playbook),
        ];
        for (path, text) in files {
            state.files.insert(path.to_owned(), text.to_owned());
        }
        let at = "2026-03-01T10:00:00.000Z";
        state.found = json!({ "items": [{ "source": "daily", "path": "workspace/memory/2026-03-01.md", "title": "A day",
            "excerpt": "It rained.", "at": at }], "ranking": "text", "known": 3 });
        let since = json!({ "commit": "1".repeat(40), "at": at });
        let changes = json!([{ "path": "src/main.rs", "kind": "changed", "added": 1, "removed": 2 },
            { "path": "b", "kind": "renamed", "renamedFrom": "a" }]);
        let lies = [
            (
                "space.status",
                json!({ "branch": "main", "head": "1".repeat(40), "since": since, "changes": changes,
                "upstream": { "name": "origin/main", "ahead": 1, "behind": 0 }, "omitted": 0 }),
            ),
            (
                "space.log",
                json!({ "from": 0, "commits": [{ "hash": "1".repeat(40), "author": "Ada", "at": at,
                "subject": "Begin", "files": 2 }], "more": true, "since": since }),
            ),
            (
                "space.list",
                json!({ "path": "", "from": 0, "entries": [{ "name": "src", "kind": "folder", "size": 0 }],
                "omitted": 0 }),
            ),
            (
                "workspace.search",
                json!({ "hits": [{ "path": "notes/today.md", "kind": "file", "line": 1,
                "text": "# Today" }, { "path": "notes", "kind": "folder" }], "cut": false }),
            ),
        ];
        state.lies.extend(lies.map(|(method, answer)| (method.to_owned(), answer)));
    }

    /// Tasks in every state, what they asked and proposed, and a file that waits for the next one.
    async fn work(&mut self) {
        let (viber, owner) = (self.machine.id.to_string(), self.owners[0].bearer().expect("a token").to_owned());
        let owner = Person::with_token(&self.board.url, &owner);
        let first = owner.submit(&viber, "Explain the build").await;
        let submit = self.machine.submitted().await;
        let path = format!("sessions/{}/task.md", id(&first, "sessionId"));
        let plan = "- [ ] Measure\n";
        self.machine.state().files.insert(path.clone(), plan.to_owned());
        let call = json!({ "type": "tool-call", "callId": "c1", "tool": "shell", "args": { "command": "ls" } });
        let result = json!({ "type": "tool-result", "callId": "c1", "tool": "shell", "result": "a", "ok": true,
            "durationMs": 1 });
        let written =
            json!({ "type": "plan", "plan": { "markdown": plan, "hash": fake_machine::hash(plan), "path": path } });
        let base = fake_machine::hash("# Memory\n");
        let memory = json!({ "type": "memory", "memory": { "proposal": "# Memory\n\n- Ships on Thursdays.\n",
            "base": base, "note": "You said so." } });
        let proposed = json!({ "type": "plan", "plan": { "proposal": "- [ ] Measure\n- [ ] Cache\n",
            "base": fake_machine::hash(plan), "note": "One step more." } });
        let notice = json!({ "type": "notice", "level": "warning", "text": "slow" });
        let bodies = [&call, &result, &written, &memory, &proposed, &notice].map(progress);
        let bodies: Vec<_> = [accepted(), started()]
            .into_iter()
            .chain(bodies)
            .chain([text("Because."), completed("Because.")])
            .collect();
        self.machine.report(&submit.task_id, 1, 1, bodies).await;
        owner.task_in(id(&first, "id"), "completed").await;

        // One that waits for a person's word, and one that ended without a result.
        let second = owner.submit(&viber, "Ask first").await;
        let submit = self.machine.submitted().await;
        let approval = format!("apr_{EXAMPLE}");
        let question = json!({ "type": "approval-required", "approvalId": approval, "kind": "tool", "digest": DIGEST,
            "tool": "shell", "args": { "command": "rm -r build" }, "cwd": "/srv/app", "preview": "rm -r build", "risk": "deletes files" });
        self.machine.report(&submit.task_id, 1, 1, vec![accepted(), started(), progress(&question)]).await;
        board_tests::eventually("the question is there", || async {
            (owner.get(&format!("/api/v1/approvals/{approval}")).await.status == 200).then_some(())
        })
        .await;
        let say = format!("/api/v1/tasks/{}/messages", id(&second, "id"));
        let said = owner.post(&say, &json!({ "content": "And keep it short" })).await.expect(202).json();
        let third = owner.submit(&viber, "Be stopped").await;
        let submit = self.machine.submitted().await;
        owner.post(&format!("/api/v1/tasks/{}/stop", id(&third, "id")), &json!({})).await.expect(200);
        self.machine.report(&submit.task_id, 1, 1, vec![accepted(), started(), stopped()]).await;
        owner.task_in(id(&third, "id"), "stopped").await;
        let fourth = owner.submit(&viber, "Be forgotten").await;

        let attach = format!("/api/v1/sessions/{}/artifacts?name=picture.svg", id(&first, "sessionId"));
        let attached = owner.send(owner.request(Method::POST, &attach).body("<svg/>")).await.expect(201).json();
        let logged = SessionId::new(1_700_000_000_000);
        let line = |more: Value| {
            let mut line =
                json!({ "at": "2026-03-01T10:00:00.000Z", "taskId": format!("task_{EXAMPLE}"), "attempt": 1 });
            line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            line
        };
        self.machine.log(
            "default",
            &logged,
            &[
                line(json!({ "seq": 1, "type": "user", "text": "What was it?" })),
                line(json!({ "seq": 2, "type": "text", "text": "That." })),
            ],
        );
        for one in [&first, &second, &third, &fourth] {
            self.learn(&one.to_string());
        }
        let session = id(&first, "sessionId");
        for list in ["memory/proposals", "plan/proposals", "messages"] {
            let answer = owner.get(&format!("/api/v1/sessions/{session}/{list}")).await.expect(200);
            let found = answer.json()["items"][0]["id"].as_str().unwrap_or_default().to_owned();
            let operation = match list {
                "memory/proposals" => Some("memoryProposals.decide"),
                "plan/proposals" => Some("planProposals.decide"),
                _ => None,
            };
            if let Some(operation) = operation {
                assert!(!found.is_empty(), "there is no proposal: {answer:?}");
                self.special.insert((operation, "proposal"), found);
            }
            self.learn(&answer.body);
        }
        self.learn(&approval);
        self.learn(&attached.to_string());
        self.special.insert(("tasks.stop", "id"), id(&fourth, "id").to_owned());
        self.special.insert(("messages.say", "id"), id(&second, "sessionId").to_owned());
        for operation in ["taskMessages.say", "taskMessages.list", "taskMessages.change", "taskMessages.withdraw"] {
            self.special.insert((operation, "id"), id(&second, "id").to_owned());
            self.special.insert((operation, "message"), id(&said, "id").to_owned());
        }
        self.special.insert(("tasks.retry", "id"), id(&third, "id").to_owned());
        for operation in ["tasks.pause", "tasks.resume"] {
            self.special.insert((operation, "id"), id(&second, "id").to_owned());
        }
        for operation in ["vibers.stop", "vibers.interrupt"] {
            // The one that is away has no tasks.
            self.special.insert((operation, "id"), self.known["vib"][1].clone());
        }
        self.skills(&owner, &viber).await;
        for operation in ["viberMcp.allow", "viberMcp.test"] {
            self.special.insert((operation, "name"), "fs".to_owned());
        }
        self.special.insert(("viberMcp.allow", "hash"), "ab".repeat(32));
        let tested = ("mcp.test".to_owned(), json!({ "name": "fs", "kind": "stdio", "state": "ready", "tools": [] }));
        self.machine.state().lies.extend([tested]);
        self.special.insert(("loggedSessions.import", "session"), logged.to_string());
        self.special.insert(("approvals.decide", "digest"), DIGEST.to_owned());
    }

    /// A version of a skill that may be installed, one that may be deleted, and a viber that has it.
    async fn skills(&mut self, owner: &Person, viber: &str) {
        let text = |version: &str| {
            format!("---\nname: release-notes\ndescription: Collects changes\nversion: {version}\n---\nUse git.\n")
        };
        let first = library::approved(owner, library::archive(&[("SKILL.md", 0o644, &text("1"))])).await;
        let second = library::approved(owner, library::archive(&[("SKILL.md", 0o644, &text("2"))])).await;
        self.learn(&first.to_string());
        self.special.extend([
            (("skills.delete", "id"), id(&second, "id").to_owned()),
            (("skills.diff", "from"), id(&first, "id").to_owned()),
            (("skills.file", "path"), "SKILL.md".to_owned()),
            (("skills.review", "digest"), id(&first, "digest").to_owned()),
            (("viberSkills.install", "digest"), id(&first, "digest").to_owned()),
            (("viberSkills.accept", "digest"), id(&first, "digest").to_owned()),
            (("skillRollouts.begin", "digest"), id(&first, "digest").to_owned()),
        ]);
        for operation in [
            "viberSkills.accept",
            "viberSkills.check",
            "viberSkills.enable",
            "viberSkills.remove",
            "viberSkills.restore",
        ] {
            self.special.insert((operation, "name"), "release-notes".to_owned());
        }
        let install = json!({ "skillId": first["id"], "digest": first["digest"] });
        owner.post(&format!("/api/v1/vibers/{viber}/skills"), &install).await.expect(200);
        // One that has ended: another may begin.
        let labels = json!({ "labels": { "canary": "yes", "ring": "all" } });
        owner.patch(&format!("/api/v1/vibers/{viber}"), &labels).await.expect(200);
        let rollout = json!({ "skillId": first["id"], "digest": first["digest"], "labels": ["canary=yes"] });
        let rollout = owner.post("/api/v1/skill-rollouts", &rollout).await.expect(201).json();
        let stop = format!("/api/v1/skill-rollouts/{}/stop", id(&rollout, "id"));
        owner.post(&stop, &json!({})).await.expect(200);
        self.learn(&rollout.to_string());
        let listed = protocol::SkillInfo { name: "release-notes".to_owned(), ..Default::default() };
        let (main, third) = ("SKILL.md", text("3"));
        let digest = fake_machine::hash(&format!("{main}\0644\0{}\n", fake_machine::hash(&third)));
        let read = json!({ "digest": digest, "data": BASE64_STANDARD.encode(&third), "size": third.len(),
            "files": [{ "path": main, "mode": "644", "size": third.len(), "sha256": fake_machine::hash(&third) }] });
        let lies = [("skills.list", json!({ "items": [listed] })), ("skills.read", read)];
        self.machine.state().lies.extend(lies.map(|(method, answer)| (method.to_owned(), answer)));
    }

    async fn people(&mut self) {
        self.board.make_operator(HOME, "spare@example.org", "viewer").await;
        self.board.make_operator(HOME, "second@example.org", "owner").await;
        let owner = self.owner();
        let members = owner.get("/api/v1/members").await.expect(200);
        let all = members.json();
        let spare = all["items"].as_array().expect("a list").iter().find(|one| one["email"] == "spare@example.org");
        let spare = id(spare.expect("the spare member"), "id").to_owned();
        let invited = owner.post("/api/v1/invitations", &json!({ "role": "viewer", "email": "" })).await.expect(201);
        let token = owner.post("/api/v1/tokens", &json!({ "name": "spare", "role": "viewer" })).await.expect(201);
        let token_id = id(&token.json(), "id").to_owned();
        self.special.extend([
            (("tokens.revoke", "id"), token_id),
            (("members.change", "id"), spare.clone()),
            (("members.remove", "id"), spare.clone()),
        ]);
        for body in [&spare, &invited.body, &token.body, &members.body] {
            self.learn(body);
        }
    }

    /// Notes every identifier in a text.
    pub fn learn(&mut self, text: &str) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words {
            let Some((prefix, digits)) = word.split_once('_') else { continue };
            if digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let known = self.known.entry(prefix.to_owned()).or_default();
                if !known.iter().any(|other| other == word) && known.len() < 200 {
                    known.push(word.to_owned());
                }
            }
        }
    }

    /// The identifier that a pattern of the description asks for: the first that is known.
    pub fn first(&self, prefix: &str) -> String {
        let known = self.known.get(prefix).and_then(|all| all.first()).cloned();
        known.unwrap_or_else(|| format!("{prefix}_{EXAMPLE}"))
    }
}
