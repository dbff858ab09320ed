//! What the model is told of each tool. A change here changes the tools block of every conversation.

use super::{ToolLimits, capture, read, search};
use crate::model::ToolSpec;
use serde_json::{Value, json};

fn spec(name: &str, description: String, required: &[&str], properties: Value) -> ToolSpec {
    let parameters =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    ToolSpec { name: name.to_owned(), description, parameters }
}

/// Every tool, in the order of the tools block.
pub(super) fn all(limits: ToolLimits) -> Vec<ToolSpec> {
    let text = |about: &str| json!({"type": "string", "description": about});
    let number = |about: &str| json!({"type": "integer", "minimum": 1, "description": about});
    let flag = |about: &str| json!({"type": "boolean", "description": about});
    let path = || text("Path of the file, relative to the working directory");
    vec![
        spec(
            "read",
            format!(
                "Read a text file. Each line comes with its number. At most {} lines and {} KiB a call; use offset and \
                 limit for more.",
                read::LINES_DEFAULT,
                read::OUTPUT_MAX_BYTES >> 10
            ),
            &["path"],
            json!({"path": path(), "offset": number("First line, from 1"), "limit": number("Most lines")}),
        ),
        spec(
            "write",
            "Write a whole file: it is created with its folders, or replaced.".to_owned(),
            &["path", "content"],
            json!({"path": path(), "content": text("The whole content")}),
        ),
        spec(
            "edit",
            "Replace text in a file. oldText must stand in the file exactly, white space included, and only once unless \
             replaceAll is true."
                .to_owned(),
            &["path", "oldText", "newText"],
            json!({"path": path(), "oldText": text("The text to replace"), "newText": text("What to put there"),
                   "replaceAll": flag("Replace every place")}),
        ),
        spec(
            "bash",
            format!(
                "Run a command with bash in the working directory. Output and errors come together; the middle of more \
                 than {} KiB is left out. Each call is a new shell, and whatever it leaves running is killed when it \
                 ends. Only the Sandbox can be written.",
                (capture::HEAD_BYTES + capture::TAIL_BYTES) >> 10
            ),
            &["command"],
            json!({"command": text("The command"), "timeout": number(&format!(
                "Seconds until it is killed; {} when absent, at most {}",
                limits.bash_default.as_secs(), limits.bash_max.as_secs()))}),
        ),
        spec(
            "grep",
            format!(
                "Search file contents with a regular expression, in path order, ignored files left out. At most {} lines.",
                search::LINES_MAX
            ),
            &["pattern"],
            json!({"pattern": text("Regular expression, as ripgrep reads it"),
                   "path": text("File or folder to search; the working directory when absent"),
                   "glob": text("Only files that match, like *.rs or src/**/*.ts"),
                   "ignoreCase": flag("Ignore case")}),
        ),
        spec(
            "glob",
            format!(
                "Find files by name, in path order, ignored files left out. A pattern without / matches in every folder. \
                 At most {} lines.",
                search::LINES_MAX
            ),
            &["pattern"],
            json!({"pattern": text("Like *.rs or src/**/*.ts"),
                   "path": text("Folder to search; the working directory when absent")}),
        ),
    ]
}
