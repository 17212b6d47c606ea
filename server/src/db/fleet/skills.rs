//! The library of skills.

use protocol::SkillId;

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, fold, json},
    domain::{LibrarySkill, SkillContents, SkillReview, SkillReviewState, SkillVersion},
};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT s.skill_id, s.name, s.description, s.version, s.source, s.reference, s.digest, s.archive, s.size, ",
            "s.findings, s.state, s.reviewed_by, s.reviewer, s.reviewed_at, s.note, s.added_by, s.adder, s.added_at ",
            "FROM skills s ",
            $rest
        )
    };
}

/// Adds a version. `false`: the library has these files under this name already.
pub async fn insert(tx: &mut Change<'_>, skill: &LibrarySkill, contents: &SkillContents) -> Result<bool, DbError> {
    let sql = "INSERT INTO skills (team_id, skill_id, name, description, version, source, reference, digest, archive, size, \
               about, findings, state, added_by, adder, added_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) \
               ON CONFLICT (team_id, name, digest) DO NOTHING";
    let args = args![
        &skill.id,
        &skill.name,
        &skill.description,
        skill.version.clone(),
        skill.origin.as_str(),
        skill.reference.clone(),
        &skill.digest,
        &skill.archive,
        skill.size,
        json(contents)?,
        skill.findings,
        skill.review.state.as_str(),
        &skill.added_by,
        &skill.adder,
        skill.added_at
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// One version.
pub async fn load(tx: &mut TeamTx<'_>, id: &SkillId) -> Result<Option<LibrarySkill>, DbError> {
    let sql = select!("WHERE s.team_id = $1 AND s.skill_id = $2");
    tx.row(sql, args![id]).await?.as_ref().map(skill).transpose()
}

/// The version of this name with these files.
pub async fn by_digest(tx: &mut TeamTx<'_>, name: &str, digest: &str) -> Result<Option<LibrarySkill>, DbError> {
    let sql = select!("WHERE s.team_id = $1 AND s.name = $2 AND s.digest = $3");
    tx.row(sql, args![name, digest]).await?.as_ref().map(skill).transpose()
}

/// What is in a version.
pub async fn contents(tx: &mut TeamTx<'_>, id: &SkillId) -> Result<Option<SkillContents>, DbError> {
    let sql = "SELECT about FROM skills WHERE team_id = $1 AND skill_id = $2";
    tx.row(sql, args![id]).await?.map(|row| row.json("about")).transpose()
}

/// The blob with these files, if some version with them is approved.
pub async fn approved_archive(tx: &mut TeamTx<'_>, digest: &str) -> Result<Option<(String, u64)>, DbError> {
    let sql = "SELECT b.sha256, b.size FROM skills s JOIN blobs b ON b.team_id = s.team_id AND b.sha256 = s.archive \
               WHERE s.team_id = $1 AND s.digest = $2 AND s.state = 'approved' LIMIT 1";
    tx.row(sql, args![digest]).await?.map(|row| Ok((row.text("sha256")?, row.count("size")?))).transpose()
}

/// Versions, the newest first.
pub async fn list(tx: &mut TeamTx<'_>, after: Option<&SkillId>, limit: u64) -> Result<Vec<LibrarySkill>, DbError> {
    let after = after.map(|id| id.as_str().to_owned());
    let sql = select!("WHERE s.team_id = $1 AND ($2 IS NULL OR s.skill_id < $2) ORDER BY s.skill_id DESC LIMIT $3 + 0");
    tx.rows(sql, args![after, limit]).await?.iter().map(skill).collect()
}

/// Versions of one name, the newest first.
pub async fn of_name(tx: &mut TeamTx<'_>, name: &str, limit: u64) -> Result<Vec<LibrarySkill>, DbError> {
    let sql = select!("WHERE s.team_id = $1 AND s.name = $2 ORDER BY s.skill_id DESC LIMIT $3 + 0");
    tx.rows(sql, args![name, limit]).await?.iter().map(skill).collect()
}

/// What versions of one name, or of all, are: the newest first, at most `limit`. Without texts, so that all can be compared
/// with what vibers have.
pub async fn versions(tx: &mut TeamTx<'_>, name: Option<&str>, limit: u64) -> Result<Vec<SkillVersion>, DbError> {
    let sql = "SELECT s.skill_id, s.name, s.version, s.digest, s.state FROM skills s WHERE s.team_id = $1 \
               AND ($2 IS NULL OR s.name = $2) ORDER BY s.skill_id DESC LIMIT $3 + 0";
    let version = |row: &Row| {
        Ok(SkillVersion {
            id: row.parse("skill_id")?,
            name: row.text("name")?,
            version: row.optional_text("version")?,
            digest: row.text("digest")?,
            state: row.parse("state")?,
        })
    };
    tx.rows(sql, args![name, limit]).await?.iter().map(version).collect()
}

/// What a search compares of each version: its texts, in lower case. The newest first.
pub async fn searched_texts(tx: &mut TeamTx<'_>, limit: u64) -> Result<Vec<(SkillId, String)>, DbError> {
    let sql = "SELECT s.skill_id, s.name, s.description, s.version, s.adder, s.digest FROM skills s \
               WHERE s.team_id = $1 ORDER BY s.skill_id DESC LIMIT $2 + 0";
    let text = |row: &Row| {
        let version = row.optional_text("version")?.unwrap_or_default();
        let texts =
            [row.text("name")?, row.text("description")?, version, row.text("adder")?, row.text("digest")?].join(" ");
        Ok::<_, DbError>((row.parse("skill_id")?, fold(&texts)))
    };
    tx.rows(sql, args![limit]).await?.iter().map(text).collect()
}

/// How many versions there are.
pub async fn count(tx: &mut TeamTx<'_>) -> Result<u64, DbError> {
    tx.row("SELECT COUNT(*) AS n FROM skills WHERE team_id = $1", &[]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Records a decision about the version with these files; `false`: there is none.
pub async fn review(tx: &mut Change<'_>, id: &SkillId, digest: &str, review: &SkillReview) -> Result<bool, DbError> {
    let sql = "UPDATE skills SET state = $4, reviewed_by = $5, reviewer = $6, reviewed_at = $7, note = $8 \
               WHERE team_id = $1 AND skill_id = $2 AND digest = $3";
    let (by, name) = (review.by.clone(), review.reviewer.clone());
    let args = args![id, digest, review.state.as_str(), by, name, review.at, &review.note];
    Ok(tx.execute(sql, args).await? > 0)
}

/// Deletes a version. Its blob goes later, when no other version has it.
pub async fn delete(tx: &mut Change<'_>, id: &SkillId) -> Result<bool, DbError> {
    Ok(tx.execute("DELETE FROM skills WHERE team_id = $1 AND skill_id = $2", args![id]).await? > 0)
}

fn skill(row: &Row) -> Result<LibrarySkill, DbError> {
    let state: SkillReviewState = row.parse("state")?;
    Ok(LibrarySkill {
        id: row.parse("skill_id")?,
        name: row.text("name")?,
        description: row.text("description")?,
        version: row.optional_text("version")?,
        origin: row.parse("source")?,
        reference: row.optional_text("reference")?,
        digest: row.text("digest")?,
        archive: row.text("archive")?,
        size: row.count("size")?,
        findings: row.count("findings")?,
        review: SkillReview {
            state,
            by: row.optional_text("reviewed_by")?,
            reviewer: row.optional_text("reviewer")?,
            at: row.optional_instant("reviewed_at")?,
            note: row.text("note")?,
        },
        added_by: row.text("added_by")?,
        adder: row.text("adder")?,
        added_at: row.instant("added_at")?,
    })
}
