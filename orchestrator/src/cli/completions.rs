//! `jr2 completions`: for shells.

use super::exit::Exit;
use clap::{Args, CommandFactory};

const EXAMPLES: &str = "Examples:
  jr2 completions bash > ~/.local/share/bash-completion/completions/jr2
  jr2 completions zsh > ~/.zfunc/_jr2
  jr2 completions fish > ~/.config/fish/completions/jr2.fish";

/// Print completions for a shell.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Completions {
    /// Runs the command.
    pub fn run<C: CommandFactory>(self) -> Exit {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "jr2", &mut text);
        super::output::data(&String::from_utf8_lossy(&text));
        Exit::Ok
    }
}
