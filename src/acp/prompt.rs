//! What a client says, as the text of one message.

use agent_client_protocol::v1::schema as s;

use super::fault::Fault;

/// Reads the blocks of a prompt, one line feed between two.
pub(super) fn text_of(blocks: Vec<s::ContentBlock>) -> Result<String, Fault> {
    if blocks.is_empty() {
        return Err(Fault::params("INVALID_PROMPT", "the prompt has no content"));
    }
    let mut text = String::new();
    for (index, block) in blocks.into_iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        match block {
            s::ContentBlock::Text(part) => text.push_str(&part.text),
            s::ContentBlock::ResourceLink(link) => text.extend(["[", &*link.name, "](", &*link.uri, ")"]),
            s::ContentBlock::Resource(s::EmbeddedResource { resource: s::EmbeddedResourceResource::TextResourceContents(resource), .. }) => {
                text.extend([&*resource.uri, ":\n", &*resource.text]);
            }
            _ => return Err(Fault::params("INVALID_PROMPT", format!("block {index} of the prompt is neither text, a link, nor a resource of text"))),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: serde_json::Value) -> Result<String, Fault> {
        text_of(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn text_links_and_resources_of_text_become_one_message_and_nothing_else_does() {
        let link = serde_json::json!({"type": "resource_link", "name": "a.rs", "uri": "file:///a.rs"});
        let resource = serde_json::json!({"type": "resource", "resource": {"uri": "file:///b.rs", "text": "fn b() {}"}});
        let said = text(serde_json::json!([{"type": "text", "text": "Look at"}, link, resource])).unwrap();
        assert_eq!(said, "Look at\n[a.rs](file:///a.rs)\nfile:///b.rs:\nfn b() {}");
        let blob = serde_json::json!([{"type": "resource", "resource": {"uri": "file:///c", "blob": "AA=="}}]);
        let image = serde_json::json!([{"type": "image", "data": "AA==", "mimeType": "image/png"}]);
        for refused in [blob, image, serde_json::json!([])] {
            assert_eq!(text(refused).unwrap_err().data["code"], "INVALID_PROMPT");
        }
    }
}
