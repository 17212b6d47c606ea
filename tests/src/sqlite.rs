//! Files of SQLite whose schema is the newest already.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Names a folder that is there for the whole run (`scripts/with-postgres`).
const FOLDER_VARIABLE: &str = "BOARD_TEST_SCHEMAS";

/// Puts a database there whose schema is the newest, and nothing in it: a copy of one that the run's first caller made. A
/// test that runs by itself gets none, and its Board makes its own.
pub async fn put_schema(path: &Path) {
    let Some(folder) = env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    let schema = folder.join("board.db");
    if !schema.exists() {
        // Another test may do the same at this moment; either is as good.
        let draft = folder.join(format!("{}.db", uuid::Uuid::now_v7()));
        let db = server::db::Db::open(&format!("sqlite://{}", draft.display())).await.expect("the newest schema");
        db.close().await;
        fs::rename(draft, &schema).expect("a named file");
    }
    fs::copy(schema, path).expect("a copied file");
}
