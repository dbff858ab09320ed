//! `jr2` and `jr2-harness` in one file, told apart by the name it is started under: built together with the crash-point
//! test, they have the crash points whatever else lies in the target folder.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == "jr2-harness") {
        jr2_harness::command::main()
    } else {
        jr2_orchestrator::cli::main()
    }
}
