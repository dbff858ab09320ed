//! The `jr2-harness` command.

fn main() -> std::process::ExitCode {
    jr2_harness::command::main()
}
