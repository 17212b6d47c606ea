//! The Board's requests about MCP servers: `mcp.list`, and `mcp.test {name}`, which connects to one.

use serde_json::{Value, json};

use crate::mesh::Mesh;

/// Answers a request about MCP servers.
pub async fn answer(mesh: &Mesh, method: &str, params: &Value) -> Result<Value, String> {
    match method {
        "mcp.list" => Ok(json!({ "items": mesh.mcp().report() })),
        "mcp.test" => {
            let name = params["name"].as_str().ok_or("bad_request: it names no server")?;
            let shown = protocol::text::head(name, 80);
            if !mesh.files().borrow().config.mcp.contains_key(name) {
                return Err(format!("not_found: there is no MCP server {shown} on this viber"));
            }
            let tested = mesh.mcp().test(name).await?;
            serde_json::to_value(tested).map_err(|error| error.to_string())
        }
        _ => Err(format!("{} is not built on this viber", protocol::text::head(method, 64))),
    }
}
