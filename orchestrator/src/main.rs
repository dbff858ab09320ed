//! The `jr2` command.

fn main() -> std::process::ExitCode {
    jr2_orchestrator::cli::main()
}
