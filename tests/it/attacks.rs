//! What attackers try: the cases A01 and up of the register (`cases.rs`). Each case asserts its expected result.

mod browser;
mod content;
mod files;
mod http;
mod input;
mod keys;
mod login;
pub mod page_watch;
mod provider_keys;
mod teams;
mod viber;

/// Something that the API showed, without what has nothing to do with it: whether its viber is here right now.
fn without_contact(mut value: serde_json::Value) -> serde_json::Value {
    match &mut value {
        serde_json::Value::Object(fields) => {
            fields.remove("contact");
            fields.values_mut().for_each(|field| *field = without_contact(field.take()));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| *item = without_contact(item.take())),
        _ => {}
    }
    value
}
