//! The errors of each operation beyond those that every operation has, by status, with their stable codes. The OpenAPI
//! description is built from it; tests send bad requests and compare.

/// A status, and the codes that come with it.
pub type Refusal = (u16, &'static [&'static str]);

/// A viber that is asked for what only it knows.
const VIBER_REQUESTS: &[Refusal] = &[(409, &["viber_away", "viber_silent", "viber_busy"]), (422, &["viber_refused"])];
/// A file or folder of a workspace that is looked at.
const FILE_READS: &[Refusal] =
    &[(409, &["viber_away"]), (422, &["forbidden_path", "is_folder", "too_slow", "viber_refused"])];
/// A change of a file.
const FILE_EDITS: &[Refusal] = &[
    (409, &["settled", "too_many_edits", "viber_revoked"]),
    (422, &["forbidden_path", "no_base", "nul", "viber_refused"]),
];
/// A version that is named.
const NAMED_VERSIONS: &[Refusal] = &[(412, &["stale"]), (428, &["version_required"])];
/// A version that may be named.
const KNOWN_VERSIONS: &[Refusal] = &[(412, &["stale"])];
/// Only a part of it is wanted.
const BYTE_RANGES: &[Refusal] = &[(416, &["bad_range"])];
/// A space that is looked at.
const SPACE_READS: &[Refusal] = &[
    (409, &["viber_away"]),
    (
        422,
        &[
            "forbidden_path",
            "git",
            "is_folder",
            "no_git",
            "no_repository",
            "space_away",
            "too_slow",
            "viber_busy",
            "viber_refused",
        ],
    ),
];
/// A session that starts.
const SESSION_STARTS: &[Refusal] = &[(422, &["no_viber", "unknown_agent"])];
/// A file that is attached.
/// What is done with a conversation.
const COMPACTIONS: &[Refusal] = &[
    (409, &["archived", "compaction_failed", "compaction_stopped", "empty", "running", "viber_revoked", "went_on"]),
    (422, &["bad_compaction", "no_compact"]),
];
const ATTACHMENTS: &[Refusal] = &[(403, &["quota_exceeded"]), (409, &["too_many"])];
/// A task that is submitted in a session.
const SUBMITS: &[Refusal] = &[
    (409, &["viber_revoked"]),
    (
        422,
        &[
            "attachment_not_found",
            "bad_goal",
            "bad_plan",
            "other_viber",
            "payload_too_large",
            "rules_unknown",
            "too_deep",
            "unknown_model",
        ],
    ),
];
/// Files of a version of a skill.
const STORED_FILES: &[Refusal] = &[(410, &["gone"])];
/// What is ordered of a viber's skill.
const SKILL_ORDERS: &[Refusal] = &[(409, &["no_skills", "too_many_orders"])];
/// Something said in a session.
const SAYS: &[Refusal] = &[(422, &["bad_id", "context_too_large"])];
/// A message that is changed.
const MESSAGE_CHANGES: &[Refusal] = &[(409, &["consumed", "raced", "viber_revoked", "withdrawn"])];
/// A task that is held or goes on.
const HOLDS: &[Refusal] = &[(409, &["cannot_pause", "task_over", "task_waits", "viber_revoked"])];
/// A cursor of another name.
const CURSORS: &[Refusal] = &[(422, &["bad_cursor"])];

/// By operation.
const BY_OPERATION: &[(&str, &[&[Refusal]])] = &[
    ("agents.add", &[VIBER_REQUESTS, &[(422, &["bad_agent"])]]),
    (
        "approvalRules.write",
        &[KNOWN_VERSIONS, &[(422, &["bad_expiry", "bad_limit", "bad_rule", "rule_too_wide", "rules_too_large"])]],
    ),
    (
        "approvals.decide",
        &[&[
            (409, &["expired", "not_pending", "other_digest", "too_many_rules", "viber_revoked"]),
            (
                422,
                &[
                    "answer_required",
                    "answer_too_long",
                    "bad_args",
                    "bad_rule",
                    "contradictory",
                    "grant_required",
                    "not_a_budget",
                    "not_a_question",
                    "not_a_tool",
                    "note_too_long",
                    "other_call",
                    "rule_required",
                    "rule_too_wide",
                ],
            ),
        ]],
    ),
    (
        "artifacts.download",
        &[
            &[(409, &["hash_mismatch", "refused"]), (410, &["gone"]), (422, &["link"]), (503, &["viber_offline"])],
            BYTE_RANGES,
        ],
    ),
    ("artifacts.upload", &[ATTACHMENTS, &[(422, &["bad_name"])]]),
    ("artifacts.withdraw", &[&[(409, &["attached"])]]),
    ("bus.read", &[CURSORS]),
    ("context.compact", &[COMPACTIONS, &[(409, &["no_summary"]), (422, &["bad_summary"])]]),
    ("context.flush", &[COMPACTIONS]),
    ("context.reset", &[COMPACTIONS]),
    ("context.uncompact", &[&[(409, &["not_compacted"])]]),
    ("events.list", &[CURSORS]),
    ("invitations.make", &[&[(422, &["bad_email"])]]),
    ("joinTokens.make", &[&[(422, &["bad_labels"])]]),
    (
        "loggedSessions.import",
        &[VIBER_REQUESTS, &[(409, &["being_deleted", "other_agent"]), (422, &["endless_log", "nothing_to_take"])]],
    ),
    ("loggedSessions.list", &[VIBER_REQUESTS]),
    ("members.add", &[&[(422, &["bad_email"])]]),
    ("members.change", &[&[(409, &["last_owner"])]]),
    ("members.remove", &[&[(409, &["last_owner"])]]),
    ("memory.search", &[VIBER_REQUESTS]),
    (
        "memoryProposals.decide",
        &[FILE_READS, FILE_EDITS, &[(409, &["memory_changed", "not_pending"]), (422, &["not_text"])]],
    ),
    ("mesh.change", &[KNOWN_VERSIONS, &[(422, &["bad_bound"])]]),
    ("messages.list", &[CURSORS]),
    ("messages.say", &[SUBMITS, SAYS]),
    ("pins.set", &[&[(409, &["too_many_pins"])]]),
    ("plan.read", &[FILE_READS, &[(422, &["not_a_plan"])]]),
    ("plan.write", &[FILE_READS, FILE_EDITS, NAMED_VERSIONS, &[(422, &["bad_plan", "not_a_plan", "plan_too_large"])]]),
    (
        "planProposals.decide",
        &[FILE_READS, FILE_EDITS, &[(409, &["not_pending", "plan_changed"]), (422, &["plan_too_large"])]],
    ),
    (
        "playbookRuns.decide",
        &[&[
            (409, &["not_failed", "not_pending", "other_digest", "run_over", "step_over", "step_running"]),
            (422, &["digest_required", "note_too_long", "reason_required"]),
        ]],
    ),
    ("playbookRuns.pause", &[&[(409, &["run_over"])]]),
    ("playbookRuns.resume", &[&[(409, &["run_over"])]]),
    (
        "playbookRuns.start",
        &[
            FILE_READS,
            &[
                (409, &["no_playbooks", "raced", "too_many_runs"]),
                (422, &["bad_input", "bad_playbook", "missing_input"]),
            ],
        ],
    ),
    ("playbooks.list", &[FILE_READS]),
    ("prices.write", &[KNOWN_VERSIONS, &[(422, &["bad_price", "too_many_prices"])]]),
    ("sessions.change", &[&[(422, &["bad_percent", "bad_title"])]]),
    ("sessions.create", &[SESSION_STARTS, &[(422, &["bad_title"])]]),
    (
        "skillRollouts.begin",
        &[&[
            (409, &["not_reviewed", "other_files", "rolling_out", "too_many_rollouts"]),
            (422, &["bad_agents", "bad_labels", "no_viber"]),
        ]],
    ),
    (
        "skills.add",
        &[
            VIBER_REQUESTS,
            &[
                (403, &["quota_exceeded"]),
                (409, &["changed", "library_full"]),
                (422, &["bad_bundle", "bad_source", "not_in_registry"]),
                (503, &["registry_away"]),
            ],
        ],
    ),
    ("skills.diff", &[STORED_FILES]),
    ("skills.file", &[STORED_FILES]),
    ("skills.review", &[&[(409, &["other_files"]), (422, &["note_too_long"])]]),
    ("spaces.diff", &[SPACE_READS]),
    ("spaces.file", &[SPACE_READS, BYTE_RANGES]),
    ("spaces.log", &[SPACE_READS]),
    ("spaces.status", &[SPACE_READS]),
    ("spaces.tree", &[SPACE_READS]),
    (
        "taskMessages.change",
        &[
            MESSAGE_CHANGES,
            SUBMITS,
            &[
                (409, &["held", "not_author", "not_confirmed", "not_held", "unconfirmed"]),
                (422, &["bad_message", "bad_place"]),
            ],
        ],
    ),
    ("taskMessages.say", &[SUBMITS, SAYS, &[(409, &["task_over", "task_waits"])]]),
    ("taskMessages.withdraw", &[MESSAGE_CHANGES, &[(409, &["not_confirmed"])]]),
    ("tasks.pause", &[HOLDS]),
    ("tasks.resume", &[HOLDS]),
    (
        "tasks.retry",
        &[&[(409, &["completed", "not_final", "raced", "viber_revoked"]), (422, &["rules_unknown", "unknown_model"])]],
    ),
    (
        "tasks.submit",
        &[
            SESSION_STARTS,
            SUBMITS,
            &[(422, &["bad_labels", "bad_leash", "mode_not_allowed", "no_leash", "no_on_limit"])],
        ],
    ),
    ("tokens.make", &[&[(422, &["bad_name"])]]),
    ("uploads.finish", &[ATTACHMENTS, &[(422, &["bad_name"])]]),
    ("uploads.start", &[ATTACHMENTS, &[(422, &["no_direct_upload"])]]),
    ("viberMcp.allow", &[&[(409, &["no_mcp", "not_all_shown", "too_many_orders"]), (422, &["bad_hash"])]]),
    ("viberMcp.test", &[VIBER_REQUESTS]),
    ("viberSkills.accept", &[SKILL_ORDERS, &[(422, &["bad_digest"])]]),
    ("viberSkills.check", &[VIBER_REQUESTS]),
    ("viberSkills.enable", &[SKILL_ORDERS, &[(422, &["bad_agents"])]]),
    ("viberSkills.install", &[SKILL_ORDERS, &[(409, &["not_reviewed", "other_files"]), (422, &["bad_agents"])]]),
    ("viberSkills.remove", &[SKILL_ORDERS]),
    ("viberSkills.restore", &[SKILL_ORDERS, &[(409, &["not_in_library", "not_installed", "not_reviewed"])]]),
    ("vibers.change", &[&[(422, &["bad_labels", "bad_name", "name_taken"])]]),
    ("vibers.interrupt", &[&[(422, &["unknown_agent"])]]),
    ("workspace.list", &[FILE_READS]),
    ("workspace.read", &[FILE_READS, BYTE_RANGES]),
    ("workspace.remove", &[FILE_READS, FILE_EDITS, NAMED_VERSIONS]),
    ("workspace.rename", &[FILE_READS, FILE_EDITS, NAMED_VERSIONS]),
    ("workspace.search", &[FILE_READS]),
    ("workspace.write", &[FILE_READS, FILE_EDITS, NAMED_VERSIONS, &[(422, &["not_text"])]]),
];

/// What this operation refuses beyond what every call does.
pub fn of(operation: &str) -> impl Iterator<Item = &'static Refusal> {
    let row = BY_OPERATION.iter().find(|(known, _)| *known == operation);
    row.into_iter().flat_map(|(_, groups)| groups.iter().flat_map(|group| group.iter()))
}

/// Every operation of the table, in its order.
#[cfg(test)]
pub fn operations() -> impl Iterator<Item = &'static str> {
    BY_OPERATION.iter().map(|(operation, _)| *operation)
}
