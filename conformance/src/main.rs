//! The `jr2-conformance` command.

use clap::{Parser, Subcommand};
use jr2_conformance::model::{Options, Script, ScriptedModel};
use miette::IntoDiagnostic;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Judges jr2 builds over their wires.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a scripted model: an OpenAI-compatible server that follows a script file.
    ///
    /// Prints one JSON line with its address on stdout, then serves until it is ended.
    Model {
        /// The script (JSON).
        #[arg(long)]
        script: PathBuf,
        /// Where to listen; port 0 takes a free one.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Append one JSON line per request here, synced before the answer leaves.
        #[arg(long)]
        record: Option<PathBuf>,
    },
}

fn main() -> miette::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match Arguments::parse().command {
        Command::Model { script, listen, record } => {
            let script = Script::load(&script).into_diagnostic()?;
            let model = ScriptedModel::start_with(script, &Options { listen, record }).into_diagnostic()?;
            print_line(&serde_json::json!({"url": model.url(), "address": model.address()}))?;
            model.wait();
        }
    }
    Ok(())
}

/// One JSON line on stdout, flushed: whoever started this waits for it.
fn print_line(value: &serde_json::Value) -> miette::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").into_diagnostic()?;
    out.flush().into_diagnostic()
}
